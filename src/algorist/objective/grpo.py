"""GRPO, outcome supervision: each response against its group. DeepSeekMath eq. 3, 4.1.2, 19 to 21."""

from algorist.objective.config import CISPOConfig, DAPOConfig, GRPOConfig, GSPOConfig
from algorist.objective.credit import group_credit
from algorist.objective.spec import Credit, CreditInput, Method
from algorist.objective.surrogate import clipped_coefficient, clipped_loss


def credit(rows: CreditInput, cfg: GRPOConfig | DAPOConfig | GSPOConfig | CISPOConfig) -> Credit:
    """A = (r - mean r) / std r within the group, the same for every token of a response. 4.1.2."""
    return group_credit(rows, cfg, cfg, baseline="mean", std=cfg.std, epsilon=cfg.std_epsilon)


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
