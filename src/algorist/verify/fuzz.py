"""A metamorphic test: equivalent forms of one answer must agree, near misses must not, and order must not matter.

Every family draws a value, writes it in several ways that are equal by construction, and in several that are not.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction

from algorist.flow import Outcome
from algorist.verify.item import Item
from algorist.verify.pool import VerifierPool


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """Forms of one answer.

    Example:
        >>> Sample(family="integer", same=("12", "12.0"), other=("13",)).family
        'integer'
    """

    family: str
    same: tuple[str, ...]
    """Equal to each other."""
    other: tuple[str, ...]
    """Each different from all of `same`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """A pair that was judged wrongly.

    Example:
        >>> Failure(family="integer", gold="1", answer="1.0", verdict="wrong", reason="different", claim="equal").claim
        'equal'
    """

    family: str
    gold: str
    answer: str
    verdict: str
    reason: str
    claim: str
    """equal (should be paid), different (must not be paid) or symmetric (verdict changed with the order)."""


def _integer(rng: random.Random) -> Sample:
    n = rng.randint(1_000, 9_999_999)
    grouped = f"{n:,}"
    tex, thin, money = grouped.replace(",", "{,}"), grouped.replace(",", r"\,"), rf"\${grouped}.00"
    same = (str(n), grouped, tex, thin, f"{n}.0", money, f"+{n}", rf"\text{{{n}}}")
    return Sample(family="integer", same=same, other=(str(n + 1), str(-n), f"{n}0", f"{n}.5", f"{n / 1000:.3f}"))


def _fraction(rng: random.Random) -> Sample:
    value = Fraction(rng.randint(1, 60), rng.choice([3, 7, 9, 11, 13, 21]))
    while value.denominator < 3:
        value += Fraction(1, 7)
    p, q, k = value.numerator, value.denominator, rng.randint(2, 9)
    same = [rf"\frac{{{p}}}{{{q}}}", f"{p}/{q}", rf"\dfrac{{{k * p}}}{{{k * q}}}", rf"-\frac{{{-p}}}{{{q}}}"]
    if p > q:
        same.append(rf"{p // q}\frac{{{p % q}}}{{{q}}}")
    other = (rf"\frac{{{q}}}{{{p}}}" if p != q else "2", f"{p / q:.4f}", f"{p + 1}/{q}", f"-{p}/{q}", f"{p}.{q}")
    return Sample(family="fraction", same=tuple(same), other=other)


def _decimal(rng: random.Random) -> Sample:
    cents = rng.choice([n for n in range(101, 999) if n % 10])
    text = f"{cents / 100:.2f}"
    same = (text, f"{text}0", rf"\frac{{{cents}}}{{100}}", rf"{cents}\%", rf"{cents}\times 10^{{-2}}", f"{cents}e-2")
    return Sample(family="decimal", same=same[:3] + same[4:], other=(f"{text}1", str(cents), f"{cents / 10}"))


def _radical(rng: random.Random) -> Sample:
    a, b = rng.randint(2, 9), rng.choice([2, 3, 5, 6, 7])
    same = (
        rf"{a}\sqrt{{{b}}}",
        rf"\sqrt{{{a * a * b}}}",
        rf"\frac{{{a * b}}}{{\sqrt{b}}}",
        rf"{a}\cdot {b}^{{1/2}}",
        f"{a}√{b}",
    )
    other = (rf"\sqrt{{{a * b}}}", f"{a * b**0.5:.6f}", rf"{b}\sqrt{{{a + 10}}}", str(a * b), rf"-{a}\sqrt{{{b}}}")
    return Sample(family="radical", same=same, other=other)


def _surd(rng: random.Random) -> Sample:
    a, b = rng.randint(2, 9), rng.choice([2, 3, 5, 7])
    norm = a * a - b
    same = [rf"\frac{{1}}{{{a}+\sqrt{{{b}}}}}"]
    if norm:
        same.append(rf"\frac{{{a}-\sqrt{{{b}}}}}{{{norm}}}")
        same.append(rf"({a}-\sqrt{{{b}}})/({norm})")
    other = (rf"\frac{{1}}{{{a}-\sqrt{{{b}}}}}", rf"{a}-\sqrt{{{b}}}" if norm != 1 else "3")
    return Sample(family="surd", same=tuple(same), other=other)


