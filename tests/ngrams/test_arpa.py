"""ARPA files, there and back, and damaged."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from foreword.errors import UserError
from foreword.ngrams import arpa

from .test_ngrams import table
from .texts import VOCAB, stream

WORDS = ["<s>", "</s>", *(f"word{n}" for n in range(2, VOCAB))]

# The example of Jurafsky & Martin's kind: written by hand, not by us.
BY_HAND = """\\data\\
ngram 1=4
ngram 2=3

\\1-grams:
-99\t<s>\t-0.30103
-0.60206\t</s>
-0.60206\ta\t-0.1
-0.30103\tb\t0

\\2-grams:
-0.2\t<s> a
-0.1\ta b
-0.5\tb </s>

\\end\\
"""


def written(folder: Path, text: str = BY_HAND) -> Path:
    file = folder / "model.arpa"
    file.write_text(text, encoding="utf-8")
    return file


def test_there_and_back(tmp_path: Path) -> None:
    made = table(tmp_path, order=4)
    arpa.write(made, WORDS, tmp_path / "model.arpa")
    again, words = arpa.read(tmp_path / "model.arpa")
    assert words == WORDS
    unseen = stream(12, seed=2)
    np.testing.assert_allclose(again.log_probs_of(unseen), made.log_probs_of(unseen), atol=1e-5)


def test_one_written_by_hand(tmp_path: Path) -> None:
    made, words = arpa.read(written(tmp_path))
    text = np.array([words.index(word) for word in ["<s>", "a", "b", "a", "</s>"]])
    # a after <s>; b after a; a after b: back-off 0 and the unigram; </s> after a: -0.1 and its own.
    wanted = np.array([0, -0.2, -0.1, -0.60206, -0.1 - 0.60206]) * np.log(10)
    np.testing.assert_allclose(made.log_probs_of(text), wanted, atol=1e-6)


@pytest.mark.parametrize(
    ("old", "new", "line"),
    [
        ("\\end\\\n", "", "cut short"),
        ("\\2-grams:\n-0.2\t<s> a\n-0.1\ta b\n-0.5\tb </s>\n\n\\end\\\n", "", "cut short"),
        ("-0.1\ta b\n", "", "line 15: has 2 2-grams, but its head says 3"),
        ("ngram 2=3", "ngram 2=2", "line 14: has more 2-grams than the 2"),
        ("ngram 2=3", "ngram 3=3", "line 3: expected 'ngram 2="),
        ("a b", "a c", "line 13: the word 'c' is not among its 1-grams"),
        ("-0.1\ta b", "-0.1\tb", "line 13: expected a probability, 2 words"),
        ("-0.1\ta b", "low\ta b", "line 13: could not convert"),
        ("b </s>", "a b", "one of the 2-grams stands there twice"),
        ("-0.30103\tb\t0", "-0.30103\ta\t0", "line 9: the word 'a' again"),
        ("\\data\\", "\\dada\\", "not an ARPA file"),
    ],
)
def test_a_bad_file_is_refused_in_one_line(tmp_path: Path, old: str, new: str, line: str) -> None:
    assert old in BY_HAND
    with pytest.raises(UserError) as caught:
        arpa.read(written(tmp_path, BY_HAND.replace(old, new)))
    assert line in str(caught.value)
    assert "\n" not in str(caught.value)


def test_tokens_that_the_format_cannot_hold_are_refused(tmp_path: Path) -> None:
    made = table(tmp_path)
    with pytest.raises(UserError, match="white space"):
        arpa.write(made, [*WORDS[:-1], "two words"], tmp_path / "model.arpa")
    with pytest.raises(UserError, match="the same"):
        arpa.write(made, [*WORDS[:-1], "word2"], tmp_path / "model.arpa")
    with pytest.raises(UserError, match="stupid back-off"):
        arpa.write(table(tmp_path, "stupid_backoff"), WORDS, tmp_path / "model.arpa")
    assert not (tmp_path / "model.arpa").exists()
