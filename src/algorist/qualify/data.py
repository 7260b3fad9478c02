"""Gates over problems, prompts and template: what can be known before a single token is sampled."""

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from algorist.digest import JSON
from algorist.flow import Problem
from algorist.problems.split import plain_question, question_key
from algorist.prompts.text import target_text
from algorist.qualify.canary import canary_gate as canary_gate
from algorist.qualify.gate import Gate, Verdict
from algorist.qualify.subject import Subject
from algorist.qualify.targets import letters, odd_targets, sft_prompts

_LEAKED: Final = 0.2
"""Most questions that may say their own gold as an answer."""
_ENDING: Final = 0.9
"""Most questions that may end with it; many do so by chance (Which is larger, 3 or 7?)."""
_LOST: Final = 0.1
"""Most prompts that may not show their question letter by letter: a tokenizer may rewrite a few characters."""


def data_gate(subject: Subject) -> Gate:
    """Golds verify, nothing is in two parts, no question says its answer, exclusions were applied; the rest is counted."""
    cfg, report = subject.cfg.data, subject.problems.report
    by_reason = report.dropped_by_reason
    refused = by_reason.get("gold_refused", 0) + by_reason.get("conflicting_gold", 0)
    share = refused / max(1, report.read)
    overlap = _in_both(subject.problems.heldout, subject.trained)
    contaminated = _shared_runs(subject.problems.heldout, subject.trained, cfg.contamination_words)
    problems = [*subject.trained, *subject.problems.heldout]
    leaked = [p for p in problems if says_its_answer(p)]
    ending = [p for p in problems if ends_with_its_answer(p)]
    if len(ending) > _ENDING * len(problems):
        leaked = ending
    excluded = by_reason.get("prior_exposure", 0)
    figures: dict[str, JSON] = {
        "read": report.read,
        "train": len(subject.problems.train),
        "sft": len(subject.problems.sft),
        "heldout": len(subject.problems.heldout),
        "golds_refused": refused,
        "duplicates": by_reason.get("duplicate", 0),
        "prior_exposure": excluded,
        "heldout_in_training": len(overlap),
        "heldout_contaminated": contaminated,
        "questions_with_their_answer": len(leaked),
        "dropped": dict(by_reason),
    }

    def gate(
        verdict: Verdict,
        value: float,
        threshold: float,
        unit: str = "share of golds refused",
        cause: str = "",
        remedy: str = "",
    ) -> Gate:
        return Gate(
            name="data", value=value, threshold=threshold, unit=unit, verdict=verdict, cause=cause, remedy=remedy,
            figures=figures,
        )  # fmt: skip

    if overlap:
        held, trained = overlap[0]
        return gate(
            unit="held-out questions in training",
            value=len(overlap),
            threshold=0,
            verdict=Verdict.FAILED,
            cause=f"{len(overlap)} held-out questions are trained on (first: held out {held.question[:80]!r}, trained on "
            f"{trained.question[:80]!r})",
            remedy="Take them out of one of the two files, or hold out by family; the held-out figures would not measure learning.",
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
    if len(leaked) > _LEAKED * len(problems):
        return gate(
            unit="share of questions that say their answer",
            value=len(leaked) / len(problems),
            threshold=_LEAKED,
            verdict=Verdict.FAILED,
            cause=f"{len(leaked)} of {len(problems)} questions say their own answer (first: {leaked[0].question[-80:]!r}, gold "
            f"{leaked[0].gold!r}), so that copying is paid",
            remedy="Check which field of the data is the question (problems.source.question), and take answers out of it.",
        )
    behind = _behind(subject)
    if behind is not None:
        return gate(
            unit="problem that is not the one that was read",
            value=1,
            threshold=0,
            verdict=Verdict.FAILED,
            cause=f"problem {behind.id} is trained or evaluated with question {behind.question[-60:]!r} and gold {behind.gold!r}, and was "
            "read otherwise, or in another part",
            remedy="Change problems in their file, or in problems.source, so that every part of the run sees the same ones.",
        )
    held_count = max(1, len(subject.problems.heldout))
    if cfg.max_contaminated_share is not None and contaminated / held_count > cfg.max_contaminated_share:
        return gate(
            unit="share of held-out questions",
            value=contaminated / held_count,
            threshold=cfg.max_contaminated_share,
            verdict=Verdict.FAILED,
            cause=f"{contaminated} held-out questions share {cfg.contamination_words} words in a row with training problems",
            remedy="Decontaminate the training source, or hold out by family.",
        )
    notes = []
    if cfg.exclusions and not excluded:
        notes.append("qualify.data.exclusions name no problem of these sources: are they the lists of this data?")
    if leaked:
        notes.append(f"{len(leaked)} questions say their own answer (first: {leaked[0].question[-60:]!r})")
    elif len(ending) > _LEAKED * len(problems):
        notes.append(
            f"{len(ending)} of {len(problems)} questions end with their gold (first: {ending[0].question[-60:]!r})"
        )
    return gate(Verdict.REPORTED if notes else Verdict.PASSED, share, cfg.max_refused_share, cause="; ".join(notes))


def says_its_answer(problem: Problem) -> bool:
    r"""The gold stands in the question where an answer stands: boxed, after ####, after "answer is".

    >>> say = lambda q: says_its_answer(Problem(id="p", question=q, gold="13", source="s"))
    >>> say("What is 6 + 7? Answer: 13"), say("What is 6 + 7? #### 13"), say("Is 13 a prime?")
    (True, True, False)
    """
    gold, question = re.escape(problem.gold.strip()), problem.question.strip()
    marks = rf"(\\boxed\{{\s*{gold}\s*\}}|####\s*{gold}|answer(\s+is)?\s*[:=]?\s*{gold})(?![\w.]*\d)"
    return re.search(marks, question, flags=re.IGNORECASE) is not None


def ends_with_its_answer(problem: Problem) -> bool:
    """The last word of the question is the gold, a number.

    >>> ends_with_its_answer(Problem(id="p", question="What is 6 + 7? 13", gold="13", source="s"))
    True
    """
    words = problem.question.strip().rstrip(".").split()
    return (
        len(words) > 1 and words[-1].strip("$()[]") == problem.gold.strip() and any(c.isdigit() for c in problem.gold)
    )


def _behind(subject: Subject) -> Problem | None:
    """A problem of the task that is not the one that was read and checked."""
    problems, task = subject.problems, subject.task
    read = {p.id: p for p in problems.train}
    held = {p.id: p for p in problems.heldout}
    asked = ((p, read) for p in task.train), ((p, held) for p in task.heldout)
    return next((p for part in asked for p, known in part if known.get(p.id) != p), None)


def _in_both(heldout: Sequence[Problem], trained: Iterable[Problem]) -> list[tuple[Problem, Problem]]:
    """Held-out problems that are trained on: the same words, or the same question in another writing with the same gold."""
    known: dict[str, Problem] = {}
    plain: dict[tuple[str, str], Problem] = {}
    for p in trained:
        known.setdefault(question_key(p.question), p)
        plain.setdefault((plain_question(p.question), p.gold.strip()), p)
    found = []
    for p in heldout:
        same = known.get(question_key(p.question)) or plain.get((plain_question(p.question), p.gold.strip()))
        if same is not None:
            found.append((p, same))
    return found


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
        remedy="too_long: lower response_tokens, shorten the prompt, raise the context. unknown_character, special_token: clean the "
        "questions, or use a tokenizer that knows them. Or raise qualify.lengths.max_dropped_share."
        if failed
        else "",
        figures=figures,
    )


