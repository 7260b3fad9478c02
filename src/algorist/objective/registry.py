"""The methods by name: one import line each. Recipes, tests and documents iterate over METHODS."""

from collections.abc import Mapping
from types import MappingProxyType

from algorist.objective.cispo import METHOD as CISPO
from algorist.objective.dapo import METHOD as DAPO
from algorist.objective.dpo import METHOD as DPO
from algorist.objective.dr_grpo import METHOD as DR_GRPO
from algorist.objective.grpo import METHOD as GRPO
from algorist.objective.grpo_process import METHOD as GRPO_PROCESS
from algorist.objective.gspo import METHOD as GSPO
from algorist.objective.online_rft import METHOD as ONLINE_RFT
from algorist.objective.ppo import METHOD as PPO
from algorist.objective.reinforce import METHOD as REINFORCE
from algorist.objective.rft import METHOD as RFT
from algorist.objective.rloo import METHOD as RLOO
from algorist.objective.sft import METHOD as SFT
from algorist.objective.spec import Method

_TABLE_10 = (SFT, RFT, DPO, ONLINE_RFT, PPO, GRPO, GRPO_PROCESS)
_LATER = (RLOO, REINFORCE, DR_GRPO, DAPO, GSPO, CISPO)

METHODS: Mapping[str, Method] = MappingProxyType({method.name: method for method in (*_TABLE_10, *_LATER)})
"""The rows of the paper's Table 10 first, then the other ones."""
