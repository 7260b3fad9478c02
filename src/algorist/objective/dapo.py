"""DAPO: clip-higher, token mean, no KL, mixed groups only. Yu et al. 2025. Overlong shaping: `shaping.overlong`."""

from algorist.objective import grpo
from algorist.objective.config import DAPOConfig
from algorist.objective.spec import Method
from algorist.objective.surrogate import clipped_coefficient, clipped_loss

METHOD = Method(
    name="dapo",
    paper="Yu et al. 2025 (DAPO), eq. 8 to 13",
    source="online",
    reward="Rule: one reward per response, minus the overlong penalty of rl.shaping",
    coefficient_text="r A inside [1 - 0.2, 1 + 0.28], A = (r - mean r) / std r within the group",
    config=DAPOConfig,
    credit=grpo.credit,
    loss=clipped_loss,
    coefficient=clipped_coefficient,
    example={},
)
