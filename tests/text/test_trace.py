from __future__ import annotations

from typing import Any

import pytest
from tokenizers import Tokenizer as Engine
from tokenizers import models, pre_tokenizers, trainers

from foreword.text.tokenizers.bpe import BPE
from foreword.text.tokenizers.unigram import Unigram
from foreword.text.tokenizers.word import Word
from foreword.text.tokenizers.wordpiece import WordPiece
from foreword.text.trace import learn, segment
from tests.evaluation.conftest import TEXTS

EXAMPLE = {"low": 5, "lower": 2, "newest": 6, "widest": 3}


def test_the_textbook_example_is_learned() -> None:
    steps = learn(EXAMPLE)
    assert [step.symbol for step in steps] == (
        ["es", "est", "lo", "low", "ne", "new", "newest", "wi", "wid", "widest"]
    )
    assert [step.count for step in steps] == [9, 9, 7, 7, 6, 6, 6, 3, 3, 3]
    assert [step.vocab for step in steps] == list(range(11, 21))
    assert steps[1].words[2:] == (("n", "e", "w", "est"), ("w", "i", "d", "est"))
    assert steps[-1].words == (("low",), ("low", "e", "r"), ("newest",), ("widest",))
    assert segment("lowest", steps) == ("low", "est")
    assert segment("", steps) == ()
    assert segment("xyz", steps) == ("x", "y", "z")


def test_learning_ends_when_no_pair_occurs_twice() -> None:
    assert [step.symbol for step in learn(EXAMPLE, merges=99)][10:] == ["lowe", "lower"]
    assert learn({"abc": 1}) == []
    assert learn({}) == []
    assert learn(EXAMPLE, merges=0) == []


def test_pairs_that_overlap_merge_from_the_left() -> None:
    steps = learn({"aaaaa": 2}, merges=1)
    assert steps[0].words == (("aa", "aa", "a"),)


def test_merges_equal_the_librarys_unless_counts_tie() -> None:
    counts = {"hug": 10, "pug": 5, "pun": 16, "bun": 4, "hugs": 7}
    engine = Engine(models.BPE())
    engine.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    trainer = trainers.BpeTrainer(vocab_size=10, show_progress=False)
    engine.train_from_iterator([" ".join([w] * n) for w, n in counts.items()], trainer)
    ours = [step.symbol for step in learn(counts, merges=3)]
    theirs = sorted(engine.get_vocab().items(), key=lambda item: item[1])
    assert ours == [piece for piece, _ in theirs if len(piece) > 1] == ["ug", "un", "hug"]
    for word in ("hugun", "pugs", "bug"):
        assert list(segment(word, learn(counts, merges=3))) == engine.encode(word).tokens


@pytest.mark.parametrize("kind", [BPE(vocab=400), WordPiece(vocab=180), Unigram(vocab=180), Word()])
def test_the_steps_of_a_cut_end_in_the_pieces(kind: Any) -> None:
    tokenizer = kind.train(TEXTS * 4)
    text = "The newest river slept, lowest and cold."
    cuts = tokenizer.cuts(text)
    ids = tokenizer.encode(text)
    assert [p for cut in cuts for p in cut.pieces] == [tokenizer.token(int(i)) for i in ids]
    assert len({cut.way for cut in cuts}) == 1
    for cut in cuts:
        if "[UNK]" in cut.pieces or cut.way == "whole":
            assert not cut.steps
        elif cut.way == "likeliest":
            totals = [step.value for step in cut.steps]
            assert cut.steps[0].pieces == cut.pieces and totals == sorted(totals, reverse=True)
        else:
            assert cut.steps[-1].pieces == cut.pieces
            assert all(step.made in step.pieces for step in cut.steps if step.made)
    assert any(len(cut.steps) > 1 for cut in cuts) or kind == Word()
