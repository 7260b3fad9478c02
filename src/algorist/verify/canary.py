"""Rows whose verdicts are known beforehand: right, wrong, unsupported and hostile ones.

A run shows them to its verifier before it trusts it (`failures`), tests and benchmarks use the hostile ones.
"""

from __future__ import annotations

from collections.abc import Sequence

from algorist.flow import Outcome, Verdict
from algorist.verify.item import Item
from algorist.verify.pool import VerifierPool


def _items(rows: Sequence[tuple[str, str]]) -> tuple[Item, ...]:
    return tuple(Item(gold=gold, response=f"So the result is $\\boxed{{{answer}}}$.") for gold, answer in rows)


RIGHT = _items(
    [
        ("1,450,000", r"1\,450\,000"), (r"\frac{4}{3}", r"1\frac13"), (r"\frac{\sqrt{3}}{3}", r"\frac{1}{\sqrt3}"),
        ("3e8", r"3\times 10^{8} \mathrm{~m/s}"), ("50\\%", "0.5"), (r"90^\circ", r"90 \text{ degrees}"), ("x=5", "5"),
        (r"2x+y=1", r"y=1-2x"), ("1,-2", r"-2 \text{ and } 1"), (r"(-\infty,2)\cup(3,\infty)", r"x<2 \text{ or } x>3"),
        (r"\begin{pmatrix} 1 \\ 2 \end{pmatrix}", "(1,2)"), (r"\sin 2x", r"2\sin x\cos x"), ("B",
        r"\textbf{(B) }7"), ("0;3", "0；3"),
        ("2^{100}", "1267650600228229401496703205376"), (r"e^{i\pi/3}", r"\frac{1+i\sqrt{3}}{2}"), (r"\text{east}",
        "East"),
    ]
)  # fmt: skip
"""Rows that must be paid."""

WRONG = _items(
    [
        ("1,600", "1.600"), (r"\frac{1}{3}", "0.3333"), (r"\sqrt{2}", "1.41421356"), ("0.5", "50"), ("2^{100}",
        "2^{100}+1"),
        (r"\frac{1}{2004!}", r"\frac{1}{2006!}"), ("(2,4)", "(4,2)"), ("[0,2]", r"\{0,2\}"), ("3",
        r"3 \text{ or } 4"), ("52_8", "52_9"),
        (r"5\text{ m}", r"5\text{ km}"), ("B", "A, B"), (r"\cot x", r"\tan x"), ("1+2i", "1-2i"), (r"x^2+C", "x^2"),
        ("AC", "A"),
    ]
)  # fmt: skip
"""Rows that must be judged wrong."""

UNPAID = (
    Item(gold="7", response=r"\boxed{7"),
    Item(gold="7", response=r"<think>\boxed{7}"),
    Item(gold="7", response=r"\boxed{6} and later \boxed{7}"),
    Item(gold="7", response=r"\boxed{(lambda: 7)()}"),
    Item(gold="7", response=r"\boxed{__import__('os').getpid()}"),
    Item(gold="7", response="The total is 7 in the end."),
    Item(gold=r"\frac13", response=r"\boxed{\int_0^1 x^2 dx}"),
    Item(gold="7", response="The answer is 7", truncated=True),
)
"""Rows that must be unsupported: nothing in them may be paid."""


def hostile() -> list[Item]:
    """Rows made to hang, to exhaust memory or to run code; none of them is right.

    >>> len(hostile()) > 30
    True
    """
    answers = [
        "10^{10^{10}}", "10**10**10", "((10!)!)!", r"\binom{10^9}{5\cdot 10^8}", "2^{2^{2^{2^{2^{2}}}}}",
        "x^{x^{x^{x^{x^x}}}}",
        r"\zeta(\Gamma(\Gamma(\Gamma(6))))", r"\log_{2}(\log_2(10^{10^{9}}))", r"\sqrt{" * 300 + "2" + "}" * 300,
        "(" * 500 + "7" + ")" * 500,
        r"\frac{1}{1+" * 120 + "1" + "}" * 120, "+".join(f"x_{{{k}}}" for k in range(200)),
        r"\int_0^1 \frac{\sin(e^{x^x})}{\ln(\cos x^7+2)}dx",
        "9" * 1900, f"{'9' * 900}^{{{'9' * 900}}}", "(x+y+z+w)^{1000}", r"(x+\sin y+e^z)^{63}", "1e999999999",
        r"1\frac{1}{1}" * 80,
        "-" * 1000 + "7", r"\pm 1 " * 40, ",".join(rf"\sqrt{{{k}}}+\sqrt{{{k + 1}}}" for k in range(60)),
        "7!" + "!" * 50, "{" * 900,
        r"\text{" * 200 + "8" + "}" * 200, r"\begin{pmatrix}" * 60,
        "+".join(rf"\frac{{1}}{{3^{{{8000 + k}}}}}" for k in range(40)),
        "(lambda: 7)()", "__import__('os').system('touch marker')", "open('marker','w')",
        "().__class__.__mro__[1].__subclasses__()",
        "'{0.__class__}'.format(7)", "exec(\"7\")", "[7 for _ in range(10**9)][0]", r"\input{/etc/passwd}",
        r"\def\x{7}\x",
    ]  # fmt: skip
    rows = [Item(gold="7", response=f"Thus $\\boxed{{{answer}}}$.") for answer in answers]
    rows += [
        Item(gold="7", response="\\boxed{" * 20_000),
        Item(gold="7", response="$" * 50_000 + " no answer"),
        Item(gold="7", response="answer " * 20_000),
        Item(gold="7", response="the answer is " * 10_000),
        Item(gold="7", response=" " * 200_000 + "x" + "\n" * 200_000),
        Item(gold="7", response="#### " * 30_000),
        Item(gold="7", response='{"answer": ' * 20_000 + "}" * 20_000),
        Item(gold="7", response="<think>" * 50_000),
        Item(gold="7", response="We add one more term. " * 50_000),
        Item(gold="7", response="".join(f"\\boxed{{{k}}} " for k in range(8, 9_000))),
    ]
    return rows


def hard(count: int) -> list[Item]:
    """Right rows that pass the guards, agree at every point and take computer algebra long: they try the deadline.

    >>> len(hard(3))
    3
    """
    rows = []
    for k in range(count):
        n = 10 + k
        left = rf"\sin^{{{n}}}(x+{k})\cos^{{{n}}}(x+{k})\sqrt{{1+\tan^2(y+{k})}}"
        right = rf"\frac{{\sin^{{{n}}}(2x+{2 * k})}}{{{2**n}\,|\cos(y+{k})|}}"
        rows.append(Item(gold=left, response=f"\\boxed{{{right}}}"))
    return rows


def failures(pool: VerifierPool) -> list[tuple[Item, Verdict, str]]:
    """The canary rows that this verifier judges otherwise than they must be: (row, verdict, what it must be).

    >>> with VerifierPool() as pool:
    ...     failures(pool)
    []
    """
    found = []
    for rows, wanted in ((RIGHT, Outcome.CORRECT), (WRONG, Outcome.WRONG), (UNPAID, Outcome.UNSUPPORTED)):
        for item, verdict in zip(rows, pool.check_many(rows), strict=True):
            if verdict.verdict is not wanted:
                found.append((item, verdict, wanted.value))
    return found
