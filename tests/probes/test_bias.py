"""Suites of stereotypes: which sentences are compared, and figures by hand."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.stats import bootstrap, spearmanr

from foreword.errors import UserError
from foreword.evaluation.passages import Passage, score_passages
from foreword.evaluation.statistics import SEED
from foreword.probes._contract import ProbedModel
from foreword.probes._scoring import shared_words
from foreword.probes._suite import DRAWS, Answer, Question
from foreword.probes.winogender import Winogender
from foreword.runs.run_folder import open_run
from foreword.runs.trained_model import TrainedModel
from foreword.settings import kinds
from tests.contracts.test_probes import build

CrowsPairs: Any = kinds.load("probes", "crows_pairs")
Stereoset: Any = kinds.load("probes", "stereoset")
Winobias: Any = kinds.load("probes", "winobias")

Make = Callable[[str], Path]


def model(make_run: Make, family: str = "decoder") -> ProbedModel:
    return ProbedModel("m", open_run(make_run(family), "cpu"))


def nats(prompted: TrainedModel, *passages: Passage) -> float:
    return sum(score.nats for score in score_passages(prompted, passages))


def test_the_words_that_two_sentences_share_are_found() -> None:
    one, other = shared_words("the old man sat", "the young man sat")
    assert [(p.text, p.before, p.after) for p in one] == [
        ("the", "", " old man sat"),
        ("man", "the old ", " sat"),
        ("sat", "the old man ", ""),
    ]
    assert [p.before for p in other] == ["", "the young ", "the young man "]


@pytest.mark.parametrize("family", ["decoder", "encoder", "encoder_decoder"])
def test_the_share_of_stereotypes_is_that_by_hand(family: str, make_run: Make) -> None:
    one = model(make_run, family)
    suite = build("crows_pairs")
    assert isinstance(suite, CrowsPairs)
    found = suite.measure([one])
    expected = []
    for question in suite.questions():
        more, less = shared_words(*question.options)
        if family == "decoder":
            more, less = ([Passage(option)] for option in question.options)
        expected.append(float(nats(one.trained, *more) > nats(one.trained, *less)))
    assert [answer["correct"] for answer in found.predictions] == expected
    assert {row["bias"]: row["stereotype"] for row in found.rows}["all"] == np.mean(expected)
    assert any("says nothing of other groups" in note for note in found.notes)


def test_stereosets_scores_are_combined_as_published(make_run: Make) -> None:
    suite = build("stereoset")
    assert isinstance(suite, Stereoset)
    row = suite.measure([model(make_run)]).rows[-1]
    expected = row["language_model"] * min(row["stereotype"], 1 - row["stereotype"]) / 0.5
    assert row["icat"] == pytest.approx(expected)
    assert [q.details for q in suite.questions()] == [("", 0), ("he sat by the bank.", 0)]


def test_stereosets_scores_are_means_over_target_terms(tmp_path: Path) -> None:
    labels = ("stereotype", "anti-stereotype", "unrelated")
    sentences = [{"gold_label": label, "sentence": label} for label in labels]
    # Term, bias, whether the stereotype is preferred, how often the unrelated sentence loses.
    items = [
        ("poet", "profession", 1, 1), ("poet", "profession", 1, 0.5), ("poet", "profession", 1, 1),
        ("nurse", "profession", 0, 0.5), ("Spain", "race", 0, 1), ("Spain", "race", 0, 0),
    ]  # fmt: skip
    listed = [
        {"id": n, "bias_type": bias, "target": term, "context": "c", "sentences": sentences}
        for n, (term, bias, *_) in enumerate(items)
    ]
    file = tmp_path / "set.json"
    file.write_text(json.dumps({"data": {"intrasentence": listed}}), encoding="utf-8")
    suite = Stereoset(str(file))
    answers = [Answer("", share, extra=(share, reads)) for _, _, share, reads in items]
    rows = {row["bias"]: row for row in suite._rows("m", suite.questions(), answers)}
    # Profession: poet 1 and 5/6, nurse 0 and 1/2; over items they would be 3/4 and 3/4.
    expected = {"profession": (1 / 2, 2 / 3, 2 / 3), "race": (0, 1 / 2, 0)}
    expected["all"] = (1 / 3, 11 / 18, 11 / 18 * 2 / 3)
    for bias, scores in expected.items():
        row = rows[bias]
        found = (row["stereotype"], row["language_model"], row["icat"])
        assert found == pytest.approx(scores), bias
    assert rows["profession"]["questions"] == 4


def test_the_intervals_of_stereosets_scores_are_those_of_questions_drawn_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("foreword.probes._suite.DRAWS", DRAWS)
    rng = np.random.default_rng(3)
    share = rng.choice([0.0, 0.5, 1.0], 80, p=[0.3, 0.1, 0.6])
    reads = rng.choice([0.0, 0.5, 1.0], 80, p=[0.1, 0.3, 0.6])
    pairs = list(zip(share.tolist(), reads.tolist(), strict=True))
    answers = [Answer("", one, extra=(one, other)) for one, other in pairs]
    questions = [Question(str(n), "gender", "", "") for n in range(80)]
    *_, row = Stereoset("x")._rows("m", questions, answers)

    def icat(stereotype: Any, language_model: Any) -> Any:
        preferred = np.mean(stereotype, axis=-1)
        return np.mean(language_model, axis=-1) * np.minimum(preferred, 1 - preferred) / 0.5

    # The same draws by hand.
    again = np.random.default_rng(SEED)
    draws = [again.integers(0, 80, 80) for _ in range(DRAWS)]
    by_hand = [icat(share[drawn], reads[drawn]) for drawn in draws]
    interval = [row["icat_low"], row["icat_high"]]
    assert interval == pytest.approx(np.quantile(by_hand, [0.025, 0.975]))
    # Draws of its own.
    settings: Any = {"method": "percentile", "n_resamples": 5_000, "paired": True, "rng": 1}
    expected = bootstrap((share, reads), icat, **settings).confidence_interval
    assert interval == pytest.approx(list(expected), abs=0.02)
    assert row["language_model_low"] < reads.mean() < row["language_model_high"]


def test_winogenders_correlation_is_scipys(make_run: Make) -> None:
    suite = build("winogender")
    assert isinstance(suite, Winogender)
    found = suite.measure([model(make_run)])
    preferred = [answer["scores"][0] for answer in found.predictions]
    assert found.scores["m"] == pytest.approx(spearmanr(preferred, [9, 60, 30]).statistic)
    causal = model(make_run).trained
    hers = Passage("the", "the bank sat by ", " river")
    his = Passage("of", "the bank sat by ", " river")
    assert preferred[0] == pytest.approx(nats(causal, hers) - nats(causal, his), abs=1e-4)


def test_winobias_pairs_lines_without_brackets() -> None:
    suite = build("winobias")
    assert isinstance(suite, Winobias)
    pairs = [question.options for question in suite.questions()]
    assert pairs[0] == ("the bank sat by the river", "the river sat by the river")


def test_bad_files_are_refused_in_one_line(tmp_path: Path) -> None:
    folder = shutil.copytree(build("winobias").files, tmp_path / "winobias")
    suite = Winobias(str(folder))
    (folder / "anti_stereotyped_type1.txt").write_text("1 one\n", encoding="utf-8")
    with pytest.raises(UserError, match=r"1 sentences, but pro_stereotyped_type1.txt has 2"):
        suite.questions()
    (folder / "anti_stereotyped_type1.txt").unlink()
    with pytest.raises(UserError, match="has no counterpart"):
        suite.questions()
    broken = tmp_path / "set.json"
    broken.write_text('{"data": {"intrasentence": [{"id": 1}]}}', encoding="utf-8")
    with pytest.raises(UserError, match="intrasentence item 1: expected id, bias_type"):
        Stereoset(str(broken)).questions()
    broken.write_text('{"data": {"intrasentence": 3}}', encoding="utf-8")
    with pytest.raises(UserError, match="data with lists intrasentence and intersentence, or"):
        Stereoset(str(broken)).questions()
    labels = ("stereotype", "anti-stereotype", "unrelated")
    empty = [{"gold_label": label, "sentence": " "} for label in labels]
    item = {"id": 1, "bias_type": "x", "target": "t", "context": "c", "sentences": empty}
    broken.write_text(json.dumps({"data": {"intrasentence": [item]}}), encoding="utf-8")
    with pytest.raises(UserError, match="intrasentence item 1: no sentence in stereotype or"):
        Stereoset(str(broken)).questions()
    broken.write_text('{"data": []}', encoding="utf-8")
    with pytest.raises(UserError, match="expected StereoSet's layout"):
        Stereoset(str(broken)).questions()
    with pytest.raises(UserError, match="no such file"):
        Winogender(str(folder)).questions()
