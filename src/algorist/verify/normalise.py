"""One normaliser for golds and answers: any spelling of a formula to one plain LaTeX dialect.

Both sides go through the same function, so equality of verdicts is symmetric by construction. It is idempotent and
linear in the length of its text; it never raises.
"""

from __future__ import annotations

import re
import unicodedata
from functools import lru_cache

_CHARACTERS = {
    "−": "-", "–": "-", "—": "-", "‐": "-", "‑": "-", "－": "-", "﹣": "-", "⁻": "^{-}",
    "×": r"\times ", "✕": r"\times ", "⨯": r"\times ", "·": r"\cdot ", "⋅": r"\cdot ", "∙": r"\cdot ",
    "•": r"\cdot ",
    "∗": "*", "÷": r"\div ", "∕": "/", "⁄": "/", "／": "/", "±": r"\pm ", "∓": r"\mp ",
    "≤": r"\le ", "⩽": r"\le ", "≦": r"\le ", "≥": r"\ge ", "⩾": r"\ge ", "≧": r"\ge ", "≠": r"\ne ",
    "≈": r"\approx ",
    "≡": r"\equiv ", "∈": r"\in ", "∉": r"\notin ", "∪": r"\cup ", "∩": r"\cap ", "∖": r"\setminus ",
    "⊂": r"\subset ",
    "∞": r"\infty ", "∅": r"\emptyset ", "Ø": r"\emptyset ", "√": r"\sqrt ", "∛": r"\sqrt[3]", "∜": r"\sqrt[4]",
    "π": r"\pi ", "Π": r"\prod ", "∑": r"\sum ", "∏": r"\prod ", "∫": r"\int ", "∂": r"\partial ",
    "∆": r"\Delta ",
    "°": r"^\circ ", "º": r"^\circ ", "˚": r"^\circ ", "℃": r"^\circ C ", "℉": r"^\circ F ", "′": "'", "’": "'", "‘": "'", "″": "''",
    "“": '"', "”": '"', "「": '"', "」": '"', "【": "[", "】": "]", "〔": "(", "〕": ")", "⟨": r"\langle ",
    "⟩": r"\rangle ",
    "…": r"\ldots ", "⋯": r"\ldots ", "、": r"\comma ", "，": ",", "；": ";", "：": ":", "。": ".", "．": ".",
    "∶": ":", "→": r"\to ", "⇒": r"\to ", "∠": r"\angle ", "△": r"\triangle ", "⊥": r"\perp ",
    "∥": r"\parallel ",
    "⌊": r"\lfloor ", "⌋": r"\rfloor ", "⌈": r"\lceil ", "⌉": r"\rceil ", "∣": r"\mid ", "ℝ": r"\mathbb{R}",
    "ℤ": r"\mathbb{Z}", "ℚ": r"\mathbb{Q}", "ℕ": r"\mathbb{N}", "ℂ": r"\mathbb{C}", "ℓ": "l", "ħ": r"\hbar ",
    "£": r"\pounds ",
    "€": r"\euro ", "￥": r"\yen ", "¥": r"\yen ", "％": r"\%", "‰": r"\permil ", "²": "^{2}", "³": "^{3}",
    "¹": "^{1}",
    "½": r"\frac{1}{2}", "⅓": r"\frac{1}{3}", "⅔": r"\frac{2}{3}", "¼": r"\frac{1}{4}", "¾": r"\frac{3}{4}",
    "⅕": r"\frac{1}{5}", "⅖": r"\frac{2}{5}", "⅗": r"\frac{3}{5}", "⅘": r"\frac{4}{5}", "⅙": r"\frac{1}{6}",
    "⅚": r"\frac{5}{6}", "⅛": r"\frac{1}{8}", "⅜": r"\frac{3}{8}", "⅝": r"\frac{5}{8}", "⅞": r"\frac{7}{8}",
    "＝": "=", "＜": "<", "＞": ">", "＋": "+", "（": "(", "）": ")", "［": "[", "］": "]", "｛": r"\{", "｝": r"\}",
    "｜": "|",
}  # fmt: skip
_GREEK = {
    "α": "alpha", "β": "beta", "γ": "gamma", "δ": "delta", "ε": "epsilon", "ζ": "zeta", "η": "eta", "θ": "theta",
    "ι": "iota", "κ": "kappa", "λ": "lambda", "μ": "mu", "µ": "mu", "ν": "nu", "ξ": "xi", "ρ": "rho", "σ": "sigma",
    "τ": "tau", "υ": "upsilon", "φ": "phi", "ϕ": "phi", "χ": "chi", "ψ": "psi", "ω": "omega", "Γ": "Gamma",
    "Δ": "Delta",
    "Θ": "Theta", "Λ": "Lambda", "Σ": "Sigma", "Φ": "Phi", "Ψ": "Psi", "Ω": "Omega",
}  # fmt: skip
_SUPERSCRIPTS = str.maketrans("⁰⁴⁵⁶⁷⁸⁹ⁿ⁺", "0456789n+")
_SUPER_RUN = re.compile("[⁰¹²³⁴⁵⁶⁷⁸⁹ⁿ⁺⁻]+")
_SUB_RUN = re.compile("[₀₁₂₃₄₅₆₇₈₉ₙ]+")
_SUBSCRIPTS = str.maketrans("₀₁₂₃₄₅₆₇₈₉ₙ", "0123456789n")
_SUPER_ALL = str.maketrans("⁰¹²³⁴⁵⁶⁷⁸⁹ⁿ⁺⁻", "0123456789n+-")

