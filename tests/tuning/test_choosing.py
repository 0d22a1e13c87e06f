"""Candidates that are chosen by cross-validation, for every form of task and kind of model."""

from __future__ import annotations

import json
import re
import runpy
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise, product
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
from scipy.special import expit, softmax

import foreword
from foreword.errors import UserError
from foreword.runs.run_folder import open_run
from foreword.settings import kinds
from foreword.tables.examples import Labelled, LabelledTexts
from foreword.tuning.best import chosen_model
from foreword.tuning.best.choosing import (
    ChosenPart,
    fit_parts,
    settled,
    try_candidates,
)
from foreword.tuning.best.counts import grams_of
from foreword.tuning.best.linear import UNSEEN
from foreword.tuning.best.material import Material, material_of
from foreword.tuning.candidates._contract import Fitted, Learner
from foreword.tuning.candidates.conditional_random_field import ConditionalRandomField
from foreword.tuning.candidates.fine_tuned import FineTuned
from foreword.tuning.candidates.pooled_features import PooledFeatures
from foreword.tuning.candidates.word_counts import WordCounts
from foreword.tuning.finished import FinishedStore
from foreword.tuning.settings import TuneSettings
from foreword.tuning.strategies.best import Best, suits
from foreword.tuning.tasks._contract import ExampleOutputs, Task
from foreword.tuning.tasks.classify import Classify
from foreword.tuning.tasks.embed import Embed
from foreword.tuning.tasks.multilabel import Multilabel
from foreword.tuning.tasks.tag import Tag
from foreword.tuning.tasks.text_to_text import TextToText
from foreword.tuning.tuned_folder import TunedOn
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


def several() -> list[Labelled]:
    return [
        one._replace(label="|".join([one.label, "film"][: 1 + ("film" in one.text)]))
        for one in reviews(30, 1)
    ]


def passages() -> list[Labelled]:
    made = []
    for one in reviews(30, 1):
        found = [(word, one.text.index(word)) for word in one.text.split() if word in GOOD]
        made.append(Labelled(one.text, json.dumps(found), "the film"))
    return made


FORMS: dict[str, list[Labelled]] = {
    "classify": reviews(30, 1),
    "regress": numbered(),
    "tag": tagged(),
    "choice": questions(),
    "multilabel": several(),
    "span": passages(),
    "embed": numbered(pairs=True),
}


def material(tmp_path: Path, task: str, examples: Sequence[Labelled], layout: str) -> Material:
    trained = open_run(make_run(tmp_path / "run", layout))
    of: Task = kinds.load("tuning/tasks", task)()
    texts = LabelledTexts.of(examples)
    return material_of(trained, of, of.labels(texts), texts, SETTINGS)


@pytest.fixture
def few_fits(monkeypatch: pytest.MonkeyPatch) -> None:
    """Cross-validate in two parts, and choose no penalty."""
    monkeypatch.setattr("foreword.tuning.best.choosing.FOLDS", 2)
    monkeypatch.setattr("foreword.tuning.best.linear.MOST_CHOSEN_ON", 0)


@pytest.mark.product
@pytest.mark.parametrize("layout", [*LAYOUTS, "recurrent", "word_vectors"])
@pytest.mark.parametrize("task", FORMS)
def test_every_task_of_every_model_is_chosen_for_saved_and_read(
    tmp_path: Path, task: str, layout: str, few_fits: None
) -> None:
    given = material(tmp_path, task, FORMS[task], layout)
    settings = {"contrastive": {"pairs": 2}}
    candidates = [
        kinds.load("tuning/candidates", name)(**settings.get(name, {}))
        for name in Best().candidates
    ]
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


def test_shuffled_labels_are_at_chance(tmp_path: Path, few_fits: None) -> None:
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


def test_candidates_for_other_tasks_are_listed_if_they_were_named(
    tmp_path: Path, few_fits: None
) -> None:
    run, train = make_run(tmp_path / "run"), [e[:2] for e in reviews(20, 1)]
    named = ['tune.strategy.candidates=["word_counts","conditional_random_field"]']
    table = str(foreword.tune(run, train, train, name="a", settings=named))
    assert re.search("conditional random field .* left out: for tags of words alone", table)


def test_a_label_of_a_single_example_is_always_learned_from(tmp_path: Path) -> None:
    examples = [*reviews(30, 1), Labelled("a lovely town", "rare")]
    given = material(tmp_path, "classify", examples, "encoder")
    (trial,) = try_candidates(given, [WordCounts()], 1e6, 1)
    assert trial.outputs is not None
    assert trial.outputs.shape == (31, 3)


def test_a_trial_that_was_finished_is_not_repeated(tmp_path: Path) -> None:
    given = material(tmp_path, "classify", reviews(30, 1), "encoder")
    finished = FinishedStore(tmp_path / "store", "r")
    candidates = [WordCounts(), PooledFeatures()]
    first = try_candidates(given, candidates, 1e6, 1, finished=finished)
    (tmp_path / "store" / "r-seed-1-word_counts" / "about.json").unlink()
    again = try_candidates(given, candidates, 1e6, 1, finished=finished)
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


