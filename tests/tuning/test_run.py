from __future__ import annotations

import itertools
import math
import random
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
import torch

from foreword.errors import NotFiniteError, TrainingStoppedError, UserError
from foreword.models.word_vectors import WordVectors
from foreword.runs.run_folder import open_run
from foreword.runs.trained_model import TrainedModel
from foreword.tables.examples import Labelled
from foreword.tuning.features import ExampleBatches
from foreword.tuning.input_template import template_of
from foreword.tuning.network import HeadNetwork
from foreword.tuning.scores import Scores, single, summarise
from foreword.tuning.settings import TuneSettings
from foreword.tuning.starting_network import build_network, initialise_new_tokens
from foreword.tuning.strategies.frozen import Frozen
from foreword.tuning.strategies.full import Full
from foreword.tuning.tasks.classify import Classify
from foreword.tuning.tune import variants
from foreword.tuning.tune_result import TuneResult, as_json, save_network
from foreword.types import Array
from tests.tuning.runs import LAYOUTS, make_run, reviews, tune

TASK = Classify()
FAST = TuneSettings(strategy=Full(lr=4.5e-3), seeds=1, epochs=3, batch=24, precision="fp32")


@pytest.fixture
def trained(tmp_path: Path) -> TrainedModel:
    return open_run(make_run(tmp_path), "cpu")


def test_opening_a_run_draws_no_numbers_for_weights_that_it_has(tmp_path: Path) -> None:
    run, before = make_run(tmp_path), torch.get_rng_state()
    trained = open_run(run, "cpu")
    assert torch.equal(torch.get_rng_state(), before)
    assert all(parameter.isfinite().all() for parameter in trained.model.parameters())


def weights(result: TuneResult) -> dict[str, torch.Tensor]:
    return dict(result.network.named_parameters())


@pytest.mark.product(only=("encoder", "decoder"))
@pytest.mark.parametrize("layout", [*LAYOUTS, "word_vectors"])
def test_fine_tuning_learns_separable_classes(tmp_path: Path, layout: str) -> None:
    trained = open_run(make_run(tmp_path, layout), "cpu")
    slow = {"encoder_decoder": (Full(lr=3e-3), 4), "word_vectors": (Full(), 8)}  # to learn
    strategy, epochs = slow.get(layout, (FAST.strategy, FAST.epochs))
    settings = replace(FAST, strategy=strategy, epochs=epochs)
    result = tune(trained, TASK, reviews(300, 1), reviews(100, 2), settings)
    assert result.rows[0]["accuracy"] > 0.9
    assert result.rows[-1]["accuracy"] == 0.5
    assert result.rows[-1]["matthews"] == 0


@pytest.mark.full
def test_shuffled_labels_teach_nothing(trained: TrainedModel) -> None:
    train = reviews(300, 1)
    labels = [example.label for example in train]
    random.Random(0).shuffle(labels)
    shuffled = [e._replace(label=label) for e, label in zip(train, labels, strict=True)]
    result = tune(trained, TASK, shuffled, reviews(100, 2), FAST)
    assert result.rows[0]["accuracy"] < 0.75


@pytest.mark.full
def test_pairs_are_told_apart_by_their_order(trained: TrainedModel) -> None:
    """The telling word stands in the first text or in the second: segments or order tell."""

    def pairs(count: int, seed: int) -> list[Labelled]:
        texts = [e.text for e in reviews(count, seed)]
        return [
            Labelled(text, "first", "the day") if n % 4 < 2 else Labelled("the day", "second", text)
            for n, text in enumerate(texts)
        ]

    result = tune(trained, TASK, pairs(300, 1), pairs(100, 2), FAST)
    assert result.rows[0]["accuracy"] > 0.9


def test_frozen_leaves_the_backbone_bit_for_bit(trained: TrainedModel) -> None:
    settings = TuneSettings(strategy=Frozen(lr=1e-2), seeds=1, epochs=1)
    result = tune(trained, TASK, reviews(64, 1), reviews(32, 2), settings)
    before = dict(trained.model.backbone.named_parameters())
    after = weights(result)
    assert all(torch.equal(p, after[f"backbone.{name}"]) for name, p in before.items())
    assert after["head.1.bias"].abs().sum() > 0


