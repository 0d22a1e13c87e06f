"""Vocabularies for scripts of many characters."""

from __future__ import annotations

import random
import re
from typing import Any

import numpy as np
import pytest

from foreword.errors import UserError
from foreword.text import special, training
from foreword.text.special import UNK
from foreword.text.tokenizers._contract import TokenizerKind
from foreword.text.tokenizers.bpe import BPE
from foreword.text.tokenizers.unigram import Unigram
from foreword.text.tokenizers.wordpiece import WordPiece

KINDS: list[type[Any]] = [WordPiece, Unigram]
SYLLABLES = [chr(0xAC00 + 7 * n) for n in range(600)]


@pytest.fixture(scope="module")
def korean() -> list[str]:
    """Texts of Hangul words, few of them frequent, as in any language."""
    draw = random.Random(1)
    words = ["".join(draw.choices(SYLLABLES, k=draw.randint(2, 3))) for _ in range(3000)]
    shares = 1 / np.arange(1, len(words) + 1)
    return [" ".join(draw.choices(words, shares, k=400)) for _ in range(40)]


def refusal(kind: TokenizerKind, texts: list[str]) -> str:
    """Return the message of a refused training."""
    with pytest.raises(UserError, match="is too small for this text") as caught:
        kind.train(texts)
    return str(caught.value)


@pytest.mark.parametrize("kind", KINDS)
def test_too_many_characters_are_refused_before_the_training(
    kind: type[Any], korean: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(training, "learn", lambda *_: pytest.fail("it was trained"))
    assert "whose single characters and the special tokens are" in refusal(kind(vocab=300), korean)


def test_the_proposed_vocabulary_holds_words(korean: list[str]) -> None:
    proposed = re.search(r"tokenizer.vocab=(\d+)", refusal(WordPiece(vocab=300), korean))
    assert proposed is not None
    tokenizer = WordPiece(vocab=int(proposed[1])).train(korean)
    frequent = max(set(korean[0].split()), key=korean[0].split().count)
    assert len(tokenizer.encode(frequent)) == 1
    tokens = sum(len(tokenizer.encode(text)) for text in korean)
    assert tokens < 0.8 * sum(len(text) - text.count(" ") for text in korean)


def test_the_proposed_coverage_fits_and_counts_what_it_leaves_out(korean: list[str]) -> None:
    texts = [*korean[:-1], korean[-1] + " " + " ".join(map(chr, range(0x4E00, 0x4E00 + 900)))]
    proposed = re.search(r"tokenizer.coverage=([\d.]+)", refusal(WordPiece(vocab=1500), texts))
    assert proposed is not None
    tokenizer = WordPiece(vocab=1500, coverage=float(proposed[1])).train(texts)
    assert tokenizer.vocab.special[UNK] in tokenizer.encode(chr(0x4E00 + 899))
    assert tokenizer.sample is not None
    assert tokenizer.sample.characters_left_out >= 800
    assert "rare characters" in training.describe(tokenizer)


def test_a_vocabulary_of_hardly_more_than_characters_is_remarked_on(korean: list[str]) -> None:
    least = re.search(r"special tokens are ([\d,]+)", refusal(Unigram(vocab=300), korean))
    assert least is not None
    size = int(least[1].replace(",", "")) + 50
    message = training.describe(Unigram(vocab=size).train(korean))
    assert f"of its {size:,} tokens are single characters; a larger tokenizer.vocab" in message
    assert size < 2 * (size - 50 - len(special.ALL))


def test_chinese_without_spaces_gets_room_for_more_than_characters() -> None:
    draw = random.Random(1)
    characters = [chr(0x4E00 + n) for n in range(500)]
    words = ["".join(draw.choices(characters, k=2)) for _ in range(800)]
    texts = ["".join(draw.choices(words, k=100)) for _ in range(200)]
    message = refusal(Unigram(vocab=200), texts)
    proposed = re.search(r"tokenizer.vocab=(\d+)", message)
    assert proposed is not None
    assert int(proposed[1]) >= 2 * 500
    tokenizer = Unigram(vocab=int(proposed[1])).train(texts)
    assert len(tokenizer.encode(texts[0])) < 0.8 * len(texts[0])


def test_a_vocabulary_of_bytes_that_never_occur_is_remarked_on(korean: list[str]) -> None:
    letters = random.Random(1).choices("ACGT", k=20_000)
    dna = ["".join(letters[at : at + 200]) for at in range(0, len(letters), 200)]
    message = training.describe(BPE(vocab=512).train(dna))
    assert "252 of its tokens are bytes that no longer piece has" in message
    assert "bytes" not in training.describe(BPE(vocab=1500).train(korean))
