"""Weights on disk: digests, training state, and the Hugging Face folder that a run delivers."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from algorist.digest import JSON, canonical, digest, sha256
from algorist.errors import ResumeMismatch
from algorist.policy.model import CausalPolicy


def state(policy: CausalPolicy) -> dict[str, Tensor]:
    """Every weight once (tied ones under their first name), value head included, on CPU."""
    return {name: tensor.detach().cpu().contiguous() for name, tensor in _named(policy).items()}


def state_bytes(policy: CausalPolicy) -> int:
    """Bytes of all tensors of `state`, wherever they lie."""
    return sum(tensor.numel() * tensor.element_size() for tensor in _named(policy).values())


def load_state(policy: CausalPolicy, path: Path) -> None:
    """Fill a policy of the same shape from a safetensors file; every tensor must match by name and shape."""
    stored = load_file(path)
    if any(name.startswith("value_head.") for name in stored):
        policy.add_value_head()
    own = _named(policy)
    if own.keys() != stored.keys():
        odd = sorted(own.keys() ^ stored.keys())
        raise ResumeMismatch(f"{path}: must hold the tensors of this policy: {odd[0]!r} is on one side only")
    with torch.no_grad():
        for name, tensor in own.items():
            if tensor.shape != stored[name].shape:
                raise ResumeMismatch(f"{path}: {name} has shape {tuple(stored[name].shape)}, not {tuple(tensor.shape)}")
            tensor.copy_(stored[name])


def save_state(policy: CausalPolicy, path: Path) -> None:
    """One safetensors file that `load_state` reads."""
    save_file(state(policy), path)


def weights_digest(policy: CausalPolicy, *, value_head: bool = True) -> str:
    """sha256 over name, dtype, shape and bytes of every weight, in name order.

    value_head: False leaves it out, to compare language models of which one has a head.
    """
    entries: dict[str, JSON] = {
        name: {"dtype": str(t.dtype), "shape": list(t.shape), "sha256": sha256(_bytes(t))}
        for name, t in sorted(state(policy).items())
        if value_head or not name.startswith("value_head.")
    }
    return digest(entries)


def tokenizer_digest(tokenizer: Any) -> str:
    """sha256 of what turns text into ids: vocabulary and rules, chat template, special tokens."""
    inner = json.loads(tokenizer.backend_tokenizer.to_str())
    inner.pop("padding", None)
    inner.pop("truncation", None)
    special = {name: str(value) for name, value in sorted(tokenizer.special_tokens_map.items())}
    rules = sha256(json.dumps(inner, sort_keys=True).encode())
    return sha256(canonical({"rules": rules, "chat_template": tokenizer.chat_template or "", "special": special}))


def export(
    policy: CausalPolicy, folder: Path, *, stop_ids: frozenset[int], card: str, facts: Mapping[str, JSON]
) -> None:
    """A Hugging Face folder: config, safetensors, tokenizer, generation config, model card.

    generation_config ends a response at the same ids as training did, so that `model.generate` stops where the run's
    own sampler stops.
    """
    from algorist.policy.build import quiet_transformers

    config = policy.model.generation_config
    config.eos_token_id = sorted(stop_ids)
    config.do_sample = False
    with quiet_transformers():
        policy.model.save_pretrained(folder, safe_serialization=True)
        policy.tokenizer.save_pretrained(folder)
    (folder / "README.md").write_text(card, encoding="utf-8")
    (folder / "algorist.json").write_bytes(canonical(dict(facts)))


def _named(policy: CausalPolicy) -> dict[str, Tensor]:
    named = dict(policy.model.named_parameters())
    named |= {name: b for name, b in policy.model.named_buffers() if name in policy.model.state_dict()}
    if policy.value_head is not None:
        named |= {f"value_head.{name}": p for name, p in policy.value_head.named_parameters()}
    return named


def _bytes(tensor: Tensor) -> bytes:
    flat = tensor.flatten()
    return flat.view(torch.uint8).numpy().tobytes() if flat.numel() else b""
