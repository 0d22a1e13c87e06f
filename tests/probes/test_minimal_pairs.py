"""Minimal pairs, against probabilities computed by hand and against scipy."""

from __future__ import annotations

import gzip
import json
import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.stats import binomtest

from foreword.errors import UserError
from foreword.evaluation.scorer import padded
from foreword.evaluation.statistics import bootstrap, wilson
from foreword.probes._contract import Finding, ProbedModel
from foreword.runs import run as running
from foreword.runs.recipe import Recipe
from foreword.runs.run_folder import open_run
from foreword.runs.trained_model import TrainedModel
from foreword.settings import config, kinds
from foreword.settings.kinds import Part
from foreword.testing.models import tiny_model
from tests.train.runs import Quiet

MinimalPairs: Any = kinds.load("probes", "minimal_pairs")

# Unigrams of 8 words: "the" 4/8, "cat" 2/8, "dog" 1/8, "ran" 1/8; a sentence's probability is their
# product.
TEXT = "the the the the cat cat dog ran"
PAIRS = {
    "nouns": [
        ("the cat", "the dog"),  # 4/8 * 2/8 > 4/8 * 1/8: right
        ("dog cat", "cat cat"),  # 1/8 * 2/8 < 2/8 * 2/8: wrong
        ("ran cat", "cat dog"),  # 1/8 * 2/8 = 2/8 * 1/8: a tie
        ("cat the", "ran the"),  # right
    ],
    "verbs": [("the ran", "the cat")],  # wrong
}


def write_pairs(file: Path, paradigms: dict[str, list[tuple[str, str]]]) -> Path:
    rows = [
        {"sentence_good": good, "sentence_bad": bad, "UID": name}
        for name, pairs in paradigms.items()
        for good, bad in pairs
    ]
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return file


@pytest.fixture(scope="module")
def unigrams(tmp_path_factory: pytest.TempPathFactory) -> TrainedModel:
    """Return a model of relative frequencies."""
    folder = tmp_path_factory.mktemp("unigrams")
    file = folder / "text.txt"
    file.write_text(TEXT, encoding="utf-8")
    recipe = config.build(
        Recipe,
        {
            "model": {"kind": "ngram", "order": 1, "smoothing": "maximum_likelihood"},
            "objective": "causal",
            "layout": "decoder",
            "packing": {"kind": "documents", "length": 8, "bos": "<s>", "eos": ""},
            "tokenizer": {"kind": "word", "min_count": 1},
            "prepare": {"heldout": 0.0},
            "train": {"device": "cpu"},
        },
    )
    run = folder / "run"
    running.start(recipe, running.Inputs((str(file),)), run)
    running.train_run(run, Quiet())
    return open_run(run, "cpu")


def measure(trained: TrainedModel, file: Path, limit: int = 0) -> Finding:
    return MinimalPairs(str(file), limit).measure([ProbedModel("m", trained)])


def test_accuracy_is_that_computed_by_hand_and_ties_count_one_half(
    unigrams: TrainedModel, tmp_path: Path
) -> None:
    found = measure(unigrams, write_pairs(tmp_path / "pairs.jsonl", PAIRS))
    accuracies = {row["paradigm"]: (row["accuracy"], row["questions"]) for row in found.rows}
    assert accuracies == {"nouns": (2.5 / 4, 4), "verbs": (0.0, 1), "all": (2.5 / 5, 5)}
    assert [row["correct"] for row in found.predictions] == [1, 0, 0.5, 1, 0]
    assert [row["given"] for row in found.predictions][:3] == ["the cat", "cat cat", ""]
    assert found.scores == {"m": 2.5 / 5} and found.measure == "accuracy"


def test_phenomena_have_means_over_their_paradigms(unigrams: TrainedModel, tmp_path: Path) -> None:
    terms = {"nouns": "agreement", "verbs": "agreement", "mirror": "order"}
    file = write_pairs(tmp_path / "pairs.jsonl", PAIRS | {"mirror": [("the cat", "the ran")]})
    rows = [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]
    rows = [row | {"linguistics_term": terms[row["UID"]]} for row in rows]
    file.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    found = measure(unigrams, file)
    accuracies = {row["paradigm"]: (row["accuracy"], row["questions"]) for row in found.rows}
    assert accuracies["all of agreement"] == (2.5 / 5, 5)
    assert accuracies["all of order"] == (1.0, 1)
    assert accuracies["all"] == (3.5 / 6, 6) and len(accuracies) == 6
    assert found.notes[0].endswith("; ties, which count in part: 1")


def test_a_masked_model_is_scored_by_its_pseudo_log_likelihood(tmp_path: Path) -> None:
    sentences = ["the cat ran", "the dog ran", "cat the"]
    trained = tiny_model("encoder", sentences)
    file = write_pairs(tmp_path / "pairs.jsonl", {"p": [("the cat ran", "the dog ran")]})
    found = measure(trained, file)
    # Each token is masked alone.
    nats = []
    for sentence in sentences[:2]:
        ids = trained.with_bos_and_eos(trained.tokenizer.encode(sentence))
        total = 0.0
        for position in range(1, len(ids) - 1):
            masked = ids.copy()
            masked[position] = trained.vocab.id("[MASK]")
            states = trained.run_backbone(trained.encoding_batch(padded([masked]))).states
            log_probs = trained.logits(states).log_softmax(-1)
            total -= float(log_probs[0, position, ids[position]])
        nats.append(total)
    assert found.rows[0]["accuracy"] == float(nats[0] < nats[1])
    assert found.predictions[0]["scores"] == pytest.approx([-n for n in nats], abs=1e-4)
    assert found.notes[0] == "m: pseudo-log-likelihood, within words from left to right"


