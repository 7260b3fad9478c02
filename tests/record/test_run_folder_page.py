"""docs/run_folder.md describes the files as they are."""

import doctest
import re
from pathlib import Path

from algorist.record.ledger import EventKind
from algorist.record.rollouts import SCHEMA

PAGE = Path(__file__).resolve().parents[2] / "docs" / "run_folder.md"


def test_its_examples_run() -> None:
    failed, attempted = doctest.testfile(str(PAGE), module_relative=False)
    assert (failed, attempted > 5) == (0, True)


def test_it_lists_every_column_and_every_kind_of_event() -> None:
    text = PAGE.read_text(encoding="utf-8")
    named = set(re.findall(r"`([a-z_]+)`", text))
    assert {field.name for field in SCHEMA} <= named
    assert all(str(kind) in text for kind in EventKind)
