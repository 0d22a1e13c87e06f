"""The questions that `choice` reads and refuses, its loss, scores and baselines."""

from __future__ import annotations

import json
import re
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from foreword import predict, tune
from foreword.cli.main import run as command
from foreword.errors import UserError
from foreword.runs.run_folder import open_run
from foreword.tables.choice import question_of
from foreword.tables.columns import Columns
from foreword.tables.examples import Labelled
from foreword.tables.table import chosen_columns
from foreword.tuning import packed_examples
from foreword.tuning.input_template import template_of
from foreword.tuning.packed_examples import PooledExamples
from foreword.tuning.starting_network import build_network
from foreword.tuning.tasks.choice import Choice
from foreword.tuning.tuned_model import load_tuned
from tests.tuning.runs import BAD, GOOD, LAYOUTS, make_run, reviews

COLUMNS = Columns("question", "answer", "options")
FAST: dict[str, Any] = {
    "task": "choice", "strategy": "full", "seeds": 1, "device": "cpu", "precision": "fp32",
    "progress": False,
}  # fmt: skip
QUESTION = {"question": "which", "options": ["one", "two", "three"], "answer": 2}


def questions(count: int, seed: int) -> list[dict[str, Any]]:
    """The option of good words is the right one; there are two or three."""
    made = []
    for n, one in enumerate(reviews(count, seed)):
        options = [BAD[n % 4], GOOD[n % 3], *([BAD[(n + 1) % 4]] if n % 2 else [])]
        right = 1
        if n % 5 == 0:
            options, right = options[::-1], len(options) - 2
        made.append({"question": one.text, "options": options, "answer": right})
    return made


def write(path: Path, rows: list[dict[str, Any]]) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


def read(row: dict[str, Any], columns: Columns = COLUMNS) -> Labelled:
    example = Choice().reader.read(row, columns, "q:1")
    assert example is not None
    return example


LAYOUT_ROWS = [
    {"article": "a text", "question": "why?", "options": ["x", "y"], "answer": "B"},
    {"question": "why?", "choices": {"text": ["x", "y"], "label": ["1", "2"]}, "answerKey": "2"},
    {
        "question": {
            "stem": "why?",
            "choices": [{"text": "x", "label": "A"}, {"text": "y", "label": "B"}],
        },
        "answerKey": "B",
    },
    {"premise": "why?", "choice1": "x", "choice2": "y", "question": "effect", "label": 1},
    {"query": "why?", "choices": ["x", "y"], "gold": 1},
    {"question": "why?", "choices": ["x", "y"], "answer": "y"},
]


@pytest.mark.parametrize("row", LAYOUT_ROWS, ids=lambda row: "-".join(row))
def test_the_layouts_of_published_sets_are_read(row: dict[str, Any], tmp_path: Path) -> None:
    from foreword.tables.read import read_table
    from foreword.tables.table import labelled

    table = read_table(write(tmp_path / "a.jsonl", [row]))
    (example,), _ = labelled(
        table, chosen_columns(table, Choice.reader.columns, {}), Choice().reader.read
    )
    asked = "why? What was the effect?" if "premise" in row else "why?"
    assert (example.text, example.label) == (asked, "1")
    assert json.loads(example.pair or "") == [row.get("article", ""), "x", "y"]


@pytest.mark.parametrize(
    ("windows", "question", "count"), [("mean", "we saw", 5), ("cut", "we saw", 1),
                                       ("mean", "we saw " * 5, 1)],
)  # fmt: skip
def test_a_long_context_has_windows_or_is_cut_and_the_question_is_kept(
    tmp_path: Path, windows: Any, question: str, count: int
) -> None:
    """A question that leaves the context little room has no windows."""
    trained = open_run(make_run(tmp_path), "cpu")
    template = template_of(trained.recipe, trained.vocab, 16)
    row = {"article": "film " * 40, "question": question, "options": ["day", "town"]}
    inputs = Choice(windows=windows).encode([read(row)], trained.tokenizer, template)
    assert [one.is_further for one in inputs] == [False] + [True] * (2 * count - 1)
    assert [one.is_continued for one in inputs] == 2 * [False, *[True] * (count - 1)]
    assert {len(one.ids) for one in inputs} == {16}
    assert {one.was_cut for one in inputs} == {count == 1}
    asked = trained.tokenizer.encode(question).tolist()
    assert all(" ".join(map(str, asked)) in " ".join(map(str, one.ids)) for one in inputs)


