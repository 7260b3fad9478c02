"""The generated pages are current, and every name in them exists."""

import re
from pathlib import Path

from algorist import paper
from algorist.objective import document
from algorist.objective.equations import EQUATIONS
from algorist.objective.registry import METHODS

ROOT = Path(__file__).resolve().parents[2]


def test_paper_and_algorithms_pages_are_current() -> None:
    assert document.main(["--check", str(ROOT / "docs")]) == 0


def test_every_equation_from_1_to_21_has_a_row_and_an_oracle() -> None:
    numbers = {int(n) for equation in EQUATIONS for n in re.findall(r"\((\d+)\)", equation.label)}
    assert numbers == set(range(1, 22))
    assert {f"eq_{n}" for n in numbers} <= set(vars(paper))
    assert {"4.1.2", "4.1.3", "Algorithm 1"} <= {equation.label for equation in EQUATIONS}


def test_every_test_that_the_page_names_exists() -> None:
    for equation in EQUATIONS:
        assert equation.tests
        for name in equation.tests:
            file, _, function = name.rpartition("::")
            path = ROOT / "tests" / (file or "objective/test_contract.py")
            assert f"def {function}(" in path.read_text(encoding="utf-8"), name


def test_every_method_has_its_section_and_its_row() -> None:
    page = (ROOT / "docs" / "algorithms.md").read_text(encoding="utf-8")
    for name in METHODS:
        assert f"### {name}\n" in page
        assert f"[{name}](#{name})" in page


def test_a_stale_page_is_found_and_named(tmp_path: Path, capsys: object) -> None:
    document.main([str(tmp_path)])
    assert document.main(["--check", str(tmp_path)]) == 0
    (tmp_path / "paper.md").write_text("old", encoding="utf-8")
    assert document.main(["--check", str(tmp_path)]) == 1
