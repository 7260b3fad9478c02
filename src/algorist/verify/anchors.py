"""Answers in words: #### lines, "the answer is", 答案是, <answer>, a final JSON object; hedges, retractions."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass

MAX_STATEMENTS = 64
_REACH = 600


@dataclass(frozen=True, slots=True)
class Statement:
    """An answer that the text states, where it stands, and whether the text hedges it."""

    text: str
    start: int
    end: int
    hedged: bool = False
    closed: bool = True


def _words(*alternatives: str) -> re.Pattern[str]:
    return re.compile("|".join(alternatives), re.IGNORECASE)


_ANCHOR = _words(
    r"\banswers?\b(?: to (?:the|this|our) (?:question|problem|exercise))?",
    r"\b(?:correct|right) (?:option|choice)\b",
    "答案|故选|应选|所以选|因此选|正确选项|正确的选项|最终结果",
)
_LINK = re.compile(
    r"[*_`\"'”）) \t]*"
    r"(?:(?:(?:is|are|was|were|would be|should be|will be|must be|equals)(?![A-Za-z])"
    r"|应该是|应该为|应为|应是|是|为|選|选|=)[ \t]*)?"
    r"(?:(?:therefore|thus|simply|then|just|indeed|clearly|exactly|approximately|about|roughly|given by|equal to|option"
    r"|choice)\b[ \t]*)*"
    r"(?:[:：=][ \t]*)?[*_` \t]*",
    re.IGNORECASE,
)
_NEGATION = _words("not|neither|never|no longer|nor|n't|n’t|不是|不为|不等于")
_HEDGE = _words(
    r"\b(?:either|possibly|maybe|perhaps|probably|might|could be|not sure|unsure|unclear|unknown|i guess|or maybe)\b",
    r"\b(?:uncertain|depends|otherwise)\b",
    "可能|也许|不确定|大概",
)
_SENTENCE_END = re.compile(r"(?<!i\.e)(?<!e\.g)[.．](?=\s|$|\*|<)|。|\?|？|；(?=\S{8})|\n|<\|")
_ASIDE = _words(
    r"(?:,|，)?\s+(?:because|since|as [a-z]+ed|which|where|when|so that|hence|therefore|that is|rounded)\b",
    r"(?:,|，)?\s+(?:i\.e\.|e\.g\.)",
    r"[,，]\s*(?:so|and so|thus|because|by|from|using|as|per|after|with|not)\b",
    r"\s(?:rather than|instead of|and not)\b",
    "，?因为|，所以|[，,]?而?不是",
)
_NO_LINK_NEEDED = ("故选", "应选", "所以选", "因此选")
_MATH_OPEN = {"$$": "$$", "$": "$", r"\(": r"\)", r"\[": r"\]"}


def statements(part: str) -> list[Statement]:
    """Answers introduced by words, in order; negated ones are left out.

    >>> [s.text for s in statements("The answer is not 12. The answer is 13.")]
    ['13']
    """
    found: list[Statement] = []
    matches = list(_ANCHOR.finditer(part))[-MAX_STATEMENTS:]
    for index, match in enumerate(matches):
        if part[match.start() - 1 : match.start()] == '"' and part[match.end() : match.end() + 1] == '"':
            continue  # a JSON key; `final_json` reads it
        link = _LINK.match(part, match.end())
        assert link is not None, "every part of the link is optional"
        linked = any(ch not in "*_`\"'”）) \t" for ch in link[0])
        begin = link.end()
        if not linked and match[0] not in _NO_LINK_NEEDED and not _is_heading(part, match.start(), begin):
            continue
        if _NEGATION.match(part, begin):
            continue
        statement = _clause(part, begin)
        inner = matches[index + 1].start() if index + 1 < len(matches) else len(part)
        if (
            statement is not None and not begin <= inner < statement.end
        ):  # "Final answer: the answer is 4" states it once
            found.append(statement)
    last = _last_line(part)
    if last is not None and not (found and found[-1].end > last.start):
        found.append(last)
    return found


def _last_line(part: str) -> Statement | None:
    """A last line `A: 42`, the form of question-and-answer transcripts."""
    text = part.rstrip()
    start = text.rfind("\n") + 1
    line = text[start:]
    if len(line) > 100 or not line.startswith(("A: ", "A：")) or not line[2:].strip():
        return None
    return Statement(line[2:].strip(), start, len(text), bool(_HEDGE.search(line)))


def _is_heading(part: str, start: int, end: int) -> bool:
    """`# Answer` or `**Final answer**` alone on its line, the value below."""
    line_start = part.rfind("\n", 0, start) + 1
    before = part[line_start:start].strip().lower()
    after = part[end : end + 1]
    return after in ("\n", "") and before.strip("#*_ ") in ("", "final", "the", "the final", "最终", "my", "short")


def _clause(part: str, begin: int) -> Statement | None:
    """The answer from `begin`: a math span or the rest of the sentence."""
    while begin < len(part) and part[begin] in " \t\r\n*_`":
        begin += 1
    rest = part[begin : begin + _REACH]
    if not rest:
        return None
    for opening, closing in (("$$", "$$"), (r"\[", r"\]")):
        if rest.startswith(opening):
            end = rest.find(closing, len(opening))
            if end < 0:
                return None
            return Statement(rest[len(opening) : end], begin, begin + end + len(closing))
    end_match = _SENTENCE_END.search(rest)
    end = end_match.start() if end_match else len(rest)
    sentence = rest[:end]
    asked = end_match is not None and (end_match[0] in "?？" or sentence.rstrip().endswith(("吗", "么")))
    hedged = bool(_HEDGE.search(sentence)) or asked
    aside = _ASIDE.search(sentence)
    if aside:
        sentence = sentence[: aside.start()]
    text = _value_of(sentence.strip(" \t*_`"))
    if not text:
        return None
    return Statement(text, begin, begin + end, hedged)


_SPAN = re.compile(r"(\$[^$]+\$|\\\(.+?\\\))(.*)")
_LEADING_NUMBER = re.compile(r"([-+]?\\?\$?\d[\d,]*(?:\.\d+)?(?:/\d+)?%?)(\s+[A-Za-z][A-Za-z' -]*)$")
_NOUN_ENDS = re.compile(
    r"\b(?:or|and|not|than|more|less|minus|plus|times|if|unless|percent|hundred|thousand|million|billion|half)\b"
    r"|\b(?:but|however|though|although|yet|except|could|might|may|cannot|can't|dozen|squared|cubed)\b",
    re.IGNORECASE,
)


def _value_of(sentence: str) -> str:
    """The value in a clause: its leading math span or number where only words without figures follow."""
    span = _SPAN.match(sentence)
    if span:
        rest = span[2].strip(" .,:;!*_`")
        if not rest:
            return span[1]
        if (
            len(rest.split()) > 3
            and not any(ch.isdigit() or ch in "$\\=" for ch in rest)
            and not _NOUN_ENDS.search(rest)
        ):
            return span[1]
        return sentence
    number = _LEADING_NUMBER.match(sentence)
    if number and len(number[2].split()) > 3 and not _NOUN_ENDS.search(number[2]):
        return number[1]
    return sentence


_HASHES = re.compile(r"(?m)^[ \t]*####(?!#)[ \t]*(.*)$|####(?!#)[ \t]*([-+$\d][^\n]*)")
_HEADING = _words(
    r"(?:step|solution|final|answer|conclusion|verif|explanation|part|case|note|problem|method|check|analysis|given)",
    r"(?:approach|summary|result|question|\d+\.\s|\*\*(?![-+$\\\d])|\*\*\d+[.)]\s|第|步骤|解)",
)


def hashes(part: str, declared: bool) -> list[Statement]:
    """`#### 42` lines; headings of that level are not answers unless the format declares hashes.

    >>> [s.text for s in hashes("#### Step 1: add\\n#### 12", False)]
    ['12']
    """
    found = []
    for match in _HASHES.finditer(part):
        text = (match[1] if match[1] is not None else match[2]).strip(" \t*`")
        if not text or (not declared and (_HEADING.match(text) or text.endswith(":") or len(text) > 200)):
            continue
        found.append(Statement(text, match.start(), match.end()))
    return found[-MAX_STATEMENTS - 1 :]


def earlier_tags(part: str, end: int) -> list[str]:
    """What the closed answer tags before `end` hold, the last MAX_STATEMENTS of them.

    >>> earlier_tags("<answer>5</answer><answer>6</answer>", 18)
    ['5']
    """
    found: list[str] = []
    position = 0
    while (start := part.find("<answer>", position, end)) >= 0:
        close = part.find("</answer>", start)
        if close < 0 or close >= end:
            break
        found.append(part[start + len("<answer>") : close].strip())
        position = close
    return [text for text in found if text not in ("", "and", "...")][-MAX_STATEMENTS:]  # a format that is quoted


def answer_tag(part: str) -> Statement | None:
    """The last <answer> ... </answer>; `closed` is False where the end tag is missing."""
    start = part.rfind("<answer>")
    if start < 0:
        return None
    begin = start + len("<answer>")
    end = part.find("</answer>", begin)
    return Statement(
        part[begin : end if end >= 0 else len(part)], begin, end if end >= 0 else len(part), closed=end >= 0
    )


_KEYS = ("answer", "final_answer", "finalAnswer", "Answer", "答案")


def final_json(part: str) -> Statement | None:
    """The answer of a JSON object that ends the text, in a code fence or not.

    >>> final_json('{"reasoning": "6 x 7", "answer": "42"}').text
    '42'
    """
    text = part.rstrip("` \t\n\r")
    if not text.endswith("}"):
        return None
    depth = 0
    for index in range(len(text) - 1, max(len(text) - 8000, 0) - 1, -1):
        depth += (text[index] == "}") - (text[index] == "{")
        if depth == 0:
            return _from_json(text[index:], index)
    return None


def _from_json(text: str, start: int) -> Statement | None:
    try:
        value = json.loads(text, parse_float=str, parse_int=str)
    except (ValueError, RecursionError):
        return None
    if not isinstance(value, dict):
        return None
    for name in _KEYS:
        found = value.get(name)
        if isinstance(found, list) and all(isinstance(member, str) for member in found):
            found = ", ".join(found)
        if isinstance(found, str) and found.strip():
            return Statement(found, start, start + len(text))
    return None


_RETRACTION = _words(
    r"\b(?:my mistake|a mistake|an error|correction|on second thought|on reflection|scratch that|oops)\b",
    r"\b(?:should have been|was wrong|is wrong|that's wrong|is incorrect|not correct|not right|i was mistaken)\b",
    r"\bmust be wrong\b",
    "不对|更正|算错|写错|有误",
)
_DOUBT = _words(
    r"\b(?:actually|wait|hold on|hmm|instead|rather|alternatively it is)\b|\bno,",
    r"\bshould be (?:\$|\\|-?\d|equal)",
    "应该是|应为|等等",
)


def retracted(tail: str) -> bool:
    """True where what follows an answer takes it back.

    >>> retracted(" Wait, that is off. It should be 14."), retracted(" Check: 4^2 = 16.")
    (True, False)
    """
    if _RETRACTION.search(tail):
        return True
    doubt = _DOUBT.search(tail)
    return doubt is not None and any(ch.isdigit() for ch in tail[doubt.start() :])
