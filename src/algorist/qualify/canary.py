"""Known right and known wrong answers, sent through verifier and reward: before training many kinds, in every batch a few."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from algorist.digest import JSON
from algorist.errors import GateFailed
from algorist.flow import Finish, Outcome, Problem, Reward, Rollout, Verdict
from algorist.prompts.config import PromptConfig
from algorist.prompts.text import target_text
from algorist.qualify.gate import Gate
from algorist.qualify.gate import Verdict as Judgement
from algorist.qualify.rollouts import Fault
from algorist.qualify.subject import Subject
from algorist.reward.reward import apply
from algorist.seeds import permutation
from algorist.stages.sample import attempt, one_each, patience_s
from algorist.verify.item import Item
from algorist.verify.pool import first_look

_PAID_MORE: Final = 0.9
"""Least share of pairs (right, wrong) of one problem in which the right answer is paid more."""
_STRANGER: Final = "271828"
"""An answer that no problem has."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Known:
    """An answer whose judgement is known beforehand."""

    problem: Problem
    text: str
    right: bool
    what: str
    """In words: the gold, the gold after some words, another answer, ..."""


def known_answers(problem: Problem, cfg: PromptConfig, solution: str) -> list[Known]:
    """Right: the gold, also after some words, and the solution that SFT teaches. Wrong: near misses, two answers, nothing."""
    gold, near = as_answer(problem.gold, cfg), as_answer(spoilt(problem.gold), cfg)
    both = (near, gold) if cfg.answer_format == "first_line" else (gold, near)
    found = [
        ("the gold", gold, True),
        ("a wrong answer", near, False),
        ("the gold beside another answer that stands where the final one is looked for", "\n".join(both), False),
        ("an empty response", "", False),
    ]
    words = "Let us go step by step, from the first one to the last one.\nThat is all there is to it."
    for what, text, right in (("the gold", gold, True), ("a wrong answer", near, False)):
        if cfg.answer_format == "first_line":
            found.append((f"{what} before some words", f"{text}\n{words}", right))
        else:
            found.append((f"{what} after some words", f"{words}\n{text}", right))
    if solution:
        found.append(("the worked solution", target_text(cfg, solution), True))
    return [Known(problem=problem, text=text, right=right, what=what) for what, text, right in found]


def canary_gate(subject: Subject) -> Gate:
    """Right answers must be judged correct and paid more than wrong ones of the same problem; wrong ones must be neither."""
    problems = _sample(subject.trained or subject.problems.heldout, subject.cfg.canary.problems, subject.seed)
    cfg = subject.renderer.cfg
    known = [k for p in problems for k in known_answers(p, cfg, p.solution if subject.has_sft else "")]
    rollouts = [_rollout(k, subject) for k in known]
    try:
        verdicts = _verdicts(subject, known, rollouts)
        rewards = [
            apply(subject.task.reward, k.problem, r, v) for k, r, v in zip(known, rollouts, verdicts, strict=True)
        ]
        again = [apply(subject.task.reward, k.problem, r, v) for k, r, v in zip(known, rollouts, verdicts, strict=True)]
    except GateFailed as error:
        return _gate(Judgement.FAILED, {"answers": len(known)}, value=None, unit="", cause=str(error), remedy="")
    wrong = [(k, v) for k, v in zip(known, verdicts, strict=True) if (v.verdict is Outcome.CORRECT) != k.right]
    lost = [r.error for r in rewards if r.value is None]
    pairs = _pairs(known, rewards)
    figures: dict[str, JSON] = {
        "answers": len(known),
        "misjudged": len(wrong),
        "without_reward": len(lost),
        "reward_right": _mean([r.value for k, r in zip(known, rewards, strict=True) if k.right]),
        "reward_wrong": _mean([r.value for k, r in zip(known, rewards, strict=True) if not k.right]),
        "pairs": len(pairs),
        "right_paid_more": sum(more for more, _ in pairs),
    }
    if wrong:
        return _misjudged(wrong, len(known), cfg, figures)
    if lost:
        return _gate(
            Judgement.FAILED, figures, value=len(lost), unit="known answers without a reward",
            cause=f"the reward {subject.reward_name!r} gave no value for {len(lost)} of {len(known)} known answers (first: {lost[0]})",
            remedy="Try the reward on a right and a wrong answer by hand; it must return a finite number for any response.",
        )  # fmt: skip
    share = sum(more for more, _ in pairs) / max(1, len(pairs))
    if share < _PAID_MORE:
        common = Counter(what for more, what in pairs if not more).most_common(1)[0][0]
        return _gate(
            Judgement.FAILED, figures, value=len(pairs) - sum(more for more, _ in pairs),
            unit=f"of {len(pairs)} pairs in which the wrong answer is paid as much as the right one",
            cause=f"the reward {subject.reward_name!r} pays right answers {figures['reward_right']} and wrong ones "
            f"{figures['reward_wrong']} on average, and {common} as much as the right answer or more",
            remedy="Try the reward on a right and a wrong answer by hand; it must be finite and pay the right one more, or the "
            "policy learns the wrong one.",
        )  # fmt: skip
    if [r.value for r in rewards] != [r.value for r in again]:
        return _gate(
            Judgement.REPORTED, figures,
            cause=f"the reward {subject.reward_name!r} gives another value when the same response is paid again, so that a resume "
            "may not come to the same rewards",
        )  # fmt: skip
    return _gate(Judgement.PASSED, figures)


