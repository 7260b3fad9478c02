"""`algorist why RUN`: what happened to a run, why, and what to do next, in words."""

import argparse
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from algorist.cli.common import add_json, emit


def add_parser(subparsers: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Register the verb."""
    text = "say in words why a run is or is not qualified, and what to do next"
    parser = subparsers.add_parser("why", help=text, description=text)
    parser.add_argument("run", type=Path, help="a run folder, finished or not, or an export or checkpoint in it")
    add_json(parser)
    parser.set_defaults(func=why_verb)


def why_verb(arguments: argparse.Namespace) -> int:
    """Exit code 0 whatever the status: the question was answered."""
    from algorist.qualify.why import why

    found = why(arguments.run)
    if arguments.json:
        emit(found.to_json())
        return 0
    print(f"{found.run}: {found.status}")
    for reason in found.reasons:
        print(f"  because {reason}")
    print("what happened:")
    for line in found.events:
        print(f"  {line}")
    _print_gates(found.gates)
    print(f"next: {found.remedy}")
    for command in found.commands:
        print(f"  $ {command}")
    return 0


def _print_gates(gates: tuple[Mapping[str, Any], ...]) -> None:
    """What passed in one line, what did not each with its figures, what was not judged in one line."""
    named = {verdict: [g["name"] for g in gates if g["verdict"] == verdict] for verdict in ("passed", "missing")}
    if gates:
        print("gates:")
    for verdict, label in (("passed", "passed"), ("missing", "not judged")):
        if named[verdict]:
            print(f"  {label}: {', '.join(named[verdict])}")
    for gate in gates:
        if gate["verdict"] not in named:
            value = "" if gate.get("value") is None else f" {gate['value']:.4g} {gate.get('unit') or ''}".rstrip()
            bound = "" if gate.get("threshold") is None else f", threshold {gate['threshold']:.4g}"
            cause = f" ({gate['cause']})" if gate.get("cause") else ""
            print(f"  {gate['verdict']}: {gate['name']}{':' if value else ''}{value}{bound}{cause}")