_SPACING = re.compile(r"\\(?:quad|qquad|enspace|thinspace|medspace|thickspace|hfill|displaystyle|textstyle|limits"
                      r"|nolimits|left|right|bigl?|bigr?|Bigl?|Bigr?|biggl?|biggr?|Biggl?|Biggr?|middle|allowbreak"
                      r"|nonumber|notag|normalsize|large|Large|small)(?![A-Za-z])|\\[,;:> ]|~|\\!")  # fmt: skip
_RENAMED = [
    (re.compile(r"\\[dtc]frac(?![A-Za-z])"), r"\\frac"),
    (re.compile(r"\\[dt]binom(?![A-Za-z])"), r"\\binom"),
    (re.compile(r"\\leqs?l?a?n?t?(?![A-Za-z])"), r"\\le "),
    (re.compile(r"\\geqs?l?a?n?t?(?![A-Za-z])"), r"\\ge "),
    (re.compile(r"\\(?:neq|not *=)(?![A-Za-z])"), r"\\ne "),
    (re.compile(r"\\(?:lt)(?![A-Za-z])"), "<"),
    (re.compile(r"\\(?:gt)(?![A-Za-z])"), ">"),
    (re.compile(r"\\(?:varnothing)(?![A-Za-z])"), r"\\emptyset "),
    (re.compile(r"\\(?:backslash|smallsetminus)(?![A-Za-z])"), r"\\setminus "),
    (re.compile(r"\\(?:lbrace|\{)"), r"\\{"),
    (re.compile(r"\\(?:rbrace|\})"), r"\\}"),
    (re.compile(r"\\(?:lbrack)(?![A-Za-z])"), "["),
    (re.compile(r"\\(?:rbrack)(?![A-Za-z])"), "]"),
    (re.compile(r"\\(?:cdots|dots|dotsc|dotsb|ldots)(?![A-Za-z])|\.\.\.+"), r"\\ldots "),
    (re.compile(r"\\(?:degree|textdegree)(?![A-Za-z])"), r"^\\circ "),
    (re.compile(r"\\(?:ast|star)(?![A-Za-z])"), "*"),
    (re.compile(r"\\(?:Vert|lVert|rVert)(?![A-Za-z])"), r"\\|"),
    (re.compile(r"\\(?:vert|lvert|rvert)(?![A-Za-z])"), "|"),
    (re.compile(r"\\(?:varphi)(?![A-Za-z])"), r"\\phi "),
    (re.compile(r"\\(?:varepsilon)(?![A-Za-z])"), r"\\epsilon "),
    (re.compile(r"\\(?:vartheta)(?![A-Za-z])"), r"\\theta "),
    (re.compile(r"\\(?:rightarrow|Rightarrow|longrightarrow|implies)(?![A-Za-z])"), r"\\to "),
    (re.compile(r"\\(?:land|wedge)(?![A-Za-z])"), r"\\text{ and }"),
    (re.compile(r"\\(?:lor|vee)(?![A-Za-z])"), r"\\text{ or }"),
    (re.compile(r"<="), r"\\le "),
    (re.compile(r">="), r"\\ge "),
    (re.compile(r"(?<!\\)!="), r"\\ne "),
    (re.compile(r"\*\*"), "^"),
    (re.compile(r"\\\^"), "^"),
    (re.compile(r"\^ *(?:\{ *(?:\\circ|o) *\}|(?:\\circ|o)(?![A-Za-z]))"), r"^\\circ "),
    (re.compile(r"\\text(?:bf|it|rm|sf|tt|normal)(?![A-Za-z])|\\mbox(?![A-Za-z])|\\textsc(?![A-Za-z])"), r"\\text"),
    (re.compile(r"\\(?:mathbf|boldsymbol|bm|underline|mathit|mathsf|mathnormal|emph)(?![A-Za-z])"), ""),
    (
        re.compile(r"\\frac *\{ *\\(?:text|mathrm) *\{([^{}]*)\} *\} *\{ *\\(?:text|mathrm) *\{([^{}]*)\}([^{}]*)\}"),
        r"\\text{\1/\2}\3",
    ),
    (re.compile(r"\{:\}"), ":"),
    (re.compile(r"\\mathcal *(?:\{ *O *\}|O(?![A-Za-z]))"), "O"),
    (re.compile(r"\^ *\\prime(?![A-Za-z])"), "'"),
    (re.compile(r"\b(?:np|numpy|math)\.log(?=\()"), "ln"),
    (re.compile(r"\b(?:np|numpy|math)\.log10(?=\()"), "lg"),
    (re.compile(r"\b(?:np|numpy|math)\.(?=[a-z])"), ""),
]
_THOUSANDS = re.compile(r"(?<![\d.,])(\d{1,3})((?:(?:\{,\}|\\comma ) ?\d{3})+)(?!\d)")
_THIN = re.compile(r"(?<=\d), ?\\! ?(?=\d{3})|(?<=\d)\\! ?, ?(?=\d{3})|(?<=\d)(?:\\[,;!]|~)(?=\d{3})")
_EMPTY = re.compile(r"(\\(?:circ|pi|infty|degree|%|alpha|beta|theta)) *\{ *\}")
_PRIMES = re.compile(r"\^ *\{ *((?:\\prime *|')+)\}")
_TEXT_COMMA = re.compile(r"\\(?:text|mathrm) *\{,\}")
_INVISIBLE = re.compile("[\u200b-\u200f\u202a-\u202e\u2060-\u2064\ufe00-\ufe0f\u20e3\ufeff\u00ad]")
_PHANTOM = re.compile(r"\\[hv]?phantom *\{[^{}]*\}|\\label *\{[^{}]*\}|\\tag *\{[^{}]*\}")
_ROW_BREAK = re.compile(r"\\\\(?: *\[[^\]]{0,12}\])?")
_CIRCLED = re.compile("[①-⑳]")


