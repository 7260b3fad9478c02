"""`algorist audit RUN|EXPORT`: check a run offline from its files, and compute a sample of it again."""

import argparse
from pathlib import Path

from algorist.cli.common import add_json, emit, say


def add_parser(subparsers: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Register the verb."""
    text = "check a run from its files alone: chain, digests, counts, thresholds, grades, advantages, losses, weights"
    parser = subparsers.add_parser("audit", help=text, description=text)
    parser.add_argument("run", type=Path, help="a run folder, or an export, inside its run or copied away")
    parser.add_argument("--key", type=Path, help="public key that must have signed every receipt")
    parser.add_argument("--receipt", type=Path, help="for an export copied away: the receipt of its run")
    parser.add_argument("--files-only", action="store_true", help="compute nothing again: no model, no problem files")
    parser.add_argument("--sample", type=int, default=4096, help="responses graded again (default: 4096)")
    parser.add_argument("--updates", type=int, default=32, help="most steps trained again (default: 32)")
    parser.add_argument("--seed", type=int, help="picks what is sampled (default: from the ledger's bytes)")
    parser.add_argument(
        "--base", type=Path, help="where the recipe's folder lies now (default: where the run was started)"
    )
    parser.add_argument("--plugin", help="module with the run's own reward; imported only if given here")
    add_json(parser)
    parser.set_defaults(func=audit_verb)


def audit_verb(arguments: argparse.Namespace) -> int:
    """Exit code 0 where nothing stands against the run, 4 where something does."""
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
    for name in ("sample", "updates"):
        if getattr(arguments, name) < 0:
            raise InputError(f"--{name} must be 0 or more, got {getattr(arguments, name)}")
    if not arguments.files_only:
        contract = run_of(arguments.run) / "contract.json"
        try:
            threads = json.loads(contract.read_bytes())["numerics"]["threads"] if contract.is_file() else None
            set_threads(threads if type(threads) is int and 0 < threads < 1024 else None)
        except (OSError, ValueError, LookupError, TypeError, RecursionError):
            set_threads(None)  # the audit itself names what is wrong with the contract
    found = audit(
        arguments.run, public_key=key, receipt=arguments.receipt, files_only=arguments.files_only, sample=arguments.sample,
        updates=arguments.updates, seed=arguments.seed, base=arguments.base, plugin=arguments.plugin, tell=_Told(),
    )  # fmt: skip
    if arguments.json:
        emit(found.to_json())
        return 0 if found.ok else 4
    for check in found.checks:
        print(f"{'-' if check.skipped else 'ok' if check.ok else 'NO':>3}  {check.name}: {check.looked_at}")
        for fault in check.faults:
            print(f"       {fault}")
    if not found.ok:
        print(f"audit: {len(found.faults)} faults")
        return 4
    print(f"audit: everything holds{f'; {len(found.skipped)} checks could not be made (-)' if found.skipped else ''}")
    return 0


class _Told:
    """Says on standard error what an audit is doing, from its third second on and every few seconds."""

    def __init__(self) -> None:
        import time

        self._clock, self._next = time.monotonic, time.monotonic() + 3.0

    def __call__(self, words: str) -> None:
        if self._clock() >= self._next:
            say(f"audit: {words}")
            self._next = self._clock() + 5.0
