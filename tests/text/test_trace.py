from __future__ import annotations

from tokenizers import Tokenizer as Engine
from tokenizers import models, pre_tokenizers, trainers

from foreword.text.trace import learn, segment

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