def misjudged(subject: Subject, problems: Sequence[Problem]) -> Fault | None:
    """A batch's own golds are right and a stranger is wrong, still: a verifier that changes while a run goes on is no verifier."""
    cfg = subject.renderer.cfg
    known = [
        Known(problem=p, text=as_answer(answer, cfg), right=right, what=what)
        for p in problems
        for answer, right, what in ((p.gold, True, "its own gold"), (_STRANGER, False, f"the answer {_STRANGER}"))
        if right or _STRANGER not in p.gold
    ]
    cheap = [
        (k, item)
        for k, item in zip(known, _items(subject, known), strict=True)
        if isinstance(first_look(item), Verdict)
    ]
    check, items = subject.task.verifier.check_many, [item for _, item in cheap]
    verdicts = attempt("the verifier must judge every response", "known answers", lambda: check(items))
    odd = [
        k
        for (k, _), v in zip(cheap, verdicts, strict=True)
        if v.verdict is not Outcome.ERROR and (v.verdict is Outcome.CORRECT) != k.right
    ]
    paid = [k for k in odd if not k.right]
    rights = sum(k.right for k, _ in cheap)
    if not paid and len(odd) <= 0.5 * rights:
        return None
    first = (paid or odd)[0]
    return Fault(
        code="verdict",
        words=f"known answers must still be judged as before training: {len(odd)} of {len(cheap)} are not (first: gold "
        f"{first.problem.gold!r}, {first.what} is judged {'wrong' if first.right else 'correct'})",
        remedy="Give the verifier no state, and restart it; rewards since it changed are not to be trusted.",
    )


def as_answer(answer: str, cfg: PromptConfig) -> str:
    """An answer as the policy should write it: in the prompt's target format, where the verifier looks for it.

    >>> as_answer("42", PromptConfig(answer_format="boxed")), as_answer("42", PromptConfig(answer_format="first_line"))
    (' \\\\boxed{42}', ' 42')
    """
    has_its_own = "\\boxed" in cfg.target_format or "####" in cfg.target_format
    return target_text(cfg, answer if has_its_own else _wrap(answer, cfg.answer_format))


def spoilt(gold: str) -> str:
    """A wrong answer of the gold's own kind.

    >>> spoilt("42"), spoilt("3/4"), spoilt("B"), spoilt("x+1")
    ('43', '3/5', 'C', 'x+2')
    """
    for i in range(len(gold) - 1, -1, -1):
        c = gold[i]
        if c in "0123456789":
            return gold[:i] + str((int(c) + 1) % 10 or 1) + gold[i + 1 :]
    if len(gold.strip()) == 1 and gold.strip().isalpha():
        return {"z": "a", "Z": "A", "E": "A"}.get(gold.strip(), chr(ord(gold.strip()) + 1))
    return _STRANGER


# -- inside ---------------------------------------------------------------------------------------------------------


