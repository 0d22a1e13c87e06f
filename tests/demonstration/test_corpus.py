from __future__ import annotations

import json
from pathlib import Path

import pytest

from foreword.demonstration import corpus, reading
from foreword.demonstration.corpus import Limits
from foreword.demonstration.passages import (
    choose_passages,
    names_pattern,
    passage_of,
    sharing_words,
)
from foreword.demonstration.reading import Docstring, read
from foreword.demonstration.walkthrough import _passages
from foreword.errors import UserError
from tests.demonstration.packages import SUBJECTS, make

LIMITS = Limits(characters=10**6, packages=3, train=6, test=5)


def records(file: Path) -> list[dict[str, str]]:
    return [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]


def test_test_passages_are_from_files_that_pretraining_does_not_read(tmp_path: Path) -> None:
    packages = make(tmp_path / "lib")
    counts = corpus.build(tmp_path / "text", packages, LIMITS)
    assert corpus.load(tmp_path / "text") == counts
    documents = records(tmp_path / "text" / "documents.jsonl")
    train, test = (records(tmp_path / "text" / f"{n}.jsonl") for n in ("train", "test"))
    assert sorted(counts.labels) == sorted(SUBJECTS)  # Python's library is none of them
    assert (len(documents), len(train), len(test)) == (counts.documents, 18, 15)
    assert counts.documents + counts.test_documents == 4 * 24 * 4
    everything = " ".join(d["text"] for d in documents).replace("\n", " ")
    for passage in test:
        assert passage["text"][:100] not in everything
        assert passage["label"] not in passage["text"]
    assert all(passage["text"][:100] in everything for passage in train)


def test_reading_in_processes_gives_the_same_texts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    packages = make(tmp_path / "lib", files=4)
    alone = read(packages, 10**6)
    monkeypatch.setattr(reading, "MIN_FILES_FOR_PROCESSES", 0)
    assert read(packages, 10**6) == alone


def test_repeated_paragraphs_and_broken_files_are_counted(tmp_path: Path) -> None:
    packages = make(tmp_path / "lib", files=2, functions=1)
    for package in packages[:2]:
        text = '"""The same sentence stands in the two of the packages that are read."""\n'
        (package.root / "part0.py").write_text(text, encoding="utf-8")
    (packages[2].root / "part0.py").write_text('"""x"""\ndef (', encoding="utf-8")
    corpus = read(packages, 10**6)
    assert (corpus.files, corpus.unread, corpus.repeated) == (7, 1, 1)


def test_a_package_is_read_up_to_the_limit(tmp_path: Path) -> None:
    package = make(tmp_path / "lib")[:1]
    sizes = [sum(len(t.whole) for t in read(package, most).texts) for most in (1000, 10**6)]
    assert 1000 <= sizes[0] < 4000 < sizes[1]


def test_passages_contain_no_names_of_packages() -> None:
    names = names_pattern(["numpy", "torch", "sklearn"])
    text = Docstring(
        ("The numpy.ndarray or np.array of PyTorch and scikit-learn is not an input, it is npx.",),
        "numpy",
        False,
    )
    assert names.sub("", text.whole).split() == (
        ["The", "or", "of", "and", "is", "not", "an", "input,", "it", "is", "npx."]
    )
    assert passage_of(text, names) is None  # too few words are left
    long = Docstring(tuple(["The numpy array is one of many."] * 20), "numpy", False)
    passage = passage_of(long, names)
    assert passage is not None
    assert len(passage.split()) == 60
    assert "numpy" not in passage


def test_texts_that_share_eight_words_in_a_row_are_found() -> None:
    known = Docstring(("One two three four five six seven eight nine.",), "a", False)
    same = Docstring(("Zero two THREE four, five six\nseven eight nine ten.",), "b", True)
    other = Docstring(("One two three four five six seven or eight nine.",), "b", True)
    assert sharing_words([known], [same, other]) == {same}


def test_too_little_documentation_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="too few of the installed packages"):
        corpus.build(tmp_path / "text", make(tmp_path / "lib")[:1], LIMITS)
    assert not (tmp_path / "text").exists()


def test_a_test_passage_that_training_contains_is_left_out() -> None:
    def text(n: int, word: str, package: str, *, is_test: bool) -> Docstring:
        return Docstring((" ".join(f"{word}{n}x{k}" for k in range(25)) + ".",), package, is_test)

    texts = [
        text(n, name[0], name, is_test=n >= 4) for name in ("alpha", "bravo") for n in range(8)
    ]
    copied = Docstring((texts[4].whole + " Copied here.",), "alpha", False)
    passages = choose_passages([*texts, copied], packages=2, train=2, test=2)
    assert passages.shared == 1
    assert len(passages.test) == 4
    assert texts[4].whole not in [passage for passage, _ in passages.test]


def test_passages_with_unicode_line_ends_are_read(tmp_path: Path) -> None:
    passages = [{"text": "a\u2028b\u0085c", "label": "x"}, {"text": "d", "label": "y"}]
    lines = [json.dumps(record, ensure_ascii=False) + "\n" for record in passages]
    (tmp_path / "train.jsonl").write_text("".join(lines), encoding="utf-8")
    assert [e.text for e in _passages(tmp_path / "train.jsonl")] == ["a\u2028b\u0085c", "d"]
