"""Choice letters: which options a text picks, whatever brackets, case or option text stand around them."""

from __future__ import annotations

import re

from algorist.verify.normalise import tidy

_TEXT = re.compile(r"\\(?:text|mathrm|mathbf|operatorname)\s*\{([^{}]*)\}")
_GOLD = re.compile(r"\(?([A-J])\)?\.?")
_MULTI_RUN = re.compile(r"[A-H]{2,8}")
_MULTI_SPLIT = re.compile(r"\(?[A-H]\)?(?:(?:[, ]|and|\\comma)+\(?[A-H]\)?)+")
_HEAD = re.compile(
    r"(?:(?:the )?(?:correct |final |right )?(?:option|choice|answer)(?: is)?|选项|选择|选|答案[是为]?)?"
    r"\s*[:：]?\s*[\(\[（]?\s*([A-Ja-j])\s*(?:[\)\]）.:：,、]|$)",
    re.IGNORECASE,
)
_SPACED = re.compile(r"([A-J])\s+([\d(\\].*)")
_LONE = re.compile(r"(?<![A-Za-z\\])[A-J](?![A-Za-z])|[+=<>^]")
_MORE = re.compile(r"(?:^|[^A-Za-z])(?:or|and|或|和|,|/|、|\\comma)\s*[\(\[]?\s*([A-J])\s*(?:[\)\].:]|$)")


def plain(text: str) -> str:
    """The text without fonts, braces and sentence marks."""
    text = tidy(text).replace("\\{", " ").replace("\\}", " ")
    for _ in range(3):
        text = _TEXT.sub(r"\1", text)
    return " ".join(text.replace("{", " ").replace("}", " ").split()).strip(" .`\"'*")


def of_gold(gold: str) -> frozenset[str] | None:
    """The letters of a gold that is a choice: B, (B), AC, A B D; None for any other.

    >>> sorted(of_gold("A B D")), of_gold("42")
    (['A', 'B', 'D'], None)
    """
    text = plain(gold)
    if match := _GOLD.fullmatch(text):
        return frozenset(match[1])
    if _MULTI_RUN.fullmatch(text) and list(text) == sorted(set(text)):
        return frozenset(text)
    if _MULTI_SPLIT.fullmatch(text):
        letters = re.findall("[A-H]", text)
        return frozenset(letters) if len(set(letters)) == len(letters) and letters == sorted(letters) else None
    return None


def of_answer(answer: str) -> frozenset[str] | None:
    """The letters an answer picks; None where it picks none.

    >>> of_answer(r"\\textbf{(B) }5"), sorted(of_answer("A or B")), of_answer("7")
    (frozenset({'B'}), ['A', 'B'], None)
    """
    text = plain(answer)
    if len(text) == 1 and text.upper() in "ABCDEFGHIJ":
        return frozenset(text.upper())
    bare = text.replace("(", "").replace(")", "").replace("和", ",").replace("、", ",").replace("\\comma", ",")
    if re.fullmatch(r"[A-J]{2,8}|[a-j]{2,8}", bare) and len(set(bare)) == len(bare):
        return frozenset(bare.upper())
    if re.fullmatch(r"[A-J](?:(?:[,;]|\s|and|or|/)+[A-J])+", bare):
        return frozenset(re.findall(r"(?<![a-z])[A-J](?![a-z])", bare))
    if re.fullmatch(r"[a-j](?:\s*,\s*[a-j])+", bare):
        return frozenset(bare.upper()) - {",", " "}
    spaced = _SPACED.fullmatch(text)
    if spaced and not _LONE.search(spaced[2]):
        return frozenset(spaced[1])
    match = _HEAD.match(text)
    if match is None:
        return None
    if (
        match.end() == len(text)
        or text[match.end() - 1] in ")].:：）"
        or match[0].lower().startswith(("option", "choice", "选"))
    ):
        rest = text[match.end() :]
        more = _MORE.findall(rest) + re.findall(r"\(([A-J])\)", rest)
        return frozenset([match[1].upper(), *more])
    return None
