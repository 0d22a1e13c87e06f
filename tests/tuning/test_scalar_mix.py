"""Layers mixed by learned weights: against the formula, and end to end."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch

from foreword.cli.main import run as foreword
from foreword.errors import UserError
from foreword.runs.run_folder import open_run
from foreword.tuning.network import ScalarMix
from foreword.tuning.settings import TuneSettings
from foreword.tuning.starting_network import build_network
from foreword.tuning.strategies.frozen import Frozen
from foreword.tuning.strategies.full import Full
from foreword.tuning.tasks.classify import Classify
from foreword.tuning.tasks.regress import Regress
from foreword.tuning.tune_result import save_network
from foreword.tuning.tuned_model import load_tuned
from tests.tuning.runs import make_run, reviews, tune

MIXED = Classify(mix_layers=True)
FAST = TuneSettings(strategy=Full(lr=3e-3), seeds=1, epochs=2, precision="fp32")


def test_the_scalar_mix_equals_its_formula() -> None:
    scalar_mix = ScalarMix(3)
    with torch.no_grad():
        scalar_mix.weights.copy_(torch.tensor([0.5, -1.0, 2.0]))
        scalar_mix.gamma.fill_(1.7)
    layers = [torch.randn(4, 5) for _ in range(3)]
    exp = np.exp([0.5, -1.0, 2.0])
    expected = 1.7 * sum(float(s) * x for s, x in zip(exp / exp.sum(), layers, strict=True))
    torch.testing.assert_close(scalar_mix(torch.stack(layers)), expected)
    assert list(scalar_mix.learned().values()) == pytest.approx([*(exp / exp.sum()), 1.7])


def test_the_scalar_mix_begins_as_the_mean() -> None:
    layers = torch.randn(4, 4, 5)
    torch.testing.assert_close(ScalarMix(4)(layers), layers.mean(0))


@pytest.mark.product(few=1)
@pytest.mark.parametrize("layout", ["encoder", "bidirectional", "decoder", "recurrent"])
def test_layers_of_a_single_stack_are_mixed(tmp_path: Path, layout: str) -> None:
    trained = open_run(make_run(tmp_path, layout), "cpu")
    result = tune(trained, MIXED, reviews(48, 1), reviews(16, 2), FAST)
    row = {name: score.mean for name, score in result.rows[0].layers.items()}
    shares = [row[f"layer_{n}"] for n in range(3)]
    assert sum(shares) == pytest.approx(1.0)
    assert shares != pytest.approx([1 / 3] * 3, abs=1e-5)
    assert row["layer_gamma"] != pytest.approx(1.0, abs=1e-5)
    scalar_mix = result.network.scalar_mix
    assert scalar_mix is not None
    assert list(scalar_mix.learned().values()) == pytest.approx([*shares, row["layer_gamma"]])


CHARACTERS = {"width": 4, "filters": ((1, 8), (3, 8)), "highways": 1, "length": 12}


@pytest.mark.product(few=1)
@pytest.mark.parametrize("characters", [False, True])
def test_layers_of_a_frozen_backbone_are_cached_features(tmp_path: Path, characters: bool) -> None:
    more = {"characters": characters, "spelling": CHARACTERS}
    trained = open_run(make_run(tmp_path, "bidirectional", **more), "cpu")
    settings = TuneSettings(strategy=Frozen(lr=1e-2), seeds=1, epochs=2)
    result = tune(trained, MIXED, reviews(64, 1), reviews(32, 2), settings)
    after = dict(result.network.named_parameters())
    before = trained.model.backbone.named_parameters()
    assert all(torch.equal(p, after[f"backbone.{name}"]) for name, p in before)
    assert after["scalar_mix.weights"].abs().max() > 1e-3


def test_a_saved_scalar_mix_loads_back_with_equal_outputs(tmp_path: Path) -> None:
    trained = open_run(make_run(tmp_path / "run", "bidirectional"), "cpu")
    result = tune(trained, MIXED, reviews(48, 1), reviews(16, 2), FAST)
    save_network(result, tmp_path / "tuned")
    again = load_tuned(tmp_path / "tuned", "cpu")
    assert again.network.scalar_mix is not None
    for name, p in again.network.named_parameters():
        assert torch.equal(p, dict(result.network.named_parameters())[name])
    texts = [example.text for example in reviews(16, 2)]
    right = [example.label for example in reviews(16, 2)]
    predicted = again.predict(texts)[0]
    agreed = np.mean([a == b for a, b in zip(predicted, right, strict=True)])
    assert agreed == pytest.approx(result.rows[0]["accuracy"])


def test_without_mix_layers_a_network_has_no_scalar_mix(tmp_path: Path) -> None:
    trained = open_run(make_run(tmp_path), "cpu")
    assert build_network(trained, Classify(), ("a", "b"), None).scalar_mix is None
    assert (
        build_network(trained, Regress(mix_layers=True), ("0.0", "1.0"), None).scalar_mix
        is not None
    )


def test_an_encoder_decoder_is_refused(tmp_path: Path) -> None:
    trained = open_run(make_run(tmp_path, "encoder_decoder"), "cpu")
    with pytest.raises(UserError, match=r"task\.mix_layers: is for models of one stack"):
        tune(trained, MIXED, reviews(8, 1), reviews(8, 2), FAST)


def test_layers_of_several_widths_are_refused(tmp_path: Path) -> None:
    trained = open_run(make_run(tmp_path, "recurrent", d_embedding=16), "cpu")
    with pytest.raises(UserError, match=r"requires layers of one width; .* are 16, 32, 32"):
        tune(trained, MIXED, reviews(8, 1), reviews(8, 2), FAST)


@pytest.mark.full
def test_tune_shows_the_layer_weights(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    files = []
    for name, count in (("train", 32), ("dev", 16)):
        lines = ["text\tlabel", *(f"{e.text}\t{e.label}" for e in reviews(count, count))]
        files.append(tmp_path / f"{name}.tsv")
        files[-1].write_text("\n".join(lines), encoding="utf-8")
    run = make_run(tmp_path / "run", "bidirectional")
    words = [
        "tune",
        "--strategy=full",
        str(run),
        "--train",
        str(files[0]),
        "--dev",
        str(files[1]),
        "--device",
        "cpu",
    ]
    more = ["--set", "task.mix_layers=true", "--compare", "--seeds", "2", "--epochs", "1"]
    assert foreword([*words, *more, "--name", "mixed"]) == 0
    captured = capsys.readouterr()
    assert "layer_0" not in captured.out
    shown = "layer weights, embeddings first: 0.3"
    assert captured.err.count(shown) == 3
    written = json.loads((run / "evaluations" / "tune-classify-mixed.json").read_text("utf-8"))
    assert written["settings"]["task"]["mix_layers"] is True
    assert {"layer_0", "layer_1", "layer_2", "layer_gamma", "layer_0_std"} <= set(
        written["rows"][0]
    )
