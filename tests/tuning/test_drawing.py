"""A few labelled examples drawn from many."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest
from sklearn.feature_extraction.text import TfidfVectorizer

from foreword.cli.main import run as command
from foreword.errors import UserError
from foreword.runs.run_folder import open_run
from foreword.runs.trained_model import TrainedModel
from foreword.tables.examples import Labelled
from foreword.tuning.bag_of_words import bag_of_words, words_of
from foreword.tuning.drawing import draw
from foreword.tuning.features import ExampleBatches
from foreword.tuning.settings import TuneSettings
from foreword.tuning.strategies.full import Full
from foreword.tuning.tasks.classify import Classify
from foreword.tuning.tasks.regress import Regress
from foreword.tuning.tasks.tag import Tag
from foreword.tuning.tune import variants
from tests.tuning.runs import make_run, reviews, tune

FAST = TuneSettings(strategy=Full(lr=3e-3), seeds=2, epochs=2, precision="fp32")


@pytest.fixture
def trained(tmp_path: Path) -> TrainedModel:
    return open_run(make_run(tmp_path), "cpu")


def labelled(**counts: int) -> list[Labelled]:
    return [Labelled(f"{label} {n}", label) for label, many in counts.items() for n in range(many)]


@pytest.mark.parametrize(
    ("count", "expected"),
    [
        (100, {"a": 70, "b": 25, "c": 5}),
        (10, {"a": 7, "b": 2, "c": 1}),
        (3, {"a": 1, "b": 1, "c": 1}),
        (200, {"a": 140, "b": 50, "c": 10}),
    ],
)
def test_each_label_is_drawn_in_its_proportion_but_at_least_once(
    count: int, expected: dict[str, int]
) -> None:
    drawn = draw(labelled(a=140, b=50, c=10), count, 2, Classify())
    assert drawn.total == 200
    for numbers in drawn.numbers:
        assert len(set(numbers.tolist())) == count
        assert Counter(drawn.examples[int(n)].label for n in numbers) == expected


def test_a_label_that_no_drawn_example_has_is_still_a_label() -> None:
    words = [Labelled("a\nb", "X\nO"), Labelled("a\nb", "Y\nO"), Labelled("a\nb", "Z\nO")]
    drawn = draw(words, 1, 1, Tag())
    assert len(drawn.examples) == 1
    assert drawn.labels == ("O", "X", "Y", "Z")


def test_seeds_draw_differently_and_the_same_again() -> None:
    examples = labelled(a=60, b=60)
    drawn = draw(examples, 20, 3, Classify())
    texts = [{drawn.examples[int(n)].text for n in numbers} for numbers in drawn.numbers]
    assert len({frozenset(one) for one in texts}) == 3
    assert {text for one in texts for text in one} == {e.text for e in drawn.examples}
    again = draw(examples, 20, 1, Classify())  # fewer seeds draw the same
    assert {e.text for e in again.examples} == texts[0]
    more = draw(examples, 40, 1, Classify())
    assert {e.text for e in more.examples} >= texts[0]


def test_numbers_that_are_no_classes_are_drawn_at_random() -> None:
    examples = [Labelled(f"text {n}", f"{n / 7:.3f}") for n in range(50)]
    drawn = draw(examples, 10, 1, Regress())
    assert len(drawn.examples) == 10


def test_too_many_and_too_few_are_refused() -> None:
    examples = labelled(a=5, b=5, c=5)
    with pytest.raises(UserError, match=r"tune.examples: 16, but there are 15 training examples"):
        draw(examples, 16, 1, Classify())
    with pytest.raises(UserError, match="2 cannot have one of each of the 3 labels"):
        draw(examples, 2, 1, Classify())


def test_a_seed_trains_on_what_it_drew_alone(
    trained: TrainedModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: dict[int, set[int]] = {1: set(), 2: set()}
    numbers: dict[int, list[int]] = {}
    ahead = ExampleBatches.ahead

    def noting(self: ExampleBatches, step: int) -> object:
        numbers[self.seed] = self.numbers.tolist()
        for batches in ahead(self, step):
            seen[self.seed] |= {int(n) for batch in batches for n in batch.numbers}
            yield batches

    monkeypatch.setattr(ExampleBatches, "ahead", noting)
    result = tune(trained, Classify(), reviews(60, 1), reviews(20, 2), replace(FAST, examples=12))
    assert (result.examples["train"], result.examples["drawn_from"]) == (12, 60)
    for seed, numbers_of in numbers.items():
        assert len(numbers_of) == 12 and seen[seed] == set(numbers_of)
    assert numbers[1] != numbers[2]


@pytest.mark.product(few=1)
@pytest.mark.parametrize("strategy", ["full", "frozen"])
def test_drawing_all_examples_is_like_not_drawing(trained: TrainedModel, strategy: str) -> None:
    chosen = variants(replace(FAST, seeds=1))[["full", "frozen"].index(strategy)]
    train, dev = reviews(40, 1), reviews(20, 2)
    every = tune(trained, Classify(), train, dev, chosen)
    drawn = tune(trained, Classify(), train, dev, replace(chosen, examples=40))
    assert drawn.epochs == every.epochs


@pytest.mark.full
def test_the_bag_of_words_learns_from_what_each_seed_drew(
    trained: TrainedModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    fitted: list[list[str]] = []

    def noting(
        task: Classify, train: list[Labelled], test: list[Labelled], further: object
    ) -> object:
        fitted.append([example.text for example in train])
        return bag_of_words(task, train, test)

    monkeypatch.setattr("foreword.tuning.bag_of_words.bag_of_words", noting)
    settings = variants(replace(FAST, examples=12, epochs=1))
    result = tune(trained, Classify(), reviews(200, 1), reviews(20, 2), settings)
    assert [len(texts) for texts in fitted] == [12, 12] and fitted[0] != fitted[1]
    row = result.rows[-2]
    assert row.start == "no network" and row.metrics["accuracy"].std is not None


def test_a_bag_of_words_is_fitted_to_one_example_of_each_label() -> None:
    train = [Labelled("lovely film", "good"), Labelled("awful film", "bad")]
    words = bag_of_words(Classify(), train, [Labelled("lovely", "good"), Labelled("lovely", "bad")])
    assert words is not None and words.row["accuracy"] == 0.5
    assert words.correct.tolist() == [1.0, 0.0]


def test_the_bag_holds_words_of_any_script() -> None:
    english = "It's a film I'd seen in 1999, naïve but well-made."
    assert words_of(english) == TfidfVectorizer().build_analyzer()(english)
    assert words_of("यह किताब है। 我去") == ["यह", "किताब", "है", "我", "去"]


def test_texts_without_words_have_no_bag_of_words(trained: TrainedModel) -> None:
    train = [Labelled("!", "good"), Labelled("?", "bad")] * 4
    assert bag_of_words(Classify(), train, train) is None
    settings = variants(replace(FAST, seeds=1, epochs=1))
    rows = tune(trained, Classify(), train, train, settings).rows
    assert [row.start for row in rows[-2:]] == ["from scratch", "no model"]


@pytest.mark.full
def test_the_command_and_the_report_say_how_many_were_drawn(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = make_run(tmp_path / "run")
    for name, count in (("train", 40), ("dev", 10)):
        rows = [f"{example.text}\t{example.label}\n" for example in reviews(count, count)]
        (tmp_path / f"{name}.tsv").write_text("text\tlabel\n" + "".join(rows), encoding="utf-8")
    files = ["--train", str(tmp_path / "train.tsv"), "--dev", str(tmp_path / "dev.tsv")]
    quick = ["--seeds", "2", "--epochs", "1", "--examples", "8", "--compare", "--name", "few"]
    assert command(["tune", "--strategy=full", str(run), *files, *quick]) == 0
    captured = capsys.readouterr()
    assert "bag of words" in captured.out
    assert "8 of 40 training examples, drawn for each seed, 10 dev examples" in captured.err
    saved = json.loads((run / "evaluations" / "tune-classify-few.json").read_text("utf-8"))
    assert saved["settings"]["examples"] == 8 and saved["examples"]["drawn_from"] == 40
    assert command(["report", str(run)]) == 0
    page = (run / "report.html").read_text("utf-8")
    assert "8 of 40 training examples, drawn for each seed" in page
    assert (
        command(["tune", "--strategy=full", str(run), *files, "--examples", "41", "--name", "many"])
        == 2
    )
    assert "tune.examples: 41, but there are 40 training examples" in capsys.readouterr().err
