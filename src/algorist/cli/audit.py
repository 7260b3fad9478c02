"""`algorist audit RUN|EXPORT`: check a run offline from its files, and compute a sample of it again."""

import argparse
from pathlib import Path

from algorist.cli.common import add_json, emit


def add_parser(subparsers: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Register the verb."""
    text = "check a run from its files alone: chain, digests, counts, thresholds, grades, advantages, log-probabilities"
    parser = subparsers.add_parser("audit", help=text, description=text)
    parser.add_argument("run", type=Path, help="a run folder, or the export inside one")
    parser.add_argument("--key", type=Path, help="public key that must have signed every receipt")
    parser.add_argument("--files-only", action="store_true", help="compute nothing again: no model, no problem files")
    parser.add_argument("--sample", type=int, default=4096, help="responses graded again (default: 4096)")
    parser.add_argument("--seed", type=int, help="picks them (default: from the ledger's bytes)")
    add_json(parser)
    parser.set_defaults(func=audit_verb)


def audit_verb(arguments: argparse.Namespace) -> int:
    """Exit code 0 where everything holds, 4 where something does not."""
    import json

    from algorist.cli.run import set_threads
    from algorist.errors import InputError
    from algorist.launch.audit import audit, run_of
    from algorist.qualify.check import read_key

    key = None
    if arguments.key is not None:
        try:
            key = read_key(arguments.key)
        except (OSError, ValueError) as error:
            raise InputError(f"{arguments.key}: must be an Ed25519 public key, hexadecimal or PEM: {error}") from error
    if not arguments.files_only:
        try:
            threads = json.loads((run_of(arguments.run) / "contract.json").read_bytes())["numerics"]["threads"]
        except (OSError, ValueError, KeyError, TypeError):  # the audit itself names what is wrong with the contract
            threads = None
        set_threads(threads)
    found = audit(
        arguments.run, public_key=key, files_only=arguments.files_only, sample=arguments.sample, seed=arguments.seed
    )
    if arguments.json:
        emit(found.to_json())
        return 0 if found.ok else 4
    for check in found.checks:
        print(f"{'-' if check.skipped else 'ok' if check.ok else 'NO':>3}  {check.name}: {check.looked_at}")
        for fault in check.faults:
            print(f"       {fault}")
    print("audit: everything holds" if found.ok else f"audit: {len(found.faults)} faults")
    return 0 if found.ok else 4
