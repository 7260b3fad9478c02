"""Every kind of answer: what is paid, what is wrong, what is not judged. Each table row is one claim."""

import pytest

from algorist.verify import check

PAID = [
    ("1,450,000", r"1\,450\,000"), ("18", r"\$18.00"), ("114200", "11.42万"), ("12", r"\text{12 apples}"), ("10", "ten"), ("21", "twenty-one"),
    (r"\frac{5}{4}", "1 1/4"), ("-35/9", r"-3\frac{8}{9}"), (r"\frac{14}{3}", r"4.\overline{6}"), (r"\frac{1}{6}", r"0.1\dot{6}"),
    ("-1./3", r"-\frac13"), (r"\frac{2}{3}", "三分之二"), ("6.02e23", r"6.02\times 10^{23}"), (r"\frac{270}7\text{ degrees}", r"\frac{270}{7}^\circ"),
    (r"\sqrt{2}+\sqrt{3}", r"\sqrt{5+2\sqrt{6}}"), (r"2\sqrt[3]{2}", r"\sqrt[3]{16}"), (r"\log_2 3", r"\frac{\ln 3}{\ln 2}"), ("3", r"\log_2 8"),
    (r"\frac12", r"\sin 30^\circ"), (r"\sqrt{3}", r"\tan\frac{\pi}{3}"), (r"6\sqrt{3}", r"6\sqrt3\approx 10.39"), ("e^2", r"\exp(2)"),
    ("720!", r"720\cdot 719!"), ("0.1+0.2", "0.3"), ("120", r"\binom{10}{3}"), ("24", "4!"), ("-1", "i^2"), (r"e^{i\pi/3}", r"\frac12+\frac{\sqrt3}{2}i"),
    ("x^2-5x+6", "(x-2)(x-3)"), (r"\frac{2n}{n+1}", r"2-\frac{2}{n+1}"), ("2^{n+1}-2", "2(2^n-1)"), ("|x-3|", r"\left|3-x\right|"),
    (r"\cot x", r"\frac{\cos x}{\sin x}"), ("f(x)=x^2+1", "x^2+1"), ("I(0) e^{-\\frac{t}{R C}}", "I(0)e^{-t/(RC)}"), ("4^n", "2^{2n}"),
    ("y=2x", "2x-y=0"), (r"\frac{x^2}{4}+\frac{y^2}{3}=1", "3x^2+4y^2=12"), ("5", "2+3=5"), ("x=5", "5=x"), ("xy=1", r"y=\frac1x"),
    ("3<m<4", r"m\in(3,4)"), ("x>2", "2<x"), (r"-1<x<1", "|x|<1"), (r"\{x|x\le 2\}", r"(-\infty,2]"), (r"(0,9)\cup(9,36)", r"(0,36)\setminus\{9\}"),
    (r"x\ne 1", r"(-\infty,1)\cup(1,\infty)"), (r"(-\infty,\infty)", r"\mathbb{R}"), (r"\emptyset", r"\varnothing"),
    ("1,-2", r"-2 \text{ and } 1"), (r"1\pm\sqrt{2}", r"1+\sqrt2,\,1-\sqrt2"), (r"3\pm2\sqrt2", r"3\mp2\sqrt2"), ("(15,-29)", "x=15, y=-29"),
    ("x=1,2", r"x=1\text{ or }x=2"), ("1,2", "x_1=2, x_2=1"), ("1:2:3", "2:4:6"), ("3:4", r"\frac34"), ("(1,2),(3,4)", "(3,4),(1,2)"),
    (r"\begin{pmatrix} 1 \\ 2 \end{pmatrix}", "(1,2)"), (r"\begin{pmatrix} 1/2 \\ 1 \end{pmatrix}", r"\frac12\begin{bmatrix}1\\2\end{bmatrix}"),
    (r"30^\circ", r"\frac{\pi}{6}"), ("50\\%", "0.5"), ("12.5", r"12.5\%"), (r"5.4\text{ cents}", "5.4"), (r"5\text{ m}", r"500\text{ cm}"),
    (r"15\mbox{ cm}^2", r"15 \text{ square centimeters}"), (r"8\text{ hours}", r"8\text{ h}"), ("36", r"36\text{平方厘米}"),
    ("E", "e"), ("B", r"\textbf{(B) }5"), ("AC", "A, C"), ("A B D", "DBA"), (r"\text{Evelyn}", "evelyn"), ("52_8", "52"), ("2516_8", r"2516_{\text{eight}}"),
    (r"3:30 \text{ p.m.}", r"3:30\text{ PM}"), (r"$\textcircled{2}\textcircled{3}$", "②③"), ("$(0,1)$", "（0，1）"), ("x^2", "x²"), ("42", "٤٢"),
]  # fmt: skip

