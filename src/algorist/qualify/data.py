"""Gates over problems, verifier, prompts and template: what can be known before a single token is sampled."""

from collections import Counter
from collections.abc import Iterable, Sequence

from algorist.digest import JSON
from algorist.flow import Finish, Outcome, Problem, Rollout
from algorist.problems.split import question_key
from algorist.prompts.text import target_text
from algorist.qualify.gate import Gate, Verdict
from algorist.qualify.subject import Subject
from algorist.reward.reward import apply
from algorist.seeds import permutation
from algorist.verify.item import Item


def data_gate(subject: Subject) -> Gate:
    """Golds verify, nothing is in two parts, exclusions were applied; held-out text that training repeats is counted."""
    cfg, report = subject.cfg.data, subject.problems.report
    by_reason = report.dropped_by_reason
    refused = by_reason.get("gold_refused", 0) + by_reason.get("conflicting_gold", 0)
    share = refused / max(1, report.read)
    train = {question_key(p.question) for p in subject.trained}
    overlap = [p for p in subject.problems.heldout if question_key(p.question) in train]
    contaminated = _shared_runs(subject.problems.heldout, subject.trained, cfg.contamination_words)
    figures: dict[str, JSON] = {
        "read": report.read,
        "train": len(subject.problems.train),
        "sft": len(subject.problems.sft),
        "heldout": len(subject.problems.heldout),
        "golds_refused": refused,
        "duplicates": by_reason.get("duplicate", 0),
        "prior_exposure": by_reason.get("prior_exposure", 0),
        "heldout_in_training": len(overlap),
        "heldout_contaminated": contaminated,
        "dropped": dict(by_reason),
    }
    unit = "share of golds refused"

    def gate(
        verdict: Verdict, value: float, threshold: float, unit: str = unit, cause: str = "", remedy: str = ""
    ) -> Gate:
        return Gate(
            name="data", value=value, threshold=threshold, unit=unit, verdict=verdict, cause=cause, remedy=remedy,
            figures=figures,
        )  # fmt: skip

    if overlap:
        return gate(
            unit="held-out questions in training",
            value=len(overlap),
            threshold=0,
            verdict=Verdict.FAILED,
            cause=f"{len(overlap)} held-out questions are trained on (first: {overlap[0].id})",
            remedy="Give each problem to one part; the held-out figures would not measure learning.",
        )
    if share > cfg.max_refused_share:
        first = next(d for d in report.dropped if d.reason in ("gold_refused", "conflicting_gold"))
        return gate(
            value=share,
            threshold=cfg.max_refused_share,
            verdict=Verdict.FAILED,
            cause=f"{refused} of {report.read} golds cannot be used (first: {first.where}, {first.detail})",
            remedy="Correct the golds or name their form (answer_kind, gold: after_hashes or last_boxed), or raise "
            "qualify.data.max_refused_share.",
        )
    held = max(1, len(subject.problems.heldout))
    if cfg.max_contaminated_share is not None and contaminated / held > cfg.max_contaminated_share:
        return gate(
            unit="share of held-out questions",
            value=contaminated / held,
            threshold=cfg.max_contaminated_share,
            verdict=Verdict.FAILED,
            cause=f"{contaminated} held-out questions share {cfg.contamination_words} words in a row with training problems",
            remedy="Decontaminate the training source, or hold out by family.",
        )
    return gate(Verdict.PASSED, share, cfg.max_refused_share)


def _shared_runs(heldout: Sequence[Problem], train: Iterable[Problem], words: int) -> int:
    """Held-out questions that share `words` words in a row with a training question."""
    runs: dict[str, set[str]] = {}
    for problem in heldout:
        tokens = question_key(problem.question).split()
        if len(tokens) >= words:
            runs[problem.id] = {" ".join(tokens[i : i + words]) for i in range(len(tokens) - words + 1)}
    if not runs:
        return 0
    known = {run for found in runs.values() for run in found}
    seen: set[str] = set()
    for problem in train:
        tokens = question_key(problem.question).split()
        seen |= {run for i in range(len(tokens) - words + 1) if (run := " ".join(tokens[i : i + words])) in known}
    return sum(bool(found & seen) for found in runs.values())


