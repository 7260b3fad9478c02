"""Dr.GRPO: GRPO without division by the spread and without a length in the denominator. Liu et al. 2025."""

from algorist.objective.config import DrGRPOConfig
from algorist.objective.credit import group_credit
from algorist.objective.spec import Credit, CreditInput, Method
from algorist.objective.surrogate import clipped_coefficient, clipped_loss


def credit(rows: CreditInput, cfg: DrGRPOConfig) -> Credit:
    """A_i = r_i - mean r."""
    return group_credit(rows, cfg, cfg, baseline="mean", std="none", epsilon=0.0)


METHOD = Method(
    name="dr_grpo",
    paper="Liu et al. 2025 (Understanding R1-Zero-like training), section 3",
    source="online",
    reward="Rule or Model: one reward per response",
    coefficient_text="A + beta (pi_ref / pi - 1), A = r - mean r within the group",
    config=DrGRPOConfig,
    credit=credit,
    loss=clipped_loss,
    coefficient=clipped_coefficient,
    example={"reduction_constant": 1024},
)
