"""Sentence similarity, against cosines and a baseline computed by hand."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.stats import spearmanr

from foreword.errors import UserError
from foreword.evaluation.loaded import LoadedModel
from foreword.evaluation.statistics import rank_correlation
from foreword.probes._contract import Finding, ProbedModel
from foreword.probes.sentence_similarity import SentenceSimilarity
from foreword.runs.trained_model import TrainedModel
from foreword.testing.models import tiny_model

# Overlap of words: 3/3, 2/4, 1/5 and 0/4; the ratings agree in all but the last two.
PAIRS = [
    ("The cat ran", "the cat ran!", 5.0),
    ("the cat ran", "the cat slept", 3.5),
    ("the cat ran", "a cat slept", 1.0),
    ("the cat", "a dog", 2.0),
]


COLUMNS = "sentence1 sentence2 score"


def write(file: Path, rows: list[tuple[Any, ...]], header: str = COLUMNS) -> Path:
    lines = ["\t".join(header.split()), *("\t".join(map(str, row)) for row in rows)]
    file.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return file


def trained(family: str) -> TrainedModel:
    texts = [text for one, other, _ in PAIRS for text in (one, other)]
    return tiny_model(family, texts)


def measure(model: TrainedModel, file: Path, **settings: Any) -> Finding:
    return SentenceSimilarity(str(file), **settings).measure([ProbedModel("m", model)])


def test_the_baseline_is_the_overlap_of_words(tmp_path: Path) -> None:
    row = measure(trained("decoder"), write(tmp_path / "a.tsv", PAIRS)).rows[0]
    assert row["baseline"] == pytest.approx(0.8) and row["pairs"] == 4  # ranks 4 3 2 1, 4 3 1 2


@pytest.mark.parametrize("family", ["encoder", "decoder", "lstm"])
def test_vectors_are_means_over_tokens_without_special_tokens(tmp_path: Path, family: str) -> None:
    model = trained(family)
    found = measure(model, write(tmp_path / "a.tsv", PAIRS))
    cosines = []
    for one, other, _ in PAIRS:
        means = []
        for text in (one, other):
            states = LoadedModel(model).encode(text)  # with [CLS] and [SEP] in the encoder
            states = states[1:-1] if family == "encoder" else states
            means.append(states.mean(0))
        a, b = means
        cosines.append(a @ b / np.linalg.norm(a) / np.linalg.norm(b))
    expected = spearmanr(cosines, [rating for *_, rating in PAIRS]).statistic
    assert found.details[-1]["spearman"] == found.scores["m"] == pytest.approx(expected)
    assert [row["layer"] for row in found.details] == ["alone", "0", "1", "2"]


def test_a_layer_can_be_named(tmp_path: Path) -> None:
    file = write(tmp_path / "a.tsv", PAIRS)
    found = measure(trained("encoder"), file, layer=1)
    assert found.rows[0]["layer"] == "1"
    assert found.rows[0]["spearman"] == found.details[2]["spearman"]
    with pytest.raises(UserError, match="no layer 9: it has layers 0 to 2"):
        measure(trained("encoder"), file, layer=9)


def test_equal_cosines_have_no_correlation(tmp_path: Path) -> None:
    same = [("the cat", "the cat", rating) for rating in (1, 2, 3)]
    row = measure(trained("decoder"), write(tmp_path / "a.tsv", same)).rows[0]
    assert row["spearman"] is row["low"] is row["high"] is row["baseline"] is None


@pytest.mark.parametrize(
    ("rows", "header", "message"),
    [
        (
            PAIRS,
            "a b score",
            "probe.text: .*a.tsv has no column 'sentence1'; there is: a, b",
        ),
        ([("a", "b", "high")], COLUMNS, "a.tsv:2: expected a number in score"),
        ([("a", "b", "nan")], COLUMNS, "a.tsv:2: expected a number in score"),
        ([("a", "", 1)], COLUMNS, "a.tsv:2: a sentence or the rating"),
        ([("a", "b")], COLUMNS, "a.tsv:2: 2 columns, and 3 columns named"),
        ([("a", "b", 1)] * 3, COLUMNS, "two different ratings"),
    ],
)
def test_broken_files_are_refused_in_one_line(
    tmp_path: Path, rows: list[tuple[Any, ...]], header: str, message: str
) -> None:
    with pytest.raises(UserError, match=message) as error:
        SentenceSimilarity(str(write(tmp_path / "a.tsv", rows, header))).read()
    assert "\n" not in str(error.value)


def test_the_command_says_which_file_it_needs(
    make_run: Callable[[str], Path], refused: Callable[..., str]
) -> None:
    run = make_run("decoder")
    for name in ("sentence_similarity", "sts_b"):
        needed = f"{name}: requires --set file=..."
        assert needed in refused("probe", run, name)


def test_rank_correlations_equal_scipys_with_ties_too() -> None:
    rng = np.random.default_rng(0)
    for high in (3, 8, 1_000):
        one, other = rng.integers(0, high, (2, 30))
        expected = spearmanr(one, other).statistic
        assert rank_correlation(one, other / 3) == pytest.approx(expected)
    assert rank_correlation(one, np.zeros(30)) is None
    assert math.isnan(rank_correlation(one, np.where(one > 5, math.nan, 1.0)) or 0.0)
