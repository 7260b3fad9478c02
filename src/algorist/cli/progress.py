"""Progress for people: bars on a terminal, plain lines elsewhere; always on standard error."""

import time
from collections.abc import Mapping
from typing import final

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TaskID,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)

from algorist.cli.common import say

_PLAIN_EVERY_S = 5.0
_NAMES = {"sft": "fine-tuning", "rl": "reinforcement learning", "evaluate": "evaluation"}
_SHORT_NAMES = {"sft": "SFT", "rl": "RL", "evaluate": "eval"}
_NARROW = 112
"""Columns below which names are short and figures fewer: a wrapped or cut bar says nothing."""


@final
class Terminal:
    """A listener that draws. Use it as a context manager."""

    def __init__(self, *, force_plain: bool = False) -> None:
        self.console = Console(stderr=True, highlight=False, soft_wrap=True)
        self.plain = force_plain or not self.console.is_terminal
        self._tasks: dict[str, TaskID] = {}
        self._totals: dict[str, int] = {}
        self._last = 0.0
        self.narrow = self.console.width < _NARROW
        numbers = TextColumn("{task.fields[numbers]}")
        wide = (
            TextColumn("{task.description:<24}"),
            BarColumn(bar_width=28),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            TextColumn("left"),
            TimeRemainingColumn(),
            numbers,
        )
        short = (
            TextColumn("{task.description:<4}"),
            BarColumn(bar_width=12),
            MofNCompleteColumn(),
            TimeRemainingColumn(compact=True, elapsed_when_finished=True),
            numbers,
        )
        self._progress = Progress(*(short if self.narrow else wide), console=self.console)

    def __enter__(self) -> "Terminal":
        if not self.plain:
            self._progress.start()
        return self

    def __exit__(self, *_: object) -> None:
        if not self.plain:
            self._progress.stop()

    def begin(self, stage: str, total: int) -> None:
        """A stage of `total` steps starts."""
        self._totals[stage] = total
        if self.plain:
            say(f"{_NAMES.get(stage, stage)}: {total} steps")
        else:
            names = _SHORT_NAMES if self.narrow else _NAMES
            self._tasks[stage] = self._progress.add_task(names.get(stage, stage), total=total, numbers="")

    def advance(self, stage: str, done: int, numbers: Mapping[str, float | str]) -> None:
        """`done` steps are finished; a plain line at most every few seconds, and for the first and last step."""
        shown = list(numbers.items())[: 3 if self.narrow and not self.plain else None]
        text = "  ".join(f"{name} {_short(value)}" for name, value in shown)
        if not self.plain:
            self._progress.update(self._tasks[stage], completed=done, numbers=text)
            return
        now = time.monotonic()
        if done in (1, self._totals[stage]) or now - self._last >= _PLAIN_EVERY_S:
            self._last = now
            say(f"{_NAMES.get(stage, stage)} {done}/{self._totals[stage]}  {text}")

    def say(self, message: str) -> None:
        """One line."""
        if self.plain:
            say(message)
        else:
            self._progress.console.print(message, markup=False)


def _short(value: float | str) -> str:
    if isinstance(value, str):
        return value
    return f"{value:.3g}" if abs(value) < 1000 else f"{value:.0f}"
