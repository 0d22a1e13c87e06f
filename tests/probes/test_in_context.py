"""Suite in_context: prompts, calibration by hand, and questions that are asked several times."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from foreword.errors import UserError
from foreword.evaluation.passages import Passage, score_passages
from foreword.probes._contract import ProbedModel
from foreword.probes._demonstrations import scrambled_words, sums, translations
from foreword.probes._suite import Answer, Question, paired
from foreword.probes.in_context import FREE, InContext
from foreword.runs import run as running
from foreword.runs.recipe import Recipe
from foreword.runs.run_folder import open_run
from foreword.settings import config, kinds
from tests.train.runs import Quiet

Choice: Any = kinds.load("probes", "choice")

Make = Callable[[str], Path]
REVIEWS = [("the old bank", "0"), ("the river", "1"), ("he sat", "1"), ("by the bank", "0")]


@pytest.fixture
def decoder(make_run: Make) -> ProbedModel:
    return ProbedModel("m", open_run(make_run("decoder"), "cpu"))


@pytest.fixture
def reviews(tmp_path: Path) -> str:
    file = tmp_path / "reviews.jsonl"
    rows = [json.dumps({"text": text, "label": label}) for text, label in REVIEWS]
    file.write_text("\n".join(rows), encoding="utf-8")
    return str(file)


def test_the_same_questions_are_asked_after_more_and_more_examples() -> None:
    questions = InContext("translate", shots=(0, 2, 4), draws=3, limit=5).questions()
    assert len(questions) == 5 * (1 + 3 + 3)
    for shots, draws in (("0", 1), ("2", 3), ("4", 3)):
        own = [question for question in questions if question.subset == shots]
        prompts = {question.details.examples for question in own}
        assert len(prompts) == draws
        assert {prompt.count(" -> ") for prompt in prompts} == {int(shots)}
        assert {question.unit for question in own} == {"1", "2", "3", "4", "5"}
    by_name = {question.name: question.details for question in questions}
    for draw in (1, 2, 3):
        few = by_name[f"2 examples, draw {draw}, question 1"].examples
        many = by_name[f"4 examples, draw {draw}, question 1"].examples
        assert many.startswith(few)
    asked = {question.details.query.text for question in questions}
    assert not any(f"\n{text} ->" in f"\n{q.details.examples}" for text in asked for q in questions)


def test_a_prompt_has_the_examples_then_the_question(reviews: str) -> None:
    suite = InContext("classify", files=reviews, labels=("bad", "good"), shots=(3,), draws=1)
    (question,) = suite.questions()
    words = {text: ("bad", "good")[int(label)] for text, label in REVIEWS}
    parts = [f"Text: {text}\nLabel: {words[text]}" for text in words if text in question.text]
    *examples, asked = question.text.split("\n\n")
    assert sorted([*examples, f"{asked}{question.answer}"]) == sorted(parts)
    assert asked == f"Text: {question.details.query.text}\nLabel: "
    assert set(question.options) == {"bad", "good"} and question.options[0] == question.answer
    own = replace(suite, template="{text}: {answer}", shots=(1,))
    assert own.questions()[0].text.count("\n") == 1, "an example ends its line"


def test_calibration_divides_by_the_answers_without_a_question(
    decoder: ProbedModel, reviews: str
) -> None:
    suite = InContext("classify", files=reviews, labels=("bank", "river"), shots=(0, 1), limit=3)
    questions = suite.questions()
    answers = list(suite.answers(decoder.trained, questions))

    def nats(text: str, answer: str) -> float:
        (score,) = score_passages(decoder.trained, [Passage(f" {answer}", before=text.rstrip())])
        return score.nats

    for question, answer in zip(questions, answers, strict=True):
        shown = question.details
        free = [f"{shown.examples}Text: {text}\nLabel:" for text in FREE]
        plain = np.array([nats(question.text, option) for option in question.options])
        prior = [np.mean([np.exp(nats(text, o)) for text in free]) for o in question.options]
        assert answer.scores == pytest.approx(plain, abs=1e-4)
        assert answer.correct == float(plain.argmax() == 0)
        assert answer.extra[0] == float((plain - np.log(prior)).argmax() == 0)


def test_the_plot_has_accuracy_and_calibrated_accuracy_of_each_model_with_its_interval() -> None:
    from matplotlib.collections import PolyCollection
    from matplotlib.figure import Figure

    figures = {"accuracy": 0.4, "lowest": 0.3, "highest": 0.5, "chance": 0.25}
    figures |= {"calibrated": 0.6, "calibrated_low": 0.55, "calibrated_high": 0.7}
    rows = [
        {"run": run, "examples": shots, **figures}
        for run in ("small", "large")
        for shots in ("0", "1", "all")
    ]
    figure = Figure()
    InContext(shots=(0, 1))._plot(figure, rows)
    (axes,) = figure.axes
    bands = [one for one in axes.collections if isinstance(one, PolyCollection)]
    assert [{round(float(y), 2) for y in band.get_paths()[0].vertices[:, 1]} for band in bands] == [
        {0.55, 0.7}
    ] * 2
    dashed = [line for line in axes.lines if line.get_linestyle() == "--"]
    assert [list(line.get_ydata()) for line in dashed] == [[0.6, 0.6]] * 2


def test_a_model_that_knows_the_answers_is_right_after_any_examples(tmp_path: Path) -> None:
    pairs = {"dog": "chien", "cat": "chat", "sea": "mer", "sun": "soleil", "red": "rouge"}
    text = tmp_path / "text.txt"
    text.write_text("\n\n".join(f"{word} is {other}" for word, other in pairs.items()), "utf-8")
    recipe = config.build(
        Recipe,
        {
            "model": {"kind": "ngram", "order": 3, "smoothing": "maximum_likelihood"},
            "objective": "causal",
            "layout": "decoder",
            "packing": {"kind": "documents", "length": 8, "bos": "<s>", "eos": ""},
            "tokenizer": {"kind": "word", "min_count": 1},
            "prepare": {"heldout": 0.0},
            "train": {"device": "cpu"},
        },
    )
    run = tmp_path / "run"
    running.start(recipe, running.Inputs((str(text),)), run)
    running.train_run(run, Quiet())
    trigrams = ProbedModel("m", open_run(run, "cpu"))
    rows = [json.dumps({"text": word, "label": other}) for word, other in pairs.items()]
    (tmp_path / "pairs.jsonl").write_text("\n".join(rows), encoding="utf-8")
    suite = InContext(
        "translate",
        files=str(tmp_path / "pairs.jsonl"),
        shots=(0, 1, 2),
        template="{text} is {answer}",
        calibrate=False,
    )
    for row in suite.measure([trigrams]).rows:
        assert (row["accuracy"], row["exact"], row["lowest"], row["chance"]) == (1, 1, 1, 0.25)


def test_the_worst_and_the_best_draw_stand_beside_their_mean(
    decoder: ProbedModel, reviews: str
) -> None:
    suite = InContext("classify", files=reviews, shots=(1,), draws=8, limit=2, calibrate=False)
    found = suite.measure([decoder])
    row = found.rows[0]
    correct = np.array([answer["correct"] for answer in found.predictions]).reshape(8, 2)
    assert row["accuracy"] == pytest.approx(correct.mean())
    assert (row["lowest"], row["highest"]) == (correct.mean(1).min(), correct.mean(1).max())
    assert row["calibrated"] is None


def test_each_number_of_examples_counts_alike_whatever_its_draws(
    decoder: ProbedModel, reviews: str
) -> None:
    suite = InContext("classify", files=reviews, shots=(0, 2), draws=5, limit=2)
    *alone, together = suite.measure([decoder]).rows
    for name in ("accuracy", "calibrated", "exact"):
        assert together[name] == pytest.approx(np.mean([row[name] for row in alone]))
    for name in ("lowest", "highest"):  # one draw without examples beside each of the five
        assert together[name] == pytest.approx(np.mean([row[name] for row in alone]))
    for row in (*alone, together):
        if row["calibrated_low"] is not None:  # two questions may be answered alike
            assert row["calibrated_low"] <= row["calibrated"] <= row["calibrated_high"]


def test_a_question_asked_in_several_ways_counts_once_in_intervals_and_tests() -> None:
    rng = np.random.default_rng(1)
    right = rng.random(40) < 0.5
    choice = Choice("x")

    def intervals(times: int) -> list[float]:
        asked = [
            (
                Question(f"{n} {way}", "s", "", "", unit=str(n)),
                Answer("", float(is_right), extra=(float(not is_right),)),
            )
            for way in range(times)
            for n, is_right in enumerate(right)
        ]
        row = next(choice._rows("m", *(list(column) for column in zip(*asked, strict=True))))
        return [row[f"{of}{end}"] for of in ("", "per_character_") for end in ("low", "high")]

    assert intervals(5) == intervals(1)
    told = paired(np.array([1.0, 0.5, 0.0]), np.array([0.0, 0.0, 0.0]), choice)
    assert "higher on 2 questions, lower on 0" in told


def test_tasks_without_a_file_make_right_answers_and_others_of_the_same_form() -> None:
    rng = np.random.default_rng(1)
    for example in sums(rng, 50):
        first, second = example.text.split(" + ")
        assert int(first) + int(second) == int(example.answer)
    words = scrambled_words(rng)
    for example in words:
        assert sorted(example.text) == sorted(example.answer) and example.text != example.answer
        assert {len(other) for other in example.others} == {len(example.answer)}
    pool = [*sums(rng, 50), *words, *translations("", rng)]
    for example in pool:
        assert len({example.answer, *example.others}) == 4
    assert len({example.text for example in translations("", rng)}) >= 100


def test_prompts_that_do_not_fit_are_counted(decoder: ProbedModel) -> None:
    suite = InContext("translate", shots=(0, 8), draws=2, limit=3, calibrate=False)
    found = suite.measure([decoder])  # which reads 24 tokens
    assert "m: 6 of 9 questions have more than 24 tokens and are cut" in found.notes


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"task": "classify"}, "needs a table with text and label"),
        ({"task": "add", "files": "x"}, "makes its own examples"),
        ({"task": "add", "labels": ("a", "b")}, "are for task 'classify'"),
        ({"task": "classify", "files": "x", "labels": ("a", "a")}, "expected different words"),
        ({"shots": ()}, "expected different numbers"),
        ({"shots": (1, 1)}, "expected different numbers"),
        ({"template": "{text} is"}, "expected one {text} and one {answer}"),
        ({"template": "{answer} {text}"}, "expected {text} before {answer}"),
    ],
)
def test_settings_that_contradict_each_other_are_refused(
    settings: dict[str, Any], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        InContext(**settings)


def test_too_few_examples_or_other_labels_are_refused(reviews: str) -> None:
    with pytest.raises(UserError, match="4 examples and a question: there are 4 in all"):
        InContext("classify", files=reviews, shots=(4,)).questions()
    with pytest.raises(UserError, match="3 words, for the labels 0, 1"):
        InContext("classify", files=reviews, labels=("a", "b", "c"), shots=(1,)).questions()
    one = Path(reviews).with_name("one.jsonl")
    one.write_text('{"text": "a", "label": "x"}\n', encoding="utf-8")
    with pytest.raises(UserError, match="expected two labels or more, got 1"):
        InContext("classify", files=str(one)).questions()
    one.write_text('{"text": "a"}\n', encoding="utf-8")
    with pytest.raises(UserError, match=r"one\.jsonl: no column 'label'; its columns: text"):
        InContext("translate", files=str(one)).questions()
