"""Log-probabilities by the plainest road there is: one forward pass of the whole sequence, no tree, no cache, no chunks.

A third opinion beside sampler and trainer, and the place where a suspected fault is tried out on purpose.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from algorist.policy.model import CausalPolicy
from algorist.rollout.local import top_p_mask


@dataclass(frozen=True, slots=True, kw_only=True)
class Variant:
    """One way of scoring. The defaults are what a contract with temperature 1 declares."""

    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int | None = None
    """Keep the k likeliest tokens only; None keeps all."""
    head: torch.dtype = torch.float32
    """Precision of the output matrix."""
    compute: torch.dtype | None = None
    """Precision of everything else; None: the policy's own."""


@torch.no_grad()
def token_logp(
    policy: CausalPolicy, prompt: Sequence[int], response: Sequence[int], variant: Variant
) -> Float[Tensor, "T"]:
    """log p(y_t | x, y_<t) in nats under the variant's distribution; -inf where a mask excludes the token."""
    logp = variant_logp(response_logits(policy, prompt, response, variant), variant)
    target = torch.tensor(list(response), device=logp.device)
    return logp.gather(-1, target[:, None]).squeeze(-1).float().cpu()


def variant_logp(logits: Float[Tensor, "T V"], variant: Variant) -> Float[Tensor, "T V"]:
    """The whole distribution that a variant makes of logits; -inf where a mask excludes a token."""
    logp = torch.log_softmax(logits / variant.temperature, dim=-1)
    if variant.top_k is not None and variant.top_k < logp.shape[-1]:
        floor = logp.topk(variant.top_k, dim=-1).values[:, -1:]
        logp = torch.log_softmax(logp.masked_fill(logp < floor, -torch.inf), dim=-1)
    if variant.top_p < 1.0:
        logp = torch.log_softmax(logp.masked_fill(~top_p_mask(logp, variant.top_p), -torch.inf), dim=-1)
    return logp


@torch.no_grad()
def response_logits(
    policy: CausalPolicy, prompt: Sequence[int], response: Sequence[int], variant: Variant
) -> Float[Tensor, "T V"]:
    """Float32 logits before each response token."""
    assert len(prompt) >= 1, "a prompt must hold a token"
    assert len(response) >= 1, "a response must hold a token"
    ids = torch.tensor([[*prompt, *response[:-1]]], device=policy.device)
    low = variant.compute == torch.bfloat16 or (variant.compute is None and policy.dtype == "bfloat16")
    with torch.autocast(policy.device.type, dtype=torch.bfloat16, enabled=low):
        hidden = policy.model.get_decoder()(input_ids=ids, use_cache=False).last_hidden_state
    states = hidden[0, len(prompt) - 1 :]
    if variant.head == torch.float32:
        return policy.logits(states)
    head = policy.model.get_output_embeddings()
    bias = None if head.bias is None else head.bias.to(variant.head)
    out: Tensor = torch.nn.functional.linear(states.to(variant.head), head.weight.to(variant.head), bias)
    return out.float()
