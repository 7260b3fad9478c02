"""Problem to token ids, and what ends a response. A prompt that does not fit is listed with its reason, never cut."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from jinja2 import TemplateError

from algorist.errors import InputError
from algorist.flow import Problem, Prompt
from algorist.prompts.config import ExampleConfig, PromptConfig
from algorist.prompts.text import (
    Target,
    answer_of,
    effort_of,
    pick_examples,
    prompt_text,
    question_text,
    target_text,
)
from algorist.prompts.text import tokenizer_texts as tokenizer_texts


class Tokenizer(Protocol):
    """What is used of a Hugging Face fast tokenizer."""

    bos_token_id: int | None
    eos_token_id: int | None
    unk_token_id: int | None
    all_special_tokens: Sequence[str]
    chat_template: Any

    def encode(self, text: str, *, add_special_tokens: bool) -> list[int]:
        """Token ids of a text."""
        ...

    def decode(self, token_ids: Sequence[int]) -> str:
        """Text of token ids."""
        ...

    def apply_chat_template(self, conversation: Any, *, tokenize: bool, add_generation_prompt: bool) -> Any:
        """Messages in the model's own format."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Refused:
    """A problem that cannot be shown to this policy, and why."""

    problem_id: str
    reason: str
    """A short code: too_long, unknown_character, special_token, is_example, no_solution."""
    detail: str
    """In words, with numbers."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rendered:
    """Prompts of a list of problems, in their order, and those that were refused."""

    prompts: tuple[Prompt, ...]
    refused: tuple[Refused, ...]

    @property
    def refused_by_reason(self) -> Mapping[str, int]:
        """Reason code -> count, most frequent first."""
        return dict(Counter(row.reason for row in self.refused).most_common())


@dataclass(frozen=True, slots=True, kw_only=True)
class Example:
    """Prompt and target of one SFT example."""

    problem_id: str
    prompt_ids: tuple[int, ...]
    target_ids: tuple[int, ...]
    """What is trained: the answer and the token that ends it."""


class Renderer:
    """Turns problems into prompts for one tokenizer.

    pool, seed: the training problems that few-shot examples are drawn from, where the recipe gives a number of them.
    Raises InputError where the template cannot work with this tokenizer: no chat template, a doubled
    beginning-of-sequence token, a stop string that is not one token where it will stand, nothing that ends a response.
    """

    def __init__(self, cfg: PromptConfig, tokenizer: Tokenizer, *, pool: Sequence[Problem] = (), seed: int = 0) -> None:
        self.cfg, self.tokenizer = cfg, tokenizer
        self.examples: tuple[ExampleConfig, ...] = pick_examples(cfg, pool, seed)
        """What a few-shot prompt shows."""
        if cfg.template == "chat" and not tokenizer.chat_template:
            raise InputError("prompt.template: chat needs a tokenizer with a chat template. Use plain or few_shot.")
        self._shown = {" ".join(example.question.split()).casefold() for example in self.examples}
        self._check_beginning()
        stops = [self._stop_id(text) for text in cfg.stop]
        eos = tokenizer.eos_token_id
        self.stop_ids: frozenset[int] = frozenset(stops if eos is None else [*stops, eos])
        if not self.stop_ids:
            raise InputError(
                "nothing ends a response: the tokenizer has no end-of-sequence token and prompt.stop is empty. "
                'Set prompt.stop, for example to ["\\n"].'
            )
        ends = [eos, *stops] if cfg.template == "chat" else [*stops, eos]
        self.end_id: int = next(token for token in ends if token is not None)
        """The token that ends an SFT target."""
        if cfg.template == "few_shot" and cfg.separator:
            self._check_separator()

    def text(self, question: str, effort: str = "") -> str:
        """The prompt as text, special tokens of a chat template included."""
        if self.cfg.template != "chat":
            return prompt_text(self.cfg, question, self.examples, effort)
        messages = [{"role": "user", "content": question_text(self.cfg, question, effort)}]
        if self.cfg.system:
            messages.insert(0, {"role": "system", "content": self.cfg.system.replace("{effort}", effort)})
        try:
            return str(self.tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True))
        except (TemplateError, TypeError, ValueError) as error:
            raise InputError(
                f"prompt.template: the tokenizer's chat template cannot render a user message"
                f"{' after a system message' if self.cfg.system else ''} ({type(error).__name__}: {error}). Change prompt.system, "
                "use another template, or repair chat_template."
            ) from error

    def prompt(self, problem: Problem) -> Prompt:
        """The prompt of one problem, whatever its length; `render` also checks."""
        text = self.text(problem.question, effort_of(self.cfg, problem))
        # a chat template writes its special tokens itself
        ids = self._encode(text, special=self.cfg.template != "chat")
        return Prompt(problem_id=problem.id, token_ids=ids, text=text)

    def target_ids(self, problem: Problem, target: Target = "solution") -> tuple[int, ...]:
        """Token ids that SFT trains after the prompt: the answer and the token that ends it.

        Raises InputError where the problem has no such answer.
        """
        return (*self._encode(target_text(self.cfg, answer_of(problem, target)), special=False), self.end_id)

    def render(self, problems: Sequence[Problem], *, context: int, response_tokens: int) -> Rendered:
        """Prompts of all problems that leave room for a response of `response_tokens` within `context` tokens."""
        prompts: list[Prompt] = []
        refused: list[Refused] = []
        for problem in problems:
            prompt = self.prompt(problem)
            why = self.refusal(problem, prompt.token_ids, context=context, response_tokens=response_tokens)
            if why is None:
                prompts.append(prompt)
            else:
                refused.append(why)
        return Rendered(prompts=tuple(prompts), refused=tuple(refused))

    def render_sft(
        self, problems: Sequence[Problem], *, context: int, target: Target = "solution"
    ) -> tuple[tuple[Example, ...], tuple[Refused, ...]]:
        """SFT examples of all problems that fit the context, and those that do not."""
        rows: list[Example] = []
        refused: list[Refused] = []
        for problem in problems:
            if target == "solution" and not problem.solution:
                refused.append(Refused(problem_id=problem.id, reason="no_solution", detail="no worked solution"))
                continue
            prompt, answer = self.prompt(problem), self.target_ids(problem, target)
            why = self.refusal(problem, prompt.token_ids, context=context, response_tokens=len(answer))
            if why is None and self._is_unknown(answer):
                why = Refused(problem_id=problem.id, reason="unknown_character", detail=f"in the {target}")
            if why is None:
                rows.append(Example(problem_id=problem.id, prompt_ids=prompt.token_ids, target_ids=answer))
            else:
                refused.append(why)
        return tuple(rows), tuple(refused)

    def refusal(
        self, problem: Problem, prompt_ids: Sequence[int], *, context: int, response_tokens: int
    ) -> Refused | None:
        """Why a problem cannot be shown to this policy; None where it can."""

        def refused(reason: str, detail: str) -> Refused:
            return Refused(problem_id=problem.id, reason=reason, detail=detail)

        special = next((token for token in self.tokenizer.all_special_tokens if token in problem.question), None)
        if special is not None:
            return refused("special_token", f"the question contains the special token {special!r}")
        if " ".join(problem.question.split()).casefold() in self._shown:
            return refused("is_example", "the prompt shows this question with its answer")
        if len(prompt_ids) + response_tokens > context:
            length = f"{len(prompt_ids)} prompt tokens and {response_tokens} response tokens"
            return refused("too_long", f"{length} exceed the context of {context}")
        if self._is_unknown(prompt_ids):
            return refused("unknown_character", "in the question")
        return None

    def _is_unknown(self, ids: Sequence[int]) -> bool:
        tokenizer, unknown = self.tokenizer, self.tokenizer.unk_token_id
        # byte-level tokenizers name another special token as the unknown one and never produce it for text
        return unknown not in (None, tokenizer.eos_token_id, tokenizer.bos_token_id) and unknown in ids

    def _encode(self, text: str, *, special: bool) -> tuple[int, ...]:
        return tuple(self.tokenizer.encode(text, add_special_tokens=special))

    def _check_beginning(self) -> None:
        bos = self.tokenizer.bos_token_id
        ids = self._encode(self.text("1 + 1"), special=self.cfg.template != "chat")
        if bos is not None and len(ids) > 1 and ids[0] == ids[1] == bos:
            raise InputError(
                "a prompt must begin with at most one beginning-of-sequence token: got two. "
                "Remove the token from prompt.format or from the tokenizer's own rules."
            )
        eos = self.tokenizer.eos_token_id
        if eos is not None and ids and ids[-1] == eos and eos != bos and self.cfg.template != "chat":
            raise InputError(
                "the tokenizer adds its end-of-sequence token to every prompt, so responses would start after the end. "
                "Switch add_eos_token off in tokenizer_config.json."
            )

    def _stop_id(self, stop: str) -> int:
        """The id of a stop string, which must be one token where it will stand: after an answer."""
        answer = target_text(self.cfg, "7")
        before, after = self._encode(answer, special=False), self._encode(answer + stop, special=False)
        if len(after) != len(before) + 1 or after[:-1] != before or self._is_unknown(after[-1:]):
            alone = self._encode(stop, special=False)
            raise InputError(
                f"prompt.stop: {stop!r} must be one token after an answer: the tokenizer splits it into {len(alone)} "
                f"({', '.join(repr(self.tokenizer.decode([i])) for i in alone)}), or joins it with the answer. "
                "Use a stop string that is a single token, or rely on the end-of-sequence token."
            )
        return after[-1]

    def _check_separator(self) -> None:
        """What few-shot examples show after an answer is what the model will write there: it must be able to stop."""
        answer = target_text(self.cfg, "7")
        ids = self._encode(answer + self.cfg.separator + question_text(self.cfg, "1 + 1"), special=False)
        before = len(self._encode(answer, special=False))
        separator = self.cfg.separator
        if not self.cfg.stop:
            raise InputError(
                f"a few_shot prompt shows {separator!r} after each answer, and prompt.stop is empty. "
                f"Set prompt.stop to [{separator!r}]."
            )
        if ids[before] not in self.stop_ids:
            raise InputError(
                f"prompt.separator {separator!r} begins with {self.tokenizer.decode([ids[before]])!r}, no stop "
                "token, so responses would run on into the next question. Add it to prompt.stop."
            )
