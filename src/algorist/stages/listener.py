"""What a loop tells whoever watches: the terminal, a test, nobody."""

from collections.abc import Mapping
from typing import Protocol, final


class Listener(Protocol):
    """Hears about progress. Must not change anything."""

    def begin(self, stage: str, total: int) -> None:
        """A stage of `total` steps starts."""

    def advance(self, stage: str, done: int, numbers: Mapping[str, float | str]) -> None:
        """`done` of them are finished; `numbers` are the figures worth showing."""

    def say(self, message: str) -> None:
        """One line for people."""


@final
class Silent:
    """Hears and says nothing."""

    def begin(self, stage: str, total: int) -> None:
        """Nothing."""

    def advance(self, stage: str, done: int, numbers: Mapping[str, float | str]) -> None:
        """Nothing."""

    def say(self, message: str) -> None:
        """Nothing."""
