"""`algorist receipt show|check|new-key`: read receipts, check them, make a key to sign them with."""

import argparse
from pathlib import Path

from algorist.cli.common import add_json, emit


def add_parser(subparsers: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Register the verb."""
    text = "show or check the receipts of a run, or make a signing key"
    parser = subparsers.add_parser("receipt", help=text, description=text)
    verbs = parser.add_subparsers(dest="receipt_verb", required=True, metavar="show|check|new-key")
    show = verbs.add_parser("show", help="print the last receipt's statement")
    show.add_argument("run", type=Path, help="a run folder")
    check = verbs.add_parser("check", help="check names, order, signatures and digests; computes nothing again")
    check.add_argument("run", type=Path, help="a run folder, or an export copied away from one")
    check.add_argument("--key", type=Path, help="public key that must have signed every receipt")
    check.add_argument("--receipt", type=Path, help="for an export copied away: the receipt of its run")
    new = verbs.add_parser("new-key", help="make an Ed25519 key pair: FILE (keep it secret) and FILE.pub")
    new.add_argument("file", type=Path, help="a new file")
    for verb, function in ((show, show_verb), (check, check_verb), (new, new_key_verb)):
        add_json(verb)
        verb.set_defaults(func=function)


def show_verb(arguments: argparse.Namespace) -> int:
    """Print the statement inside the envelope."""
    import base64
    import json

    from algorist.errors import InputError
    from algorist.qualify.receipt import existing
    from algorist.record.run_folder import RunFolder

    found = existing(RunFolder.open(arguments.run))
    if not found:
        raise InputError(f"{arguments.run}: has no receipt yet; one is written when a run ends. See: algorist why RUN")
    try:
        statement = json.loads(base64.b64decode(json.loads(found[-1].read_bytes())["payload"]))
    except (ValueError, KeyError, TypeError) as error:
        raise InputError(
            f"{found[-1]}: is not a receipt ({error}). See: algorist receipt check {arguments.run}"
        ) from error
    if arguments.json:
        emit(statement)
    else:
        print(json.dumps(statement, indent=2, ensure_ascii=False))
    return 0


def check_verb(arguments: argparse.Namespace) -> int:
    """What `python check.py RUN|EXPORT` does. Exit code 4 where something does not hold, 2 where no receipt speaks for a run yet."""
    from algorist.errors import InputError
    from algorist.launch.audit import run_of
    from algorist.qualify.check import look, read_key, walk

    place = run_of(arguments.run)
    try:
        key = read_key(arguments.key) if arguments.key else None
    except (OSError, ValueError) as error:
        raise InputError(f"{arguments.key}: must be an Ed25519 public key, hexadecimal or PEM: {error}") from error
    if arguments.receipt is not None and not arguments.receipt.is_file():
        raise InputError(f"{arguments.receipt}: must be a receipt of the export's run, there is no such file")
    parts = look(walk(place), key, arguments.receipt)
    problems = [problem for part in parts.values() for problem in part.problems]
    silent = next((p.looked_at for n, p in parts.items() if n in ("receipts", "receipt") and p.skipped), "")
    if arguments.json:
        emit({"run": str(place), "ok": not problems, "problems": problems, "silent": silent})
    else:
        print("\n".join(problems) or silent or "all receipts hold")
    return 4 if problems else 2 if silent and "receipts" in parts else 0


def new_key_verb(arguments: argparse.Namespace) -> int:
    """Write FILE (mode 0600) and FILE.pub; neither may exist."""
    from algorist.qualify.receipt import KEY_VARIABLE, new_key

    public = new_key(arguments.file)
    if arguments.json:
        emit({"private": str(arguments.file), "public": f"{arguments.file}.pub", "public_hex": public.hex()})
    else:
        print(f"{arguments.file}: sign with it: export {KEY_VARIABLE}={arguments.file}")
        print(f"{arguments.file}.pub: give it to those who check: algorist audit RUN --key {arguments.file}.pub")
    return 0
