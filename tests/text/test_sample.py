from __future__ import annotations

import random

import numpy as np
import pytest

from foreword.errors import UserError
from foreword.text import sample as sampling
from foreword.text.sample import count_characters, draw_sample
from foreword.text.tokenizers.bpe import BPE
from foreword.text.tokenizers.unigram import Unigram
from foreword.text.tokenizers.word import Word
from foreword.text.tokenizers.wordpiece import WordPiece


def _stream(documents: int = 20_000):
    return (f"document {n} " * (1 + n % 7) for n in range(documents))


def test_a_text_that_fits_is_sampled_whole() -> None:
    texts = ["one", "", "두 번째", "three"]
    sample = draw_sample(texts, 1000)
    assert list(sample.texts()) == texts
    assert sample.counts.bytes_seen == sample.counts.bytes_kept == len("".join(texts).encode())
    assert sample.counts.documents_seen == sample.counts.documents_kept == 4


def test_a_sample_is_bounded_uniform_and_reproducible() -> None:
    limit = 100_000
    sample = draw_sample(_stream(), limit)
    counts = sample.counts
    assert sum(map(len, sample.pieces)) == counts.bytes_kept <= limit
    assert counts.bytes_kept > 0.95 * limit
    assert counts.bytes_seen == sum(map(len, _stream()))
    assert draw_sample(_stream(), limit) == sample
    # Fair: as many from each tenth of the stream, and long documents as often as short ones.
    numbers = np.array([int(text.split()[1]) for text in sample.texts()])
    assert (np.diff(numbers) > 0).all()
    share = counts.documents_kept / counts.documents_seen
    tenths = np.bincount(numbers // 2000, minlength=10) / 2000
    lengths = np.bincount(numbers % 7, minlength=7) / (20_000 / 7)
    assert np.abs(tenths / share - 1).max() < 0.25
    assert np.abs(lengths / share - 1).max() < 0.25


@pytest.mark.full
def test_a_tokenizer_learns_the_same_of_text_in_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    draw = random.Random(1)
    parts = [
        *["the", "low", "lowest", ".", "3", "é", "é", "문학", "कि", "'s", "[", "ﬁ"],
        " ",
        "  ",
        "\n",
    ]
    text = "".join(part + " " * (draw.random() < 0.5) for part in draw.choices(parts, k=20_000))
    for trainer in (BPE(vocab=400), WordPiece(vocab=150), Unigram(vocab=150), Word(vocab=130)):
        monkeypatch.setattr(sampling, "_BLOCK", 1 << 30)
        whole = trainer.train([text])
        monkeypatch.setattr(sampling, "_BLOCK", 50)
        assert len(list(draw_sample([text], 10**6).texts())) > 100
        assert trainer.train([text]).to_str() == whole.to_str()


def test_one_long_document_is_sampled_in_parts() -> None:
    text = "".join(f"word{n} " for n in range(200_000))
    sample = draw_sample([text], 400_000)
    assert sample.counts.documents_kept == 1
    assert 0 < sample.counts.bytes_kept <= 400_000
    assert all(piece in text for piece in sample.texts())
    hindi = draw_sample(["के की " * sampling._BLOCK], 10_000_000)  # each word ends in a mark
    assert len(list(hindi.texts())) > 5
    assert list(draw_sample([text], 10_000_000).texts()) and (
        "".join(draw_sample([text], 10_000_000).texts()) == text
    )


def test_a_sample_has_a_bounded_amount_of_different_words(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sampling, "_WORDS", 50_000)
    texts = [" ".join(f"key{n}" for n in range(at, at + 100)) for at in range(0, 20_000, 100)]
    sample = draw_sample(texts, 1_000_000)
    size = sum(len(word) for word in {word for text in sample.texts() for word in text.split()})
    assert 45_000 < size <= 50_000
    assert sample.counts.is_cut_by_words
    assert "different words" in str(sample.counts)
    assert draw_sample(texts, 1_000_000) == sample
    assert draw_sample(texts, 1_000_000, has_words=False).counts.documents_kept == 200
    # Of words that repeat nothing is left out.
    repeated = draw_sample(texts[:30] * 10, 1_000_000)
    assert repeated.counts.bytes_kept == repeated.counts.bytes_seen > 3 * 50_000
    assert not repeated.counts.is_cut_by_words


def test_characters_are_counted() -> None:
    counts = count_characters(["abba", "가a" * 3000, "\U0010ffff"])
    assert [counts[ord(c)] for c in "ab가"] == [3002, 2, 3000]
    assert counts[-1] == 1
    assert counts.sum() == 4 + 6000 + 1


def test_rare_characters_are_left_out() -> None:
    sample = draw_sample(["ab" * 500 + "]^-\\☃"], 10_000)
    assert "".join(sample.texts_within(0.99)) == "ab" * 500 + "     "
    assert "".join(sample.texts_within(1.0)) == "ab" * 500 + "]^-\\☃"


def test_no_text_to_sample_is_refused() -> None:
    for texts in ([], ["", ""]):
        with pytest.raises(UserError, match="no text"):
            draw_sample(texts, 100)


@pytest.mark.parametrize(
    ("text", "is_long"),
    [
        ("漢字仮名" * 251, True),
        (f"a {'b' * 1001} c", True),
        ("a" + " " * 2001 + "b", True),
        ("\u200d" * 1001, True),
        (f"{'b' * 999}\n" * 9, False),
        (("語" * 990 + "  ") * 9 + "語" * 1000, False),
        ("a" + " " * 900 + "b", False),
    ],
)
def test_long_words_are_found_and_said(text: str, is_long: bool) -> None:
    counts = draw_sample([text], 10**6, merges=True).counts
    assert counts.has_long_words == is_long == ("longer than 1,000" in str(counts))
    assert not draw_sample([text], 10**6).counts.has_long_words


def test_only_text_without_spaces_is_sampled_less_for_long_words() -> None:
    letters, words = "ACGT" * 20_000, "some words " * 20_000
    mostly = draw_sample([letters], 10**6, merges=True)
    assert mostly.is_mostly_unspaced
    assert mostly.within(9_000).counts.bytes_kept <= 9_000 < mostly.counts.bytes_kept
    assert mostly.within(9_000).counts.bytes_seen == len(letters)
    assert not draw_sample([words + letters[:2_000] + words], 10**6, merges=True).is_mostly_unspaced
