"""Neighbours, analogies, test sets and files of word vectors."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from foreword.errors import UserError
from foreword.vectors import file
from foreword.vectors.questions import read_analogies, read_pairs
from foreword.vectors.table import WordTable

WORDS = ("man", "woman", "king", "queen", "apple")
VECTORS = np.array([[1, 0, 0], [1, 1, 0], [1, 0, 1], [1, 1, 1.1], [-1, 0.1, 0]], dtype=np.float32)


def table() -> WordTable:
    return WordTable(WORDS, VECTORS, lambda word: None, str.lower, list)


def test_neighbours_have_the_greatest_cosines() -> None:
    neighbours = table().nearest("Queen", top=2)
    assert [near.word for near in neighbours] == ["king", "woman"]
    unit = VECTORS / np.linalg.norm(VECTORS, axis=1, keepdims=True)
    assert neighbours[0].cosine == pytest.approx(float(np.sort(unit @ unit[3])[-2]), abs=1e-6)
    assert "queen" not in {near.word for near in table().nearest("queen", top=10)}
    assert len(table().nearest("queen", top=10)) == 4


def test_a_word_outside_the_vocabulary_names_the_nearest_spellings() -> None:
    message = "is not in the vocabulary; nearest in spelling: "
    with pytest.raises(UserError, match=f"^'Kingg' {message}'king', 'man', 'woman'$"):
        table().nearest("Kingg")
    with pytest.raises(UserError, match=f"^'zzzqq' {message}'queen', '[a-z]+', '[a-z]+'$"):
        table().nearest("zzzqq")


@pytest.mark.parametrize("word", ["", " "])
def test_an_empty_word_is_refused(word: str) -> None:
    with pytest.raises(UserError, match="an empty word has no neighbours"):
        table().nearest(word)


def test_king_minus_man_plus_woman_is_queen() -> None:
    questions = np.array([[0, 1, 2], [1, 0, 3]])
    assert table().complete(questions, most=5).tolist() == [3, 2]
    assert table().complete(questions[1:], most=3).tolist() == [2]
    assert table().complete(np.empty((0, 3), np.int64), most=5).tolist() == []


def test_an_analogy_names_the_nearest_other_words() -> None:
    assert table().analogy("man", "king", "woman", top=1)[0].word == "queen"
    assert not {"man", "king", "woman"} & {n.word for n in table().analogy("man", "king", "woman")}
    with pytest.raises(UserError, match="'kingg' is not in the vocabulary; nearest in spelling"):
        table().analogy("man", "kingg", "woman")


def test_similarity_is_the_cosine_and_none_for_unknown_words() -> None:
    assert table().similarity("man", "king") == pytest.approx(2**-0.5)
    assert table().similarity("man", "pear") is None


def test_the_shipped_test_sets_are_read() -> None:
    sections = read_analogies(None)
    assert {section.is_grammar for section in sections} == {True, False}
    assert len(read_pairs(None)) == 40


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (": a\none two three\n", r"q\.txt:2: expected four words, got 'one two three'"),
        (": a\n", "the file has no analogies"),
    ],
)
def test_broken_analogies_are_refused(text: str, message: str, tmp_path: Path) -> None:
    (tmp_path / "q.txt").write_text(text, encoding="utf-8")
    with pytest.raises(UserError, match=message):
        read_analogies(tmp_path / "q.txt")


def test_pairs_may_have_a_heading_and_commas(tmp_path: Path) -> None:
    path = tmp_path / "p.csv"
    path.write_text("Word 1,Word 2,Human (mean)\nlove,sex,6.77\ntiger,cat,7.35\n", "utf-8")
    assert [pair.rating for pair in read_pairs(path)] == [6.77, 7.35]
    path.write_text("a b 1\nc d\n", "utf-8")
    with pytest.raises(UserError, match=r"p\.csv:2: expected two words and a number"):
        read_pairs(path)
    with pytest.raises(UserError, match="cannot be read"):
        read_pairs(tmp_path / "none")


@pytest.mark.parametrize("binary", [False, True])
def test_written_files_are_read_back_by_foreword_and_gensim(binary: bool, tmp_path: Path) -> None:
    path = tmp_path / "vectors"
    file.write(path, WORDS, VECTORS, binary=binary)
    words, vectors = file.read(path)
    assert tuple(words) == WORDS
    np.testing.assert_allclose(vectors, VECTORS, rtol=1e-7)
    models = pytest.importorskip("gensim.models")
    theirs = models.KeyedVectors.load_word2vec_format(str(path), binary=binary)
    assert theirs.index_to_key == list(WORDS)
    np.testing.assert_allclose(theirs.vectors, VECTORS, rtol=1e-7)


@pytest.mark.parametrize("binary", [False, True])
def test_files_written_by_gensim_are_read(binary: bool, tmp_path: Path) -> None:
    models = pytest.importorskip("gensim.models")
    theirs = models.KeyedVectors(3)
    theirs.add_vectors(list(WORDS), VECTORS)
    path = tmp_path / "theirs"
    theirs.save_word2vec_format(str(path), binary=binary)
    words, vectors = file.read(path)
    assert tuple(words) == WORDS
    np.testing.assert_allclose(vectors, VECTORS, rtol=1e-6)


def test_glove_files_are_read_which_have_no_line_of_sizes(tmp_path: Path) -> None:
    path = tmp_path / "glove.txt"
    file.write(path, WORDS, VECTORS)
    path.write_bytes(path.read_bytes().partition(b"\n")[2])
    words, vectors = file.read(path)
    assert tuple(words) == WORDS and file.width_of(path) == VECTORS.shape[1]
    np.testing.assert_allclose(vectors, VECTORS, rtol=1e-6)


@pytest.mark.parametrize("binary", [False, True])
def test_files_cut_short_are_refused(binary: bool, tmp_path: Path) -> None:
    path = tmp_path / "vectors"
    file.write(path, WORDS, VECTORS, binary=binary)
    path.write_bytes(path.read_bytes()[:-15])
    with pytest.raises(UserError, match=r"cut short|expected a word and 3 numbers"):
        file.read(path)


def test_malformed_and_missing_files_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "vectors"
    path.write_text("not a header\n", encoding="utf-8")
    with pytest.raises(UserError, match=r"vectors:1: expected the number of words"):
        file.read(path)
    path.write_text("2 3\na 1 2 3\nb 1 x 3\n", encoding="utf-8")
    with pytest.raises(UserError, match=r"vectors:3: expected a word and 3 numbers, got 'b 1 x 3'"):
        file.read(path)
    for head in ("-1 -1", "0 3", "3 0", f"1 {10**9}", f"{10**12} 3", f"{10**5} {10**5}"):
        path.write_text(f"{head}\na 1 2 3\n", encoding="utf-8")
        with pytest.raises(UserError, match=r":1: expected the number|too short for .* numbers"):
            file.read(path)
    with pytest.raises(UserError, match="cannot be read"):
        file.read(tmp_path / "none")
