"""Whatever stands in a recipe file, the answer is a recipe or a RecipeError with a place; never another exception."""

import json
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

from hypothesis import given, settings
from hypothesis import strategies as st

from algorist.digest import JSON
from algorist.errors import RecipeError
from algorist.recipe.failure import RecipeErrors
from algorist.recipe.load import load

ROOT = Path(__file__).parents[2]
NANO = ROOT / "recipes" / "nano" / "arithmetic.yaml"
TEXT = NANO.read_text(encoding="utf-8")


def error_of(path: Path, *overrides: str) -> RecipeError | None:
    """What is wrong with a recipe; None where nothing is. Any other exception fails the test."""
    try:
        load(path, overrides)
    except RecipeError as error:
        return error
    return None


def answer(text: str) -> str:
    """'' for a recipe, else the messages, each of which must name the file."""
    with TemporaryDirectory() as folder:
        path = Path(folder) / "r.yaml"
        path.write_text(text, encoding="utf-8", newline="")
        error = error_of(path)
        if error is None:
            return ""
        parts = error.errors if isinstance(error, RecipeErrors) else (error,)
        assert all(part.path == path for part in parts), str(error)
        return str(error)


def leaves(value: JSON, at: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    yield at
    if isinstance(value, dict):
        for key, item in value.items():
            yield from leaves(item, (*at, key))
    elif isinstance(value, list):
        for index, item in enumerate(value):
            yield from leaves(item, (*at, str(index)))


KEYS = sorted(".".join(at) for at in leaves(json.loads(load(NANO).canonical_json)) if at)
ODD = ["null", "true", "-1", "0", "1", "3.5", "1e9", "1e-9", "x", "''", "[]", "[1]", "[[1]]", "{}", "{a: 1}",
       "{name: grpo}", "{kind: jsonl}", "12345678901234567890", ".nan", "'\\u0000'"]  # fmt: skip


@settings(max_examples=200, deadline=None)
@given(st.sampled_from(KEYS), st.sampled_from(ODD))
def test_any_odd_value_under_any_key_is_answered_with_its_key(key: str, value: str) -> None:
    error = error_of(NANO, f"{key}={value}")
    if error is not None:
        assert str(error)
        assert "pydantic" not in str(error)
        assert "Input should" not in str(error)


@settings(max_examples=100, deadline=None)
@given(st.integers(0, len(TEXT) - 1), st.integers(0, 6), st.text("\t :-{}[]#'\"\n&*!|>%@?,01ax", max_size=4))
def test_any_small_edit_of_a_recipe_is_a_recipe_or_a_placed_error(at: int, cut: int, insert: str) -> None:
    answer(TEXT[:at] + insert + TEXT[at + cut :])


@settings(max_examples=60, deadline=None)
@given(st.text(max_size=40))
def test_any_text_is_a_recipe_or_a_placed_error(text: str) -> None:
    assert answer(text), "no text this short is a whole recipe"


def test_deep_nesting_is_a_placed_error() -> None:
    assert "r.yaml" in answer("[" * 5_000)
    assert "r.yaml" in answer("name: " + "{a: " * 3_000 + "1" + "}" * 3_000)
