"""Every command and every Python block of README.md and docs/ is run, in order, page by page.

A page is read from top to bottom in one new folder that holds a copy of `recipes/`. In its code blocks

    ```console          lines that begin with "$ " are run by bash ("> " lines continue them); the exit code must be 0, and the lines
                        below a command must appear in what it printed, in this order. Numbers and spaces are not compared,
                        "..." stands for anything.
    ```python           is run as a program; `>>>` blocks are doctests.

A comment on the line before a block changes that:

    <!-- file: NAME -->       the block is written to this file and not run
    <!-- slow -->             run only with ALGORIST_SLOW=1
    <!-- exit: N -->          the commands end with this exit code
    <!-- not run: WHY -->     not run, with the reason for the reader of the source

`make ...`, `git clone ...` and `cd ...` are run by .ci/run, from a fresh clone, and `python benchmarks/...` by `make bench`; not here.
"""

import doctest
import os
import random
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
SLOW = os.environ.get("ALGORIST_SLOW") == "1"
_BY_CI = ("make", "git clone", "cd ", "python benchmarks/")
_COMMENT = re.compile(r"<!-- (file|slow|exit|not run)(?:: ([^>]*?))? ?-->")


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """One fenced block."""

    language: str
    text: str
    line: int
    mark: str
    """file, slow, exit, not run, or ''."""
    value: str
    """What the mark says."""


def blocks(page: Path) -> Iterator[Block]:
    """Fenced blocks of a page with the comment before each."""
    lines = page.read_text(encoding="utf-8").splitlines()
    at = 0
    while at < len(lines):
        if lines[at].startswith("```") and len(lines[at]) > 3:
            end = next(i for i in range(at + 1, len(lines)) if lines[i].startswith("```"))
            found = _COMMENT.fullmatch(lines[at - 1].strip()) if at else None
            yield Block(
                language=lines[at][3:].strip(),
                text="\n".join(lines[at + 1 : end]) + "\n",
                line=at + 1,
                mark=found[1] if found else "",
                value=(found[2] or "").strip() if found else "",
            )
            at = end
        at += 1


def commands(text: str) -> Iterator[tuple[str, list[str]]]:
    """(command, lines below it) of a console block."""
    command, shown = "", list[str]()
    for line in text.splitlines():
        if line.startswith("$ "):
            if command:
                yield command, shown
            command, shown = line[2:], []
        elif line.startswith("> ") and not shown:
            command += "\n" + line[2:]
        elif line.strip():
            shown.append(line)
    if command:
        yield command, shown


def plain(text: str) -> str:
    """Without numbers, digests, rules and spaces, which differ from machine to machine."""
    text = re.sub(r"\b[0-9a-f]{12,64}\b", "#", text)
    text = re.sub(r"[-+]?\d[\d,.]*(e[-+]?\d+)?", "#", text)
    return re.sub(r"[\s─━│┃┏┓┗┛┡┩├┤└┘┼╇┳┻]+", " ", text).strip()


def shows(output: str, expected: list[str]) -> str | None:
    """The first expected line that the output lacks, in order; None where all are there."""
    rest = plain(output)
    for line in expected:
        pattern = ".*?".join(re.escape(plain(part)) for part in line.split("..."))
        found = re.search(pattern, rest)
        if found is None:
            return line
        rest = rest[found.end() :]
    return None


