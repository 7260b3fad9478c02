"""HTML that cannot be broken out of: every plain string is escaped, only what these functions made is markup."""

import html
import unicodedata
from collections.abc import Iterable, Mapping
from typing import Final, final

_VOID: Final = frozenset({"meta", "input", "br", "path", "line", "rect", "circle", "polygon", "polyline"})
_BIDI: Final = frozenset("\u061c\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069")


@final
class Safe(str):
    """Markup made here; never made of model text directly."""

    __slots__ = ()


Child = str | Safe | None | Iterable["Child"]


def el(tag: str, attributes: Mapping[str, object] | None = None, /, *children: Child) -> Safe:
    """An element. Plain strings among attributes and children are escaped; None is left out; True is a bare attribute.

    >>> el("p", {"class": "x", "title": '"<'}, "a < b", el("b", None, "&"))
    '<p class="x" title="&quot;&lt;">a &lt; b<b>&amp;</b></p>'
    """
    shown = "".join(
        f" {name}" if value is True else f' {name}="{html.escape(clean(str(value)))}"'
        for name, value in (attributes or {}).items()
        if value is not None and value is not False
    )
    if tag in _VOID:
        return Safe(f"<{tag}{shown}>" if tag in ("meta", "input", "br") else f"<{tag}{shown}/>")
    return Safe(f"<{tag}{shown}>{join(children)}</{tag}>")


def join(children: Iterable[Child]) -> Safe:
    """Children one after the other, plain strings escaped.

    >>> join(["<i>", [el("br"), None]])
    '&lt;i&gt;<br>'
    """
    parts: list[str] = []
    for child in children:
        if child is None:
            continue
        if isinstance(child, Safe):
            parts.append(child)
        elif isinstance(child, str):
            parts.append(html.escape(clean(child)))
        else:
            parts.append(join(child))
    return Safe("".join(parts))


def clean(text: str) -> str:
    """Text with control, direction and broken characters made visible, so that a page shows what is really there.

    >>> clean("a\\x00b\\u202ec")
    'a␀b⟨U+202E⟩c'
    """
    return "".join(_visible(c) for c in text) if any(_hidden(c) for c in text) else text


def _hidden(character: str) -> bool:
    return character in _BIDI or (unicodedata.category(character) in ("Cc", "Cs") and character not in "\n\t")


def _visible(character: str) -> str:
    if not _hidden(character):
        return character
    code = ord(character)
    return chr(0x2400 + code) if code < 0x20 else f"⟨U+{code:04X}⟩"
