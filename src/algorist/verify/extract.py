"""Where the final answer of a response stands: a total function, linear in the length of the response.

Only what follows the last `</think>` counts. In `auto` mode the rules, strongest first:

    answer_tag    <answer> ... </answer>
    boxed         \\boxed{...}, \\fbox{...}; neighbours joined by a comma, `and` or `or` are one list
    hashes        #### 42
    anchor        "the answer is 42", "Answer: 42", 答案是 42, 故选 B, a heading `# Answer` and the line below it
    json          {"answer": "42"} at the end

Whatever other final answers a response states are rivals: the judge compares them, and does not pay where they differ.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from algorist.verify import anchors
from algorist.verify.item import Item

MAX_TAIL = 64 * 1024
MAX_ANSWER = 2000
MAX_RIVALS = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class Extraction:
    """What was found. `answer` is None where there is none, and `reason` says why.

    Example:
        >>> Extraction(answer="42", rule="boxed", span=(10, 12)).reason
        ''
    """

    answer: str | None
    """The final answer as written."""
    reason: str = ""
    """no_answer, empty, truncated, unclosed_think, only_in_think, retracted, hedge, conflict, bound."""
    rule: str = ""
    """Which rule found it."""
    span: tuple[int, int] = (0, 0)
    """Characters of the response that the answer came from."""
    rivals: tuple[str, ...] = ()
    """Other boxed answers of the final part; each must be equal to `answer`."""
    statements: tuple[str, ...] = ()
    """Answers stated in words; none may contradict `answer`."""


_END_TOKENS = ("</s>", "<eos>", "[EOS]")
_BOX = re.compile(r"\\(?:boxed|fbox)(?![A-Za-z])")
_BRACE = re.compile(r"\\.|[{}]", re.DOTALL)
_JOINED = re.compile(
    r"[\s$.()\[\]\\*]*(?:,|;|，|、|and|or|及|和|或|与|,\s*and|,\s*or)[\s$()\[\]\\*]*|\s*\$?\s*\\(?:text|mathrm)\{\s*(?:,|and|or)\s*\}\s*\$?\s*"
)
_BARE_BOX = re.compile(r"[ \t]*([^\s${}\\]+)")


def extract(item: Item) -> Extraction:
    """The final answer of a response under its declared answer format. Never raises.

    >>> extract(Item(gold="", response="So it is $\\\\boxed{\\\\frac{1}{2}}$.")).answer
    '\\\\frac{1}{2}'
    >>> extract(Item(gold="", response="<think>\\\\boxed{25} let me check")).reason
    'unclosed_think'
    """
    response = item.response
    start, reason = _final_part(response)
    if reason:
        return Extraction(answer=None, reason="truncated" if item.truncated else reason)
    cut = max(start, len(response) - MAX_TAIL)
    part = _without_end_tokens(response[cut:])
    if not part.strip():
        thought = start > 0 and _BOX.search(response, 0, start) is not None
        return Extraction(
            answer=None, reason="truncated" if item.truncated else "only_in_think" if thought else "empty"
        )
    if item.answer_format == "first_line":
        return _first_line(part, cut, item.truncated)
    if item.answer_format == "last_number":
        return _last_number(part, cut, item.truncated)
    return _stated(part, cut, item)


def _without_end_tokens(text: str) -> str:
    """The text without white space and stray end-of-text tokens at its end."""
    while True:
        text = text.rstrip()
        if text.endswith("|>") and (start := text.rfind("<|", len(text) - 44)) >= 0:
            text = text[:start]
        elif mark := next((mark for mark in _END_TOKENS if text.endswith(mark)), ""):
            text = text[: -len(mark)]
        else:
            return text


def _final_part(response: str) -> tuple[int, str]:
    """Where the part after reasoning begins, or why there is none."""
    close = response.rfind("</think>")
    start = close + len("</think>") if close >= 0 else 0
    if response.find("<think>", start) >= 0:
        return 0, "unclosed_think"
    return start, ""


def _first_line(part: str, offset: int, truncated: bool) -> Extraction:
    lead = len(part) - len(part.lstrip())
    line, newline, _ = part.lstrip().partition("\n")
    if truncated and not newline:
        return Extraction(answer=None, reason="truncated", rule="first_line")
    return _checked(line.strip(), "first_line", (offset + lead, offset + lead + len(line)))


def _last_number(part: str, offset: int, truncated: bool) -> Extraction:
    text = part.rstrip()
    if truncated:
        return Extraction(answer=None, reason="truncated", rule="last_number")
    begin = max(text.rfind("\n"), text.rfind("=")) + 1
    return _checked(text[begin:].strip(), "last_number", (offset + begin, offset + len(text)))


def _checked(
    answer: str, rule: str, span: tuple[int, int], rivals: tuple[str, ...] = (), statements: tuple[str, ...] = ()
) -> Extraction:
    if not answer.strip(" .*`$"):
        return Extraction(answer=None, reason="empty", rule=rule, span=span)
    if len(answer) > MAX_ANSWER:
        return Extraction(answer=None, reason="bound", rule=rule, span=span)
    return Extraction(answer=answer, rule=rule, span=span, rivals=rivals, statements=statements)


@dataclass(frozen=True, slots=True)
class Found:
    """One candidate: its text and where it stands in the final part."""

    text: str
    start: int
    end: int


def boxes(part: str) -> tuple[list[Found], bool]:
    """All outermost boxes in order, and whether the last one is never closed. One pass over the braces.

    >>> [box.text for box in boxes("\\\\boxed{1} and \\\\boxed 2")[0]]
    ['1', '2']
    """
    closing: dict[int, int] = {}
    stack: list[int] = []
    if not _BOX.search(part):
        return [], False
    for match in _BRACE.finditer(part):
        if match[0] == "{":
            stack.append(match.start())
        elif match[0] == "}" and stack:
            closing[stack.pop()] = match.start()
    found: list[Found] = []
    open_end = False
    end = 0
    for match in _BOX.finditer(part):
        if match.start() < end:
            continue
        at = match.end()
        while at < len(part) and part[at] in " \t":
            at += 1
        if at < len(part) and part[at] == "{":
            open_end = at not in closing
            if not open_end:
                end = closing[at] + 1
                found.append(Found(part[at + 1 : end - 1], match.start(), end))
        elif bare := _BARE_BOX.match(part, match.end()):
            end = bare.end()
            found.append(Found(bare[1].rstrip(".,;:"), match.start(), end))
    return found, open_end


def _groups(part: str, found: list[Found]) -> list[Found]:
    """Boxes joined by a comma, `and` or `or` become one list."""
    groups: list[Found] = []
    for box in found:
        if groups and box.start - groups[-1].end <= 40:
            between = part[groups[-1].end : box.start]
            if box.text == groups[-1].text and _JOINED.fullmatch(between):
                groups[-1] = Found(box.text, groups[-1].start, box.end)
                continue
            if _JOINED.fullmatch(between):
                word = " or " if "or" in between or "或" in between else ", "
                groups[-1] = Found(groups[-1].text + word + box.text, groups[-1].start, box.end)
                continue
        groups.append(box)
    return [_bracketed(part, group) if ", " in group.text else group for group in groups]


def _bracketed(part: str, group: Found) -> Found:
    """(\\boxed{2}, \\boxed{3}) is a point, not a list."""
    before = part[max(group.start - 12, 0) : group.start].replace("$", "").replace("\\left", "").rstrip()
    after = part[group.end : group.end + 12].replace("$", "").replace("\\right", "").lstrip()
    if before.endswith("(") and after.startswith(")"):
        return Found(f"({group.text})", group.start, group.end)
    return group


def _stated(part: str, offset: int, item: Item) -> Extraction:
    """The rules of `auto`, `boxed` and `hashes`."""
    found, open_end = boxes(part)
    if open_end:
        return Extraction(answer=None, reason="truncated", rule="boxed")
    groups = [group for group in _groups(part, found) if group.text.strip()]
    if item.answer_format == "boxed":
        return _from_boxes(groups, (), part, offset) if groups else _nothing(found, part, item)
    hashes = anchors.hashes(part, item.answer_format == "hashes")
    if item.answer_format == "hashes":
        return _from_statements(hashes, "hashes", part, offset, item, ()) if hashes else _nothing(found, part, item)
    tag = anchors.answer_tag(part)
    if tag is not None and tag.closed:
        return _from_tag(tag.text, tag.start, part, offset, groups)
    spoken = anchors.statements(part)
    if groups:
        final = anchors.final_json(part)
        stated = tuple(
            s.text
            for s in (*spoken, *hashes, *([final] if final else []))
            if not s.hedged and not any(g.start < s.end and s.start < g.end for g in groups)
        )
        return _from_boxes(groups, stated, part, offset)
    if hashes:
        rest = tuple(s.text for s in spoken if not s.hedged)
        return _from_statements(hashes, "hashes", part, offset, item, rest)
    if spoken:
        return _from_statements(spoken, "anchor", part, offset, item, ())
    answer = anchors.final_json(part)
    if answer is not None:
        return _checked(answer.text, "json", (offset + answer.start, offset + answer.end))
    return _nothing(found, part, item)


def _nothing(found: list[Found], part: str, item: Item) -> Extraction:
    if found:
        return Extraction(answer=None, reason="empty", rule="boxed")
    return Extraction(answer=None, reason="truncated" if item.truncated else "no_answer")


def _from_boxes(groups: list[Found], stated: tuple[str, ...], part: str, offset: int) -> Extraction:
    last = groups[-1]
    rivals = tuple(dict.fromkeys(g.text for g in groups[:-1] if g.text != last.text))
    if len(rivals) > MAX_RIVALS or any(len(rival) > MAX_ANSWER for rival in rivals):
        return Extraction(answer=None, reason="conflict", rule="boxed")
    if anchors.retracted(part[last.end :]):
        return Extraction(answer=None, reason="retracted", rule="boxed", span=(offset + last.start, offset + last.end))
    span = (offset + last.start, offset + last.end)
    return _checked(last.text, "boxed", span, rivals=rivals, statements=tuple(dict.fromkeys(stated))[-MAX_RIVALS:])


def _from_statements(
    stated: list[anchors.Statement], rule: str, part: str, offset: int, item: Item, others: tuple[str, ...]
) -> Extraction:
    last = stated[-1]
    span = (offset + last.start, offset + last.end)
    if last.hedged:
        return Extraction(answer=None, reason="hedge", rule=rule, span=span)
    if item.truncated and last.end >= len(part.rstrip()):
        return Extraction(answer=None, reason="truncated", rule=rule, span=span)
    if anchors.retracted(part[last.end :]):
        return Extraction(answer=None, reason="retracted", rule=rule, span=span)
    earlier = tuple(dict.fromkeys(s.text for s in stated[:-1] if not s.hedged and s.text != last.text))
    if rule == "hashes":
        return _checked(last.text, rule, span, rivals=earlier[-MAX_RIVALS:], statements=others[-MAX_RIVALS:])
    return _checked(last.text, rule, span, statements=(*earlier, *others)[-MAX_RIVALS:])


def _boxed_in(text: str) -> str:
    """The last box of a text, else the text."""
    found, _ = boxes(text)
    return found[-1].text if found else text


def _from_tag(text: str, start: int, part: str, offset: int, groups: list[Found]) -> Extraction:
    inside, _ = boxes(text)
    inner = _groups(text, inside)
    answer = inner[-1].text if inner else None
    if answer is None:
        spoken = anchors.statements(text)
        answer = spoken[-1].text if spoken else text.strip()
    tags = [_boxed_in(tag) for tag in anchors.earlier_tags(part, start)]
    rivals = tuple(dict.fromkeys(rival for rival in (*tags, *(g.text for g in groups)) if rival != answer))
    if len(rivals) > 2 * MAX_RIVALS or any(len(rival) > MAX_ANSWER for rival in rivals):
        return Extraction(answer=None, reason="conflict", rule="answer_tag")
    return _checked(answer, "answer_tag", (offset + start, offset + start + len(text)), rivals=rivals)
