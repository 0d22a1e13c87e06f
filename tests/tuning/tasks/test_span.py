"""The questions that `span` reads and refuses, its windows, answers and scores."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from foreword import predict, tune
from foreword.cli.main import run as command
from foreword.evaluation.text_metrics import best_threshold, exact_match, f1, right_answers
from foreword.runs.run_folder import open_run
from foreword.tables.columns import Columns
from foreword.tables.examples import Labelled
from foreword.tuning.input_template import template_of
from foreword.tuning.tasks.span import NO_ANSWER, Span
from foreword.tuning.tuned_model import load_tuned
from tests.tuning.runs import BAD, GOOD, LAYOUTS, make_run, reviews

COLUMNS = Columns("context", "answers", "question")
FAST: dict[str, Any] = {
    "task": "span", "strategy": "full", "seeds": 1,
    "device": "cpu", "precision": "fp32", "progress": False,
}  # fmt: skip


def questions(count: int, seed: int, *, unanswerable: bool = True) -> list[dict[str, Any]]:
    """The answer is the good word of the text; a text with a bad one has none."""
    made = []
    for n, one in enumerate(reviews(count, seed)):
        text = one.text
        if one.label == "bad" and not unanswerable:
            text = " ".join(GOOD[n % 4] if word in BAD else word for word in text.split())
        found = [word for word in text.split() if word in GOOD]
        answers = [{"text": word, "answer_start": text.index(word)} for word in found]
        made.append({"id": f"q{n}", "context": text, "question": "the film", "answers": answers})
    return made


def write(path: Path, rows: list[dict[str, Any]]) -> Path:
    paragraphs = [{"context": row["context"], "qas": [row]} for row in rows]
    data = {"version": "v2.0", "data": [{"title": "films", "paragraphs": paragraphs}]}
    path.write_text(json.dumps(data), encoding="utf-8")
    return path


def read(row: dict[str, Any]) -> Labelled:
    example = Span().reader.read(row, COLUMNS, "a:1")
    assert example is not None
    return example


@pytest.mark.parametrize(
    ("answer", "right", "match", "overlap"),
    [
        ("The  Cat!", ["cat"], 1.0, 1.0),
        ("a black cat", ["cat", "the black cat sat"], 0.0, 0.8),
        ("", [""], 1.0, 1.0),
        ("", ["cat"], 0.0, 0.0),
        ("cat", [""], 0.0, 0.0),
        ("cat cat", ["cat"], 0.0, 2 / 3),
    ],
)
def test_answers_are_scored_as_by_the_official_script(
    answer: str, right: list[str], match: float, overlap: float
) -> None:
    assert exact_match(answer, right) == match
    assert f1(answer, right) == pytest.approx(overlap)


def test_answers_that_are_nothing_when_normalised_do_not_count() -> None:
    assert right_answers(["the", "cat"]) == ["cat"]
    assert right_answers(["the"]) == right_answers([]) == [""]


def test_the_threshold_is_the_best_for_the_score() -> None:
    scores, margins = [1.0, 0.5, 1.0, 0.0], [-3.0, -1.0, 2.0, 0.0]
    answerable = [True, True, True, False]
    threshold = best_threshold(scores, margins, answerable)

    def total(at: float) -> float:
        return sum(
            (score if known else 0.0) if margin <= at else float(not known)
            for score, margin, known in zip(scores, margins, answerable, strict=True)
        )

    assert total(threshold) == max(total(at) for at in np.arange(-5, 5, 0.25)) == 2.5


def test_windows_overlap_and_hold_the_answer_or_none(tmp_path: Path) -> None:
    trained = open_run(make_run(tmp_path), "cpu")
    template = template_of(trained.recipe, trained.vocab, 14)
    context = " ".join(["film"] * 14 + ["warm", "day"] + ["film"] * 4)
    start = context.index("warm")
    row = {
        "context": context,
        "question": "we saw",
        "answers": [{"text": "warm day", "answer_start": start}],
    }
    examples = [read(row), read({**row, "context": "film", "answers": []})]
    windows = Span().encode(examples, trained.tokenizer, template)
    assert [one.is_further for one in windows] == [False, True, True, True, False]
    targets = Span().targets(examples, ("start", "end"), windows)
    for window, ends in zip(windows, targets, strict=True):
        assert len(window.pooled_positions) == len(ends) == len(window.spans)
        begin, end = ends.argmax(0)
        inside = window.spans[1, 0] <= start and window.spans[-1, 1] >= start + 8
        if (inside and not window.is_further) or begin:
            assert context[window.spans[begin, 0] : window.spans[end, 1]] == "warm day"
        else:
            assert (begin, end) == (0, 0)
    covered = {tuple(span) for window in windows[:4] for span in window.spans[1:].tolist()}
    assert len(covered) == 20
    assert sum(ends[:, 0].argmax() > 0 for ends in targets) >= 1


def test_the_loss_is_the_cross_entropy_of_both_ends_of_each_window() -> None:
    outputs = torch.randn(5, 2, generator=torch.Generator().manual_seed(1))
    targets = torch.tensor([[0.0, 0], [1, 1], [1, 0], [0, 0], [0, 1]])
    loss = Span().loss(outputs, targets, torch.tensor([0, 0, 3, 3, 3]))
    entropy = torch.nn.functional.cross_entropy
    parts = [(slice(0, 2), 1, 1), (slice(2, 5), 0, 2)]
    expected = sum(
        entropy(outputs[part, end], torch.tensor(at))
        for part, *ends in parts
        for end, at in enumerate(ends)
    )
    torch.testing.assert_close(loss.total, torch.as_tensor(expected) / 2)
    assert loss.count == 2


@pytest.mark.product(only=("decoder",))
@pytest.mark.parametrize("layout", LAYOUTS)
def test_every_layout_learns_to_answer_and_predicts_what_it_was_scored_by(
    layout: str, tmp_path: Path
) -> None:
    run, dev = make_run(tmp_path / "run", layout), questions(24, 2)
    done = tune(run, questions(200, 1), dev, lr=1e-2, epochs=2, **FAST)
    tuned, nothing = done.rows
    assert nothing["strategy"] == "no answer"
    assert nothing["answer_f1"] == 0.5
    assert tuned["answer_f1"] > 0.8
    answers, _ = load_tuned(done.out, "cpu").predict(dev)
    right = [right_answers([one["text"] for one in row["answers"]]) for row in dev]
    scores = [f1(answer, one) for answer, one in zip(answers, right, strict=True)]
    assert np.mean(scores) == pytest.approx(tuned["answer_f1"])


def test_predictions_are_written_as_the_official_script_reads_them(tmp_path: Path) -> None:
    rows = questions(20, 1, unanswerable=False)
    run, file = make_run(tmp_path / "run"), write(tmp_path / "dev.json", rows)
    done = tune(run, file, file, epochs=1, **FAST)
    assert NO_ANSWER not in load_tuned(done.out, "cpu").labels
    predict(done, file, out=tmp_path / "out.json", progress=False)
    written = json.loads((tmp_path / "out.json").read_text(encoding="utf-8"))
    assert list(written) == [row["id"] for row in rows]
    assert all(written[row["id"]] in row["context"] and written[row["id"]] for row in rows)
    result = predict(done, file, probabilities=True, progress=False)
    for row in result.rows:
        assert row["prediction"] == written[row["id"]] == row["best"][0]["text"]
        for one in ({**row, "text": row["prediction"]}, *row["best"]):
            assert row["context"][one["start"] : one["end"]] == one["text"]
        assert sum(each["probability"] for each in row["best"]) == pytest.approx(1.0, abs=1e-4)


@pytest.mark.product(few=2)
@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            {"answers": [{"text": "cold", "answer_start": 0}]},
            ":1 (a): the answer 'cold' is not in",
        ),
        ({"answers": [{"text": "warm"}]}, ":1: expected answers with 'text' and 'answer_start'"),
        ({"question": " "}, ":1: the question is empty"),
        ({"answers": []}, "the training examples need answers; no question has one"),
    ],
)
def test_mistakes_are_reported_in_one_line(
    change: dict[str, Any], message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    row = {"id": "a", "context": "warm day", "question": "what", "answers": []}
    file = write(tmp_path / "a.json", [{**row, **change}])
    run = make_run(tmp_path / "run")
    words = ["tune", str(run), "--task", "span", "--train", str(file), "--dev", str(file)]
    assert command([*words, "--device", "cpu"]) == 2
    assert message in capsys.readouterr().err.splitlines()[-1]


def test_a_file_of_another_layout_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run, file = make_run(tmp_path / "run"), tmp_path / "a.json"
    file.write_text('{"rows": []}', encoding="utf-8")
    words = ["tune", str(run), "--task", "span", "--train", str(file), "--dev", str(file)]
    assert command([*words, "--device", "cpu"]) == 2
    assert "not a list of objects (for --task span: SQuAD's layout)" in capsys.readouterr().err
