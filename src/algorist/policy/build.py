"""Policies from a Hugging Face folder, from a Python package that carries weights, or from nothing."""

import contextlib
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError

from algorist.errors import InputError
from algorist.policy.config import NewPolicyConfig, PolicyConfig
from algorist.policy.model import CausalPolicy, pick_device
from algorist.policy.tokenizer import train_tokenizer
from algorist.seeds import derive


def build_policy(cfg: PolicyConfig, *, base: Path, texts: Sequence[str], seed: int) -> CausalPolicy:
    """The starting policy of a recipe. `base` is the recipe's folder; `texts` train the tokenizer of a new model.

    Equal arguments give bit-identical weights. Raises InputError where the folder or package cannot be used.
    """
    exact_products()
    if cfg.new is not None:
        model, tokenizer = _new(cfg.new, texts, seed)
    elif cfg.package is not None:
        from algorist.policy.smollm2 import load_smollm2

        model, tokenizer = load_smollm2()
    else:
        assert cfg.path is not None, "one of path, package, new (checked by the config)"
        model, tokenizer = load_folder((base / cfg.path).resolve())
    policy = CausalPolicy(model, tokenizer, dtype=cfg.dtype, device=pick_device(cfg.device))
    if cfg.context is not None:
        if cfg.context > policy.context:
            raise InputError(
                f"policy.context must be at most the model's own {policy.context} tokens: got {cfg.context}. Lower it."
            )
        policy.context = cfg.context
    return policy


def exact_products() -> None:
    """On CUDA: float32 products without TF32, bfloat16 products summed in float32. Log-probabilities then replay."""
    torch.backends.cuda.matmul.fp32_precision = "ieee"
    torch.backends.cuda.matmul.allow_bf16_reduced_precision_reduction = False


def load_folder(path: Path) -> tuple[Any, Any]:
    """(model, tokenizer) of a local Hugging Face causal LM folder, float32, no remote code, safetensors only."""
    from transformers import AutoModelForCausalLM, AutoTokenizer

    if not (path / "config.json").is_file():
        found = "no such folder" if not path.exists() else "no config.json in it"
        raise InputError(f"{path}: must be a Hugging Face model folder: {found}. Check policy.path.")
    try:
        with quiet_transformers():
            model, loaded = AutoModelForCausalLM.from_pretrained(
                path, dtype=torch.float32, trust_remote_code=False, use_safetensors=True, local_files_only=True,
                output_loading_info=True,
            )  # fmt: skip
            tokenizer = AutoTokenizer.from_pretrained(path, trust_remote_code=False, local_files_only=True)
    except (OSError, ValueError, KeyError, RuntimeError, ImportError, SafetensorError) as error:
        reason = str(error).strip().splitlines()[0][:300]
        raise InputError(
            f"{path}: this folder does not load as a causal language model with its tokenizer ({type(error).__name__}: "
            f"{reason}). It must hold config.json, *.safetensors and the tokenizer files, without custom code."
        ) from error
    for key, what in (
        ("missing_keys", "are not in its files, and would be random"),
        ("unexpected_keys", "have no place"),
    ):
        if odd := sorted(loaded[key]):
            raise InputError(
                f"{path}: config.json and the weights must be those of one model: {len(odd)} weights {what} (first: {odd[0]}). "
                "Take both from one checkpoint."
            )
    if tokenizer.eos_token_id is None:
        raise InputError(
            f"{path}: the tokenizer must name an end-of-sequence token, since responses end with it: got none. "
            "Set eos_token in tokenizer_config.json."
        )
    return model, tokenizer


def copy_policy(policy: CausalPolicy) -> CausalPolicy:
    """A frozen copy with its own weights: the reference policy."""
    from copy import deepcopy

    model = deepcopy(policy.model)
    for parameter in model.parameters():
        parameter.requires_grad_(False)
    return CausalPolicy(model, policy.tokenizer, dtype=policy.dtype, device=policy.device)


def _new(cfg: NewPolicyConfig, texts: Sequence[str], seed: int) -> tuple[Any, Any]:
    from transformers import LlamaConfig, LlamaForCausalLM, MixtralConfig, MixtralForCausalLM

    tokenizer = train_tokenizer(cfg.tokenizer, texts, context=cfg.context)
    shape = {
        "vocab_size": len(tokenizer),
        "hidden_size": cfg.hidden_size,
        "intermediate_size": cfg.intermediate_size,
        "num_hidden_layers": cfg.num_layers,
        "num_attention_heads": cfg.num_heads,
        "num_key_value_heads": cfg.num_kv_heads or cfg.num_heads,
        "max_position_embeddings": cfg.context,
        "tie_word_embeddings": cfg.tie_embeddings,
        "pad_token_id": tokenizer.pad_token_id,
        "eos_token_id": tokenizer.eos_token_id,
        "bos_token_id": None,
    }
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(derive(seed, "init"))
        if cfg.experts is None:
            return LlamaForCausalLM(LlamaConfig(**shape)), tokenizer
        per_token = cfg.experts_per_token or 2
        mixture = MixtralConfig(**shape, num_local_experts=cfg.experts, num_experts_per_tok=per_token)
        return MixtralForCausalLM(mixture), tokenizer


@contextlib.contextmanager
def quiet_transformers() -> Iterator[None]:
    """No progress bars and no advice from transformers while a model loads; errors still come through."""
    from transformers.utils import logging

    before = logging.get_verbosity(), os.environ.get("TQDM_DISABLE")
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    os.environ["TQDM_DISABLE"] = "1"
    try:
        yield
    finally:
        logging.set_verbosity(before[0])
        logging.enable_progress_bar()
        if before[1] is None:
            del os.environ["TQDM_DISABLE"]
        else:
            os.environ["TQDM_DISABLE"] = before[1]