@lru_cache(1 << 14)
def tidy(text: str) -> str:
    """Plain LaTeX: ASCII signs, one spelling for each command, no fonts, no spacing commands, no math delimiters.

    >>> tidy("−\\\\dfrac{1}{2}\\\\,x²")
    '-\\\\frac{1}{2} x^{2}'
    """
    if text.isascii():
        if text.isalnum():
            return text
    else:
        text = _ascii(text)
    if "\\" in text or "$" in text or "{,}" in text or "{:}" in text or "~" in text:
        text = _latex(text)
    else:
        for pattern, replacement in _PLAIN:
            text = pattern.sub(replacement, text)
    return " ".join(text.split())


_NEEDS_NO_BACKSLASH = ("<=", ">=", "!=", r"\*\*", "np|", "\\.\\.\\.+", "circ")
_PLAIN = [pair for pair in _RENAMED if any(mark in pair[0].pattern for mark in _NEEDS_NO_BACKSLASH)]


def _ascii(text: str) -> str:
    text = _INVISIBLE.sub("", text)
    text = _CIRCLED.sub(lambda m: rf"\textcircled{{{ord(m[0]) - 0x245F}}}", text)
    text = _SUPER_RUN.sub(lambda m: "^{" + m[0].translate(_SUPER_ALL) + "}", text)
    text = _SUB_RUN.sub(lambda m: "_{" + m[0].translate(_SUBSCRIPTS) + "}", text)
    out = []
    for ch in text:
        if ch < "\x80":
            out.append(ch)
        elif ch in _CHARACTERS:
            out.append(_CHARACTERS[ch])
        elif ch in _GREEK:
            out.append(f"\\{_GREEK[ch]} ")
        elif unicodedata.category(ch) == "Nd":
            out.append(str(unicodedata.digit(ch)))
        elif ch.isspace():
            out.append(" ")
        else:
            folded = unicodedata.normalize("NFKC", ch)
            out.append(folded if folded.isascii() else ch)
    return "".join(out)


def _latex(text: str) -> str:
    text = _ROW_BREAK.sub(r"\\cr ", _PHANTOM.sub("", text))
    text = _THIN.sub("{,}", _TEXT_COMMA.sub("{,}", text))
    text = _THOUSANDS.sub(_join_thousands, text)
    text = text.replace(r"\(", " ").replace(r"\)", " ").replace(r"\[", " ").replace(r"\]", " ")
    text = _dollars(text)
    text = _EMPTY.sub(r"\1 ", text)
    text = _PRIMES.sub(lambda m: "'" * (m[1].count("p") + m[1].count("'")), text)
    for pattern, replacement in _RENAMED:
        text = pattern.sub(replacement, text)
    return _SPACING.sub(" ", text)


def _join_thousands(match: re.Match[str]) -> str:
    return match[1] + "".join(ch for ch in match[2] if ch.isdigit())


_MONEY = re.compile(r"\$(?= *-?[\d.])")


def _dollars(text: str) -> str:
    """`\\$` is money; bare dollars are math delimiters, but a single one before a digit is money too."""
    text = text.replace(r"\$", r"\usd ").replace(r"\textdollar", r"\usd ")
    if text.count("$") == 1:
        return _MONEY.sub(r"\\usd ", text).replace("$", " ")
    return text.replace("$", " ")


_KEY_DROP = re.compile(r"\\(?:text|mathrm|operatorname)(?![A-Za-z])|[\s{}]|\\comma")


@lru_cache(1 << 14)
def key(text: str) -> str:
    """A string under which two spellings of one text meet: case, spaces, braces and fonts do not count.

    >>> key(r"\\text{Evelyn}") == key("evelyn")
    True
    """
    return _KEY_DROP.sub("", tidy(text)).casefold().strip(".,;:!?\"'`*")
