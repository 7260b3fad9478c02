"""What must hold for the rollouts of any batch, whatever the numbers: stamps, prompts, groups, endings, rewards."""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from algorist.flow import Batch, Finish, Group, Outcome, Reward, Rollout, Verdict


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


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """The first thing that does not hold."""

    code: str
    """problems, group, prompt, stale, tokens, logp, finish, reward, empty, duplicate_seed."""
    words: str
    """What must hold and what was got."""
    remedy: str


def check(batch: Batch, promise: Promise, decode: Callable[[Sequence[int]], str] | None = None) -> Fault | None:
    """The first broken rule of a batch; None where all hold. `decode` adds the check that texts belong to their tokens."""
    return next(_faults(batch, promise, decode), None)


def _faults(batch: Batch, promise: Promise, decode: Callable[[Sequence[int]], str] | None) -> Iterator[Fault]:
    got = tuple(g.problem_id for g in batch.groups)
    if got != promise.problem_ids:
        differing = [i for i, (a, b) in enumerate(zip(got, promise.problem_ids, strict=False)) if a != b]
        where = f"position {differing[0]}" if differing else f"{len(got)} of {len(promise.problem_ids)} problems"
        yield Fault(
            code="problems",
            words=f"batch {batch.index} must hold the problems that seed and position give; it differs at {where}",
            remedy="Take the order from problems.order, never from an iterator.",
        )
    seeds: set[int] = set()
    for group in batch.groups:
        yield from _group(batch, group, promise)
        for rollout, verdict, reward in zip(group.rollouts, group.verdicts, group.rewards, strict=True):
            where = f"batch {batch.index}, problem {rollout.problem_id}, sample {rollout.sample}"
            yield from _rollout(where, rollout, promise)
            yield from _text(where, rollout, promise, decode)
            yield from _reward(where, rollout, verdict, reward, promise)
            if rollout.seed in seeds:
                yield Fault(
                    code="duplicate_seed",
                    words=f"{where}: every rollout must have a random stream of its own, this one repeats a seed",
                    remedy="Derive seeds from (run, policy version, problem, sample).",
                )
            seeds.add(rollout.seed)


def _group(batch: Batch, group: Group, promise: Promise) -> Iterator[Fault]:
    where = f"batch {batch.index}, problem {group.problem_id}"
    if len(group.rollouts) != promise.group_size:
        yield Fault(
            code="group",
            words=f"{where}: a group must have {promise.group_size} rollouts, got {len(group.rollouts)}",
            remedy="Sample every group whole; rows that failed stay in it, with Finish.ERROR.",
        )
    if len({r.prompt_ids for r in group.rollouts}) > 1:
        yield Fault(
            code="group",
            words=f"{where}: all rollouts of a group must answer one prompt, got {len({r.prompt_ids for r in group.rollouts})}",
            remedy="Group rows by problem id, not by their place in a batch.",
        )
    if sorted(r.sample for r in group.rollouts) != list(range(len(group.rollouts))):
        yield Fault(
            code="group",
            words=f"{where}: samples must be numbered 0 to {len(group.rollouts) - 1}, each once",
            remedy="Number samples within their group.",
        )


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
    if wrong := [x for x in rollout.behaviour_logp if not (math.isfinite(x) and x <= 1e-4)]:
        yield Fault(
            code="logp",
            words=f"{where}: stored log-probabilities must be finite and at most 0, got {wrong[0]}",
            remedy="Store log p of the drawn token under the sampling distribution.",
        )
    yield from _ending(where, rollout, promise)


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
                words=f"{where}: {rule}: got finish={finish}, {T} tokens",
                remedy="Take the finish reason from the sampler; give it every stop id (tokenizer and generation_config).",
            )


def _text(
    where: str, rollout: Rollout, promise: Promise, decode: Callable[[Sequence[int]], str] | None
) -> Iterator[Fault]:
    if decode is None:
        return
    if decode([t for t in rollout.token_ids if t not in promise.stop_ids]) != rollout.text:
        yield Fault(
            code="tokens",
            words=f"{where}: the text must be what the stored token ids decode to; they are not the tokens that were sampled",
            remedy="Store the sampled token ids; text is derived from them and never encoded again.",
        )


def _reward(where: str, rollout: Rollout, verdict: Verdict, reward: Reward, promise: Promise) -> Iterator[Fault]:
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
    correct = verdict.verdict is Outcome.CORRECT
    if verdict.verdict is not Outcome.ERROR and "correct" in reward.parts and reward.parts["correct"] != float(correct):
        yield Fault(
            code="reward",
            words=f"{where}: a response judged {verdict.verdict} must be paid {float(correct):g} for correctness, got "
            f"{reward.parts['correct']:g}",
            remedy="Pay the verdict, not the text.",
        )