def _items(subject: Subject, known: Sequence[Known]) -> list[Item]:
    place = subject.task.answer_format
    return [Item(gold=k.problem.gold, response=k.text, kind=k.problem.kind, answer_format=place) for k in known]


def _verdicts(subject: Subject, known: Sequence[Known], rollouts: Sequence[Rollout]) -> list[Verdict]:
    items = _items(subject, known)
    check, must = subject.task.verifier.check_many, "the verifier must judge every response"
    verdicts = attempt(must, "known answers", lambda: check(items), patience_s(len(items)))
    one_each("the verifier", Verdict, verdicts, rollouts, "known answers")
    return verdicts


def _pairs(known: Sequence[Known], rewards: Sequence[Reward]) -> list[tuple[bool, str]]:
    """(right is paid more, what the wrong one is) for every right and wrong answer of one problem."""
    by_problem: dict[str, list[tuple[Known, float]]] = {}
    for k, reward in zip(known, rewards, strict=True):
        if reward.value is not None:
            by_problem.setdefault(k.problem.id, []).append((k, reward.value))
    return [
        (paid > other, w.what)
        for rows in by_problem.values()
        for k, paid in rows
        if k.right
        for w, other in rows
        if not w.right
    ]


def _misjudged(wrong: Sequence[tuple[Known, Verdict]], count: int, cfg: PromptConfig, figures: dict[str, JSON]) -> Gate:
    first, judged = wrong[0]
    place = f"prompt.answer_format: {cfg.answer_format}"
    if judged.verdict is Outcome.ERROR:
        remedy = "The verifier itself fails: look at the reason, raise reward.deadline_s, or repair the installation."
    elif not first.right:
        remedy = f"The verifier pays what is wrong: it must not be trained on. Check it by hand (algorist explain) with {place}."
    else:
        remedy = f"Answers are looked for by {place}; set the one that fits prompt.target, or name the golds' form with answer_kind."
    return _gate(
        Judgement.FAILED, figures, value=len(wrong),
        cause=f"{len(wrong)} of {count} known answers are misjudged (first: gold {first.problem.gold!r}, {first.what} "
        f"{first.text[-80:]!r}, judged {judged.verdict}: {judged.reason})", remedy=remedy,
    )  # fmt: skip


def _gate(
    verdict: Judgement, figures: dict[str, JSON], *, value: float | None = 0,
    unit: str = "known answers misjudged", cause: str = "", remedy: str = "",
) -> Gate:  # fmt: skip
    return Gate(
        name="verifier_canary", value=value, threshold=0, unit=unit, verdict=verdict, cause=cause, remedy=remedy,
        figures=figures,
    )  # fmt: skip


def _sample(problems: Sequence[Problem], count: int, seed: int) -> list[Problem]:
    kinds = Counter(p.kind for p in problems)
    chosen = [problems[i] for i in permutation(len(problems), seed, "canary")[:count]]
    for kind in kinds:  # every kind of gold is tried at least once
        if all(p.kind != kind for p in chosen):
            chosen.append(next(p for p in problems if p.kind == kind))
    return chosen


def _wrap(answer: str, answer_format: str) -> str:
    boxed = f"\\boxed{{{answer}}}"
    return {"boxed": boxed, "hashes": f"#### {answer}", "auto": boxed}.get(answer_format, answer)


def _rollout(known: Known, subject: Subject) -> Rollout:
    """As a policy would have written it: with its tokens, for rewards that look at length."""
    tokenizer = subject.policy.tokenizer
    # verbose: it may be longer than the context, which no policy reads here
    ids = (*tokenizer.encode(known.text, add_special_tokens=False, verbose=False), subject.renderer.end_id)
    T = len(ids)
    prompt = subject.prompt_ids.get(known.problem.id, ())
    return Rollout(
        problem_id=known.problem.id, sample=0, prompt_ids=prompt, token_ids=ids, behaviour_logp=(-1.0,) * T,
        policy_version=(0,) * T, loss_mask=(True,) * T, finish=Finish.STOP, text=known.text, seed=0,
    )  # fmt: skip


def _mean(values: Sequence[float | None]) -> float | None:
    known = [v for v in values if v is not None]
    return sum(known) / len(known) if known else None
