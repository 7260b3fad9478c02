"""One question to a model: its answers, with verdicts where the gold is known. The verb `sample` calls this."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from algorist.api.model import OpenModel, open_model
from algorist.digest import content_id
from algorist.errors import InputError
from algorist.flow import Finish, Problem, Rollout, Verdict
from algorist.rollout.engine import SamplingPlan
from algorist.rollout.local import LocalEngine
from algorist.verify import check


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """One response to a question.

    Example:
        >>> Answer(text="42", finish=Finish.STOP, num_tokens=3, logp=-0.4).verdict is None
        True
    """

    text: str
    """The response, without special tokens."""
    finish: Finish
    """Why it ended, as told by the sampler."""
    num_tokens: int
    """Its length, the stop token included."""
    logp: float
    """Sum of its tokens' log-probabilities in nats under the distribution sampled from; 0 for greedy."""
    verdict: Verdict | None = None
    """What the verifier says, where a gold was given."""


def sample(
    model: OpenModel | str | Path,
    question: str,
    *,
    n: int = 1,
    temperature: float = 1.0,
    top_p: float = 1.0,
    response_tokens: int | None = None,
    gold: str | None = None,
    effort: int | None = None,
    seed: int = 0,
) -> list[Answer]:
    """n responses to a question, prompted as in the model's training.

    temperature 0 is greedy (n is then 1 response). Equal arguments give equal responses.
    effort: the level that the prompt asks for, where the model was trained with problems.efforts.
    Raises InputError where the question cannot be shown to this model.
    """
    if not isinstance(model, OpenModel):
        model = open_model(model)
    question = question.strip()
    if not question:
        raise InputError("sample: the question is empty. Write one.")
    if n < 1 or temperature < 0 or not 0 < top_p <= 1:
        raise InputError(
            f"sample: needs n >= 1, temperature >= 0 and 0 < top_p <= 1: got {n}, {temperature}, {top_p}. Change them."
        )
    budget = response_tokens or model.response_tokens
    if effort is None and model.renderer.cfg.shows_effort:
        raise InputError("sample: this model's prompt asks for a level of effort. Give one: --effort 50.")
    metadata = () if effort is None else (("effort", str(effort)),)
    problem = Problem(
        id=content_id("question", question), question=question, gold=gold or "", source="asked", metadata=metadata
    )
    prompt = model.renderer.prompt(problem)
    refused = model.renderer.refusal(problem, prompt.token_ids, context=model.policy.context, response_tokens=budget)
    if refused is not None and refused.reason == "unknown_character":
        pieces = {
            mark
            for mark in question
            if model.policy.tokenizer.unk_token_id in model.policy.tokenizer.encode(mark, add_special_tokens=False)
        }
        which = " and ".join(repr(mark) for mark in sorted(pieces))
        raise InputError(
            f"sample: this model cannot be asked that: its tokenizer has no token for {which or 'a part of the prompt'}. "
            "Change the question."
        )
    if refused is not None and refused.reason != "is_example":
        raise InputError(
            f"sample: this model cannot be asked that: {refused.detail or refused.reason}. Change the question."
        )
    plan = SamplingPlan(temperature=temperature, top_p=top_p, response_tokens=budget, stop_ids=model.renderer.stop_ids)
    engine = LocalEngine(model.policy)
    [rollouts] = engine.generate(
        [prompt], num_samples=1 if temperature == 0 else n, plan=plan, policy_version=0, seed=seed, salt="asked"
    )
    return answers(rollouts, gold, model)


def answers(rollouts: Sequence[Rollout], gold: str | None, model: OpenModel) -> list[Answer]:
    """Rollouts with their verdicts."""
    return [
        Answer(
            text=r.text,
            finish=r.finish,
            num_tokens=len(r.token_ids),
            logp=float(sum(r.behaviour_logp)),
            verdict=None
            if gold is None
            else check(gold, r.text, truncated=r.truncated, answer_format=model.renderer.cfg.answer_format),
        )
        for r in rollouts
    ]
