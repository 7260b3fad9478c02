"""Sources to a problem set that is ready to train on: read, gold-checked, distinct, split. Drops are counted."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from algorist.digest import digest
from algorist.errors import InputError
from algorist.flow import Problem
from algorist.problems.arithmetic import generate
from algorist.problems.config import (
    ArithmeticConfig,
    ProblemsConfig,
    ReasoningGymConfig,
    SourceConfig,
)
from algorist.problems.rows import Dropped, Read, read_file, read_reasoning_gym
from algorist.problems.split import Placed, distinct, keep_apart, split_off, take_sft
from algorist.seeds import derive

GoldCheck = Callable[[str, str], str | None]
"""(gold, kind) -> None where the gold verifies against itself, else the reason in words."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProblemReport:
    """What was read and what became of it. read == train + sft + heldout + unused + dropped."""

    read: int
    """Rows and generated problems over all sources."""
    train: int
    sft: int
    heldout: int
    unused: int
    """Rows of a separate held-out source beyond problems.heldout.count."""
    dropped: tuple[Dropped, ...]
    """Every row that is not used, with its place and reason."""
    efforts: int = 1
    """Levels of reasoning effort that each of them is asked under; the counts above are without."""

    @property
    def dropped_by_reason(self) -> Mapping[str, int]:
        """Reason code -> count, most frequent first."""
        return dict(Counter(row.reason for row in self.dropped).most_common())

    def lines(self) -> list[str]:
        """The report for people.

        >>> ProblemReport(read=3, train=1, sft=0, heldout=1, unused=0,
        ...               dropped=(Dropped(reason="duplicate", where="a.jsonl:3"),)).lines()
        ['problems read: 3; for RL: 1, for SFT: 0, held out: 1, unused: 0, dropped: 1',
         'dropped, duplicate: 1 (first: a.jsonl:3)']
        """
        counts = f"for RL: {self.train}, for SFT: {self.sft}, held out: {self.heldout}, unused: {self.unused}"
        found = [f"problems read: {self.read}; {counts}, dropped: {len(self.dropped)}"]
        if self.efforts > 1:
            found.append(
                f"each is asked under {self.efforts} levels of effort, so there are {self.efforts} times as many prompts"
            )
        for reason, count in self.dropped_by_reason.items():
            first = next(row for row in self.dropped if row.reason == reason)
            detail = f", {first.detail}" if first.detail else ""
            found.append(f"dropped, {reason}: {count} (first: {first.where}{detail})")
        return found


@dataclass(frozen=True, slots=True, kw_only=True)
class ProblemSet:
    """Problems by what they may be used for; no question is in two parts."""

    train: tuple[Problem, ...]
    """For RL."""
    sft: tuple[Problem, ...]
    """For supervised fine-tuning; kept out of RL."""
    heldout: tuple[Problem, ...]
    """For evaluation only."""
    report: ProblemReport

    @property
    def digest(self) -> str:
        """sha256 over the ids of each part, for the run contract; ids are digests of question and gold."""
        parts = {"train": self.train, "sft": self.sft, "heldout": self.heldout}
        return digest({name: [problem.id for problem in part] for name, part in parts.items()})


