"""The contract of tokenizers, as functions.

All checks but two take a trained tokenizer, so that one training serves them all.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import asdict, is_dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, cast

import numpy as np

from foreword.errors import UserError
from foreword.settings import kinds
from foreword.text import special
from foreword.text.tokenizer import Tokenizer
from foreword.text.tokenizers._contract import TokenizerKind

SENTENCES = (
    "The lowest house stands by the newest and the widest road. Is it the oldest? No, he said.",
    "The man and the woman walked down the road to the house; they walked slow, and said little.",
    "In the house the woman read the newest book (the man had read it).\nIt was slow reading, 3.1!",
    'Dr. Smith said: "The road is wide." Then the house was empty.\n\nThe end of a book: [x] <y>.',
    "문학은 언어를 예술적 표현의 제재로 삼아 새로운 의미를 창출한다.",
    "문학은 예술이다. 언어는 문학의 제재이다.",
)
NASTY = (
    "",
    " ",
    "\n\t \r\n",
    "\x00\x01 control \x7f\x85\u200b\u2028 characters\ufeff",
    "👩‍👩‍👧 family 🏳️‍🌈 e\u0301 é ﬁ Ⅷ",
    "  two  spaces,\ttabs\tand a trailing newline\n",
    "문학은 언어를  예술적 표현의 제재로\n삼아",
    "𝔘𝔫𝔦𝔠𝔬𝔡𝔢 \U0010ffff \ufffd �",
    "'s 't don't ... !!?? §¶ ##ing ▁low Ġlow",
    "[MASK] </s><s> <extra_id_0> [UNK] [PAD]",
)


def _invented() -> list[str]:
    """Return made-up words, enough to fill a small vocabulary."""
    rng = random.Random(0)
    stems = [
        "".join(rng.choices("aeiou", k=1) + rng.choices("bdfgklmnprst", k=2)) for _ in range(60)
    ]
    words = [
        "".join((rng.choice(("", "re", "un")), stem, rng.choice(("er", "ing", "s"))))
        for stem in stems
    ]
    return [" ".join(rng.choices(words, k=12)) + "." for _ in range(60)]


CORPUS = (*SENTENCES * 6, *_invented())


def check_tokenizer(settings: TokenizerKind, texts: Sequence[str] = CORPUS) -> None:
    """Check all that a tokenizer promises.

    Args:
        settings: settings of the kind, with a vocabulary that `texts` support.
        texts: the texts to train on.

    Raises:
        AssertionError: a promise is broken.
    """
    assert is_dataclass(type(settings)), "the settings of a tokenizer are a frozen dataclass"
    for check in TRAINING_CHECKS:
        check(settings, texts)
    tokenizer = settings.train(iter(texts))
    for check_trained in TOKENIZER_CHECKS:
        check_trained(tokenizer)


def check_training_again_gives_the_same(settings: TokenizerKind, texts: Sequence[str]) -> None:
    """Check that training is reproducible, depends on the text, and is recorded."""
    tokenizer, again = settings.train(iter(texts)), settings.train(iter(texts))
    assert tokenizer.fingerprint == again.fingerprint, "the same texts give another tokenizer"
    record = {"kind": kinds.name_of(settings), **asdict(cast(Any, settings))}
    assert tokenizer.kind == record, "the tokenizer does not record its kind and settings"
    assert tokenizer.vocab.size <= settings.vocab, "the vocabulary is larger than requested"


def check_no_text_is_refused(settings: TokenizerKind, texts: Sequence[str]) -> None:
    """Check that texts without a character are refused."""
    del texts
    try:
        settings.train(["", ""])
    except UserError:
        return
    raise AssertionError("a tokenizer is trained on no text")


def check_special_tokens_are_the_first_ids(tokenizer: Tokenizer) -> None:
    """Check ids of special tokens and sentinels, and that ordinary tokens begin words."""
    vocab, first = tokenizer.vocab, len(special.ALL)
    assert vocab.special == {name: i for i, name in enumerate(special.NAMES)}
    assert vocab.sentinels.tolist() == list(range(len(special.NAMES), first))
    assert vocab.is_special.tolist() == [True] * first + [False] * (vocab.size - first)
    assert vocab.starts_word[first:].any(), "no token begins a word"


def check_plain_text_never_becomes_a_special_token(tokenizer: Tokenizer) -> None:
    """Check that names of special tokens in a corpus are text, whatever stands around them."""
    unknown = tokenizer.vocab.id("[UNK]")
    for text in NASTY:
        ids = tokenizer.encode(text)
        assert ids.dtype == np.int64
        is_special = tokenizer.vocab.is_special[ids] & (ids != unknown)
        assert not is_special.any(), f"{text!r} becomes a special token"
        together = tokenizer.encode_batch([text, "x"])[0]
        assert together == ids.tolist(), f"{text!r} has other ids in a batch with another text"


def check_prompts_may_name_special_tokens(tokenizer: Tokenizer) -> None:
    """Check that names in a prompt become tokens, and are left out when it is decoded."""
    vocab = tokenizer.vocab
    ids = tokenizer.encode("the [MASK] house <extra_id_2>", special=True)
    special_ids = [i for i in ids if vocab.is_special[i] and i != vocab.id("[UNK]")]
    assert special_ids == [vocab.id("[MASK]"), vocab.sentinels[2]], (
        "names in a prompt are not tokens"
    )
    assert "[MASK]" in tokenizer.decode(ids, skip_special=False)
    assert "[MASK]" not in tokenizer.decode(ids)


def check_spellings_are_the_text(tokenizer: Tokenizer) -> None:
    """Check that the spellings of a text's tokens, side by side, are the text without spaces."""
    text = "the lowest house stands by the road"
    spellings = tokenizer.vocab.spellings
    assert len(spellings) == tokenizer.vocab.size
    names = [spelling.decode() for spelling in spellings[: len(special.NAMES)]]
    assert names == list(special.NAMES), "special tokens are not spelt by name"
    spelt = b"".join(spellings[i] for i in tokenizer.encode(text)).decode()
    assert spelt.replace(" ", "") == text.replace(" ", ""), f"{text!r} is spelt {spelt!r}"


def check_saved_and_loaded_it_is_the_same(tokenizer: Tokenizer) -> None:
    """Check that a tokenizer read back gives the same ids."""
    with TemporaryDirectory() as folder:
        tokenizer.save(Path(folder) / "tokenizer")
        again = Tokenizer.load(Path(folder) / "tokenizer")
    assert again.fingerprint == tokenizer.fingerprint
    assert (again.kind, again.sample) == (tokenizer.kind, tokenizer.sample)
    assert again.encode_batch(NASTY) == tokenizer.encode_batch(NASTY)


TRAINING_CHECKS: tuple[Callable[[TokenizerKind, Sequence[str]], None], ...] = (
    check_training_again_gives_the_same,
    check_no_text_is_refused,
)
TOKENIZER_CHECKS: tuple[Callable[[Tokenizer], None], ...] = (
    check_special_tokens_are_the_first_ids,
    check_plain_text_never_becomes_a_special_token,
    check_prompts_may_name_special_tokens,
    check_spellings_are_the_text,
    check_saved_and_loaded_it_is_the_same,
)
