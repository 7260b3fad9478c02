"""What must hold for the rollouts of any batch, whatever the numbers: stamps, prompts, groups, endings, verdicts, rewards."""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from algorist.flow import Batch, Finish, Outcome, Reward, Rollout, Verdict
from algorist.seeds import derive

Decode = Callable[[Sequence[int]], str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Promise:
    """What the contract says about a batch."""

    problem_ids: tuple[str, ...]
    """[P] the problems in the order that seed and position give."""
    group_size: int
    """G."""
    version: int
    """Applied updates of the weights that must have sampled it."""
    prompts: Mapping[str, tuple[int, ...]]
    """Problem id -> prompt token ids."""
    stop_ids: frozenset[int]
    response_tokens: int
    """The response budget."""
    vocabulary: int
    """Token ids lie below it."""
    exact_reward: bool
    """True where the reward is the built-in exact rule."""
    seed: int | None = None
    """Of the run, from which every row's random stream follows; None: streams are not looked at."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """The first thing that does not hold."""

    code: str
    """problems, group, kind, prompt, stale, seed, tokens, mask, logp, finish, verdict, reward."""
    words: str
    """What must hold and what was got."""
    remedy: str


def check(batch: Batch, promise: Promise, decode: Decode | None = None) -> Fault | None:
    """The first broken rule of a stored batch; None where all hold."""
    groups = [group.rollouts for group in batch.groups]
    return check_sampled(groups, promise, decode, index=batch.index) or check_paid(batch, promise)


def check_sampled(
    groups: Sequence[Sequence[Rollout]], promise: Promise, decode: Decode | None, *, index: int
) -> Fault | None:
    """The first broken rule of what an engine answered for batch `index`, before anything is graded; None where all hold.

    decode: adds the check that texts are those of their tokens.
    """
    return next(_sampled(groups, promise, decode, index), None)


SecondLook = Callable[[Rollout], tuple[str, Outcome] | None]
"""Judges a response by another road than the batch was: (its gold, the outcome); None where that road does not reach."""


def check_paid(batch: Batch, promise: Promise, second_look: SecondLook | None = None) -> Fault | None:
    """The first broken rule of verdicts and rewards; None where all hold."""
    return next(_paid(batch, promise, second_look), None)


def _sampled(
    groups: Sequence[Sequence[Rollout]], promise: Promise, decode: Decode | None, index: int
) -> Iterator[Fault]:
    got = tuple(group[0].problem_id if group else "" for group in groups)
    if got != promise.problem_ids:
        differing = [i for i, (a, b) in enumerate(zip(got, promise.problem_ids, strict=False)) if a != b]
        where = f"position {differing[0]}" if differing else f"{len(got)} of {len(promise.problem_ids)} problems"
        yield Fault(
            code="problems",
            words=f"batch {index} must hold the problems that seed and position give; it differs at {where}",
            remedy="Take the order from problems.order, never from an iterator.",
        )
    for group in groups:
        yield from _group(f"batch {index}, problem {group[0].problem_id if group else '?'}", group, promise)
        for rollout in group:
            where = f"batch {index}, problem {rollout.problem_id}, sample {rollout.sample}"
            yield from _kinds(where, rollout)
            yield from _rollout(where, rollout, promise)
            yield from _stream(where, rollout, promise, index)
            yield from _ending(where, rollout, promise)
            if decode is not None:
                yield from _text(where, rollout, promise, decode)


def _group(where: str, group: Sequence[Rollout], promise: Promise) -> Iterator[Fault]:
    if len(group) != promise.group_size:
        yield Fault(
            code="group",
            words=f"{where}: a group must have {promise.group_size} rollouts, got {len(group)}",
            remedy="Sample every group whole; rows that failed stay in it, with Finish.ERROR.",
        )
    if len({r.prompt_ids for r in group}) > 1:
        yield Fault(
            code="group",
            words=f"{where}: all rollouts of a group must answer one prompt, got {len({r.prompt_ids for r in group})}",
            remedy="Group rows by problem id, not by their place in a batch.",
        )
    if sorted(r.sample for r in group) != list(range(len(group))):
        yield Fault(
            code="group",
            words=f"{where}: samples must be numbered 0 to {len(group) - 1}, each once",
            remedy="Number samples within their group.",
        )


def _kinds(where: str, rollout: Rollout) -> Iterator[Fault]:
    rules = {
        "token ids must be whole numbers": all(type(t) is int for t in rollout.token_ids),
        "log-probabilities must be numbers": all(isinstance(x, int | float) for x in rollout.behaviour_logp),
        "finish must be one of stop, length, error": isinstance(rollout.finish, Finish),
        "text must be a string": isinstance(rollout.text, str),
    }
    for rule, holds in rules.items():
        if not holds:
            yield Fault(code="kind", words=f"{where}: {rule}", remedy="Fill every field of Rollout as flow.py says.")


def _rollout(where: str, rollout: Rollout, promise: Promise) -> Iterator[Fault]:
    expected = promise.prompts.get(rollout.problem_id)
    if expected is None or rollout.prompt_ids != expected:
        yield Fault(
            code="prompt",
            words=f"{where}: the prompt that was sampled from must be the rendered one, its token ids differ",
            remedy="Render prompts once and hand the same token ids to sampler and trainer (template, BOS, system message).",
        )
    if stale := [v for v in rollout.policy_version if v != promise.version]:
        yield Fault(
            code="stale",
            words=f"{where}: every token must come from policy version {promise.version}, {len(stale)} come from version "
            f"{min(stale)}",
            remedy="Publish weights to the sampler after every update, and drop its prefix cache.",
        )
    if bad := [t for t in rollout.token_ids if not 0 <= t < promise.vocabulary]:
        yield Fault(
            code="tokens",
            words=f"{where}: token ids must lie in [0, {promise.vocabulary}), got {bad[0]}",
            remedy="Use one tokenizer for sampler and trainer.",
        )
    if not all(rollout.loss_mask):
        yield Fault(
            code="mask",
            words=f"{where}: every token of a response must be open to training, since the policy chose them all (no tool "
            f"writes here): {rollout.loss_mask.count(False)} of {len(rollout.loss_mask)} are masked, the first at "
            f"{rollout.loss_mask.index(False)}",
            remedy="Mask what the policy did not write, and nothing else: the last token, which ends the response, is its own.",
        )
    if wrong := [x for x in rollout.behaviour_logp if not (math.isfinite(x) and x <= 1e-4)]:
        yield Fault(
            code="logp",
            words=f"{where}: stored log-probabilities must be finite and at most 0, got {wrong[0]}",
            remedy="Store log p of the drawn token under the sampling distribution.",
        )


def _stream(where: str, rollout: Rollout, promise: Promise, index: int) -> Iterator[Fault]:
    """Each row has the random stream that run, batch, version, problem and sample give it: a resume samples it again."""
    if promise.seed is None:
        return
    salt = f"batch-{index}"
    own = derive(promise.seed, "rollout", salt, promise.version, rollout.problem_id, rollout.sample)
    if rollout.seed != own:
        yield Fault(
            code="seed",
            words=f"{where}: every rollout must have the random stream of its own place (seed {own}), this one has seed "
            f"{rollout.seed}",
            remedy="Derive seeds from (run, batch, policy version, problem, sample) and from nothing else.",
        )


def _ending(where: str, rollout: Rollout, promise: Promise) -> Iterator[Fault]:
    T, finish = len(rollout.token_ids), rollout.finish
    stopped = T > 0 and rollout.token_ids[-1] in promise.stop_ids
    early = [t for t in rollout.token_ids[:-1] if t in promise.stop_ids]
    rules = {
        "a response that stopped must end with a stop id": finish is Finish.STOP and not stopped,
        "a truncated response must have used its whole budget": finish is Finish.LENGTH
        and promise.response_tokens != T,
        "a response that ends with a stop id has stopped": finish is Finish.LENGTH and stopped,
        "a response must not go on after a stop id": bool(early),
        f"a response must have at most {promise.response_tokens} tokens": promise.response_tokens < T,
        "a response without tokens must be an error": T == 0 and finish is not Finish.ERROR,
    }
    for rule, broken in rules.items():
        if broken:
            yield Fault(
                code="finish",
                words=f"{where}: {rule}: got finish={finish}, {T} tokens of at most {promise.response_tokens}",
                remedy="Take finish reason and budget from the recipe's plan; give the sampler every stop id (tokenizer and "
                "generation_config), and keep the stop token as the last one of the response.",
            )


def _text(where: str, rollout: Rollout, promise: Promise, decode: Decode) -> Iterator[Fault]:
    if decode([t for t in rollout.token_ids if t not in promise.stop_ids]) != rollout.text:
        yield Fault(
            code="tokens",
            words=f"{where}: the text must be what the stored token ids decode to; they are not the tokens that were sampled",
            remedy="Store the sampled token ids; text is derived from them and never encoded again.",
        )


def _paid(batch: Batch, promise: Promise, second_look: SecondLook | None) -> Iterator[Fault]:
    for group in batch.groups:
        for rollout, verdict, reward in zip(group.rollouts, group.verdicts, group.rewards, strict=True):
            where = f"batch {batch.index}, problem {rollout.problem_id}, sample {rollout.sample}"
            again = None if second_look is None else second_look(rollout)
            if again is not None and verdict.verdict is not Outcome.ERROR and again[1] is not verdict.verdict:
                yield Fault(
                    code="verdict",
                    words=f"{where}: a verdict must be that of its own response ({rollout.text[-60:]!r}) against its own gold "
                    f"({again[0]!r}): it says {verdict.verdict}, a second look says {again[1]}",
                    remedy="Keep responses, golds and verdicts in one order, and give the verifier no state.",
                )
            yield from _reward(where, verdict, reward, promise)


def _reward(where: str, verdict: Verdict, reward: Reward, promise: Promise) -> Iterator[Fault]:
    if reward.value is None and not reward.error:
        yield Fault(
            code="reward", words=f"{where}: a missing reward must say why", remedy="Set Reward.error to the cause."
        )
    if reward.value is not None and not math.isfinite(reward.value):
        yield Fault(
            code="reward",
            words=f"{where}: a reward must be finite, got {reward.value}",
            remedy="Return a Reward without a value where there is none.",
        )
    if not promise.exact_reward:
        return
    if verdict.verdict is Outcome.ERROR and reward.value is not None:
        yield Fault(
            code="reward",
            words=f"{where}: a response the verifier failed on must have no reward, got {reward.value}",
            remedy="Leave failed rows out of their group; never pay them 0.",
        )
    if reward.value is None:
        return
    correct, parts = float(verdict.verdict is Outcome.CORRECT), dict(reward.parts)
    if parts.get("correct") != correct:
        yield Fault(
            code="reward",
            words=f"{where}: a response judged {verdict.verdict} must be paid {correct:g} for correctness, got "
            f"{parts.get('correct', 'nothing')}",
            remedy="Pay the verdict, not the text.",
        )
    if not math.isclose(reward.value, math.fsum(parts.values()), rel_tol=1e-9, abs_tol=1e-9):
        yield Fault(
            code="reward",
            words=f"{where}: a reward must be the sum of its named parts ({', '.join(f'{k} {v:g}' for k, v in parts.items())}), "
            f"got {reward.value:g}",
            remedy="Pay through reward.name and rl.shaping only, so that every part has a name.",
        )
