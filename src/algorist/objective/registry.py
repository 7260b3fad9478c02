"""The methods by name: one import line each. Recipes, tests and documents iterate over METHODS."""

from collections.abc import Mapping
from types import MappingProxyType

from algorist.objective.grpo import METHOD as GRPO
from algorist.objective.reinforce import METHOD as REINFORCE
from algorist.objective.rloo import METHOD as RLOO
from algorist.objective.sft import METHOD as SFT
from algorist.objective.spec import Method

METHODS: Mapping[str, Method] = MappingProxyType({m.name: m for m in (SFT, GRPO, RLOO, REINFORCE)})
"""In the order of the paper's Table 10, then the later ones."""
