"""Problems apart: duplicates out, held-out away from training, SFT away from RL. All of it counted."""

from __future__ import annotations

import re
import unicodedata
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace

from algorist.errors import InputError
from algorist.flow import Problem
from algorist.problems.config import HeldoutConfig
from algorist.problems.rows import Dropped
from algorist.seeds import derive

Placed = tuple[Problem, str]
"""A problem and the place it came from."""


def question_key(question: str) -> str:
    """What makes two questions the same: their words, without regard to case and white space.

    >>> question_key("What  is 3 + 4?") == question_key("what is 3 + 4? ")
    True
    """
    return " ".join(question.split()).casefold()


def plain_question(question: str) -> str:
    """A question without regard to case, white space, width of characters, thousands separators, leading zeros, end marks.

    >>> plain_question("What is １,000+04 ?") == plain_question("what is 1000 + 4")
    True
    """
    text = unicodedata.normalize("NFKC", question).casefold().replace("−", "-").replace("$", "")
    text = re.sub(r"(?<=\d),(?=\d{3}(?!\d))", "", text)
    words = re.findall(r"\d+(?:\.\d+)?|[^\W\d_]+|[^\w\s]", text)
    while words and words[-1] in ".?!:;,=":
        words.pop()
    return " ".join(str(int(w)) if w.isdigit() else w for w in words)


def distinct(problems: Sequence[Placed]) -> tuple[list[Placed], list[Dropped]]:
    """One problem per question. Repeats are dropped; a question with two different golds is dropped altogether.

    A question that differs from another one in punctuation, spacing or the writing of numbers only, with the same gold,
    repeats it.
    """
    by_key: dict[str, list[Placed]] = defaultdict(list)
    for problem, where in problems:
        by_key[question_key(problem.question)].append((problem, where))
    kept: list[Placed] = []
    dropped: list[Dropped] = []
    for same in by_key.values():
        (first, place), others = same[0], same[1:]
        if any(other.gold != first.gold for other, _ in others):
            golds = ", ".join(dict.fromkeys(problem.gold for problem, _ in same))
            detail = f"one question with different golds ({golds}), first at {place}"
            dropped += [Dropped(reason="conflicting_gold", where=where, detail=detail) for _, where in same]
            continue
        # a repeat may bring the solution that the first one lacks
        solved = next((problem for problem, _ in same if problem.solution), first)
        kept.append((replace(first, solution=solved.solution), place))
        dropped += [Dropped(reason="duplicate", where=where, detail=f"same as {place}") for _, where in others]
    seen: dict[tuple[str, str], str] = {}
    single: list[Placed] = []
    for problem, where in kept:
        key = _plain(problem)
        if key in seen:
            detail = f"same as {seen[key]}, written otherwise"
            dropped.append(Dropped(reason="duplicate", where=where, detail=detail))
        else:
            seen[key] = where
            single.append((problem, where))
    return single, dropped


def _plain(problem: Problem) -> tuple[str, str]:
    return plain_question(problem.question), problem.gold.strip()


@dataclass(frozen=True, slots=True, kw_only=True)
class Parts:
    """A split."""

    train: list[Placed]
    heldout: list[Placed]
    dropped: list[Dropped]


def shuffled(problems: Sequence[Placed], seed: int, use: str) -> list[Placed]:
    """An order that depends on seed and ids only, so that adding a row moves no other."""
    return sorted(problems, key=lambda placed: (derive(seed, use, placed[0].id), placed[0].id))


def split_off(problems: Sequence[Placed], cfg: HeldoutConfig, seed: int) -> Parts:
    """Held-out problems taken out of the training source, disjoint by content or by family.

    Raises InputError where there are too few problems or families.
    """
    wanted = cfg.count if cfg.count is not None else max(1, round(len(problems) * (cfg.share or 0.0)))
    if wanted >= len(problems):
        raise InputError(
            f"problems.heldout: {wanted} held-out problems leave nothing to train on, since the sources gave "
            f"{len(problems)}. "
            "Lower it, or give more problems."
        )
    if cfg.by == "content":
        order = shuffled(problems, seed, "heldout")
        held = {problem.id for problem, _ in order[:wanted]}
        return Parts(train=[p for p in problems if p[0].id not in held], heldout=order[:wanted], dropped=[])
    return _by_family(problems, wanted, seed)


def _by_family(problems: Sequence[Placed], wanted: int, seed: int) -> Parts:
    """Whole families until there are enough; what they hold beyond that is dropped, since training must not see it."""
    families: dict[str, list[Placed]] = defaultdict(list)
    for placed in problems:
        families[placed[0].family].append(placed)
    order = sorted(families, key=lambda name: (derive(seed, "heldout_family", name), name))
    chosen: list[str] = []
    while order and sum(len(families[name]) for name in chosen) < wanted:
        chosen.append(order.pop(0))
    if not order:
        sizes = ", ".join(f"{name or '(none)'} {len(rows)}" for name, rows in sorted(families.items()))
        raise InputError(
            f"problems.heldout.by: family: {wanted} held-out problems would take every family, none left to train on "
            f"(families: {sizes}). Lower problems.heldout.count, add families, or use by: content."
        )
    pool = shuffled([placed for name in chosen for placed in families[name]], seed, "heldout")
    dropped = [
        Dropped(reason="family_is_held_out", where=where, detail=f"family {problem.family} is held out")
        for problem, where in pool[wanted:]
    ]
    held = set(chosen)
    return Parts(train=[p for p in problems if p[0].family not in held], heldout=pool[:wanted], dropped=dropped)


def keep_apart(train: Sequence[Placed], heldout: Sequence[Placed], cfg: HeldoutConfig, seed: int) -> Parts:
    """Held-out problems from a source of their own; training problems that repeat them are dropped."""
    total = len(heldout)
    wanted = cfg.count if cfg.count is not None else max(1, round(total * (cfg.share or 0.0)))
    if wanted > total:
        raise InputError(f"problems.heldout.count: {wanted} were asked for, and its source gave {total}. Lower it.")
    chosen = shuffled(heldout, seed, "heldout")[:wanted]
    keys = {question_key(problem.question) for problem, _ in heldout}
    plain = {_plain(problem) for problem, _ in heldout}
    families = {problem.family for problem, _ in heldout} if cfg.by == "family" else set()
    kept: list[Placed] = []
    dropped: list[Dropped] = []
    for problem, where in train:
        if question_key(problem.question) in keys or _plain(problem) in plain:
            dropped.append(Dropped(reason="is_held_out", where=where, detail="the question is in the held-out source"))
        elif problem.family in families:
            detail = f"family {problem.family} is held out"
            dropped.append(Dropped(reason="family_is_held_out", where=where, detail=detail))
        else:
            kept.append((problem, where))
    return Parts(train=kept, heldout=chosen, dropped=dropped)


def take_sft(train: Sequence[Placed], count: int, solutions: bool, seed: int) -> tuple[list[Placed], list[Placed]]:
    """(SFT problems, the rest). With `solutions`, only problems that carry one are taken.

    Raises InputError where too few do.
    """
    if count == 0:
        return [], list(train)
    able = [placed for placed in train if placed[0].solution or not solutions]
    if len(able) < count:
        what = "problems with a worked solution" if solutions else "problems"
        raise InputError(
            f"problems.sft_count: {count} were asked for, and the training part has {len(able)} {what}. "
            "Lower it, or give more of them."
        )
    chosen = shuffled(able, seed, "sft")[:count]
    ids = {problem.id for problem, _ in chosen}
    return chosen, [placed for placed in train if placed[0].id not in ids]
