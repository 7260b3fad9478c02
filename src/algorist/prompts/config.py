"""How a problem becomes a prompt. Read by `prompts/`."""

from __future__ import annotations

from typing import Literal, Self

from pydantic import Field, model_validator

from algorist.config import Config, impossible


class ExampleConfig(Config):
    """One worked line of a few-shot prompt."""

    question: str = Field(min_length=1, description="As a problem's question.")
    answer: str = Field(min_length=1, description="What the model should write.")


class PromptConfig(Config):
    """Template, stop strings and where the answer stands."""

    template: Literal["plain", "chat", "few_shot"] = Field(
        default="plain",
        description="plain: `format`; chat: the tokenizer's chat template; few_shot: examples, then `format`.",
    )
    format: str | None = Field(
        default=None,
        description="Text of one question, with {question} in it once, and {effort} where problems.efforts are set. "
        "null: 'Q: {question}\\nA:' for plain and few_shot, the bare question for chat.",
    )
    target: str | None = Field(
        default=None,
        description="Text of one answer, in examples and SFT, with {answer} in it once. null: a space before it for "
        "plain and few_shot, the bare answer for chat.",
    )
    separator: str = Field(
        default="\n", description="few_shot: text between one example's answer and the next question."
    )
    system: str = Field(
        default="", description="chat: the system message; empty: none. {effort} may stand here instead of in format."
    )
    examples: int | tuple[ExampleConfig, ...] = Field(
        default=(), description="few_shot: question and answer pairs, or how many to draw from the training problems."
    )
    stop: tuple[str, ...] = Field(
        default=(), description="Strings that end a response besides the end-of-sequence token; each must be one token."
    )
    answer_format: Literal["auto", "first_line", "last_number", "boxed", "hashes"] = Field(
        default="auto", description="Where the verifier looks for the final answer; auto: it decides by its own rules."
    )

    @property
    def question_format(self) -> str:
        """`format`, or the template's own."""
        own = "{question}" if self.template == "chat" else "Q: {question}\nA:"
        return own if self.format is None else self.format

    @property
    def target_format(self) -> str:
        """`target`, or the template's own."""
        own = "{answer}" if self.template == "chat" else " {answer}"
        return own if self.target is None else self.target

    @property
    def shows_effort(self) -> bool:
        """The prompt says how much effort is asked for."""
        return "{effort}" in self.question_format + self.system

    @model_validator(mode="after")
    def _usable(self) -> Self:
        for name, hole, text in (("format", "{question}", self.format), ("target", "{answer}", self.target)):
            if text is not None and text.count(hole) != 1:
                raise impossible(
                    f"{name} must hold {hole} exactly once: got {text!r}", f"Write {hole} where it belongs.", at=[name]
                )
        num_examples = self.examples if isinstance(self.examples, int) else len(self.examples)
        if self.template == "few_shot" and num_examples < 1:
            raise impossible(
                "of template few_shot needs examples: got none", "Give pairs, or a number of them.", at=["template"]
            )
        if self.template != "few_shot" and num_examples:
            raise impossible(
                f"examples are shown by the few_shot template only: got template {self.template}",
                "Set template: few_shot or drop examples.",
                at=["examples"],
            )
        if self.system and self.template != "chat":
            raise impossible(
                f"system is used by the chat template only: got template {self.template}",
                "Set template: chat or remove system.",
                at=["system"],
            )
        if "" in self.stop:
            raise impossible("stop must not hold an empty string", "Remove it.", at=["stop"])
        return self