def test_unknown_words_make_ties_and_are_noted(
    make_run: Callable[[str], Path], tmp_path: Path
) -> None:
    trained = open_run(make_run("decoder"), "cpu")
    # A long pair beside a short one, so that the batches differ.
    pairs = [("the xyzzy", "the plugh"), ("the bank of the river", "the river of the bank")]
    found = measure(trained, write_pairs(tmp_path / "pairs.jsonl", {"p": pairs}))
    assert found.predictions[0]["correct"] == 0.5
    ties = "ties, which count in part: 1"
    assert found.notes[0] == f"m: log-likelihood; with unknown tokens: 1; {ties}"


def paradigms(files: Path) -> list[str]:
    return list(dict.fromkeys(one.subset for one in MinimalPairs(str(files)).questions()))


def test_limit_takes_evenly_spaced_pairs_of_each_paradigm(tmp_path: Path) -> None:
    file = write_pairs(tmp_path / "pairs.jsonl", PAIRS)
    pairs = [question.options for question in MinimalPairs(str(file), 2).questions()]
    assert pairs == [*PAIRS["nouns"][::2], ("the ran", "the cat")]


def test_folders_patterns_and_compressed_files_are_read(tmp_path: Path) -> None:
    folder = tmp_path / "blimp"
    write_pairs(folder / "nouns.jsonl", {"nouns": PAIRS["nouns"]})
    plain = write_pairs(folder / "verbs.jsonl", {"verbs": PAIRS["verbs"]})
    with gzip.open(folder / "verbs.jsonl.gz", "wb") as file:
        file.write(plain.read_bytes())
    plain.unlink()
    (folder / "SOURCE.txt").write_text("not pairs", encoding="utf-8")
    assert paradigms(folder) == ["nouns", "verbs"]
    assert paradigms(folder / "n*") == ["nouns"]


def test_the_file_names_a_paradigm_without_a_name(tmp_path: Path) -> None:
    file = tmp_path / "agreement.tsv"
    file.write_text("sentence_good\tsentence_bad\nhe runs\the run\n", encoding="utf-8")
    assert paradigms(file) == ["agreement"]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ('{"sentence_good": "a"}\n', r"pairs.jsonl: no column 'sentence_bad'; its"),
        ('{"sentence_good": "a", "sentence_bad": " "}\n', r"pairs.jsonl:1: no sentence"),
        ('{"sentence_good": "a",\n', r"pairs.jsonl:1: not JSON"),
        ("", r"pairs.jsonl: is empty"),
    ],
)
def test_broken_files_are_refused_in_one_line(tmp_path: Path, content: str, message: str) -> None:
    file = tmp_path / "pairs.jsonl"
    file.write_text(content, encoding="utf-8")
    with pytest.raises(UserError, match=message) as error:
        MinimalPairs(str(file)).questions()
    assert "\n" not in str(error.value)


def test_a_command_without_pairs_or_with_an_unsuited_model_is_refused(
    make_run: Callable[[str], Path],
    refused: Callable[..., str],
    tmp_path: Path,
) -> None:
    file = write_pairs(tmp_path / "pairs.jsonl", PAIRS)
    run = make_run("decoder")
    words = ("probe", run, "minimal_pairs")
    assert "minimal_pairs: requires --data, the files of its questions" in refused(*words)
    assert "no such file or folder" in refused(*words, "--set", f"files={tmp_path}/none")
    assert "no .tsv or .csv" in refused(*words, "--set", f"files={run / 'checkpoints'}")
    file.write_text("", encoding="utf-8")
    assert "pairs.jsonl: is empty" in refused(*words, "--set", f"files={file}")


@pytest.mark.parametrize(("correct", "count"), [(0, 7), (3, 10), (50, 100), (12, 12)])
def test_the_wilson_interval_is_scipys(correct: int, count: int) -> None:
    interval = binomtest(correct, count).proportion_ci(0.95, method="wilson")
    assert wilson(correct, count) == pytest.approx((interval.low, interval.high), abs=1e-12)


def test_the_bootstrap_interval_of_a_mean_is_near_the_normal_one() -> None:
    values = np.random.default_rng(0).normal(size=400)

    def mean(indices: Sequence[int]) -> float:
        return float(values[indices].mean())

    error = values.std() / math.sqrt(len(values))
    expected = values.mean() - 1.96 * error, values.mean() + 1.96 * error
    assert bootstrap(mean, len(values), 2_000) == pytest.approx(expected, abs=0.15 * error)


@pytest.mark.parametrize("value", [0.0, 0.1, math.nan])
def test_a_statistic_of_which_all_draws_agree_has_no_interval(value: float) -> None:
    assert bootstrap(lambda indices: value, 5, 20) == (None, None)


def test_settings_come_from_a_table() -> None:
    table = {"kind": "minimal_pairs", "files": "blimp", "limit": 5}
    assert config.build_kind(Part("probes"), table, "probe") == MinimalPairs("blimp", 5)