WRONG = [
    ("1,600", "1.600"), ("64", "-64"), ("f(0)=0", "f(a)=0"), ("x=0", "y=0"), ("66_8", r"66^\circ"), (r"25\%", "25_6"), ("xy=0", "x=0"), ("250/3", "83.33"), (r"\frac{14}{3}", "4.666666666666"), ("0.5", "50"), ("0.001", "0.0005"),
    (r"1\frac{4}{5}", r"\frac45"), (r"137 \frac12", r"\frac{137}{2}"), (r"\sqrt2", "1.41421356"), ("3.14", r"\pi"), (r"\pi", r"\frac{22}{7}"),
    ("2^{100}", "1267650600228229401496703205377"), (r"\frac{1}{2004!}", r"\frac{1}{2006!}"), ("2^{1000}-1", "2^{1000}"), ("2.88e-19", "0"),
    ("10^{20}+1", "10^{20}"), (r"\frac{1}{4-w^2}", r"\frac{1}{w^2-4}"), (r"\frac{11+9a}{20}", r"\frac{11+9b}{20}"), ("3R^2", "3r^2"),
    ("x^2+C", "x^2"), ("x", r"\sqrt{x^2}"), ("I(0)", "0"), ("y=2x+1", "x=2y+1"), ("x=2", "y=2"), ("3x-y=0", "x=3y"), ("MR=SRMC", "MR=LRMC"),
    (r"x\le 3", "x<3"), ("(2,3)", "(3,2)"), ("(-3,-4)", "[-3,-4]"), ("[0,2]", r"\{0,2\}"), ("5", r"4\le x\le 6"), (r"(-\infty,2)\cup(3,\infty)", "(2,3)"),
    ("-2,1", "1"), ("3,5,7", "3,5"), (r"\pm 2021", "2021"), ("3", r"3\text{ or }4"), ("1:2:3", "1:4:9"), ("3;0", "0;3"), ("(2,3]", "[2,3]"),
    (r"\begin{pmatrix} 1 \\ 2 \end{pmatrix}", r"\begin{pmatrix} 1 & 2 \end{pmatrix}"), ("1+2i", "1-2i"), (r"5\text{ m}", r"5\text{ km}"),
    (r"5.4\text{ cents}", r"5.4\text{ dollars}"), (r"60^\circ", r"60\text{ radians}"), ("20", "0.2"), ("B", "D"), ("B", "A or B"), ("AC", "ABC"),
    (r"\text{ellipse}", r"\text{hyperbola}"), ("52_8", "52_9"), ("52_8", "42"), (r"3:30 \text{ p.m.}", "3:30 AM"), (r"O(n\log n)", "O(n^2)"),
]  # fmt: skip

UNPAID = [
    (r"\frac13", r"\int_0^1 x^2\,dx"), ("5050", r"\sum_{k=1}^{100} k"), ("6", r"\gcd(18,24)"), ("3", r"\max(1,2,3)"), ("2x", r"\frac{d}{dx}x^2"),
    ("7", "(lambda: 7)()"), ("7", "[x for x in (7,)][0]"), ("7", r"\def\x{7}\x"), ("7", "10^{10^{10}}"), ("7", "((10!)!)!"), ("0", r"\frac00"),
    ("12", r"\text{not }12"), ("12", r"\text{at least }12"), ("12", r"12\text{ or more}"), ("12", r"\approx 12.01"), ("12", "x^2=12"), ("6", "2+3=6"),
    ("3,5", "(3,5)"), ("A", "A * A"), ("7", "0.333..."), (r"36^\circ", "36'"), ("4", r"4\sqrt(2)"), (r"\infty", r"\frac10"), ("7", r"\text{same as the reference}"),
]  # fmt: skip


@pytest.mark.parametrize(("gold", "answer"), PAID)
def test_right_answers_are_paid(gold: str, answer: str) -> None:
    verdict = check(gold, f"Therefore $\\boxed{{{answer}}}$.")
    assert (verdict.verdict, verdict.rule) == ("correct", "boxed"), verdict


@pytest.mark.parametrize(("gold", "answer"), WRONG)
def test_wrong_answers_are_wrong(gold: str, answer: str) -> None:
    verdict = check(gold, f"Therefore $\\boxed{{{answer}}}$.")
    assert verdict.verdict == "wrong", verdict


@pytest.mark.parametrize(("gold", "answer"), UNPAID)
def test_what_cannot_be_judged_is_never_paid(gold: str, answer: str) -> None:
    verdict = check(gold, f"Therefore $\\boxed{{{answer}}}$.")
    assert verdict.verdict in ("unsupported", "wrong"), verdict


@pytest.mark.parametrize(("gold", "answer"), PAID + WRONG + UNPAID)
def test_order_of_gold_and_answer_does_not_change_the_verdict(gold: str, answer: str) -> None:
    from algorist.verify.judge import compare_texts, golds

    kind = "choice" if golds.is_choice(gold) else "expression"
    assert compare_texts(gold, answer, kind).state == compare_texts(answer, gold, kind).state
