"""Candidates that are chosen by cross-validation, for every form of task and kind of model."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest

import foreword
from foreword.errors import UserError
from foreword.runs.run_folder import open_run
from foreword.settings import kinds
from foreword.tables.examples import Labelled, LabelledTexts
from foreword.tuning.best import chosen_model
from foreword.tuning.best.choosing import TrialStore, fit_parts, try_candidates
from foreword.tuning.best.counts import grams_of
from foreword.tuning.best.material import Material, material_of
from foreword.tuning.candidates._contract import Fitted, Learner
from foreword.tuning.candidates.pooled_features import PooledFeatures
from foreword.tuning.candidates.word_counts import WordCounts
from foreword.tuning.settings import TuneSettings
from foreword.tuning.strategies.best import Best
from foreword.tuning.tasks._contract import Task
from foreword.tuning.tasks.classify import Classify
from foreword.tuning.tuned import TunedOn
from tests.tuning.runs import BAD, GOOD, LAYOUTS, make_run, reviews, tune

SETTINGS = TuneSettings(strategy=Best(lr=1e-2, epochs=2), batch=8)


def tagged() -> list[Labelled]:
    sentences = [one.text.split() for one in reviews(30, 1)]
    tags = [["telling" if word in GOOD + BAD else "other" for word in s] for s in sentences]
    return [Labelled("\n".join(s), "\n".join(t)) for s, t in zip(sentences, tags, strict=True)]


def questions() -> list[Labelled]:
    return [
        Labelled(one.text, str(n % 2), f'["", "{BAD[0]}", "{GOOD[0]}"]')
        for n, one in enumerate(reviews(30, 1))
    ]


def numbered(*, pairs: bool = False) -> list[Labelled]:
    return [
        one._replace(label=str(float(one.label == "good")), pair="a day" if pairs else None)
        for one in reviews(30, 1)
    ]


FORMS: dict[str, list[Labelled]] = {
    "classify": reviews(30, 1),
    "regress": numbered(),
    "tag": tagged(),
    "choice": questions(),
}


def material(tmp_path: Path, task: str, examples: Sequence[Labelled], layout: str) -> Material:
    trained = open_run(make_run(tmp_path / "run", layout))
    of: Task = kinds.load("tuning/tasks", task)()
    texts = LabelledTexts.of(examples)
    return material_of(trained, of, of.labels(texts), texts, SETTINGS)


@pytest.mark.product
@pytest.mark.parametrize("layout", [*LAYOUTS, "recurrent", "word_vectors"])
@pytest.mark.parametrize("task", FORMS)
def test_every_task_of_every_model_is_chosen_for_saved_and_read(
    tmp_path: Path, task: str, layout: str
) -> None:
    given = material(tmp_path, task, FORMS[task], layout)
    candidates = [kinds.load("tuning/candidates", name)() for name in Best().candidates]
    trials = try_candidates(given, candidates, 1e6, 1)
    assert sum(trial.weight for trial in trials) == pytest.approx(1)
    for trial in trials:
        assert (trial.outputs is None) == bool(trial.why_not)
        assert trial.outputs is None or np.isfinite(trial.outputs).all()
    parts = fit_parts(given, trials, 1, lambda *_: None)
    chosen_model.save(tmp_path / "chosen", given, parts, TunedOn(), {})
    read = chosen_model.load(tmp_path / "chosen")
    results = np.concatenate([r.outputs for r in read.outputs_of(given.examples)])
    np.testing.assert_allclose(results, chosen_model.averaged(parts, given), atol=1e-3)


def test_pairs_have_the_features_and_words_of_both_texts(tmp_path: Path) -> None:
    single = material(tmp_path / "1", "regress", numbered(), "encoder")
    pairs = material(tmp_path / "2", "regress", numbered(pairs=True), "encoder")
    assert pairs.features.shape == (30, 3 * single.features.shape[1])
    assert grams_of(Labelled("the day", pair="a day"), "words", 1) == [
        "1 the", "1 day", "2 day", "both day", "one the",
    ]  # fmt: skip


@dataclass(frozen=True)
class Remembers(Learner):
    """A candidate that knows the labels of what it learned from, and nothing of other texts."""

    title: ClassVar[str] = "memory"

    def fit(self, material: Material, seed: int) -> Fitted:
        known = dict(zip((e.text for e in material.examples), material.targets, strict=True))

        class Memory(Fitted):
            def outputs(self, material: Material) -> Any:
                return np.stack(
                    [5 * np.eye(2)[known[e.text]] if e.text in known else np.zeros(2)
                     for e in material.examples]
                )  # fmt: skip

            def save(self, folder: Path) -> None:
                raise NotImplementedError

        return Memory()

    @classmethod
    def read(cls, folder: Path, trained: Any) -> Fitted:
        raise NotImplementedError


def test_memory_of_the_training_labels_is_worth_nothing(tmp_path: Path) -> None:
    examples = [one._replace(text=f"{one.text} {n}") for n, one in enumerate(reviews(60, 3))]
    given = material(tmp_path, "classify", examples, "encoder")
    trials = try_candidates(given, [Remembers(), WordCounts()], 1e6, 1)
    assert [trial.weight for trial in trials] == [0, 1]
    assert (trials[0].outputs == 0).all()


def test_shuffled_labels_are_at_chance(tmp_path: Path) -> None:
    rng = np.random.default_rng(1)
    labels = np.array(["bad", "good"] * 100)[rng.permutation(200)]
    examples = [
        one._replace(label=label) for one, label in zip(reviews(200, 4), labels, strict=True)
    ]
    given = material(tmp_path, "classify", examples, "encoder")
    candidates = [WordCounts(), PooledFeatures()]
    trials = try_candidates(given, candidates, 1e6, 1)
    parts = fit_parts(given, trials, 1, lambda *_: None)
    fresh = given.of(LabelledTexts.of(reviews(300, 5)))
    answers = chosen_model.averaged(parts, fresh).argmax(axis=1)
    assert 0.35 < (answers == fresh.targets).mean() < 0.65


def test_what_takes_too_long_is_left_out_and_said(tmp_path: Path) -> None:
    given = material(tmp_path, "classify", reviews(30, 1), "encoder")
    first, second = try_candidates(given, [WordCounts(), PooledFeatures()], 1e-9, 1)
    assert first.weight == 1
    assert second.why_not == "no time is left"
    assert second.weight == 0


def test_a_label_of_a_single_example_is_always_learned_from(tmp_path: Path) -> None:
    examples = [*reviews(30, 1), Labelled("a lovely town", "rare")]
    given = material(tmp_path, "classify", examples, "encoder")
    (trial,) = try_candidates(given, [WordCounts()], 1e6, 1)
    assert trial.outputs is not None
    assert trial.outputs.shape == (31, 3)


def test_a_trial_that_was_finished_is_not_repeated(tmp_path: Path) -> None:
    given = material(tmp_path, "classify", reviews(30, 1), "encoder")
    store, candidates = TrialStore(tmp_path / "store"), [WordCounts(), PooledFeatures()]
    first = try_candidates(given, candidates, 1e6, 1, store=store)
    (tmp_path / "store" / "1-word_counts.safetensors").unlink()
    again = try_candidates(given, candidates, 1e6, 1, store=store)
    for one, other in zip(first, again, strict=True):
        np.testing.assert_array_equal(one.outputs, other.outputs)
        assert one.weight == other.weight
    assert first[0].seconds != again[0].seconds
    assert first[1].seconds == again[1].seconds


def test_a_fold_that_teaches_nothing_leaves_the_candidate_out(tmp_path: Path) -> None:
    wordless = [Labelled("! ?", label) for label in ("bad", "good")] * 10
    given = material(tmp_path, "classify", wordless, "encoder")
    words, features = try_candidates(given, [WordCounts(), PooledFeatures()], 1e6, 1)
    assert "vocabulary" in words.why_not
    assert features.weight == 1


def test_labels_of_one_or_two_examples_each(tmp_path: Path) -> None:
    texts = [one.text for one in reviews(12, 1)]
    single = [Labelled(text, f"label {n}") for n, text in enumerate(texts)]
    with pytest.raises(UserError, match="each label has a single example"):
        given = material(tmp_path / "1", "classify", single, "encoder")
        try_candidates(given, [WordCounts()], 1e6, 1)
    double = [Labelled(text, f"label {n // 2}") for n, text in enumerate(texts)]
    given = material(tmp_path / "2", "classify", double, "encoder")
    (trial,) = try_candidates(given, [WordCounts()], 1e6, 1)
    assert trial.outputs is not None


def test_too_few_examples_are_refused(tmp_path: Path) -> None:
    given = material(tmp_path, "classify", reviews(4, 1), "encoder")
    with pytest.raises(UserError, match="4 training examples are too few to choose on"):
        try_candidates(given, [WordCounts()], 1e6, 1)


def test_tune_chooses_by_default_and_its_model_predicts(tmp_path: Path) -> None:
    run, train, dev = make_run(tmp_path / "run"), reviews(40, 1), reviews(20, 2)
    given: dict[str, Any] = {"epochs": 2, "lr": 1e-2, "settings": ["task.dropout=0"]}
    tables = [e[:2] for e in train], [e[:2] for e in dev]
    result = foreword.tune(run, *tables, name="a", **given)
    rows = {row["strategy"]: row for row in result.rows}
    assert rows["best"]["accuracy"] >= 0.9
    assert {"best", "counting alone", "majority class"} <= rows.keys()
    assert sum(one.get("weight", 0) for one in result.content["candidates"]) == pytest.approx(1)
    texts = [example.text for example in dev]
    model = result.load()
    answers, shares = model.predict(texts)
    right = np.mean([a == e.label for a, e in zip(answers, dev, strict=True)])
    assert right == rows["best"]["accuracy"]
    np.testing.assert_allclose(shares.sum(axis=1), 1, atol=1e-5)
    assert model.predict(texts[::-1])[0] == answers[::-1]
    # The same call finds what is done; the shown tables name the candidates.
    again = foreword.tune(run, *tables, name="a", **given)
    assert again.rows == result.rows
    assert again.was_done
    assert "counts of words" in str(again)


def test_an_average_is_no_network_to_export(tmp_path: Path) -> None:
    given = material(tmp_path, "classify", reviews(30, 1), "encoder")
    trials = try_candidates(given, [WordCounts()], 1e6, 1)
    parts = fit_parts(given, trials, 1, lambda *_: None)
    chosen_model.save(tmp_path / "chosen", given, parts, TunedOn(), {})
    with pytest.raises(UserError, match="an average of candidates, not one network; tune with"):
        foreword.export(tmp_path / "chosen", tmp_path / "out", format="hf")


def test_comparisons_do_not_choose(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run")
    with pytest.raises(UserError, match="strategy best: chooses among ways to learn"):
        tune(open_run(run), Classify(), reviews(8, 1), reviews(4, 2), SETTINGS)


def test_features_of_a_long_text_are_the_mean_of_its_windows(tmp_path: Path) -> None:
    short = material(tmp_path, "classify", reviews(30, 1), "encoder")
    texts = [f"{e.text} " * 20 for e in short.examples]
    long = short.of(LabelledTexts.of(Labelled(text, "good") for text in texts))
    assert len(long.encoded) > len(long)
    assert long.features.shape == short.features.shape
    alone = long.of(LabelledTexts.of(long.examples[3:4])).features
    np.testing.assert_allclose(long.features[3:4], alone, atol=1e-5)