@pytest.mark.filterwarnings("error::UserWarning")
def test_labels_of_one_or_two_examples_each(tmp_path: Path) -> None:
    texts = [one.text for one in reviews(12, 1)]
    single = [Labelled(text, f"label {n}") for n, text in enumerate(texts)]
    with pytest.raises(UserError, match="each label has a single example"):
        given = material(tmp_path / "1", "classify", single, "encoder")
        try_candidates(given, [WordCounts()], 1e6, 1)
    double = [Labelled(text, f"label {min(n // 2, 2)}") for n, text in enumerate(texts)]
    given = material(tmp_path / "2", "classify", double, "encoder")
    (trial,) = try_candidates(given, [WordCounts()], 1e6, 1)
    assert trial.outputs is not None


def test_too_few_examples_are_refused(tmp_path: Path) -> None:
    given = material(tmp_path, "classify", reviews(4, 1), "encoder")
    with pytest.raises(UserError, match="4 training examples are too few to choose on"):
        try_candidates(given, [WordCounts()], 1e6, 1)


def test_tune_chooses_by_default_and_its_model_predicts(tmp_path: Path, few_fits: None) -> None:
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
    assert "conditional random field" not in str(again)  # which is for tags


def test_a_network_that_was_taken_alone_has_its_temperature(tmp_path: Path, few_fits: None) -> None:
    run, train = make_run(tmp_path / "run"), [e[:2] for e in reviews(20, 1)]
    settings = ['tune.strategy.candidates=["fine_tuned"]', "task.dropout=0"]
    result = foreword.tune(run, train, train, name="a", epochs=1, lr=1e-2, settings=settings)
    about = result.content["calibration"]
    assert result.load().task.temperature == pytest.approx(about["temperatures"]["fine_tuned"])
    assert about["error"] <= about["error_before"] + 0.1
    assert "a temperature for each part" in " ".join(map(str, result.tables()))
    assert any("no candidate counts words alone" in note for note in result.content["notes"])


def test_a_label_that_a_fold_lacks_is_never_its_answer(tmp_path: Path, few_fits: None) -> None:
    examples = [*tagged()[:10], Labelled("a\ntown", "other\nrare")]
    given = material(tmp_path, "tag", examples, "encoder")
    (trial,) = try_candidates(given, [FineTuned()], 1e6, 1)
    assert trial.outputs is not None
    assert trial.outputs.shape == (int(given.begins[-1]), 3)
    assert (trial.outputs[-2:, 1] == UNSEEN).all()


def test_a_chain_of_tags_is_the_most_likely_path_of_all(tmp_path: Path) -> None:
    """Shares by the gradient are those of all paths, one by one; the tag after "cold" depends."""
    sentences = [("cold\na", "x\nx"), ("warm\na", "y\ny"), ("fine\nthe\na", "y\nx\nx")] * 5
    given = material(tmp_path, "tag", [Labelled(*each) for each in sentences], "encoder")
    learned = ConditionalRandomField().fit(given, 1)
    outputs = learned.outputs(given)
    assert (outputs.argmax(axis=1) == given.targets).all()
    scores = learned.words.linear(learned.words.counts.features(given.counted[4:7]))
    paths = {
        path: sum(scores[n, tag] for n, tag in enumerate(path))
        + sum(learned.transitions[a, b] for a, b in pairwise(path))
        for path in product(range(2), repeat=3)
    }
    total = np.logaddexp.reduce(list(paths.values()))
    for place, tag in product(range(3), range(2)):
        of_tag = [score for path, score in paths.items() if path[place] == tag]
        assert outputs[4 + place, tag] == pytest.approx(
            np.logaddexp.reduce(of_tag) - total, abs=1e-4
        )


def test_thresholds_are_those_of_the_answers_out_of_fold(tmp_path: Path) -> None:
    given = material(tmp_path, "multilabel", several(), "encoder")
    right = given.targets * 2 - 1.5  # right ones at 0.5, others at -1.5
    task: Any = settled(given, right - 2)
    assert task.judge.scores(right - 2, given.judged)["micro_f1"] == 1
    assert len(task.thresholds) == len(given.labels)


def test_too_few_entities_are_found_by_the_likeliest_labels(tmp_path: Path) -> None:
    """The threshold of an entity follows the answers out of fold, and is kept with the model."""
    sentences = [Labelled("a\ngood\nfilm", "O\nB-good\nO"), Labelled("a\nbad\nfilm", "O\nO\nO")]
    given = material(tmp_path, "tag", sentences * 9, "encoder")
    inside = np.where(given.targets == 0, 0.2, 0.01)
    outputs = np.log(np.stack([inside, 1 - inside], axis=1))
    assert Tag().judge.scores(outputs, given.judged)["entity_f1"] == 0
    task = settled(given, outputs)
    assert isinstance(task, Tag) and task.threshold == 0.07  # the middle of 0.02 to 0.2
    assert task.judge.scores(outputs, given.judged)["entity_f1"] == 1
    row = task.answers.row(
        ExampleOutputs(sentences[0], (), outputs[:3]), given.labels, probabilities=False
    )
    assert row["prediction"] == ["O", "B-good", "O"]
    assert row["probability"] == pytest.approx([0.99, 0.2, 0.99])
    named = settled(replace(given, task=Tag(threshold=0.3)), outputs)
    assert named == Tag(threshold=0.3)
    assert Tag().answers.at_threshold(0.3, given.labels) == {"threshold": 0.3}
    with pytest.raises(UserError, match="or entities; here are none"):
        Tag().answers.at_threshold(0.3, ("NOUN", "VERB"))


