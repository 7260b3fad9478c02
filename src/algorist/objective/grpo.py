"""GRPO, outcome supervision: each response against its group. DeepSeekMath eq. 3, 4.1.2, 19 to 21."""

from algorist.objective.advantage import group_advantage
from algorist.objective.config import DAPOConfig, GRPOConfig
from algorist.objective.credit import finish, flat_to_drop, per_row, reward_with_kl
from algorist.objective.spec import Credit, CreditInput, Method
from algorist.objective.surrogate import clipped_coefficient, clipped_loss


def credit(rows: CreditInput, cfg: GRPOConfig | DAPOConfig) -> Credit:
    """A = (r - mean r) / std r within the group, the same for every token of a response. 4.1.2."""
    reward = reward_with_kl(rows, cfg)
    advantage = group_advantage(
        reward, rows.group, baseline="mean", std=cfg.std, epsilon=cfg.std_epsilon, group_of_one=cfg.group_of_one
    )
    drop = flat_to_drop(reward, rows.group, cfg.flat_groups)
    return finish(rows, cfg, per_row(advantage, rows), reward=reward, drop=drop)


METHOD = Method(
    name="grpo",
    paper="DeepSeekMath 4.1.2, A.1.6, eq. 3, 19 to 21",
    source="online",
    reward="Rule or Model: one reward per response",
    coefficient_text="A + beta (pi_ref / pi - 1), A = (r - mean r) / std r within the group",
    config=GRPOConfig,
    credit=credit,
    loss=clipped_loss,
    coefficient=clipped_coefficient,
    example={},
)
