"""Trees, evaluation and algebra against oracles: Fraction, sympy, and the laws they must keep."""

import random
from fractions import Fraction

import pytest
from hypothesis import assume, given, reject, settings
from hypothesis import strategies as st

from algorist.verify import algebra, compare, fuzz, numeric, tree
from algorist.verify.judge import compare_texts
from algorist.verify.normalise import key, tidy
from algorist.verify.pool import VerifierPool
from algorist.verify.read import read, strip
from algorist.verify.tree import Node, Unreadable, add, mul, num, power, sym

FRACTIONS = st.fractions(min_value=-50, max_value=50, max_denominator=30)


@given(st.lists(FRACTIONS, min_size=1, max_size=6))
def test_sums_and_products_of_rationals_are_exact(values: list[Fraction]) -> None:
    total, product = Fraction(0), Fraction(1)
    for value in values:
        total, product = total + value, product * value
    assert add(num(v) for v in values) == num(total)
    assert mul(num(v) for v in values) == num(product)


def expressions(depth: int = 3) -> st.SearchStrategy[str]:
    """LaTeX of random expressions in x and y."""
    leaf = st.one_of(
        st.integers(1, 9).map(str), st.sampled_from(["x", "y", r"\pi", r"\frac{2}{3}", r"\sqrt{2}", "0.5"])
    )
    return st.recursive(
        leaf,
        lambda inner: st.one_of(
            st.tuples(inner, inner).map(lambda p: f"({p[0]}+{p[1]})"),
            st.tuples(inner, inner).map(lambda p: f"({p[0]}-{p[1]})"),
            st.tuples(inner, inner).map(lambda p: rf"{p[0]}\cdot {p[1]}"),
            st.tuples(inner, inner).map(lambda p: rf"\frac{{{p[0]}}}{{{p[1]}}}"),
            inner.map(lambda a: f"({a})^2"),
            inner.map(lambda a: rf"\sin({a})"),
            inner.map(lambda a: rf"\sqrt{{{a}}}"),
        ),
        max_leaves=2**depth,
    )


def tree_of(text: str) -> Node:
    try:
        node = read(text)
    except Unreadable as why:
        if why.reason in ("undefined", "bound"):
            reject()
        raise
    assume(node.op != "raw")
    return node


@settings(max_examples=150, deadline=None)
@given(expressions(), expressions())
def test_verdicts_do_not_depend_on_the_order_of_the_two_sides(a: str, b: str) -> None:
    assert compare_texts(a, b, "expression").state == compare_texts(b, a, "expression").state


@settings(max_examples=150, deadline=None)
@given(expressions())
def test_every_expression_equals_itself_plus_zero_written_at_length(text: str) -> None:
    tree_of(text)
    assert compare_texts(text, f"{text}+y-y", "expression").state == "equal"


@settings(max_examples=100, deadline=None)
@given(expressions())
def test_no_expression_equals_itself_plus_a_tiny_number(text: str) -> None:
    finding = compare_texts(text, rf"{text}+\frac{{1}}{{10^{{30}}}}", "expression")
    assert finding.state in ("different", "unsure")


@settings(max_examples=60, deadline=None)
@given(expressions(2))
def test_evaluation_agrees_with_sympy(text: str) -> None:
    from algorist.verify import symbolic

    node = tree_of(text)
    c = numeric.context()
    point = {sym("x"): c.mpf(3) / 7, sym("y"): c.mpf(11) / 5}
    try:
        ours = numeric.evaluate(node, point)
    except (numeric.Undefined, ZeroDivisionError, Unreadable):
        return
    import sympy

    built = symbolic.build(node, positive=True)
    values = {s: {"s_x": sympy.Rational(3, 7), "s_y": sympy.Rational(11, 5)}[s.name] for s in built.free_symbols}
    theirs = built.subs(values).evalf(40)
    assert abs(complex(ours) - complex(theirs)) <= 1e-12 * max(1, abs(complex(theirs)))


@settings(max_examples=100, deadline=None)
@given(st.lists(st.integers(-4, 4), min_size=2, max_size=4), st.lists(st.integers(-4, 4), min_size=2, max_size=4))
def test_algebra_proves_products_of_polynomials(a: list[int], b: list[int]) -> None:
    x = sym("x")
    left = mul([add(mul([num(c), power(x, num(k))]) for k, c in enumerate(p)) for p in (a, b)])
    right = add(mul([num(c * d), power(x, num(j + k))]) for j, c in enumerate(a) for k, d in enumerate(b))
    assert algebra.equal(left, right)
    assert not algebra.equal(left, add([right, num(1)]))


