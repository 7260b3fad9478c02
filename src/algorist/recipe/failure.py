"""All that is wrong with a recipe, told at once."""

from __future__ import annotations

from collections.abc import Sequence

from algorist.errors import RecipeError


class RecipeErrors(RecipeError):
    """Several wrong lines of one recipe; exit code 2 like one."""

    def __init__(self, errors: Sequence[RecipeError]) -> None:
        self.errors = tuple(errors)
        first = self.errors[0]
        super().__init__("", path=first.path, line=first.line)
        self.args = ("\n".join(str(error) for error in self.errors),)


def raise_all(errors: Sequence[RecipeError]) -> None:
    """Raise nothing for none, the error itself for one, all of them together for more."""
    if len(errors) == 1:
        raise errors[0]
    if errors:
        raise RecipeErrors(errors)
