"""What a Hugging Face folder holds, from its files alone: no weights are loaded."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from algorist.digest import JSON
from algorist.errors import InputError

_BYTES_PER_PARAMETER = 16
"""float32 weights, gradients and two moments of AdamW."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelFacts:
    """A model folder in figures."""

    folder: Path
    architecture: str
    """Class that opens it, as its config says."""
    parameters: int
    """Stored weights; tied ones once."""
    stored_as: str
    """Their types, most frequent first."""
    context: int
    """Longest sequence it was made for, in tokens; 0 where the config does not say."""
    vocabulary: int
    has_chat_template: bool
    stop_ids: tuple[int, ...]
    """Ids that end a response: of the tokenizer and of generation_config.json."""
    stop_tokens: tuple[str, ...]
    """The same as text."""
    eos: str | None
    tokenizer: Any
    """The loaded tokenizer."""

    @property
    def training_gib(self) -> float:
        """Memory of float32 weights, gradients and moments; activations come on top."""
        return self.parameters * _BYTES_PER_PARAMETER / 2**30

    def lines(self) -> list[str]:
        """For people."""
        stops = ", ".join(f"{i} {t!r}" for i, t in zip(self.stop_ids, self.stop_tokens, strict=True))
        return [
            f"model: {self.folder}",
            f"architecture: {self.architecture}, {self.parameters / 1e6:,.1f} M parameters stored as {self.stored_as}",
            f"context: {self.context or 'not said by its config'} tokens; vocabulary: {self.vocabulary}",
            f"chat template: {'yes' if self.has_chat_template else 'no'}; a response ends at: {stops or 'nothing'}",
            f"memory to train it: {self.training_gib:.1f} GiB for weights, gradients and AdamW moments, plus activations",
        ]

    def to_json(self) -> dict[str, JSON]:
        """For programs."""
        return {
            "folder": str(self.folder),
            "architecture": self.architecture,
            "parameters": self.parameters,
            "stored_as": self.stored_as,
            "context": self.context,
            "vocabulary": self.vocabulary,
            "chat_template": self.has_chat_template,
            "stop_ids": list(self.stop_ids),
            "stop_tokens": list(self.stop_tokens),
            "training_gib": round(self.training_gib, 3),
        }


def look_at_model(folder: Path) -> ModelFacts:
    """Facts of a model folder. Raises InputError where a run could not train it."""
    config = _json(folder / "config.json")
    if not folder.is_dir() or config is None:
        found = "no such folder" if not folder.exists() else "no readable config.json in it"
        raise InputError(f"{folder}: must be a Hugging Face model folder: {found}. Check the path.")
    parameters, stored_as = _weights(folder)
    tokenizer = _tokenizer(folder)
    if tokenizer.eos_token_id is None:
        raise InputError(
            f"{folder}: the tokenizer must name an end-of-sequence token, since responses end with it: got none. "
            "Set eos_token in tokenizer_config.json."
        )
    generation = _json(folder / "generation_config.json") or {}
    stops = sorted({tokenizer.eos_token_id, *_ids(generation.get("eos_token_id")), *_ids(config.get("eos_token_id"))})
    known = [i for i in stops if 0 <= i < len(tokenizer)]
    return ModelFacts(
        folder=folder,
        architecture=", ".join(config.get("architectures") or [str(config.get("model_type", "unknown"))]),
        parameters=parameters,
        stored_as=stored_as,
        context=int(config.get("max_position_embeddings") or 0),
        vocabulary=int(config.get("vocab_size") or len(tokenizer)),
        has_chat_template=bool(tokenizer.chat_template),
        stop_ids=tuple(known),
        stop_tokens=tuple(str(tokenizer.convert_ids_to_tokens(i)) for i in known),
        eos=tokenizer.eos_token,
        tokenizer=tokenizer,
    )


def _weights(folder: Path) -> tuple[int, str]:
    """(number of weights, their types) from the headers of the safetensors files."""
    from safetensors import SafetensorError, safe_open

    files = sorted(folder.glob("*.safetensors"))
    if not files:
        others = sorted(p.name for p in folder.iterdir() if p.suffix in (".bin", ".pt", ".pth", ".gguf", ".ckpt"))
        got = f"only {others[0]}" if others else "none"
        why = (
            " (a pickle file can run code when it is opened, so it is never read)"
            if others and others[0][-4:] != "gguf"
            else ""
        )
        raise InputError(
            f"{folder}: the weights must be in *.safetensors files: found {got}{why}. Save them again with "
            "model.save_pretrained(folder, safe_serialization=True)."
        )
    total, types = 0, dict[str, int]()
    for file in files:
        try:
            with safe_open(file, framework="numpy") as opened:
                for name in opened.keys():  # noqa: SIM118 - a safetensors file is no mapping
                    part = opened.get_slice(name)
                    count = 1
                    for size in part.get_shape():
                        count *= size
                    total += count
                    types[part.get_dtype()] = types.get(part.get_dtype(), 0) + count
        except (SafetensorError, OSError) as error:
            raise InputError(f"{file}: is not a whole safetensors file ({error}). Copy it again.") from error
    return total, ", ".join(sorted(types, key=lambda t: -types[t]))


def _tokenizer(folder: Path) -> Any:
    from transformers import AutoTokenizer

    from algorist.policy.build import quiet_transformers

    if not any((folder / name).exists() for name in ("tokenizer.json", "tokenizer_config.json", "tokenizer.model")):
        raise InputError(
            f"{folder}: has no tokenizer files. Copy tokenizer.json and tokenizer_config.json next to the weights."
        )
    try:
        with quiet_transformers():
            return AutoTokenizer.from_pretrained(folder, trust_remote_code=False, local_files_only=True)
    except (OSError, ValueError, KeyError, RuntimeError, ImportError, TypeError, AttributeError) as error:
        reason = (str(error).strip().splitlines() or [""])[0][:200]
        raise InputError(
            f"{folder}: the tokenizer does not load ({type(error).__name__}: {reason}). It must need no custom code."
        ) from error


def _ids(value: Any) -> list[int]:
    if isinstance(value, int):
        return [value]
    return [i for i in value if isinstance(i, int)] if isinstance(value, list) else []


def _json(path: Path) -> Mapping[str, Any] | None:
    try:
        value = json.loads(path.read_bytes())
    except (OSError, ValueError):
        return None
    return value if isinstance(value, dict) else None
