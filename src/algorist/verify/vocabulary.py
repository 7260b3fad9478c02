"""The words of the grammar: Greek letters, accents, brackets, signs of multiplication, names of constants."""

from __future__ import annotations

from algorist.verify.node import IMAGINARY, INF, PI, E

STOPS = frozenset(
    {"or", "and", "to", "if", "where", "when", "for", "with", "otherwise", "unless", "not", "but", "then", "because"}
)
GREEK = frozenset(
    [
        "alpha",
        "beta",
        "gamma",
        "delta",
        "epsilon",
        "zeta",
        "eta",
        "theta",
        "iota",
        "kappa",
        "lambda",
        "mu",
        "nu",
        "xi",
        "rho",
        "sigma",
        "tau",
        "upsilon",
        "phi",
        "chi",
        "psi",
        "omega",
        "Gamma",
        "Delta",
        "Theta",
        "Lambda",
        "Xi",
        "Sigma",
        "Upsilon",
        "Phi",
        "Psi",
        "Omega",
        "hbar",
        "ell",
        "aleph",
        "Re",
        "Im",
        "partial",
        "nabla",
        "dag",
        "prime",
        "odot",
        "top",
        "complement",
        "infinity",
    ]
)
ACCENTS = frozenset({r"\bar", r"\hat", r"\vec", r"\overline", r"\tilde", r"\dot", r"\ddot", r"\widehat",
    r"\overrightarrow",
                      r"\underline", r"\mathcal", r"\mathbb", r"\mathfrak", r"\mathscr", r"\arc", r"\overset",
                      r"\boldmath"})  # fmt: skip
PREFIXES = frozenset({r"\angle", r"\triangle", r"\measuredangle", r"\odot"})
CLOSER = {"(": ")", "[": "]", "{": "}", r"\{": r"\}", r"\lfloor": r"\rfloor", r"\lceil": r"\rceil",
    r"\langle": r"\rangle",
           r"\lparen": r"\rparen"}  # fmt: skip
TIMES = frozenset({r"\times", r"\cdot", "*", r"\ast"})
APPLIED = frozenset({"f", "g", "h", "F", "G", "H"})
NAMES = {
    "pi": PI,
    "e": E,
    "i": IMAGINARY,
    "inf": INF,
    "oo": INF,
    "infty": INF,
    "infinity": INF,
}


NOT_OPERANDS = frozenset({
    r"\times", r"\cdot", r"\div", r"\pm", r"\mp", r"\le", r"\ge", r"\ne", r"\approx", r"\equiv", r"\in", r"\notin",
    r"\cup",
    r"\cap", r"\setminus", r"\subset", r"\mid", r"\to", r"\}", r"\rangle", r"\rfloor", r"\rceil", r"\comma", r"\%",
    r"\usd",
    r"\pounds", r"\euro", r"\yen", r"\cr", r"\end", r"\sim", r"\cong", r"\perp", r"\parallel", r"\permil", r"\|",
    r"\circ",
    r"\colon", r"\quad", r"\propto", r"\iff", r"\subseteq", r"\simeq", r"\because", r"\therefore", r"\forall",
    r"\exists", r"\&",
})  # fmt: skip