def canary_gate(subject: Subject) -> Gate:
    """Golds written as answers must be correct and paid; the same golds spoilt must be neither."""
    problems = _sample(subject.trained or subject.problems.heldout, subject.cfg.canary.problems, subject.seed)
    cfg = subject.renderer.cfg
    known: list[tuple[Problem, str, bool]] = []
    for problem in problems:
        known.append((problem, _as_answer(_wrap(problem.gold, cfg.answer_format), subject), True))
        if subject.has_sft and problem.solution:  # what SFT teaches must be read as right
            known.append((problem, _as_answer(problem.solution, subject), True))
        known.append((problem, _as_answer(_wrap(spoilt(problem.gold), cfg.answer_format), subject), False))
        known.append((problem, "", False))
    items = [
        Item(gold=p.gold, response=text, kind=p.kind, answer_format=subject.task.answer_format) for p, text, _ in known
    ]
    verdicts = subject.task.verifier.check_many(items)
    rewards = [
        apply(subject.task.reward, p, _rollout(p, text), v) for (p, text, _), v in zip(known, verdicts, strict=True)
    ]
    wrong = [
        (p, text, v)
        for (p, text, right), v in zip(known, verdicts, strict=True)
        if (v.verdict is Outcome.CORRECT) != right
    ]
    paid = {
        right: [r.value for (_, _, x), r in zip(known, rewards, strict=True) if x is right] for right in (True, False)
    }
    lost = sum(r.value is None for r in rewards)
    figures: dict[str, JSON] = {
        "answers": len(known),
        "misjudged": len(wrong),
        "without_reward": lost,
        "reward_right": _mean(paid[True]),
        "reward_wrong": _mean(paid[False]),
    }

    def gate(
        verdict: Verdict, cause: str = "", remedy: str = "", *,
        value: float | None = len(wrong), unit: str = "known answers misjudged",
    ) -> Gate:  # fmt: skip
        return Gate(
            name="verifier_canary", value=value, threshold=0, unit=unit, verdict=verdict, cause=cause, remedy=remedy,
            figures=figures,
        )  # fmt: skip

    if wrong:
        problem, text, judged = wrong[0]
        return gate(
            verdict=Verdict.FAILED,
            cause=f"{len(wrong)} of {len(known)} known answers are misjudged (first: gold {problem.gold!r}, response "
            f"{text[:80]!r}, judged {judged.verdict}: {judged.reason})",
            remedy=f"The answers are looked for by prompt.answer_format: {cfg.answer_format}; set the one that fits "
            "prompt.target, or name the golds' form with answer_kind.",
        )
    if lost or not _pays_more(paid):
        first = next((r.error for r in rewards if r.value is None), "")
        cause = (
            f"the reward {subject.reward_name!r} gave no value for {lost} of {len(known)} known answers (first: {first})"
            if lost
            else f"the reward {subject.reward_name!r} pays right answers {figures['reward_right']} and wrong ones "
            f"{figures['reward_wrong']} on average"
        )
        return gate(
            verdict=Verdict.FAILED,
            cause=cause,
            remedy="Try the reward on a right and a wrong answer by hand; it must be finite and pay the right one more.",
            value=lost or _margin(paid),
            unit="known answers without a reward" if lost else "more reward for a right answer than for a wrong one",
        )
    return gate(Verdict.PASSED)


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
    return "271828"