def test_a_frozen_backbone_is_still_without_dropout_after_an_epoch(
    trained: TrainedModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    modes = []
    outputs = HeadNetwork.outputs

    def noting(self: HeadNetwork, features: torch.Tensor, windows: Any) -> torch.Tensor:
        modes.append((self.backbone.training, self.head.training))
        return outputs(self, features, windows)

    monkeypatch.setattr(HeadNetwork, "outputs", noting)
    monkeypatch.setattr("foreword.tuning.trainings.fits_in_memory", lambda *parts: False)
    tune(trained, TASK, reviews(8, 1), reviews(4, 2), replace(FAST, strategy=Frozen(), epochs=2))
    assert modes == [(False, True), (False, False)] * 2  # a step, then the dev examples


def test_full_changes_a_copy_of_the_backbone(trained: TrainedModel) -> None:
    before = {n: p.clone() for n, p in trained.model.named_parameters()}
    result = tune(trained, TASK, reviews(64, 1), reviews(32, 2), FAST)
    assert all(torch.equal(p, before[n]) for n, p in trained.model.named_parameters())
    name = "backbone.stack.blocks.0.attention.query.weight"
    assert not torch.equal(weights(result)[name], before[name])


def test_only_tokens_unused_in_pretraining_are_initialised_again(tmp_path: Path) -> None:
    trained = open_run(make_run(tmp_path, "decoder"), "cpu")
    template = template_of(trained.recipe, trained.vocab, None)
    network = build_network(trained, TASK, ("bad", "good"), None)
    initialise_new_tokens(network, template.fresh, 1)
    before = trained.model.backbone.embedding.token.weight
    changed = (network.backbone.embedding.token.weight != before).any(1).nonzero().flatten()
    assert changed.tolist() == sorted(template.fresh)
    assert len(template.fresh) == 3


@pytest.mark.parametrize("layout", ["encoder", "decoder"])
def test_the_auxiliary_loss_applies_to_decoders_only(tmp_path: Path, layout: str) -> None:
    trained = open_run(make_run(tmp_path, layout), "cpu")
    settings = replace(FAST, epochs=1)
    results = [
        tune(trained, Classify(auxiliary=share), reviews(32, 1), reviews(8, 2), settings)
        for share in (0.0, 0.5)
    ]
    losses = [result.epochs[0].about["train_loss"] for result in results]
    if layout == "decoder":  # half the nats of a token, which start at chance
        chance_loss = 0.5 * math.log(trained.vocab.size)
        assert losses[1] - losses[0] == pytest.approx(chance_loss, rel=0.1)
    else:
        assert losses[1] == losses[0]
    assert results[1].network.token_head is None


def test_frozen_leaves_a_decoder_bit_for_bit(tmp_path: Path) -> None:
    trained = open_run(make_run(tmp_path, "decoder"), "cpu")
    settings = TuneSettings(strategy=Frozen(lr=1e-2), seeds=1, epochs=1)
    result = tune(trained, TASK, reviews(64, 1), reviews(32, 2), settings)
    after = weights(result)
    before = trained.model.backbone.named_parameters()
    assert all(torch.equal(p, after[f"backbone.{name}"]) for name, p in before)


def test_from_scratch_ignores_the_pretrained_weights(tmp_path: Path) -> None:
    settings = TuneSettings(from_scratch=True, seeds=1, epochs=1)
    results = []
    for n in range(2):
        trained = open_run(make_run(tmp_path / str(n)), "cpu")
        with torch.no_grad():
            for p in trained.model.parameters():
                p.add_(n)
        results.append(tune(trained, TASK, reviews(64, 1), reviews(32, 2), settings))
    assert results[0].rows == results[1].rows
    assert results[0].rows[0].start == "from scratch"


def test_results_depend_on_the_seed_alone(tmp_path: Path) -> None:
    run = make_run(tmp_path, dropout=0.1, attention_dropout=0.1)
    trained = open_run(run, "cpu")
    settings = TuneSettings(seeds=2, epochs=1)
    results = []
    for n in range(2):
        torch.manual_seed(n)  # whatever went before
        state = torch.get_rng_state()
        results.append(tune(trained, TASK, reviews(64, 1), reviews(32, 2), settings))
        assert torch.equal(state, torch.get_rng_state())
    first, second = results
    assert first.epochs == second.epochs
    assert all(torch.equal(p, weights(second)[n]) for n, p in weights(first).items())
    assert first.epochs[0].about["train_loss"] != first.epochs[1].about["train_loss"]


@pytest.mark.full
def test_each_variant_gives_a_row(trained: TrainedModel) -> None:
    steps: list[tuple[int, int, str]] = []
    compared = variants(TuneSettings(seeds=2, epochs=2, batch=32))
    report = {"report": lambda *step: steps.append(step)}
    result = tune(trained, TASK, reviews(64, 1), reviews(32, 2), compared, **report)
    names = [(row.start, row.strategy) for row in result.rows]
    assert names == [
        ("pretrained", "full"),
        ("pretrained", "frozen"),
        ("from scratch", "full"),
        ("no network", "bag of words (TF-IDF, logistic regression)"),
        ("no model", "majority class"),
    ]
    assert [done for done, _, _ in steps] == list(range(1, 27))
    assert {total for _, total, _ in steps} == {
        26
    }  # 24, and two in which a frozen backbone computes features
    assert [note for _, _, note in steps].count("pretrained, frozen: computing features") == 2
    finals = [e for e in result.epochs if e.strategy == "frozen" and e.about["epoch"] == 2]
    scores = [final["accuracy"] for final in finals]
    assert len(scores) == 2
    assert result.rows[1]["accuracy"] == pytest.approx(np.mean(scores))
    assert result.rows[1].metrics["accuracy"].std == pytest.approx(np.std(scores, ddof=1))
    margins = as_json(result, "n", "")["margins"]
    assert [margin["over"] for margin in margins] == [
        "pretrained, frozen",
        "from scratch, full",
        "bag of words (TF-IDF, logistic regression)",
        "majority class",
    ]
    for margin, row in zip(margins, result.rows[1:], strict=True):
        assert margin["name"] == "pretrained, full"
        difference = result.rows[0]["accuracy"] - row["accuracy"]
        assert margin["difference"] == pytest.approx(difference)


def test_the_last_epoch_is_reported_not_the_best() -> None:
    plain = {"epoch": 2, "lr": 1e-4, "trained_parameters": 9, "skipped_steps": 0}
    finals = [
        single("pretrained", "full", {"accuracy": score}, seed=seed, **plain)
        for seed, score in ((1, 0.5), (2, 0.7))
    ]
    row = summarise(finals)
    assert row["accuracy"] == pytest.approx(0.6)
    assert row.metrics["accuracy"].std == pytest.approx(0.1414, abs=1e-4)
    assert summarise(finals[:1]).metrics["accuracy"].std is None
    assert Scores.of(row.as_row()) == row


def test_an_unseen_label_is_refused(trained: TrainedModel) -> None:
    dev = [*reviews(4, 2), Labelled("the day", "odd", source="dev.tsv:17")]
    with pytest.raises(UserError, match=r"dev.tsv:17: labels that no .*'odd' \(1\).*bad, good"):
        tune(trained, TASK, reviews(8, 1), dev, FAST)


def test_one_label_or_no_example_is_refused(trained: TrainedModel) -> None:
    same = [e._replace(label="good") for e in reviews(8, 1)]
    with pytest.raises(UserError, match="at least two labels; all 8 are 'good'"):
        tune(trained, TASK, same, same, FAST)
    with pytest.raises(UserError, match="no dev example"):
        tune(trained, TASK, reviews(8, 1), [], FAST)


@pytest.mark.parametrize(("windows", "cut"), [("cut", 4), ("mean", 0)])
def test_long_texts_are_read_in_windows_or_cut_with_a_warning(
    trained: TrainedModel, windows: Any, cut: int
) -> None:
    long, warnings = [Labelled("the film was " * 40, label) for label in ("good", "bad")], []
    settings = TuneSettings(seeds=1, epochs=1, max_length=48)
    examples = [*reviews(8, 1), *long], [*reviews(8, 2), *long]
    task = replace(TASK, windows=windows)
    result = tune(trained, task, *examples, settings, warn=warnings.append)
    assert result.examples == {
        "train": 10, "dev": 10, "cut": cut, "in_windows": 4 - cut, "skipped": 0
    }  # fmt: skip
    assert ["cut to 48 tokens" in line for line in warnings] == [True] * (cut > 0)


def test_a_diverging_run_stops_with_a_hint(trained: TrainedModel) -> None:
    with torch.no_grad():
        trained.model.backbone.embedding.token.weight.fill_(float("inf"))
    with pytest.raises(TrainingStoppedError, match=r"not finite.*; a lower --lr"):
        tune(trained, TASK, reviews(128, 1), reviews(8, 2), FAST)


class Numbers:
    """Examples whose batches are their numbers, two to a micro-batch."""

    def batches(self, numbers: Array, device: str, epoch: int) -> list[Any]:
        return np.array_split(numbers, -(-len(numbers) // 2))


@pytest.mark.parametrize("count", [1, 2, 3, 4, 5, 9])
def test_each_epoch_has_every_example_once_in_its_own_order(count: int) -> None:
    batches = ExampleBatches(cast("Any", Numbers()), np.arange(count), 4, 1, "cpu")
    steps = list(itertools.islice(batches.ahead(0), 3 * -(-count // 4)))
    order = [int(n) for step in steps for micro_batch in step for n in micro_batch]
    epochs = [order[n : n + count] for n in range(0, 3 * count, count)]
    assert all(sorted(epoch) == list(range(count)) for epoch in epochs) and len(order) == 3 * count
    assert batches.epochs(len(steps)) == 3
    assert count < 5 or epochs[0] != epochs[1]
    sizes = [sum(map(len, step)) for step in steps]
    assert max(sizes) - min(sizes) <= 1 and max(sizes) <= 4


def test_the_learning_rate_follows_the_width(trained: TrainedModel, tmp_path: Path) -> None:
    wide = open_run(make_run(tmp_path / "wide", d_model=256), "cpu")
    narrow = trained.recipe.model
    assert Full().peak_lr(wide.recipe.model) == pytest.approx(2.7e-4)
    assert Full().peak_lr(narrow) == 1e-3
    assert Full().peak_lr(WordVectors()) == 1e-2
    assert Full(lr=2e-5).peak_lr(narrow) == 2e-5
    assert Frozen().peak_lr(narrow) == Frozen().peak_lr(wide.recipe.model) == 1e-3


def test_a_network_that_is_not_finite_is_neither_scored_nor_saved(
    trained: TrainedModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    train, dev = reviews(16, 1), reviews(8, 2)
    result = tune(trained, TASK, train, dev, TuneSettings(seeds=1, epochs=1))
    honest = torch.optim.AdamW.step

    def step(self: torch.optim.AdamW, *args: object) -> None:
        honest(self, *args)
        self.param_groups[0]["params"][0].data[0, 0] = math.inf

    monkeypatch.setattr(torch.optim.AdamW, "step", step)
    with pytest.raises(TrainingStoppedError, match=r"weights: .* not finite .*; a lower --lr"):
        tune(trained, TASK, train, dev, TuneSettings(seeds=1, epochs=1))
    next(result.network.parameters()).data.view(-1)[0] = math.nan
    with pytest.raises(NotFiniteError, match="weights: "):
        save_network(result, tmp_path / "tuned")
    assert not (tmp_path / "tuned").exists()
