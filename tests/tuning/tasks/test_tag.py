"""The sentences that `tag` reads and refuses, its windows, and its scores."""

from __future__ import annotations

import json
import random
import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
import torch
from sklearn.utils.class_weight import compute_class_weight
from torch.nn.functional import cross_entropy

from foreword import predict, tune
from foreword.cli.main import run as command
from foreword.errors import UserError
from foreword.runs.run_folder import open_run
from foreword.tables.columns import Columns
from foreword.tables.examples import Labelled
from foreword.tuning.encoded import ExampleOutputs
from foreword.tuning.entities import entities, entity_scores
from foreword.tuning.input_template import template_of
from foreword.tuning.scores import Scores
from foreword.tuning.tasks.tag import Tag, TagAnswers, TagTargets
from foreword.tuning.tuned_model import load_tuned
from tests.tuning.runs import BAD, GOOD, LAYOUTS, OTHER, make_run, reviews

COLUMNS = Columns("words", "labels")
FAST: dict[str, Any] = {
    "task": "tag", "strategy": "full", "seeds": 1, "device": "cpu", "precision": "fp32",
    "progress": False,
}  # fmt: skip
CONLLU = """# text = we can't see
1\twe\twe\tPRON\tPRP\t_\t_\t_\t_\t_
2-3\tcan't\t_\t_\t_\t_\t_\t_\t_\t_
2\tca\tcan\tAUX\tMD\t_\t_\t_\t_\t_
3\tn't\tnot\tPART\tRB\t_\t_\t_\t_\t_
4\tsee\tsee\t_\tVB\t_\t_\t_\t_\tSpaceAfter=No

1\tsaw\tsee\tVERB\tVBD\t_\t_\t_\t_\t_
"""
CONLL = "-DOCSTART-\tO\n\n# a comment\nTom\tB-per\nHanks\tI-per\nsaw\tO\n\n#film\tO\n \t\ntown\tO\n"


def sentences(count: int, seed: int) -> list[tuple[list[str], list[str]]]:
    """Words that are entities by themselves: a good one begins, a bad one goes on."""
    names = dict.fromkeys(GOOD, "B-good") | dict.fromkeys(BAD, "B-bad")
    found = [one.text.split() for one in reviews(count, seed)]
    return [(words, [names.get(word, "O") for word in words]) for words in found]


def write(path: Path, text: str) -> Path:
    path.write_text(text, encoding="utf-8")
    return path


def conll(path: Path, pairs: list[tuple[list[str], list[str]]]) -> Path:
    blocks = ["".join(f"{w}\t{t}\n" for w, t in zip(*pair, strict=True)) for pair in pairs]
    return write(path, "\n".join(blocks))


def test_entity_scores_equal_those_of_seqeval() -> None:
    # The figures are of seqeval 1.2.2 for the same draws.
    rng, labels = random.Random(7), ["O", "B-a", "I-a", "B-b", "I-b"]
    right = [[rng.choice(labels) for _ in range(rng.randint(1, 9))] for _ in range(8)]
    ours = [[t if rng.random() < 0.7 else rng.choice(labels) for t in one] for one in right]
    scores = entity_scores(right, ours)
    assert scores["entity_f1"] == pytest.approx(0.7441860465116279)
    assert scores["entity_precision"] == pytest.approx(0.7619047619047619)
    assert scores["entity_recall"] == pytest.approx(0.7272727272727273)


@pytest.mark.parametrize(
    ("labels", "expected"),
    [
        ("B-a I-a O", [("a", 0, 1)]),
        ("I-a I-a B-a", [("a", 0, 1), ("a", 2, 2)]),
        ("B-a I-b I-b", [("a", 0, 0), ("b", 1, 2)]),
        ("S-a B-a E-a I-a", [("a", 0, 0), ("a", 1, 2), ("a", 3, 3)]),
        ("O O", []),
    ],
)
def test_entities_begin_and_end_as_in_seqeval(
    labels: str, expected: list[tuple[str, int, int]]
) -> None:
    assert list(entities(labels.split())) == expected