def lengths_gate(subject: Subject) -> Gate:
    """How many problems cannot be shown within the context, and how long the others are."""
    report = subject.problems.report
    before = report.train + report.sft + report.heldout
    after = len(subject.problems.train) + len(subject.problems.sft) + len(subject.problems.heldout)
    share = (before - after) / max(1, before)
    lengths = sorted(len(ids) for ids in subject.prompt_ids.values())
    figures: dict[str, JSON] = {
        "shown": len(lengths),
        "dropped": before - after,
        "prompt_tokens_median": lengths[len(lengths) // 2] if lengths else 0,
        "prompt_tokens_max": lengths[-1] if lengths else 0,
        "response_tokens": subject.plan.response_tokens,
        "context": subject.policy.context,
    }
    bound = subject.cfg.lengths.max_dropped_share
    notes = "; ".join(n for n in subject.dropped_notes if n.startswith("dropped"))
    failed = share > bound
    return Gate(
        name="prompt_lengths",
        value=share,
        threshold=bound,
        unit="share of problems dropped",
        verdict=Verdict.FAILED if failed else Verdict.PASSED,
        cause=f"{before - after} of {before} problems cannot be shown to the policy ({notes})"
        if before > after
        else "",
        remedy="Lower response_tokens, shorten the prompt, raise the context, or raise qualify.lengths.max_dropped_share."
        if failed
        else "",
        figures=figures,
    )


def template_gate(subject: Subject) -> Gate:
    """One beginning-of-sequence token at most, no end before the response, every usual stop id known."""
    tokenizer, policy = subject.policy.tokenizer, subject.policy
    prompts = list(subject.prompt_ids.values())[:256]
    bos = tokenizer.bos_token_id
    stops = subject.task.stop_ids
    doubled = sum(bos is not None and ids[:2] == (bos, bos) for ids in prompts)
    ended = sum(ids[-1] in stops and subject.renderer.cfg.template == "plain" for ids in prompts)
    strange = sorted(i for i in stops if not 0 <= i < policy.model.config.vocab_size)
    outside = sum(max(ids) >= policy.model.config.vocab_size for ids in prompts)
    known = _generation_stops(policy)
    unused = sorted(known - stops)
    figures: dict[str, JSON] = {
        "prompts": len(prompts),
        "doubled_bos": doubled,
        "stop_ids": sorted(stops),
        "generation_stop_ids": sorted(known),
        "template": subject.renderer.cfg.template,
        "has_chat_template": bool(tokenizer.chat_template),
    }
    faults = {
        f"{doubled} prompts begin with two beginning-of-sequence tokens": doubled,
        f"{ended} prompts end with a stop token, so nothing is asked": ended,
        f"the stop ids {strange} are outside the vocabulary of {policy.model.config.vocab_size}": strange,
        f"{outside} prompts hold token ids outside the vocabulary: the tokenizer is not this model's": outside,
    }
    broken = [words for words, count in faults.items() if count]
    cause = "; ".join(broken)
    if not broken and unused:
        names = ", ".join(repr(tokenizer.decode([i])) for i in unused)
        cause = f"the model's generation config also stops at {names}, the run does not"
    return Gate(
        name="template",
        value=len(broken),
        threshold=0,
        unit="faults",
        verdict=Verdict.FAILED if broken else Verdict.REPORTED if unused else Verdict.PASSED,
        cause=cause,
        remedy="Check prompt.template against the model's tokenizer." if broken else "",
        figures=figures,
    )


def _generation_stops(policy: object) -> set[int]:
    config = policy.model.generation_config  # type: ignore[attr-defined]
    eos = None if config is None else config.eos_token_id
    return set() if eos is None else set(eos) if isinstance(eos, list) else {int(eos)}


def _sample(problems: Sequence[Problem], count: int, seed: int) -> list[Problem]:
    kinds = Counter(p.kind for p in problems)
    chosen = [problems[i] for i in permutation(len(problems), seed, "canary")[:count]]
    for kind in kinds:  # every kind of gold is tried at least once
        if all(p.kind != kind for p in chosen):
            chosen.append(next(p for p in problems if p.kind == kind))
    return chosen


def _wrap(answer: str, answer_format: str) -> str:
    return {"boxed": f"\\boxed{{{answer}}}", "hashes": f"#### {answer}", "auto": f"\\boxed{{{answer}}}"}.get(
        answer_format, answer
    )


def _as_answer(answer: str, subject: Subject) -> str:
    return target_text(subject.renderer.cfg, answer)


def _rollout(problem: Problem, text: str) -> Rollout:
    return Rollout(
        problem_id=problem.id, sample=0, prompt_ids=(), token_ids=(), behaviour_logp=(), policy_version=(), loss_mask=(),
        finish=Finish.STOP, text=text, seed=0,
    )  # fmt: skip


def _mean(values: Sequence[float | None]) -> float | None:
    known = [v for v in values if v is not None]
    return sum(known) / len(known) if known else None


def _margin(paid: dict[bool, list[float | None]]) -> float | None:
    """Mean reward of right answers less that of wrong ones."""
    right, wrong = _mean(paid[True]), _mean(paid[False])
    return None if right is None or wrong is None else right - wrong


def _pays_more(paid: dict[bool, list[float | None]]) -> bool:
    margin = _margin(paid)
    return margin is not None and margin > 0
