"""Tokenizers trained here, as Hugging Face fast tokenizers with a chat template, so that exports open anywhere."""

from collections.abc import Iterable
from typing import Any

from algorist.policy.config import NewTokenizerConfig

PAD, EOS, UNK = "<pad>", "<eos>", "<unk>"
CHAT_TEMPLATE = (
    "{% for message in messages %}{{ message['content'] }}\n{% endfor %}{% if add_generation_prompt %}{% endif %}"
)
"""One message a line; a from-scratch model knows no roles."""


def train_tokenizer(cfg: NewTokenizerConfig, texts: Iterable[str], *, context: int) -> Any:
    """A `PreTrainedTokenizerFast` over the characters (or byte-level merges) of `texts`.

    Ids 0, 1, 2 are padding, end of sequence and unknown. Characters are sorted, so that equal texts give equal ids.

    >>> tok = train_tokenizer(NewTokenizerConfig(), ["3+4=7"], context=16)
    >>> tok("7=4").input_ids, tok.decode([3, 4])
    ([6, 7, 5], '+3')
    """
    from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, trainers
    from transformers import PreTrainedTokenizerFast

    special = [PAD, EOS, UNK]
    if cfg.kind == "char":
        characters = sorted(set().union(*map(set, texts)) if texts else set())
        if cfg.vocab_size is not None:
            characters = characters[: cfg.vocab_size - len(special)]
        vocabulary = {token: i for i, token in enumerate([*special, *characters])}
        inner = Tokenizer(models.WordLevel(vocabulary, unk_token=UNK))
        inner.pre_tokenizer = pre_tokenizers.Split(Regex(r"[\s\S]"), "isolated")
        inner.decoder = decoders.Fuse()
    else:
        assert cfg.vocab_size is not None, "bpe needs vocab_size (checked by the config)"
        inner = Tokenizer(models.BPE())
        inner.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
        inner.decoder = decoders.ByteLevel()
        trainer = trainers.BpeTrainer(
            vocab_size=cfg.vocab_size,
            special_tokens=special,
            initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
            show_progress=False,
        )
        inner.train_from_iterator(texts, trainer)
    return PreTrainedTokenizerFast(
        tokenizer_object=inner,
        pad_token=PAD,
        eos_token=EOS,
        unk_token=UNK,
        model_max_length=context,
        clean_up_tokenization_spaces=False,
        chat_template=CHAT_TEMPLATE,
    )