def template_gate(subject: Subject) -> Gate:
    """Each prompt is its question in one frame, begins at most once and does not end; answers can be said and stopped.

    SFT: the same frame, and targets that are the answers to their prompts.
    """
    tokenizer, policy = subject.policy.tokenizer, subject.policy
    shown = list(subject.prompt_ids.items())[:256]
    prompts = [ids for _, ids in shown]
    vocabulary = int(policy.model.config.vocab_size)
    bos, stops, plain = tokenizer.bos_token_id, subject.task.stop_ids, subject.renderer.cfg.template != "chat"
    doubled = sum(len(ids) > 1 and ids[0] == ids[1] and ids[0] in (bos, tokenizer.eos_token_id) for ids in prompts)
    ended = sum(ids[-1] in stops and plain for ids in prompts)
    padded = sum(tokenizer.pad_token_id not in (None, *stops, bos) and tokenizer.pad_token_id in ids for ids in prompts)
    strange = sorted(i for i in stops if not 0 <= i < vocabulary)
    outside = sum(not 0 <= min(ids) <= max(ids) < vocabulary for ids in prompts)
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
        f"{padded} prompts hold padding, which the policy would read": padded,
        f"the stop ids {strange} are outside the vocabulary of {vocabulary}": strange,
        f"{outside} prompts hold token ids outside the vocabulary: the tokenizer is not this model's": outside,
    }
    broken = [words for words, count in faults.items() if count]
    odd = odd_targets(subject)
    if not outside:
        broken += _frame(subject, dict(shown) | dict(sft_prompts(subject))) + _unsayable(subject) + odd
    remedies = []
    if len(broken) > len(odd):
        remedies.append("Check prompt.template, prompt.format and prompt.stop against the model's tokenizer.")
    if odd:
        remedies.append(
            "Check sft.target, prompt.target and the solutions in the data; targets keep the order of their problems."
        )
    notes = []
    if unused:
        names = ", ".join(repr(tokenizer.decode([i])) for i in unused)
        notes.append(f"the model's generation config also stops at {names}, the run does not")
    if len(tokenizer) > vocabulary:
        notes.append(f"the tokenizer knows {len(tokenizer)} tokens, the model {vocabulary}: is it this model's?")
    return Gate(
        name="template",
        value=len(broken),
        threshold=0,
        unit="broken rule",
        verdict=Verdict.FAILED if broken else Verdict.REPORTED if notes else Verdict.PASSED,
        cause="; ".join(broken or notes),
        remedy=" ".join(remedies),
        figures=figures,
    )


