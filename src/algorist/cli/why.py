"""`algorist why RUN`: in words, why a run is or is not qualified."""

import argparse
from pathlib import Path

from algorist.cli.common import add_json, emit


def add_parser(subparsers: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Register the verb."""
    text = "say in words why a run is or is not qualified, and what to do next"
    parser = subparsers.add_parser("why", help=text, description=text)
    parser.add_argument("run", type=Path, help="a run folder, finished or not")
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
    print("gates:")
    for line in found.gates:
        print(f"  {line}")
    print("what happened:")
    for line in found.events:
        print(f"  {line}")
    print(f"next: {found.remedy}")
    return 0