def _polynomial(rng: random.Random) -> Sample:
    a, b = rng.randint(1, 9), rng.randint(1, 9)
    x = rng.choice(["x", "t", "n"])
    expanded = f"{x}^2+{a + b}{x}+{a * b}"
    same = (expanded, f"({x}+{a})({x}+{b})", f"{a * b}+{x}({x}+{a + b})", f"{x}^{{2}} + {a + b}\\cdot {x} + {a * b}")
    y = "y" if x != "y" else "z"
    other = (
        f"{x}^2+{a + b}{x}-{a * b}",
        f"({x}-{a})({x}+{b})",
        expanded.replace(x, y),
        f"{x}^2+{a + b + 1}{x}+{a * b}",
    )
    return Sample(family="polynomial", same=same, other=other)


def _trigonometry(rng: random.Random) -> Sample:
    k, x = rng.randint(1, 4), rng.choice(["x", r"\theta "])
    same = (rf"\cos({2 * k}{x})", rf"2\cos^2({k}{x})-1", rf"1-2\sin^2({k}{x})", rf"\cos^2({k}{x})-\sin^2({k}{x})")
    return Sample(
        family="trigonometry", same=same, other=(rf"\sin({2 * k}{x})", rf"2\cos^2({k}{x})", rf"\cos({2 * k + 1}{x})")
    )


def _logarithm(rng: random.Random) -> Sample:
    a, k = rng.choice([2, 3, 5]), rng.randint(2, 6)
    same = (rf"\ln {a**k}", rf"{k}\ln {a}", rf"-\ln\frac{{1}}{{{a**k}}}", rf"\ln({a**k})")
    return Sample(
        family="logarithm", same=same, other=(rf"\ln {a**k + 1}", rf"{k + 1}\ln {a}", rf"\log_{{{a}}} {a**k}")
    )


def _complex(rng: random.Random) -> Sample:
    a, b = rng.randint(1, 30), rng.randint(2, 30)
    same = (f"{a}+{b}i", f"{b}i+{a}", rf"{a}+{b}\mathrm{{i}}", rf"{a} + {b} i", rf"i({b}-{a}i)")
    return Sample(
        family="complex", same=same, other=(f"{a}-{b}i", f"{b}+{a}i" if a != b else "1", f"{a + b}i", f"{a}+{b}")
    )


def _interval(rng: random.Random) -> Sample:
    a = rng.randint(-9, 5)
    b = a + rng.randint(1, 9)
    same = (f"({a},{b}]", rf"{a}<x\le {b}", rf"x\in({a},{b}]", rf"\{{x\mid {a}<x\le {b}\}}", rf"\left({a}, {b}\right]")
    other = (f"({a},{b})", f"[{a},{b}]", f"[{a},{b})", f"({a},{b + 1}]", rf"\{{{a},{b}\}}")
    return Sample(family="interval", same=same, other=other)


def _union(rng: random.Random) -> Sample:
    a = rng.randint(-5, 5)
    b = a + rng.randint(1, 6)
    same = (rf"(-\infty,{a})\cup({b},\infty)", rf"x<{a} \text{{ or }} x>{b}", rf"({b},+\infty)\cup(-\infty,{a})",
            rf"\mathbb{{R}}\setminus[{a},{b}]")  # fmt: skip
    return Sample(family="union", same=same, other=(f"({a},{b})", rf"(-\infty,{a}]\cup[{b},\infty)", rf"x<{a}"))


def _listing(rng: random.Random) -> Sample:
    a, b, c = rng.sample(range(-20, 21), 3)
    same = (
        f"{a}, {b}, {c}",
        f"{c}, {a}, {b}",
        rf"{a}, {b} \text{{ and }} {c}",
        rf"\{{{b}, {c}, {a}\}}",
        f"x={a}, x={b}, x={c}",
    )
    return Sample(
        family="list",
        same=same,
        other=(f"{a}, {b}", f"{a}, {b}, {c + 1}", f"({a}, {b}, {c})", f"{a}, {b}, {c}, {c + 50}"),
    )