def test_words_keep_their_spaces_and_words_without_a_label_are_not_scored(tmp_path: Path) -> None:
    from foreword.tables.read import read_table
    from foreword.tables.table import labelled

    table = read_table(write(tmp_path / "a.conllu", CONLLU), formats=Tag.reader.formats)
    assert table.usual == Columns("form", "upos")
    examples, _ = labelled(table, table.usual, Tag().reader.read)
    assert [one.text for one in examples] == ["we\nca\tn't\nsee", "saw"]
    assert [one.label for one in examples] == ["PRON\nAUX\nPART\n", "VERB"]
    assert [one.source[-2:] for one in examples] == [":2", ":8"]
    labels = Tag().labels(examples)
    windows = [SimpleNamespace(pooled_positions=np.arange(n)) for n in (4, 1)]
    targets = Tag().targets(examples, labels, windows)
    assert [one.tolist() for one in targets] == [[2, 0, 1, -1], [3]]
    outputs = np.eye(4)[[2, 0, 0, 0, 3]]
    assert Tag().judge.scores(outputs, targets) == {"accuracy": 0.75}
    loss = Tag().loss(torch.zeros(5, 4), torch.tensor([2, 0, 1, -1, 3]), torch.arange(5))
    assert loss.count == 4


@pytest.mark.parametrize("weights", ["balanced", ("NOUN=3", "ADJ=0.5")])
def test_words_are_weighted_as_by_torch_and_scikit_learn(weights: Any) -> None:
    # The labels of a long sentence are in two windows; a word has none.
    labels, arrays = ("ADJ", "NOUN", "VERB"), [np.array([1, 1, -1, 2]), np.array([1, 0, 1, 2])]
    flat = np.concatenate(arrays)
    by_class = [0.5, 3.0, 1.0]
    if weights == "balanced":
        by_class = compute_class_weight("balanced", classes=np.arange(3), y=flat[flat >= 0])
    task = Tag(weights=weights).prepared(TagTargets(arrays, [], labels), labels)
    outputs = torch.randn(8, 3, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    targets = torch.from_numpy(flat)
    loss = task.loss(outputs, targets, torch.arange(8))
    expected = cross_entropy(outputs, targets, torch.tensor(by_class).double(), ignore_index=-1)
    assert (loss.total / loss.count).item() == pytest.approx(expected.item())


def test_a_label_that_no_drawn_sentence_has_keeps_balanced_weights_finite() -> None:
    targets = TagTargets([np.array([0, 0, 1])], [], ("A", "B", "C"))
    task = Tag(weights="balanced").prepared(targets, targets.labels)
    assert task.weights == ("A=0.5", "B=1.0", "C=1.0")


def test_columns_of_words_are_read_with_comments_and_document_marks(tmp_path: Path) -> None:
    from foreword.tables.read import read_table
    from foreword.tables.table import labelled

    for name in ("a.conll", "a.txt", "a.tsv"):
        table = read_table(write(tmp_path / name, CONLL), formats=Tag.reader.formats)
        assert table.usual is not None
        examples, _ = labelled(table, table.usual, Tag().reader.read)
        assert [one.text for one in examples] == ["Tom\nHanks\nsaw", "#film", "town"]
        assert examples[0].label == "B-per\nI-per\nO"


@pytest.mark.parametrize(
    ("windows", "owned", "begins"),
    [
        ("adjacent", [6, 6, 3], [0, 6, 12]),
        # 6 words each, every third one: a word is labelled where the nearer end is farther away.
        ("overlapping", [5, 3, 3, 4], [0, 3, 6, 9]),
    ],
)
def test_no_word_is_lost_in_windows(
    tmp_path: Path, windows: Any, owned: list[int], begins: list[int]
) -> None:
    trained = open_run(make_run(tmp_path), "cpu")
    template = template_of(trained.recipe, trained.vocab, 8)
    words = [*GOOD, *BAD, *OTHER[:7]]
    example = Tag().reader.read({"words": words}, COLUMNS, "a")
    assert example is not None
    inputs = Tag(windows=windows).encode([example, example], trained.tokenizer, template)
    ids = [int(trained.tokenizer.encode(f" {word}")[0]) for word in words]
    assert [one.ids[1:-1].tolist() for one in inputs] == [ids[n : n + 6] for n in begins] * 2
    assert [len(one.pooled_positions) for one in inputs] == owned * 2
    assert [one.is_further for one in inputs] == [False, *[True] * (len(owned) - 1)] * 2
    assert not any(one.was_cut for one in inputs)
    assert [n for one in inputs for n in one.ids[one.pooled_positions]] == ids * 2
    sentences = [Labelled("", "\n".join("ab" * 7 + "a"))] * 2
    placed = Tag().targets(sentences, ("a", "b"), inputs)
    assert [len(one) for one in placed] == owned * 2


@pytest.mark.product(only=("bidirectional",))
@pytest.mark.parametrize("layout", LAYOUTS)
def test_every_layout_learns_to_tag_and_predicts_what_it_was_scored_by(
    layout: str, tmp_path: Path
) -> None:
    run = make_run(tmp_path / "run", layout)
    dev = sentences(24, 2)
    settings = {"task.dropout": 0.0, "task.weights": ["B-good=2"]}
    done = tune(run, sentences(120, 1), dev, lr=1e-2, epochs=5, settings=settings, **FAST)
    tuned, baseline = done.rows
    scores = list(Scores.of(tuned).metrics)
    assert scores[:2] == ["entity_f1", "entity_precision"]
    assert baseline["strategy"] == "most frequent label of each word"
    assert baseline["entity_f1"] == 1.0
    assert tuned["entity_f1"] > 0.8
    model = load_tuned(done.out, "cpu")
    predicted, shares = model.predict([words for words, _ in dev])
    scores = entity_scores([tags for _, tags in dev], predicted)
    assert scores["entity_f1"] == pytest.approx(tuned["entity_f1"])
    assert [len(one) for one in shares] == [len(words) for words, _ in dev]
    assert model.predict([" ".join(dev[0][0])])[0] == predicted[:1]


def test_predictions_are_written_with_the_words(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run")
    train = conll(tmp_path / "train.conll", sentences(40, 1))
    done = tune(run, train, train, epochs=1, **FAST)
    given = conll(tmp_path / "new.txt", sentences(5, 3))
    result = predict(done, given, progress=False)
    assert [len(row["prediction"]) for row in result.rows] == [len(r["0"]) for r in result.rows]
    assert sum(result.counts.labels.values()) == sum(len(row["0"]) for row in result.rows)
    notes = predict(done, given, threshold=0.5, progress=False).notes
    assert notes == ("an entity is predicted from a probability of 0.5 on",)
    predict(done, given, out=tmp_path / "out.conll", progress=False)
    lines = (tmp_path / "out.conll").read_text(encoding="utf-8").split("\n\n")
    first = [line.split("\t") for line in lines[0].splitlines()]
    assert [cells[0] for cells in first] == result.rows[0]["0"]
    assert [cells[-1] for cells in first] == result.rows[0]["prediction"]
    rows = tmp_path / "out.jsonl"
    predict(done, given, out=rows, probabilities=True, progress=False)
    row = json.loads(rows.read_text(encoding="utf-8").splitlines()[0])
    total = sum(row[f"probability_{label}"][0] for label in ("B-bad", "B-good", "O"))
    assert total == pytest.approx(1.0, abs=1e-5)
    assert not {"start", "end", "entities"} & {*row, *result.rows[0]}  # of words in lists


def test_words_and_entities_have_their_places_in_a_text(tmp_path: Path) -> None:
    text = "  Tom\u00a0Hanks  saw\ta day"
    example = Tag().reader.read({"words": text}, COLUMNS, "t:1")
    assert example is not None
    outputs = np.eye(3)[[0, 1, 2, 2, 0]]  # the right label of each word
    result = ExampleOutputs(example, [], outputs)
    labels = ("B-per", "I-per", "O")
    (row,) = Tag().answers.rows([result], labels, probabilities=False)
    words = [text[a:b] for a, b in zip(row["start"], row["end"], strict=True)]
    assert words == ["Tom", "Hanks", "saw", "a", "day"] == text.split()
    assert row["entities"] == [
        {"label": "per", "text": "Tom\u00a0Hanks", "start": 2, "end": 11},
        {"label": "per", "text": "day", "start": 19, "end": 22},
    ]
    assert row.keys() <= Tag().answers.types(labels, probabilities=False, is_pair=False).keys()
    (row,) = Tag().answers.rows([result], ("ADJ", "NOUN", "VERB"), probabilities=False)
    assert "entities" not in row
    # In a file.
    run = make_run(tmp_path / "run")
    train = conll(tmp_path / "train.conll", sentences(40, 1))
    done = tune(run, train, train, epochs=1, **FAST)
    given = write(tmp_path / "new.csv", "words\nthe  fine film\n")
    predict(done, given, text="words", out=tmp_path / "out.csv", progress=False)
    header, first = (tmp_path / "out.csv").read_text(encoding="utf-8").splitlines()
    assert header == "words,prediction,probability,start,end,entities"
    assert '"[0, 5, 10]","[3, 9, 14]"' in first
    out = tmp_path / "out.parquet"
    predict(done, given, text="words", out=out, progress=False)
    (row,) = pq.read_table(out).to_pylist()
    assert row["start"] == [0, 5, 10] and all(e.keys() >= {"label"} for e in row["entities"])


@pytest.mark.parametrize(
    ("row", "message"),
    [
        (
            {"words": ["a", "b"], "labels": ["x"]},
            "t:1: as many labels as words are needed; words: 2, labels: 1",
        ),
        ({"words": ["a", ""], "labels": ["x", "y"]}, "t:1: word 2 is empty"),
        ({"words": "a b", "labels": "x y z"}, "needed; words: 2, labels: 3"),
    ],
)
def test_labels_that_do_not_fit_the_words_are_refused(row: dict[str, Any], message: str) -> None:
    with pytest.raises(UserError, match=re.escape(message)):
        Tag().reader.read(row, COLUMNS, "t:1")
    assert Tag().reader.read({"words": []}, COLUMNS, "t:1") is None


def test_a_label_unknown_to_training_is_refused() -> None:
    with pytest.raises(UserError, match=r"d:1: labels that no training example has: 'c' \(1\)"):
        Tag().targets([Labelled("x", "c", source="d:1")], ("a", "b"))


def test_baseline_is_each_words_most_frequent_label() -> None:
    train = TagTargets(
        [np.array([0, 1, 1]), np.array([1])], [Labelled("a\na\nb"), Labelled("a")], ("x", "y")
    )
    dev = TagTargets([np.array([0, 0])], [Labelled("a\nnew")], ("x", "y"))
    (outputs,) = Tag().judge.baselines(train, dev, ("x", "y")).values()
    assert outputs.argmax(1).tolist() == [1, 1]
    named = ("B-x", "O")  # a threshold, which networks' answers need, leaves these as they are
    assert TagAnswers(0.02).numbers(outputs, named).tolist() == [1, 1]


@pytest.mark.product(few=2)
@pytest.mark.parametrize(
    ("text", "more", "message"),
    [
        ("\n\n", [], "no sentence in it"),
        ("text\tlabel\na good film\t1\na bad film\t0\n", [], "a text per line, and expected a"),
        ("a\tO\nb\tO\tx\n", [], ":2: expected 2 columns as in the lines before, got 3"),
        ("a\tO\nb\tO\n", [], "need at least two labels; every word has 'O'"),
        ("a\tO\nb\tB\n", ["--prefix", "x", "--prefix", "y"], "--prefix: is for texts"),
        ("a\tO\nb\tB\n", ["--label", "7"], "no column '7'; its columns: 0, 1"),
    ],
)
def test_mistakes_are_reported_in_one_line(
    text: str, more: list[str], message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run, file = make_run(tmp_path / "run"), write(tmp_path / "a.conll", text)
    words = [
        "tune",
        "--strategy=full",
        str(run),
        "--task",
        "tag",
        "--train",
        str(file),
        "--dev",
        str(file),
    ]
    assert command([*words, "--device", "cpu", *more]) == 2
    lines = capsys.readouterr().err.splitlines()
    (error,) = [line for line in lines if not line.startswith("warning: ")]
    assert message in error
