"""ARPA files: written and read back, compressed, damaged."""

from __future__ import annotations

import gzip
from pathlib import Path

import numpy as np
import pytest

from foreword.errors import UserError
from foreword.ngrams import arpa

from .test_ngrams import table
from .texts import VOCAB, stream

WORDS = ["<s>", "</s>", *(f"word{n}" for n in range(2, VOCAB))]

# Written by hand, not by `arpa.write`.
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


def write_file(folder: Path, text: str = BY_HAND) -> Path:
    file = folder / "model.arpa"
    file.write_text(text, encoding="utf-8")
    return file


def test_a_written_table_is_read_back(tmp_path: Path) -> None:
    made = table(tmp_path, order=4)
    arpa.write(made, WORDS, tmp_path / "model.arpa")
    again, words = arpa.read(tmp_path / "model.arpa")
    assert words == WORDS
    unseen = stream(12, seed=2)
    np.testing.assert_allclose(again.log_probs_of(unseen), made.log_probs_of(unseen), atol=1e-5)


def test_a_file_written_by_hand_gives_the_probabilities_it_lists(tmp_path: Path) -> None:
    made, words = arpa.read(write_file(tmp_path))
    text = np.array([words.index(word) for word in ["<s>", "a", "b", "a", "</s>"]])
    # a after <s>; b after a; a after b: back-off 0 and the unigram; </s> after a: -0.1 and its own.
    expected = np.array([0, -0.2, -0.1, -0.60206, -0.1 - 0.60206]) * np.log(10)
    np.testing.assert_allclose(made.log_probs_of(text), expected, atol=1e-6)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("\\end\\\n", "", "cut short"),
        ("\\2-grams:\n-0.2\t<s> a\n-0.1\ta b\n-0.5\tb </s>\n\n\\end\\\n", "", "cut short"),
        ("-0.1\ta b\n", "", "line 15: has 2 2-grams, but its header says 3"),
        ("ngram 2=3", "ngram 2=2", "line 14: has more 2-grams than the 2"),
        ("ngram 2=3", "ngram 3=3", "line 3: expected 'ngram 2="),
        ("a b", "a c", "line 13: the word 'c' is not among its 1-grams"),
        ("-0.1\ta b", "-0.1\tb", "line 13: expected a probability, 2 words"),
        ("-0.1\ta b", "low\ta b", "line 13: could not convert"),
        ("b </s>", "a b", "line 14: the 2-gram 'a b' occurs again"),
        ("-0.30103\tb\t0", "-0.30103\ta\t0", "line 9: the word 'a' occurs again"),
        (
            "ngram 2=3",
            "ngram 2=99999999999999",
            "line 16: has 3 2-grams, but its header says 99999",
        ),
        ("ngram 1=4", f"ngram 1={'9' * 22}", "line 11: has 4 1-grams, but its header says 99999"),
        ("ngram 1=4", f"ngram 1={'9' * 5000}", "line 2: expected 'ngram 1="),
        ("ngram 1=4", "ngram 1=\u00b2", "line 2: expected 'ngram 1="),
        ("-0.1\ta b", "nan\ta b", "line 13: nan is not a finite logarithm of at most 0"),
        ("-0.1\ta b", "-inf\ta b", "line 13: -inf is not a finite logarithm of at most 0"),
        ("-0.60206\ta", "+0.7\ta", "line 8: +0.7 is not a finite logarithm of at most 0"),
        ("-0.30103\n-0.6", "inf\n-0.6", "line 6: inf is not a finite logarithm of at most 99"),
        ("\\data\\", "\\dada\\", "not an ARPA file"),
    ],
)
def test_a_bad_file_is_refused_in_one_line(
    tmp_path: Path, old: str, new: str, message: str
) -> None:
    assert old in BY_HAND
    with pytest.raises(UserError) as caught:
        arpa.read(write_file(tmp_path, BY_HAND.replace(old, new)))
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_tokens_that_the_format_cannot_hold_are_refused(tmp_path: Path) -> None:
    made = table(tmp_path)
    with pytest.raises(UserError, match="white space"):
        arpa.write(made, [*WORDS[:-1], "two words"], tmp_path / "model.arpa")
    with pytest.raises(UserError, match="written the same"):
        arpa.write(made, [*WORDS[:-1], "word2"], tmp_path / "model.arpa")
    with pytest.raises(UserError, match="stupid back-off"):
        arpa.write(table(tmp_path, "stupid_backoff"), WORDS, tmp_path / "model.arpa")
    assert not (tmp_path / "model.arpa").exists()


def test_only_spaces_tabs_and_line_ends_separate_words(tmp_path: Path) -> None:
    words = [*WORDS[:-2], "12\u00a0000", "a\u2028b"]
    made = table(tmp_path)
    arpa.write(made, words, tmp_path / "model.arpa")
    again, words_read = arpa.read(tmp_path / "model.arpa")
    assert words_read == words
    assert again.header.sizes == made.header.sizes
    text = BY_HAND.replace("-0.1\ta b", " -0.1 a  b\r").replace("\\data", "\ufeff\\data")
    assert arpa.read(write_file(tmp_path, text))[0].header.sizes == (4, 3)


def test_compressed_files_are_read_but_not_written(tmp_path: Path) -> None:
    file = tmp_path / "model.arpa.gz"
    file.write_bytes(gzip.compress(BY_HAND.encode()))
    made, words = arpa.read(file)
    assert (words, made.header.sizes) == (["<s>", "</s>", "a", "b"], (4, 3))
    file.write_bytes(BY_HAND.encode())
    with pytest.raises(UserError, match="gz: cannot be read"):
        arpa.read(file)
    with pytest.raises(UserError, match=r"leave out \.gz"):
        arpa.write(made, words, file)


def test_the_start_token_is_never_predicted(tmp_path: Path) -> None:
    """Some files give it probability 1."""
    made, words = arpa.read(write_file(tmp_path, BY_HAND.replace("-99\t<s>", "0\t<s>")))
    scores = made.distribution(np.array([[words.index("b")]]))
    assert np.isneginf(scores[0, words.index("<s>")])


def test_no_logarithm_above_0_is_written(tmp_path: Path) -> None:
    made, words = arpa.read(write_file(tmp_path))
    made.log_probs[1][:] = 1e-9
    arpa.write(made, words, tmp_path / "again.arpa")
    assert not arpa.read(tmp_path / "again.arpa")[0].log_probs[1].any()
