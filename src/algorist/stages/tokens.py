"""Which character of a response belongs to which of its tokens, found by decoding its ids; text is never encoded again."""

from collections.abc import Callable, Collection, Iterator, Sequence

Decode = Callable[[Sequence[int]], str]
"""Token ids to text, special tokens left out."""


def pieces(ids: Sequence[int], text: str, decode: Decode, *, hidden: Collection[int] = ()) -> tuple[str, ...]:
    """The characters each token adds to `text`: piece_t = decoded prefix t without decoded prefix t - 1. They join to `text`.

    hidden: ids that `text` leaves out (stop ids); their piece is "". A character that several tokens make together
    belongs to the last of them. Where decoding a prefix does not begin as the text does (a tokenizer that cleans up
    afterwards), the token gets what the longest agreeing prefix adds, and the last one the rest.

    >>> words = {1: "a", 2: " =", 3: " 1", 9: "<eos>"}
    >>> pieces([1, 2, 3, 9], "a = 1", lambda ids: "".join(words[i] for i in ids), hidden={9})
    ('a', ' =', ' 1', '')
    """
    shown = [i for i in ids if i not in hidden]
    found = [decode([i]) for i in shown]
    if "".join(found) != text:
        found = list(_windowed(shown, decode))
    if "".join(found) != text:
        found = _prefixes(shown, text, decode)
    parts = iter(found)
    result = tuple("" if i in hidden else next(parts) for i in ids)
    assert "".join(result) == text, "the pieces of a response join to its text"
    return result


def _windowed(ids: Sequence[int], decode: Decode) -> Iterator[str]:
    """Each token decoded behind the last whole piece, so that byte pieces and leading spaces come out right; linear."""
    start, read = 0, 0
    for t in range(1, len(ids) + 1):
        before, now = decode(ids[start:read]), decode(ids[start:t])
        if now.endswith("�") and t < len(ids):  # a character is still incomplete
            yield ""
            continue
        yield now[len(before) :]
        start, read = read, t


def _prefixes(ids: Sequence[int], text: str, decode: Decode) -> list[str]:
    """The definition itself; quadratic, for tokenizers that the other two do not fit."""
    found, done = [], 0
    for t in range(1, len(ids) + 1):
        reached = max(done, _agreeing(decode(ids[:t]), text)) if t < len(ids) else len(text)
        found.append(text[done:reached])
        done = reached
    return found


def _agreeing(prefix: str, text: str) -> int:
    """Characters at the beginning that both have in common."""
    return next((i for i, (a, b) in enumerate(zip(prefix, text, strict=False)) if a != b), min(len(prefix), len(text)))