def test_the_loss_is_the_cross_entropy_of_each_question() -> None:
    scores = torch.tensor([[1.0], [2.0], [0.5], [-1.0], [3.0]])
    right, numbers = torch.tensor([0.0, 1.0, 1.0, 0.0, 0.0]), torch.tensor([4, 4, 7, 7, 7])
    loss = Choice().loss(scores, right, numbers)
    cross_entropy = torch.nn.functional.cross_entropy
    expected = cross_entropy(scores[:2].T, torch.tensor([1])) + cross_entropy(
        scores[2:].T, torch.tensor([0])
    )
    torch.testing.assert_close(loss.total, expected)
    assert loss.count == 2


def test_options_of_equal_scores_share_the_point() -> None:
    examples = [read(QUESTION), read({**QUESTION, "options": ["one", "longer"], "answer": 1})]
    targets = Choice().targets(examples, ())
    assert Choice.judge.scores(np.zeros((5, 1)), targets)["accuracy"] == pytest.approx(5 / 12)
    assert Choice.judge.correct(np.zeros((5, 1)), targets).tolist() == pytest.approx([1 / 3, 1 / 2])
    outputs = Choice.judge.baselines(targets, targets, ())
    assert list(outputs) == ["longest option", "chance"]
    assert Choice.judge.scores(outputs["longest option"], targets)["accuracy"] == 1.0
    assert Choice.judge.scores(outputs["chance"], targets)["accuracy"] == pytest.approx(5 / 12)


def test_the_options_of_a_question_are_in_one_batch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trained = open_run(make_run(tmp_path), "cpu")
    template = template_of(trained.recipe, trained.vocab, None)
    examples = [read(row) for row in questions(40, 1)]
    task = Choice(dropout=0.0)
    encoded, targets = (
        task.encode(examples, trained.tokenizer, template),
        task.targets(examples, ()),
    )
    network = build_network(trained, task, (), None).eval()
    network.initialise_head(1)

    def outputs() -> tuple[list[float], int]:
        order = np.random.default_rng(0).permutation(40)
        packed = PooledExamples(encoded, targets, template, loss_unit="example")
        assert len(packed) == 40
        found: dict[int, torch.Tensor] = {}
        losses = count = 0.0
        for batch in packed.batches(order, "cpu"):
            moved = batch.to("cpu")
            made = network.outputs(moved.features(network))
            for n in set(moved.numbers.tolist()):
                assert n not in found
                found[n] = made[moved.numbers == n]
            loss = task.loss(made, moved.targets, moved.numbers)
            losses, count = losses + loss.total.item(), count + loss.count.item()
        assert count == 40
        flat = torch.cat([found[n] for n in range(40)])[:, 0]
        assert len(flat) == len(encoded)
        return flat.tolist(), losses

    whole, loss = outputs()
    monkeypatch.setattr(packed_examples, "TOKENS_AT_ONCE", {"cpu": 64})
    parts, loss_of_parts = outputs()
    assert parts == pytest.approx(whole, abs=1e-5)
    assert loss_of_parts == pytest.approx(loss, rel=1e-5)


