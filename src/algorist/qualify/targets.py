"""What is imitated: each target is the answer to its own prompt, to the end."""

import unicodedata
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice

from algorist.flow import Problem
from algorist.prompts.text import Target, answer_of, target_text
from algorist.qualify.subject import Subject

_LOST = 0.1
"""Most targets that may not show their answer letter by letter: a tokenizer may rewrite a few characters."""
_SHOWN = 256


def odd_targets(subject: Subject) -> list[str]:
    """What is wrong with targets of SFT, and with those that a method of RL imitates; empty where nothing is."""
    sft, problems = subject.sft, subject.problems.sft
    target: Target = "solution" if sft is None else sft.target
    found = []
    if sft is not None and len(subject.targets) != len(problems):
        found.append(f"SFT has {len(subject.targets)} targets for {len(problems)} problems")
    elif sft is not None:
        rows = ((p, ids) for p, (_, ids) in zip(problems, subject.targets, strict=True))
        found += _odd(subject, "SFT targets", rows, target)
    solutions = subject.task.solutions
    known = ((p, solutions[p.id]) for p in subject.task.train if p.id in solutions)
    return found + _odd(subject, "imitated targets", known, target)


def sft_prompts(subject: Subject) -> Iterator[tuple[str, tuple[int, ...]]]:
    """(problem id, prompt ids) of what is imitated."""
    if subject.sft is None:
        return iter(())
    rows = zip(subject.problems.sft, subject.targets, strict=False)
    return ((p.id, tuple(prompt)) for p, (prompt, _) in islice(rows, _SHOWN))


def letters(text: str) -> str:
    """Without white space, case and width, which tokenizers and templates may change.

    >>> letters("Is ３ > 2 ?")
    'is3>2?'
    """
    return "".join(unicodedata.normalize("NFKC", text).casefold().split())


def _odd(subject: Subject, what: str, rows: Iterable[tuple[Problem, Sequence[int]]], target: Target) -> list[str]:
    """Targets without an end, with an end in the middle, and of another problem."""
    decode, stops = subject.policy.tokenizer.decode, subject.task.stop_ids
    total, endless, other = 0, [], []
    for problem, ids in islice(rows, _SHOWN):
        total += 1
        if not ids or ids[-1] not in stops:
            endless.append(problem)
        answer = target_text(subject.renderer.cfg, answer_of(problem, target))
        if letters(answer) not in letters(decode(list(ids))):
            other.append((problem, decode(list(ids))))
    found = []
    if endless:
        found.append(
            f"{len(endless)} of {total} {what} do not end with a stop token, so that the policy learns never to stop (first: "
            f"problem {endless[0].id})"
        )
    if len(other) > _LOST * total:
        problem, text = other[0]
        found.append(
            f"{len(other)} of {total} {what} do not say their answer (first: problem {problem.id}, answer "
            f"{answer_of(problem, target)[-40:]!r}, target {text[-40:]!r})"
        )
    return found
