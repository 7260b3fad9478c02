"""How much memory a run will need: bytes counted on a few tokens, carried to the size of a batch.

autograd keeps for a sequence of n tokens  c + a n + b n^2 bytes   (a: activations, b: attention masks and scores)

Three short passes give c, a and b of any architecture: a mixture of experts, a latent attention, a bfloat16 copy of the
weights. benchmarks/bench_memory.py holds the prediction against the measured peak.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import torch
from torch import Tensor

from algorist.policy import trie
from algorist.policy.model import HEAD_CHUNK, CausalPolicy, Row
from algorist.policy.offload import plain_layers

GIB: Final = 2**30
_PROBE: Final = 16
"""Tokens of the shortest of three passes; the others are two and three times as long."""
_LOGIT_COPIES: Final = 4
"""Float32 arrays of the size of a chunk of logits that live at one time: scaled, normalised, and two gradients."""
_SAMPLER_BYTES: Final = 40
"""Per row and vocabulary entry while a token is drawn: four float32 and three float64 arrays."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Kept:
    """What a policy keeps of tokens, in bytes."""

    per_token: float
    """a: for the backward pass."""
    per_pair: float
    """b: for the backward pass, per pair of positions of one sequence."""
    constant: float
    """c: whatever the length, such as weights in the compute dtype."""
    cache_per_token: float
    """Keys and values of all layers."""
    layers: int
    width: int
    """Bytes of one layer's input per token, as activation offload keeps it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """What decides the peak besides the policy."""

    nodes: int
    """Token positions of the largest micro-batch, padding included."""
    line: int
    """Positions of the longest sequence (or trie) in it: what one position can attend to."""
    cache_rows: int
    """Rows decoded side by side."""
    cache_tokens: int
    """Longest of them, prompt and response together."""
    reference: bool
    offload: bool
    """Layer inputs leave the device, the rest is computed again."""


def layout(policy: CausalPolicy, rows: Sequence[Row], *, max_tokens: int) -> tuple[int, int]:
    """(nodes, line) of the largest micro-batch of these rows."""
    batches = policy.micro_batches(rows, max_tokens=max_tokens)
    return max((len(batch) * line, line) for batch in batches for line in [max(t.num_nodes for t in batch)])


def count(policy: CausalPolicy) -> Kept:
    """Count what three short passes keep. Allocates that much; changes nothing.

    What lies in parameters is not counted. Layers that are computed again are counted as if they were not.
    """
    with plain_layers(policy):
        short, middle, long = (saved(policy, n) for n in (_PROBE, 2 * _PROBE, 3 * _PROBE))
    per_pair = max(0.0, (long - 2 * middle + short) / (2 * _PROBE**2))
    per_token = (middle - short) / _PROBE - 3 * _PROBE * per_pair
    config = policy.model.config
    return Kept(
        per_token=per_token,
        per_pair=per_pair,
        constant=max(0.0, short - _PROBE * per_token - _PROBE**2 * per_pair),
        cache_per_token=_cached(policy, _PROBE) / _PROBE,
        layers=int(config.num_hidden_layers),
        width=4 * int(config.hidden_size),
    )


def predict(policy: CausalPolicy, shape: Shape, kept: Kept) -> dict[str, float]:
    """GiB of each large tensor of training and of sampling; float32 weights, gradients and moments.

    While a layer goes back, gradients of about half of what it kept exist. With offload one layer at a time is computed again;
    on a CPU the inputs of all layers count too, since host and device are one.
    """
    trainable = sum(p.numel() for p in policy.parameters())
    activations = shape.nodes * (kept.per_token + shape.line * kept.per_pair)
    layer = activations / kept.layers
    if shape.offload:
        activations = layer + (shape.nodes * kept.width * kept.layers if policy.device.type == "cpu" else 0)
    activations += layer / 2
    vocabulary = int(policy.model.config.vocab_size)
    positions, decoded = min(HEAD_CHUNK, shape.nodes), f"{shape.cache_rows} rows x"
    cache = kept.cache_per_token * shape.cache_rows * shape.cache_tokens * (1 + 1 / kept.layers)  # one layer is copied
    sizes = {
        "weights": 4.0 * policy.num_parameters(),
        "gradients": 4.0 * trainable,
        "moments": 8.0 * trainable,
        "reference": 4.0 * policy.num_parameters() if shape.reference else 0.0,
        "weights in the compute dtype": kept.constant,
        f"activations of a micro-batch of {shape.nodes:,} tokens": activations,
        f"logits of {positions} positions x {vocabulary:,}": 4.0 * _LOGIT_COPIES * positions * vocabulary,
        f"key-value cache of {decoded} {shape.cache_tokens} tokens": cache,
        f"next-token distributions of {decoded} {vocabulary:,}": float(_SAMPLER_BYTES * shape.cache_rows * vocabulary),
    }
    return {name: size / GIB for name, size in sizes.items()}


def peak_of(sizes: Mapping[str, float]) -> float:
    """Sampling and training take turns: what always stays, plus the larger of the two.

    >>> peak_of({"weights": 1.0, "gradients": 1.0, "key-value cache of 1 rows x 1 tokens": 3.0})
    4.0
    """
    train = sum(size for name, size in sizes.items() if name.startswith(("activations", "logits", "gradients")))
    sample = sum(size for name, size in sizes.items() if name.startswith(("key-value", "next-token")))
    return sum(sizes.values()) - min(train, sample)


def saved(policy: CausalPolicy, length: int) -> float:
    """Bytes that autograd keeps of a pass over one sequence, each storage once, parameters left out."""
    own = {p.untyped_storage().data_ptr() for p in policy.model.parameters()}
    kept: dict[int, Tensor] = {}

    def keep(tensor: Tensor) -> Tensor:
        if tensor.untyped_storage().data_ptr() not in own:
            kept[tensor.untyped_storage().data_ptr()] = tensor  # held, so that no later one gets its place
        return tensor

    with torch.enable_grad(), torch.autograd.graph.saved_tensors_hooks(keep, lambda x: x), policy.compute():
        hidden = policy.hidden(_sequence(policy, length))
    keep(hidden)
    return float(sum(tensor.untyped_storage().nbytes() for tensor in kept.values()))


# -- inside ---------------------------------------------------------------------------------------------------------


def _sequence(policy: CausalPolicy, length: int) -> list[trie.Trie]:
    ids = [(7 * i + 3) % int(policy.model.config.vocab_size) for i in range(length)]
    return trie.build([ids], max_nodes=length)


@torch.no_grad()
def _cached(policy: CausalPolicy, length: int) -> float:
    """Bytes of the key-value cache of one sequence."""
    from transformers import DynamicCache

    cache = DynamicCache()
    with policy.compute():
        policy.hidden(_sequence(policy, length), cache)
    return float(sum(layer.keys.nbytes + layer.values.nbytes for layer in cache.layers))
