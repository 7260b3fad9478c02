"""Online RFT: RFT on responses of the policy being trained; only the data source differs. DeepSeekMath eq. 11."""

from algorist.objective import rft, sft
from algorist.objective.config import OnlineRFTConfig
from algorist.objective.spec import Method

METHOD = Method(
    name="online_rft",
    paper="DeepSeekMath A.1.3, eq. 11",
    source="online",
    reward="Rule: is the answer right",
    coefficient_text="1 if the answer is right, else 0",
    config=OnlineRFTConfig,
    credit=rft.credit,
    loss=sft.loss,
    coefficient=sft.coefficient,
    example={},
)