@pytest.fixture(scope="module")
def tools(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder for PATH with `algorist` and `python` of this environment."""
    folder = tmp_path_factory.mktemp("bin")
    for name, call in (("algorist", "-m algorist"), ("python", "")):
        file = folder / name
        file.write_text(f'#!/bin/sh\nexec "{sys.executable}" {call} "$@"\n')
        file.chmod(0o755)
    return folder


def shell(command: str, place: Path, tools: Path) -> "subprocess.CompletedProcess[str]":
    env = {
        **os.environ,
        "PATH": f"{tools}{os.pathsep}{os.environ['PATH']}",
        "PYTHONPATH": str(ROOT / "src"),
        "COLUMNS": "120",
        "TERM": "dumb",
        "NO_COLOR": "1",
    }
    # one core: on a machine that other tests keep busy, threads that wait for each other are many times slower
    core = random.choice(sorted(os.sched_getaffinity(0)))
    pinned = f"import os, sys; os.sched_setaffinity(0, [{core}]); os.execvp('bash', ['bash', '-euo', 'pipefail', '-c', sys.argv[1]])"
    return subprocess.run(
        [sys.executable, "-c", pinned, command],
        cwd=place, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=1500, check=False,
    )  # fmt: skip


def run_block(block: Block, place: Path, tools: Path, where: str) -> None:
    """Run one block of a page."""
    if block.mark == "not run" or (block.mark == "slow" and not SLOW):
        return
    if block.mark == "file":
        (place / block.value).parent.mkdir(parents=True, exist_ok=True)
        (place / block.value).write_text(block.text, encoding="utf-8")
    elif block.language in ("console", "bash"):
        for command, expected in commands(block.text):
            if command.startswith(_BY_CI):
                continue
            done = shell(command, place, tools)
            wanted = int(block.value) if block.mark == "exit" else 0
            assert done.returncode == wanted, f"{where}: $ {command}\nexit code {done.returncode}:\n{done.stdout}"
            missing = shows(done.stdout, expected)
            assert missing is None, (
                f"{where}: $ {command}\nthe page shows {missing!r}, the command printed:\n{done.stdout}"
            )
    elif block.language == "python" and block.text.lstrip().startswith(">>>"):
        test = doctest.DocTestParser().get_doctest(block.text, {}, where, where, 0)
        runner = doctest.DocTestRunner(optionflags=doctest.NORMALIZE_WHITESPACE | doctest.ELLIPSIS)
        runner.run(test)
        assert runner.summarize(verbose=False).failed == 0, where
    elif block.language == "python":
        (place / ".block.py").write_text(block.text, encoding="utf-8")
        done = shell("python .block.py", place, tools)
        assert done.returncode == 0, f"{where}:\n{done.stdout}"


@pytest.mark.parametrize("page", [pytest.param(p, id=p.relative_to(ROOT).as_posix()) for p in PAGES])
def test_every_command_of_a_page_works_and_prints_what_it_shows(page: Path, tmp_path: Path, tools: Path) -> None:
    shutil.copytree(ROOT / "recipes", tmp_path / "recipes")
    (tmp_path / "docs").mkdir()
    for block in blocks(page):
        run_block(block, tmp_path, tools, f"{page.relative_to(ROOT)}:{block.line}")


@pytest.mark.parametrize("page", [pytest.param(p, id=p.relative_to(ROOT).as_posix()) for p in PAGES])
def test_every_link_and_picture_of_a_page_leads_somewhere(page: Path) -> None:
    text = re.sub(r"```.*?```", "", page.read_text(encoding="utf-8"), flags=re.DOTALL)
    targets = re.findall(r"\]\(([^)#\s]+)[^)]*\)|src=\"([^\"]+)\"", text)
    for target in (a or b for a, b in targets):
        if not re.match(r"[a-z]+:", target):
            assert (page.parent / target).exists(), f"{page.name}: {target}"


@pytest.mark.parametrize(
    ("output", "expected", "missing"),
    [
        ("loss 0.5\nreward  0.25\n", ["loss 0.7", "reward 0.1"], None),
        ("│ greedy │ 10.0% │\n", ["greedy  99.0%"], None),
        ("a\nb\n", ["b", "a"], "a"),
        ("run folder runs/x-2026\n", ["run folder ..."], None),
        ("sha256 b045b3c774ec76c02bddda71\n", ["sha256 ffffffffffffffffffff"], None),
        ("fine\n", ["wrong"], "wrong"),
    ],
)
def test_shown_lines_are_compared_without_numbers_and_in_order(
    output: str, expected: list[str], missing: str | None
) -> None:
    assert shows(output, expected) == missing
