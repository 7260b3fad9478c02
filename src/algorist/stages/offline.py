"""Where the responses of a batch come from: the policy being trained, the policy as RL found it, or the data set.

Table 10 of DeepSeekMath tells RFT and DPO (sampled from the SFT model) from online RFT and GRPO (sampled from the policy being
trained) by this alone. Sampling is a pure function of weights, seed, batch and problem, so drawing batch k from the kept SFT
weights when its turn comes gives the very rollouts that drawing all of them at the start would give: they are sampled once,
stamped with policy version 0, and a kill loses none.
"""

from collections.abc import Mapping, Sequence
from typing import final

from algorist.errors import InputError
from algorist.flow import Finish, Prompt, Rollout
from algorist.policy.build import copy_policy
from algorist.policy.model import CausalPolicy
from algorist.rollout.engine import RolloutEngine, SamplingPlan
from algorist.rollout.local import LocalEngine
from algorist.seeds import derive
from algorist.stages.config import RLConfig
from algorist.stages.session import Session
from algorist.stages.task import Task


def keeps_start(cfg: RLConfig) -> bool:
    """True where the policy as RL found it is kept: as the reference of the objective, or to sample from."""
    return "logp_ref" in cfg.objective.needs or cfg.source == "sft_samples"


def keep_start(session: Session) -> CausalPolicy:
    """The policy as RL found it, frozen; taken once, and part of every checkpoint from then on."""
    if session.reference is None:
        session.reference = copy_policy(session.policy)
    return session.reference


def engine_for(session: Session, cfg: RLConfig, task: Task, engine: RolloutEngine) -> RolloutEngine:
    """The engine that gives the objective its responses; `engine` samples from the policy being trained."""
    if cfg.source == "dataset":
        return DatasetEngine(task.solutions, policy=session.policy)
    if cfg.source == "sft_samples":
        return LocalEngine(keep_start(session), max_rows=cfg.sampling.rows)
    return engine


@final
class DatasetEngine:
    """Hands out worked solutions as if they had been sampled: one a problem, log-probability 0 (a point mass)."""

    def __init__(self, solutions: Mapping[str, tuple[int, ...]], *, policy: CausalPolicy) -> None:
        self.solutions, self.policy = solutions, policy

    def generate(
        self,
        prompts: Sequence[Prompt],
        *,
        num_samples: int,
        plan: SamplingPlan,
        policy_version: int,
        seed: int,
        salt: str = "",
    ) -> list[list[Rollout]]:
        """See `RolloutEngine.generate`; a solution longer than the budget is cut there and counts as truncated."""
        if num_samples != 1:
            raise InputError(
                f"a data set has one worked solution per problem: rl.group_size must be 1, got {num_samples}."
            )
        return [[self._row(prompt, plan, derive(seed, "dataset", salt, prompt.problem_id))] for prompt in prompts]

    def _row(self, prompt: Prompt, plan: SamplingPlan, seed: int) -> Rollout:
        ids = self.solutions[prompt.problem_id]
        kept = ids[: plan.response_tokens]
        shown = [i for i in kept if i not in plan.stop_ids]
        return Rollout(
            problem_id=prompt.problem_id,
            sample=0,
            prompt_ids=prompt.token_ids,
            token_ids=kept,
            behaviour_logp=(0.0,) * len(kept),
            policy_version=(0,) * len(kept),
            loss_mask=(True,) * len(kept),
            finish=Finish.STOP if kept == ids else Finish.LENGTH,
            text=self.policy.tokenizer.decode(shown, skip_special_tokens=True),
            seed=seed,
        )