@pytest.mark.parametrize(
    ("a", "b"), [("x", "x+1"), (r"\sqrt{x^2}", "x"), (r"\sin x", r"\cos x"), ("x^2", "x^3"), ("e^x", "2^x")]
)
def test_algebra_never_proves_what_evaluation_refutes(a: str, b: str) -> None:
    assert numeric.agree(read(a), read(b)) is False
    assert not algebra.equal(read(a), read(b))


@settings(max_examples=300, deadline=None)
@given(st.text(alphabet="0123456789 ,.;{}()[]\\$%^_-+=<>frac sqrt text pi²½−，（）％度元", max_size=60))
def test_the_normaliser_is_idempotent_and_total(text: str) -> None:
    once = tidy(text)
    assert tidy(once) == once
    assert strip(strip(text)) == strip(text)
    assert key(text) == key(tidy(text))


@settings(max_examples=300, deadline=None)
@given(
    st.text(alphabet="0123456789 ,.;{}()[]\\$%^_-+=<>|!/fracsqrtextpiln", max_size=60),
    st.sampled_from(["7", r"\frac{1}{2}", "(1,2)", "x>2", "x^2"]),
)
def test_any_text_gets_a_finding_and_order_does_not_matter(text: str, gold: str) -> None:
    finding = compare_texts(gold, text, "expression")
    assert finding.state in ("equal", "different", "unsure", "pending")
    assert compare_texts(text, gold, "expression").state == finding.state


@pytest.mark.parametrize(
    "text",
    [
        "x^=1",
        "f_",
        "_",
        "^",
        "x'=",
        r"\frac",
        r"\sqrt",
        r"\begin{pmatrix}",
        "a_{",
        r"\left(",
        "=",
        "(,)",
        r"\text{",
    ],
)
def test_unfinished_formulas_get_a_finding(text: str) -> None:
    assert compare_texts("1", text, "expression").state in ("different", "unsure")


def test_fuzz_finds_no_failure() -> None:
    with VerifierPool() as pool:
        counts, failures = fuzz.run(pool, fuzz.samples(7, 3))
    assert sum(counts.values()) > 1500
    assert failures == []


def test_fuzz_would_notice_a_checker_that_pays_everything() -> None:
    case = fuzz.Sample(family="planted", same=("7", "8"), other=("7.0",))
    with VerifierPool() as pool:
        _, failures = fuzz.run(pool, [case])
    assert {f.claim for f in failures} == {"equal", "different"}


@pytest.mark.parametrize("text", ["10^{10^{10}}", "((10!)!)!", r"\binom{10^9}{7}", "9^{9^{9}}", "1e99999", "9" * 2001])
def test_numbers_beyond_the_bounds_are_refused_before_they_are_built(text: str) -> None:
    with pytest.raises(Unreadable) as why:
        read(text)
    assert why.value.reason == "bound"


def test_radicals_of_rationals_are_canonical() -> None:
    assert read(r"\sqrt{20}") == read(r"2\sqrt5") == read(r"\frac{10}{\sqrt5}")
    assert read(r"\sqrt[3]{16}") == read(r"2\cdot 2^{1/3}")


def test_a_random_walk_of_unary_signs_and_brackets_keeps_its_value() -> None:
    rng = random.Random(5)
    for _ in range(50):
        text, value = "3", 3
        for _ in range(rng.randint(1, 12)):
            if rng.random() < 0.5:
                text, value = f"-({text})", -value
            else:
                text = f"({text})"
        assert read(text) == num(value), text


def test_the_cheap_stage_never_waits_for_numbers() -> None:
    for a, b in [("3", "4"), (r"\sqrt2", r"\sqrt3"), (r"\pi", "3.14"), (r"\frac{1}{1+\sqrt2}", r"\sqrt2-1")]:
        assert compare.same(read(a), read(b)).state != "pending"


def test_tree_limits_are_the_documented_ones() -> None:
    assert (tree.MAX_DIGITS, tree.MAX_NODES, tree.MAX_DEPTH, tree.MAX_SYMBOLS) == (10_000, 400, 64, 30)