@pytest.mark.product(few=1)
@pytest.mark.parametrize("layout", LAYOUTS)
def test_every_layout_learns_to_choose_and_predicts_what_it_was_scored_by(
    layout: str, tmp_path: Path
) -> None:
    run, dev = make_run(tmp_path / "run", layout), questions(24, 2)
    done = tune(run, questions(160, 1), dev, lr=5e-3, epochs=3, **FAST)
    tuned, longest, chance = done.rows
    assert [longest["strategy"], chance["strategy"]] == ["longest option", "chance"]
    assert chance["accuracy"] == pytest.approx(np.mean([1 / len(q["options"]) for q in dev]))
    assert tuned["accuracy"] > 0.7
    options, _ = load_tuned(done.out, "cpu").predict(dev)
    right = [q["options"][q["answer"]] for q in dev]
    assert np.mean([a == b for a, b in zip(options, right, strict=True)]) == pytest.approx(
        tuned["accuracy"]
    )


def test_predictions_name_the_option_and_its_number(tmp_path: Path) -> None:
    run, file = make_run(tmp_path / "run"), write(tmp_path / "q.jsonl", questions(20, 1))
    done = tune(run, file, file, epochs=1, **FAST)
    predict(done, file, out=tmp_path / "out.jsonl", probabilities=True, progress=False)
    for line in (tmp_path / "out.jsonl").read_text(encoding="utf-8").splitlines():
        row = json.loads(line)
        assert row["prediction"] == row["options"][row["option"]]
        assert sum(row["probabilities"]) == pytest.approx(1.0, abs=1e-5)
        assert row["probability"] == max(row["probabilities"])


@pytest.mark.parametrize(
    ("options", "answer", "number"),
    [
        (["1", "2", "3"], 2, "2"),  # a number is one, and not a text
        (["1", "2", "3"], 2.0, "2"),
        (["1", "2", "3"], "2", None),
        ([1, 2, 3], 2, None),  # beside numbers it may be either
        ([3, 4, 5], 4, "1"),
        ([1, 2, 3], "B", "1"),
        (["2", "4"], "2", "0"),
        (["3", "4", "5"], "4", "1"),
        (["1", "2", "3"], "B", "1"),
        (["a", "b"], "1", "1"),
    ],
)
def test_an_answer_is_a_number_a_text_or_a_letter(
    options: list[Any], answer: Any, number: str | None
) -> None:
    row = {**QUESTION, "options": options, "answer": answer}
    with nullcontext() if number else pytest.raises(UserError, match="may be"):
        example = Choice().reader.read(row, COLUMNS, "q:1")
        assert example is not None and example.label == number


@pytest.mark.product(few=3)
@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"options": ["one"]}, "q.jsonl:1: expected at least two options, got 1"),
        ({"options": "one two"}, "q.jsonl:1: 'options' is not a list of options"),
        ({"answer": "E"}, "q.jsonl:1: the answer 'E' is none of the 3 options"),
        ({"answer": 3}, "q.jsonl:1: the answer '3' is none of the 3 options"),
        ({"options": ["one", " "]}, "q.jsonl:1: option 1 is empty"),
        ({"options": ["1", "2", "3"], "answer": "2"}, "'2' may be option '2' and '3'; give its"),
        ({"options": ["a", "a"], "answer": "a"}, "'a' may be option 'a' and 'a'; give its letter"),
    ],
)
def test_mistakes_are_reported_in_one_line(
    change: dict[str, Any], message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run, file = make_run(tmp_path / "run"), write(tmp_path / "q.jsonl", [{**QUESTION, **change}])
    words = [
        "tune",
        "--strategy=full",
        str(run),
        "--task",
        "choice",
        "--train",
        str(file),
        "--dev",
        str(file),
    ]
    assert command([*words, "--device", "cpu"]) == 2
    (error,) = capsys.readouterr().err.splitlines()
    assert re.search(re.escape(message), error)


def test_the_options_of_copa_may_be_numbers() -> None:
    row = {"premise": "how many?", "choice1": 2, "choice2": 1, "question": "effect", "label": 0}
    example = Choice().reader.read(row, Columns("premise", "label", "choice1"), "a.jsonl:1")
    assert example is not None
    assert (question_of(example).options, example.label) == (["2", "1"], "0")
