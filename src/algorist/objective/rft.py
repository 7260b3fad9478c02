"""Rejection-sampling fine-tuning: push correct responses by 1, ignore wrong ones. DeepSeekMath eq. 8 to 10."""

from algorist.objective import sft
from algorist.objective.advantage import check_groups
from algorist.objective.config import OnlineRFTConfig, RFTConfig
from algorist.objective.credit import correct_rows, finish, per_row
from algorist.objective.spec import Credit, CreditInput, Method


def credit(rows: CreditInput, cfg: RFTConfig | OnlineRFTConfig) -> Credit:
    """A = I(o), eq. 10. wrong_rows: "zero" leaves wrong rows in the denominator (eq. 8, 9), "drop" takes them out."""
    check_groups(rows.group)
    right = correct_rows(rows, cfg.threshold)
    return finish(rows, cfg, per_row(right.double(), rows), drop=~right if cfg.wrong_rows == "drop" else None)


METHOD = Method(
    name="rft",
    paper="DeepSeekMath A.1.2, eq. 8 to 10",
    source="sft_samples",
    reward="Rule: is the answer right",
    coefficient_text="1 if the answer is right, else 0",
    config=RFTConfig,
    credit=credit,
    loss=sft.loss,
    coefficient=sft.coefficient,
    example={},
)
