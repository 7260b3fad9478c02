"""`algorist report RUN`: build report.html from what a run folder holds."""

import argparse
from pathlib import Path

from algorist.cli.common import add_json, emit


def add_parser(subparsers: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Register the verb."""
    text = "build a run's report.html and print its table"
    parser = subparsers.add_parser("report", help=text, description=text)
    parser.add_argument("run", type=Path, help="a run folder, finished or not")
    add_json(parser)
    parser.set_defaults(func=report_verb)


def report_verb(arguments: argparse.Namespace) -> int:
    """Build, and say where it is."""
    from algorist.record.run_folder import RunFolder
    from algorist.report import build, summary_table

    folder = RunFolder.open(arguments.run)
    page = build(folder.root)
    if arguments.json:
        emit({"run": str(folder.root), "report": str(page), "bytes": page.stat().st_size})
        return 0
    from rich.console import Console

    Console().print(summary_table(folder.root))
    print(f"report: {page}")
    return 0
