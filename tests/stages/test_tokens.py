"""Characters to tokens by decoding: on characters, on bytes, on tokenizers that clean up."""

from functools import partial

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from algorist.policy.config import NewTokenizerConfig
from algorist.policy.tokenizer import train_tokenizer
from algorist.reward.steps import token_ends
from algorist.stages.process import steps_of
from algorist.stages.tokens import pieces

TEXTS = ["3 + 4 = 7\n7 * 2 = 14\n", "naïve — ±½ 数学 🙂 x² = 4", "the quick brown fox 123"]
TOKENIZERS = {
    "char": train_tokenizer(NewTokenizerConfig(kind="char"), TEXTS, context=64),
    "bpe": train_tokenizer(NewTokenizerConfig(kind="bpe", vocab_size=300), TEXTS, context=64),
}


@pytest.mark.parametrize("kind", TOKENIZERS)
@given(text=st.text(alphabet="".join(sorted(set("".join(TEXTS)))), max_size=40))
@settings(max_examples=60, deadline=None)
def test_pieces_join_to_the_text_and_each_prefix_is_what_it_decodes_to(kind, text) -> None:
    tokenizer = TOKENIZERS[kind]
    decode = partial(tokenizer.decode, skip_special_tokens=True)
    ids = tokenizer.encode(text, add_special_tokens=False)
    parts = pieces(ids, decode(ids), decode)
    assert len(parts) == len(ids)
    assert "".join(parts) == decode(ids)
    for t in range(1, len(ids)):
        prefix = decode(ids[:t])
        if "�" not in prefix:
            assert "".join(parts[:t]) == prefix


def test_a_character_of_several_byte_tokens_belongs_to_the_last_of_them() -> None:
    tokenizer = train_tokenizer(NewTokenizerConfig(kind="bpe", vocab_size=260), ["ab"], context=16)
    ids = tokenizer.encode("a🙂b", add_special_tokens=False)
    assert pieces(ids, "a🙂b", partial(tokenizer.decode)) == ("a", "", "", "", "🙂", "b")


def test_a_hidden_stop_id_has_no_characters_and_the_last_step_ends_with_it() -> None:
    tokenizer = TOKENIZERS["char"]
    ids = [*tokenizer.encode("3 + 4 = 7\n7 * 2 = 14", add_special_tokens=False), tokenizer.eos_token_id]
    text = "3 + 4 = 7\n7 * 2 = 14"
    parts = pieces(ids, text, partial(tokenizer.decode, skip_special_tokens=True), hidden={tokenizer.eos_token_id})
    assert parts[-1] == ""
    assert token_ends(steps_of(text, ()), parts) == (8, len(ids) - 1)


def test_a_tokenizer_that_strips_a_leading_space_is_followed_by_prefixes() -> None:
    words = {0: "▁3", 1: "▁+", 2: "▁4"}

    def decode(ids) -> str:
        return "".join(words[i] for i in ids).replace("▁", " ").lstrip()

    assert pieces([0, 1, 2], "3 + 4", decode) == ("3", " +", " 4")


def test_text_that_is_cleaned_up_behind_a_token_still_gets_all_its_characters() -> None:
    words = {0: "a", 1: " ", 2: "."}

    def decode(ids) -> str:
        return "".join(words[i] for i in ids).replace(" .", ".")

    assert "".join(pieces([0, 1, 2], "a.", decode)) == "a."