def test_texts_to_compare_need_scores() -> None:
    pairs, bare = numbered(pairs=True), [e._replace(label="") for e in numbered(pairs=True)]
    assert suits(Embed(), pairs) and not suits(Embed(), bare)
    assert suits(Classify(), reviews(2, 1)) and not suits(TextToText(), reviews(2, 1))


@pytest.mark.parametrize(
    ("task", "form", "also"),
    [
        ("classify", "hf", "hf, but --format onnx writes averages of labels and numbers of texts;"),
        ("choice", "onnx", "onnx, which writes averages of labels and numbers of texts alone;"),
    ],
)
def test_an_average_is_no_network_to_export(
    tmp_path: Path, task: str, form: str, also: str
) -> None:
    given = material(tmp_path, task, FORMS[task], "encoder")
    part = ChosenPart("word_counts", WordCounts().fit(given, 1), 1.0, 1.0)
    chosen_model.save(tmp_path / "chosen", given, [part], TunedOn(), {})
    with pytest.raises(UserError, match=f"an average of candidates, without a network for {also}"):
        foreword.export(tmp_path / "chosen", tmp_path / "out", format=form)


def test_an_exported_average_has_the_thresholds_of_its_labels(tmp_path: Path) -> None:
    given = material(tmp_path, "multilabel", FORMS["multilabel"], "encoder")
    given = replace(given, task=Multilabel(thresholds=(0.3,)))
    part = ChosenPart("word_counts", WordCounts().fit(given, 1), 1.0, 1.0)
    chosen_model.save(tmp_path / "chosen", given, [part], TunedOn(), {})
    foreword.export(tmp_path / "chosen", tmp_path / "out", format="onnx")
    average = runpy.run_path(str(tmp_path / "out" / "predict.py"))["Average"](tmp_path / "out")
    assert average.thresholds == [0.3] * len(given.labels)


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


COUNTING = ["word_counts", "character_counts"]
NETWORKS = {
    "classify": ["log_count_ratios", "contrastive"],
    "classify pairs": ["features_and_counts", "fine_tuned"],
    "multilabel": ["log_count_ratios", "features_and_counts"],
    "regress": ["pooled_features", "fine_tuned"],
    "regress pairs": ["pooled_features", "features_and_counts"],
}


@pytest.mark.parametrize("task", NETWORKS)
def test_exported_counts_predict_without_foreword(tmp_path: Path, task: str) -> None:
    names = [*COUNTING, *(n for n in NETWORKS[task] if n == "log_count_ratios")]
    exported_predicts_the_same(tmp_path, task, names)


@pytest.mark.full
@pytest.mark.parametrize("task", NETWORKS)
def test_exported_networks_predict_without_foreword(tmp_path: Path, task: str) -> None:
    pytest.importorskip("onnxruntime", reason="requires foreword[onnx]")
    exported_predicts_the_same(tmp_path, task, [COUNTING[0], *NETWORKS[task]])


def exported_predicts_the_same(tmp_path: Path, task: str, names: list[str]) -> None:
    task, _, pairs = task.partition(" ")
    examples = FORMS[task]
    if pairs:
        examples = [e._replace(pair=o.text) for e, o in pairwise([*examples, examples[0]])]
    given = material(tmp_path, task, examples, "encoder")
    heat = 1.0 if task == "regress" else 2.0
    parts = [
        ChosenPart(
            name, kinds.load("tuning/candidates", name)().fit(given, 1), 1 / len(names), heat
        )
        for name in names
    ]
    chosen_model.save(tmp_path / "chosen", given, parts, TunedOn(is_pair=bool(pairs)), {})
    foreword.export(tmp_path / "chosen", tmp_path / "out", format="onnx")
    read = chosen_model.load(tmp_path / "chosen")
    texts = [(e.text, *([e.pair] if pairs else [])) for e in given.examples]
    texts += [("Unseen, of 2\tWORDS", "and\tOther ones")[: len(texts[0])]]
    code = "import json, sys; sys.path.insert(0, '.'); from predict import Average; "
    code += "print(json.dumps(Average('.')(*zip(*json.load(sys.stdin))).tolist()))"
    run = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path / "out", input=json.dumps(texts),
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    outputs = read.outputs(*map(list, zip(*texts, strict=True)))
    form = {"classify": lambda x: softmax(x, axis=1), "multilabel": expit, "regress": lambda x: x}
    np.testing.assert_allclose(json.loads(run.stdout), form[task](outputs), atol=1e-4)