def _frame(subject: Subject, shown: Mapping[str, tuple[int, ...]]) -> list[str]:
    """What of the prompts is not their question must be the same in all of them (of one effort)."""
    tokenizer, by_id = subject.policy.tokenizer, {p.id: p for p in (*subject.trained, *subject.problems.heldout)}
    frames: dict[str, set[tuple[str, str]]] = {}
    lost: list[tuple[Problem, str]] = []
    for name, ids in shown.items():
        problem, text = by_id.get(name), letters(tokenizer.decode(list(ids)))
        if problem is None:
            continue
        before, found, after = text.rpartition(letters(problem.question))
        if not found:
            lost.append((problem, tokenizer.decode(list(ids))))
        else:
            effort = dict(problem.metadata).get("effort", "")
            frames.setdefault(effort, set()).add((before, after))
    if len(lost) > _LOST * len(shown):
        problem, text = lost[0]
        return [
            f"{len(lost)} of {len(shown)} prompts do not show their own question (first: question {problem.question[:60]!r}, prompt "
            f"{text[-80:]!r})"
        ]
    several = next((found for found in frames.values() if len(found) > 1), None)
    if several is None or lost:
        return []
    endings = sorted(after for _, after in several)[:2]
    return [
        f"the text around the question differs from prompt to prompt ({len(several)} kinds; after the question: "
        f"{', '.join(map(repr, endings))}), so that it can say the answer"
    ]


def _unsayable(subject: Subject) -> list[str]:
    """Golds whose own tokens hold a stop token: a policy that writes them is cut off in the middle."""
    renderer, stops = subject.renderer, subject.task.stop_ids
    cut = []
    for problem in subject.trained[:256]:
        ids = renderer.tokenizer.encode(target_text(renderer.cfg, problem.gold), add_special_tokens=False)
        while ids and ids[-1] in stops:  # a target may end with what ends it
            ids = ids[:-1]
        if any(i in stops for i in ids):
            cut.append(problem)
    if not cut:
        return []
    return [
        f"{len(cut)} answers hold a stop token and cannot be written to their end (first: {cut[0].gold!r}; prompt.stop)"
    ]


def _generation_stops(policy: object) -> set[int]:
    config = policy.model.generation_config  # type: ignore[attr-defined]
    eos = None if config is None else config.eos_token_id
    return set() if eos is None else set(eos) if isinstance(eos, list) else {int(eos)}
