"""Problem to text, before any tokenizer: plain, few-shot, and the text a new tokenizer is trained on."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from algorist.errors import InputError
from algorist.flow import Problem
from algorist.prompts.config import ExampleConfig, PromptConfig
from algorist.seeds import derive

Target = Literal["solution", "gold"]


def question_text(cfg: PromptConfig, question: str, effort: str = "") -> str:
    """The question in its format; braces in the question stay as they are.

    >>> question_text(PromptConfig(), "3 + 4")
    'Q: 3 + 4\\nA:'
    """
    return cfg.question_format.replace("{effort}", effort).replace("{question}", question)


def effort_of(cfg: PromptConfig, problem: Problem) -> str:
    """What stands for {effort} in the prompt of a problem; empty where the prompt shows none.

    Raises InputError for a problem without an effort where the prompt shows one.
    """
    if not cfg.shows_effort:
        return ""
    effort = dict(problem.metadata).get("effort")
    if effort is None:
        raise InputError(
            f"problem {problem.id}: the prompt says {{effort}}, and this problem has none. Set problems.efforts, or give one."
        )
    return effort


def target_text(cfg: PromptConfig, answer: str) -> str:
    """The answer in its format.

    >>> target_text(PromptConfig(), "7")
    ' 7'
    """
    return cfg.target_format.replace("{answer}", answer)


def answer_of(problem: Problem, target: Target) -> str:
    """What SFT imitates: the worked solution, or the bare gold.

    Raises InputError for a problem without a solution where one is asked for.
    """
    if target == "gold":
        return problem.gold
    if not problem.solution:
        raise InputError(f"problem {problem.id} ({problem.source}) has no worked solution. Use sft.target: gold.")
    return problem.solution


def prompt_text(cfg: PromptConfig, question: str, examples: Sequence[ExampleConfig] = (), effort: str = "") -> str:
    """Text of a plain or few-shot prompt.

    >>> cfg = PromptConfig(template="few_shot", examples=(ExampleConfig(question="3 + 4", answer="7"),))
    >>> prompt_text(cfg, "5 + 1", cfg.examples)
    'Q: 3 + 4\\nA: 7\\nQ: 5 + 1\\nA:'
    """
    shown = [question_text(cfg, e.question, effort) + target_text(cfg, e.answer) + cfg.separator for e in examples]
    return "".join(shown) + question_text(cfg, question, effort)


def pick_examples(cfg: PromptConfig, pool: Sequence[Problem], seed: int) -> tuple[ExampleConfig, ...]:
    """The examples a recipe lists, or as many as it asks for, drawn from the training pool by the seed.

    Drawn ones show the gold. The renderer refuses the problems that are shown, so none is trained on or measured.
    Raises InputError where the pool is too small.
    """
    if not isinstance(cfg.examples, int):
        return cfg.examples
    if cfg.examples > len(pool):
        raise InputError(
            f"prompt.examples: {cfg.examples} were asked for, and the training pool has {len(pool)}. Lower it."
        )
    order = sorted(pool, key=lambda problem: (derive(seed, "examples", problem.id), problem.id))
    return tuple(ExampleConfig(question=problem.question, answer=problem.gold) for problem in order[: cfg.examples])


def tokenizer_texts(cfg: PromptConfig, problems: Sequence[Problem]) -> list[str]:
    """Every text a from-scratch tokenizer must be able to spell: prompts, golds, solutions, examples, stop strings.

    >>> problem = Problem(id="p", question="3 + 4", gold="7", source="s")
    >>> tokenizer_texts(PromptConfig(stop=(";",)), [problem])
    ['Q: 3 + 4\\nA:', ' 7', ';', '\\n']
    """
    texts = []
    for problem in problems:
        texts.append(question_text(cfg, problem.question, effort_of(cfg, problem)))
        texts += [target_text(cfg, answer) for answer in (problem.gold, problem.solution) if answer]
    shown = cfg.examples if isinstance(cfg.examples, tuple) else ()
    texts += [question_text(cfg, e.question) + target_text(cfg, e.answer) for e in shown]
    return texts + [text for text in (*cfg.stop, cfg.system, cfg.separator) if text]