def load_problems(
    cfg: ProblemsConfig,
    *,
    seed: int,
    base_dir: Path,
    gold_check: GoldCheck | None = None,
    solutions: bool = False,
) -> ProblemSet:
    """Read every source, drop what cannot be used (counted), and split.

    base_dir: folder that relative paths start at. solutions: SFT problems must carry a worked solution.
    Raises InputError for files that are missing or malformed and for splits that cannot be made.
    """
    train = _read_all(cfg.source, seed, base_dir, "problems.source")
    own = cfg.heldout.source
    heldout = None if own is None else _read_all(own, seed, base_dir, "problems.heldout.source", salt="heldout")
    dropped = [*train.dropped, *(heldout.dropped if heldout else ())]
    total = len(train.problems) + len(dropped) + (len(heldout.problems) if heldout else 0)

    usable, lost = _usable(train.problems, gold_check)
    dropped += lost
    if not usable:
        raise InputError(f"problems.source: none of the {total} problems can be used: {_why(dropped)}")
    unused = 0
    if heldout is None:
        try:
            parts = split_off(usable, cfg.heldout, seed)
        except InputError as error:
            raise InputError(f"{error} Before that, {_why(dropped)}" if dropped else str(error)) from error
    else:
        apart, lost = _usable(heldout.problems, gold_check)
        dropped += lost
        parts = keep_apart(usable, apart, cfg.heldout, seed)
        unused = len(apart) - len(parts.heldout)
    dropped += parts.dropped
    sft, rest = take_sft(parts.train, cfg.sft_count, solutions, seed)
    if not sft and not rest:
        reasons = ", ".join(f"{reason} {count}" for reason, count in Counter(d.reason for d in dropped).most_common())
        raise InputError(
            f"problems: nothing is left to train on ({reasons or 'the sources are empty'}). Give more problems."
        )
    report = ProblemReport(
        read=total, train=len(rest), sft=len(sft), heldout=len(parts.heldout), unused=unused, dropped=tuple(dropped),
        efforts=max(1, len(cfg.efforts)),
    )  # fmt: skip
    train_part, sft_part, heldout_part = (_bare(part, cfg.efforts) for part in (rest, sft, parts.heldout))
    return ProblemSet(train=train_part, sft=sft_part, heldout=heldout_part, report=report)


def _why(dropped: Sequence[Dropped]) -> str:
    """The commonest reason with its first row, and what to do about it."""
    reason, count = Counter(d.reason for d in dropped).most_common(1)[0]
    first = next(d for d in dropped if d.reason == reason)
    remedy = {
        "gold_refused": "Correct the golds, or name their form: answer_kind, or gold: after_hashes or last_boxed for golds at the end of "
        "a solution.",
        "conflicting_gold": "Give each question one answer.",
    }.get(reason, "Correct the rows.")
    detail = first.detail if len(first.detail) <= 300 else f"{first.detail[:300]}..."
    return f"{count} are dropped for {reason} (first: {first.where}{', ' + detail if detail else ''}). {remedy}"


def _bare(problems: Sequence[Placed], efforts: Sequence[int]) -> tuple[Problem, ...]:
    """Problems without their places; where there are efforts, each once per level, as a problem of its own."""
    if not efforts:
        return tuple(problem for problem, _ in problems)
    return tuple(
        replace(
            problem, id=f"{problem.id}-e{effort}", metadata=tuple(sorted([*problem.metadata, ("effort", str(effort))]))
        )
        for problem, _ in problems
        for effort in efforts
    )


def _usable(problems: Sequence[Placed], gold_check: GoldCheck | None) -> tuple[list[Placed], list[Dropped]]:
    kept, dropped = distinct(problems)
    if gold_check is None:
        return kept, dropped
    verified: list[Placed] = []
    for problem, where in kept:
        reason = gold_check(problem.gold, problem.kind)
        if reason is None:
            verified.append((problem, where))
        else:
            dropped.append(Dropped(reason="gold_refused", where=where, detail=f"gold {problem.gold!r}: {reason}"))
    return verified, dropped


def _read_all(sources: Sequence[SourceConfig], seed: int, base_dir: Path, key: str, salt: str = "") -> Read:
    problems: list[Placed] = []
    dropped: list[Dropped] = []
    for source in sources:
        found = _read(source, seed, base_dir, salt)
        problems += found.problems
        dropped += found.dropped
    if not problems:
        raise InputError(f"{key}: no usable problem was found ({len(dropped)} dropped). Give a source that has some.")
    return Read(problems=tuple(problems), dropped=tuple(dropped))


def _read(source: SourceConfig, seed: int, base_dir: Path, salt: str) -> Read:
    own_seed = derive(seed, "source", salt) if salt else seed
    if isinstance(source, ArithmeticConfig):
        return Read(problems=tuple((problem, f"arithmetic {problem.family}") for problem in generate(source, own_seed)))
    if isinstance(source, ReasoningGymConfig):
        return read_reasoning_gym(source, own_seed)
    return read_file(source, base_dir)
