"""The arithmetic generator: exact, distinct, worked, the same on every machine."""

import math
import re
from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from algorist.digest import content_id
from algorist.errors import InputError
from algorist.flow import Problem
from algorist.problems.arithmetic import FAMILIES, generate, num_problems, shares, space
from algorist.problems.config import OPERANDS, ArithmeticConfig, FamilyConfig


def problems(name: str, count: int | None = 40, seed: int = 0, **knobs: object) -> list[Problem]:
    return generate(ArithmeticConfig(families=(FamilyConfig(name=name, **knobs),), count=count), seed)  # type: ignore[arg-type]


def calculate(text: str) -> Fraction:
    """An independent reading of sums, products, quotients and parentheses: shunting-yard over exact fractions."""
    values: list[Fraction] = []
    signs: list[str] = []
    rank = {"+": 1, "-": 1, "*": 2, "/": 2, "(": 0}

    def apply() -> None:
        right, left = values.pop(), values.pop()
        sign = signs.pop()
        result = {"+": left + right, "-": left - right, "*": left * right}
        values.append(result[sign] if sign != "/" else left / right)

    for token in re.findall(r"\d+|[-+*/()]", text):
        if token.isdigit():
            values.append(Fraction(token))
        elif token == "(":
            signs.append(token)
        elif token == ")":
            while signs[-1] != "(":
                apply()
            signs.pop()
        else:
            while signs and rank[signs[-1]] >= rank[token]:
                apply()
            signs.append(token)
    while signs:
        apply()
    return values[0]


def test_every_family_of_the_recipe_is_generated() -> None:
    assert tuple(FAMILIES) == tuple(OPERANDS)


@pytest.mark.parametrize(
    "name",
    ["add", "subtract", "multiply", "divide_exact", "chain_sum", "mixed_parentheses", "fraction_add", "column_addition",
     "multiply_partial"],
)  # fmt: skip
def test_golds_of_written_sums_are_exact(name: str) -> None:
    for problem in problems(name, 60):
        assert Fraction(problem.gold) == calculate(problem.question), problem.question


def test_golds_of_the_other_families_are_exact() -> None:
    for name, value in (("gcd", math.gcd), ("lcm", math.lcm)):
        for problem in problems(name):
            a, b = map(int, re.findall(r"\d+", problem.question))
            assert int(problem.gold) == value(a, b)
    for problem in problems("modulo"):
        a, b = map(int, problem.question.split(" mod "))
        assert int(problem.gold) == a - b * math.floor(a / b)
    for problem in problems("compare"):
        assert int(problem.gold) == max(map(int, re.findall(r"\d+", problem.question)))
    for problem in problems("linear_equation"):
        a, b, right = re.fullmatch(r"Solve (\d*)x \+ (\d+) = (\d+) for x\.", problem.question).groups()  # type: ignore[union-attr]
        assert int(a or 1) * int(problem.gold) + int(b) == int(right)


@pytest.mark.parametrize("name", FAMILIES)
def test_worked_solutions_end_in_the_gold_and_state_true_equations(name: str) -> None:
    for problem in problems(name):
        assert re.findall(r"-?\d+(?:/\d+)?", problem.solution)[-1] == problem.gold
        for step in re.split(r"; |, so |,(?! )|:", problem.solution):
            sides = step.split("=")
            if "gcd" in step or "mod" in step or "x" in step or "<" in step or len(sides) < 2:
                continue
            for side in sides[1:]:
                assert calculate_signed(side) == calculate_signed(sides[0]), step


def calculate_signed(text: str) -> Fraction:
    """As calculate, with negative numbers: a minus before a number, at the start or after an operator or bracket."""
    return calculate(re.sub(r"(^|[(*/+-] ?)-(\d+)", r"\1(0-\2)", text.strip()))


@pytest.mark.parametrize("name", FAMILIES)
def test_a_draw_repeats_nothing_and_depends_on_the_seed_alone(name: str) -> None:
    first, again, other = problems(name), problems(name), problems(name, seed=1)
    assert first == again
    assert len({problem.question for problem in first}) == 40
    assert [p.id for p in first] != [p.id for p in other]
    assert all(p.id == content_id(p.question, p.gold) and p.family == name for p in first)


def test_without_a_count_the_whole_space_is_listed() -> None:
    everything = problems("multiply_partial", None, digits=(3, 1))
    assert (
        len(everything) == 900 * 8 == num_problems(ArithmeticConfig(families=(FamilyConfig(name="multiply_partial"),)))
    )
    assert {p.question for p in problems("multiply_partial", 7200, digits=(3, 1))} == {p.question for p in everything}


def test_the_documented_worked_step_is_the_one_written() -> None:
    (problem,) = problems("multiply_partial", None, ranges=((347, 347), (6, 6)))
    assert (problem.question, problem.solution, problem.gold) == ("347*6", "1800+240+42=2082", "2082")
    (problem,) = problems("column_addition", None, ranges=((347, 347), (86, 86)))
    assert problem.solution == "7+6=13,4+8+1=13,3+0+1=4:347+86=433"


def test_digits_and_ranges_set_the_difficulty() -> None:
    for problem in problems("add", 30, digits=(3, 1)):
        a, b = map(int, problem.question.split(" + "))
        assert 100 <= a <= 999
        assert 0 <= b <= 9
    for problem in problems("add", 30, ranges=((1, 60), (1, 39))):
        a, b = map(int, problem.question.split(" + "))
        assert 1 <= a <= 60
        assert 1 <= b <= 39
    assert all(p.question.count(" ") == 2 * (5 - 1) for p in problems("chain_sum", terms=5))


def test_parentheses_always_change_the_value_of_the_structure() -> None:
    for problem in problems("mixed_parentheses", 80, terms=4):
        assert problem.question.count("(") == 1
        inner = problem.question[problem.question.index("(") : problem.question.index(")")]
        assert "*" not in inner
        assert "*" in problem.question.replace(inner, "")


def test_weights_share_the_count_exactly() -> None:
    families = tuple(FamilyConfig(name=name, weight=weight) for name, weight in (("add", 1), ("gcd", 1), ("lcm", 1)))
    assert shares(ArithmeticConfig(families=families, count=10)) == [4, 3, 3]


@given(st.lists(st.floats(0.01, 100), min_size=1, max_size=6), st.integers(1, 10_000))
def test_shares_add_up_to_the_count(weights: list[float], count: int) -> None:
    families = tuple(FamilyConfig(name="add", weight=weight) for weight in weights)
    found = shares(ArithmeticConfig(families=families, count=count))
    assert sum(value or 0 for value in found) == count


def test_a_family_that_runs_out_is_named_with_what_there_is() -> None:
    with pytest.raises(InputError, match=r"65 problems of lcm were asked for, and there are 64\. Lower count"):
        problems("lcm", 65)


def test_a_space_too_large_to_list_needs_a_count() -> None:
    with pytest.raises(InputError, match=r"add spans 8,100,000,000 combinations, too many to list\. Set count\."):
        problems("add", None, digits=(5,))
    assert len(problems("add", 50, digits=(12,))) == 50


@settings(max_examples=30)
@given(st.sampled_from(sorted(FAMILIES)), st.data())
def test_a_number_of_the_space_always_gives_the_same_question(name: str, data: st.DataObject) -> None:
    whole = space(FamilyConfig(name=name))
    number = data.draw(st.integers(0, whole.size - 1))
    assert whole.question(number) == whole.question(number)