def _tuple(rng: random.Random) -> Sample:
    a, b = rng.sample(range(-20, 21), 2)
    same = (f"({a},{b})", rf"\left({a},\,{b}\right)", f"({a}.0, {b})", f"x={a}, y={b}")
    return Sample(
        family="tuple", same=same, other=(f"({b},{a})", f"[{a},{b}]", f"{a}", f"({a},{b},{a})", f"({a},{b + 1})")
    )


def _matrix(rng: random.Random) -> Sample:
    a, b, c, d = (rng.randint(-9, 9) for _ in range(4))
    while b == c:
        c += 1
    body = rf"{a} & {b} \\ {c} & {d}"
    same = (rf"\begin{{pmatrix}} {body} \end{{pmatrix}}", rf"\begin{{bmatrix}} {body} \end{{bmatrix}}",
            rf"-\begin{{pmatrix}} {-a} & {-b} \\ {-c} & {-d} \end{{pmatrix}}",
            rf"\left(\begin{{array}}{{cc}} {body} \end{{array}}\right)")  # fmt: skip
    other = (
        rf"\begin{{pmatrix}} {a} & {c} \\ {b} & {d} \end{{pmatrix}}",
        rf"\begin{{pmatrix}} {a} & {b} \end{{pmatrix}}",
    )
    return Sample(family="matrix", same=same, other=other)


def _line(rng: random.Random) -> Sample:
    a, b = rng.randint(2, 9), rng.randint(1, 9)
    same = (f"y={a}x+{b}", f"{a}x-y+{b}=0", f"y-{b}={a}x", f"{2 * a}x-2y=-{2 * b}", rf"x=\frac{{y-{b}}}{{{a}}}")
    return Sample(family="line", same=same, other=(f"y={a}x-{b}", f"{a}x+y+{b}=0", f"y={a + 1}x+{b}", f"x={a}y+{b}"))


def _power(rng: random.Random) -> Sample:
    base, k = rng.choice([2, 3, 7]), rng.randint(40, 200)
    same = (f"{base}^{{{k}}}", str(base**k), rf"{base}\cdot {base}^{{{k - 1}}}")
    return Sample(
        family="power",
        same=same,
        other=(str(base**k + 1), f"{base}^{{{k + 1}}}", f"{base}^{{{k}}}-1", f"{float(base**k):.6e}"),
    )


FAMILIES: tuple[Callable[[random.Random], Sample], ...] = (
    _integer, _fraction, _decimal, _radical, _surd, _polynomial, _trigonometry, _logarithm, _complex, _interval, _union,
    _listing, _tuple, _matrix, _line, _power,
)  # fmt: skip


def samples(seed: int, count: int) -> list[Sample]:
    """`count` samples of every family; a pure function of the seed."""
    return [family(random.Random(f"{seed}/{family.__name__}/{k}")) for family in FAMILIES for k in range(count)]


def run(pool: VerifierPool, cases: Sequence[Sample]) -> tuple[dict[str, int], list[Failure]]:
    """Judge every ordered pair of every sample; (pairs per family, failures)."""
    counts: dict[str, int] = {}
    failures: list[Failure] = []
    for case in cases:
        pairs = [(a, b, "equal") for a in case.same for b in case.same]
        pairs += [(a, b, "different") for a in case.same[:3] for b in case.other]
        pairs += [(b, a, "different") for a in case.same[:3] for b in case.other]
        rows = pool.check_many([Item(gold=a, response=f"\\boxed{{{b}}}") for a, b, _ in pairs])
        counts[case.family] = counts.get(case.family, 0) + len(pairs)
        verdicts = {(a, b): row.verdict for (a, b, _), row in zip(pairs, rows, strict=True)}
        for (a, b, claim), row in zip(pairs, rows, strict=True):
            if (row.verdict is Outcome.CORRECT) != (claim == "equal"):
                failures.append(_failure(case, a, b, row.verdict, row.reason, claim))
            elif verdicts.get((b, a), row.verdict) is not row.verdict:
                failures.append(_failure(case, a, b, row.verdict, row.reason, "symmetric"))
    return counts, failures


def _failure(case: Sample, gold: str, answer: str, verdict: Outcome, reason: str, claim: str) -> Failure:
    return Failure(family=case.family, gold=gold, answer=answer, verdict=verdict.value, reason=reason, claim=claim)
