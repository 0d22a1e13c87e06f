from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from matplotlib.figure import Figure
from torch import Tensor, nn

from foreword.errors import UserError
from foreword.models.fixed_window import FixedWindow
from foreword.models.lstm import LSTM
from foreword.models.rnn import RNN
from foreword.models.transformer import Transformer
from foreword.nn.init import initialise
from foreword.nn.masks import CausalMask, DocumentMask
from foreword.nn.model import Model, ModelSettings, NeuralBackbone
from foreword.nn.unrolled import unroll
from foreword.probes._contract import Finding, ProbedModel
from foreword.probes._reach import GradientNorms, gradient_norms
from foreword.probes.gradient_reach import FLOOR, GradientReach, _curve, _headline, _plot
from foreword.runs.run_folder import open_run
from foreword.types import Batch, Hidden

WIDTH, LENGTH, VOCAB = 6, 20, 11


class LinearCore(nn.Module):
    """h' = W h + U x: a recurrent layer like torch's, without its tanh."""

    hidden_size, proj_size = WIDTH, 0

    def __init__(self, recurrent: Tensor) -> None:
        super().__init__()
        self.recurrent = nn.Parameter(recurrent)
        self.enters = nn.Parameter(torch.eye(WIDTH, dtype=torch.float64))

    def forward(self, x: Tensor, h: Tensor | None) -> tuple[Tensor, Tensor]:
        before = torch.zeros_like(x[:, 0])[None] if h is None else h
        after = before @ self.recurrent.T + x[:, 0][None] @ self.enters.T
        return after.transpose(0, 1), after


class LinearBackbone(NeuralBackbone):
    def __init__(self, recurrent: Tensor) -> None:
        super().__init__()
        self.settings: ModelSettings = RNN(d_model=WIDTH, layers=1)
        self.embedding = nn.Module()
        self.embedding.token = nn.Embedding(VOCAB, WIDTH, dtype=torch.float64)
        self.core = LinearCore(recurrent)

    def forward(self, batch: Batch, cache: Any = None) -> Hidden:
        return self.with_layer_gradients(batch)

    def with_layer_gradients(self, batch: Batch) -> Hidden:
        cores: Any = [self.core]
        x = self.embedding.token(batch.ids)
        states, nudges = unroll(cores, x, batch.positions == 0, None)
        return Hidden(states, layers=nudges)


def linear(recurrent: Tensor) -> Model:
    torch.manual_seed(1)
    backbone = LinearBackbone(recurrent)
    return Model(backbone, nn.ModuleDict({"token": backbone.build_softmax_head()}))


def batch_of(rows: int = 3, length: int = LENGTH) -> Batch:
    rng = np.random.default_rng(1)
    ids, targets = rng.integers(0, VOCAB, (2, rows, length))
    positions = np.broadcast_to(np.arange(length), ids.shape).copy()
    weights = np.ones(ids.shape, np.float32)
    return Batch(ids, positions, CausalMask(), targets, weights).to("cpu")


def mean(norms: GradientNorms, k: int) -> float:
    return float(np.exp(np.log(norms.norm[norms.distance == k]).mean()))


def test_in_a_linear_network_norms_are_those_of_powers_of_the_recurrent_matrix() -> None:
    recurrent = torch.randn(WIDTH, WIDTH, dtype=torch.float64) / math.sqrt(WIDTH)
    model, batch = linear(recurrent), batch_of()
    actual = gradient_norms(model, batch, layer=1, positions=1)
    states = model.backbone.with_layer_gradients(batch).states[:, -1]
    head = model.token_head
    logits = states @ head.weight.T
    error = torch.softmax(logits, -1) - nn.functional.one_hot(batch.targets[:, -1], VOCAB)
    g = (error @ head.weight).T  # the gradient at t itself, (d_model, rows)
    for k in range(LENGTH):
        expected = (torch.linalg.matrix_power(recurrent.T, k) @ g).norm(dim=0)
        got = torch.from_numpy(actual.norm[actual.distance == k])
        torch.testing.assert_close(got, expected.detach(), rtol=1e-9, atol=0)


@pytest.mark.parametrize("size", [0.5, 1.0, 1.1])
def test_in_a_scaled_rotation_norms_change_by_the_scale_per_step(size: float) -> None:
    rotation, _ = torch.linalg.qr(torch.randn(WIDTH, WIDTH, dtype=torch.float64))
    norms = gradient_norms(linear(size * rotation), batch_of(), layer=1, positions=4)
    for k in range(LENGTH // 2):
        assert mean(norms, k) == pytest.approx(mean(norms, 0) * size**k)
    short = _headline(
        _curve(gradient_norms(linear(size * rotation), batch_of(), layer=1, positions=1))
    )
    assert short["per step"] == pytest.approx(size)
    assert short["reach"] == ("8" if size < 1 else f"{LENGTH - 1} or more")


def built(settings: Any, seed: int = 1) -> Model:
    backbone = settings.build(VOCAB)
    model = Model(backbone, nn.ModuleDict({"token": backbone.build_softmax_head()}))
    initialise(model, seed)
    return model.double().eval()


def test_an_lstm_with_open_gates_reaches_further_than_an_rnn() -> None:
    sizes = {"d_model": 16, "layers": 1}
    plain, gated = built(RNN(**sizes)), built(LSTM(**sizes))
    with torch.no_grad():
        for model in (plain, gated):
            model.backbone.core.weight_hh_l0 *= 0.5
        gated.backbone.core.bias_ih_l0[16:32] = 3.0  # it forgets a twentieth a step
    falls = []
    for model in (plain, gated):
        norms = gradient_norms(model, batch_of(length=40), 1, 4)
        falls.append(mean(norms, 20) / mean(norms, 1))
    assert falls[1] > 1e3 * falls[0]


def test_norms_are_zero_beyond_a_fixed_window() -> None:
    norms = gradient_norms(built(FixedWindow(d_model=8, window=3)), batch_of(), 0, 4)
    assert (norms.norm[norms.distance >= 3] == 0).all()
    assert (norms.norm[norms.distance < 3] > 0).all()


def test_states_of_the_last_layer_have_no_gradient_from_later_positions() -> None:
    model = built(Transformer(d_model=8, layers=2, heads=2, assumes_causal_mask=True))
    batch = batch_of()
    top, first = gradient_norms(model, batch, 2, 4), gradient_norms(model, batch, 0, 4)
    assert (top.norm[top.distance > 0] == 0).all()
    assert (first.norm > 0).all()
    with pytest.raises(UserError, match="layers 0 to 2"):
        gradient_norms(model, batch, 3, 4)


def test_norms_below_single_precision_are_not_zero() -> None:
    identity = torch.eye(WIDTH, dtype=torch.float64)
    norms = gradient_norms(linear(1e-3 * identity), batch_of(), 1, 1)
    assert 0 < mean(norms, LENGTH - 1) < 1e-45  # beneath single precision


def test_gradients_do_not_cross_documents_of_a_row() -> None:
    batch = batch_of()
    positions = batch.positions.clone()
    positions[:, 12:] -= 12
    documents = (torch.arange(LENGTH) >= 12).long().expand(3, -1)
    mask = CausalMask() & DocumentMask(documents, documents)
    norms = gradient_norms(
        built(RNN(d_model=8)), replace(batch, positions=positions, mask=mask), 1, 4
    )
    assert norms.distance.max() <= 11
    assert (norms.norm > 0).all()


def test_a_bidirectional_model_is_measured_in_its_forward_direction(
    make_run: Callable[[str], Path], text: Path
) -> None:
    def look(family: str) -> Finding:
        run = make_run(family)
        one = ProbedModel(family, open_run(run, "cpu"), (str(text),))
        return GradientReach(rows=2, positions=2).measure([one])

    elmo, encoder = look("elmo"), look("encoder")
    assert elmo.rows[0]["layer"] == 1
    assert all(row["zero"] == 0 for row in elmo.details)
    ahead = "predictions also depend on later positions"
    assert any(ahead in note for note in encoder.notes)
    assert not any(ahead in note for note in elmo.notes)


def test_the_plot_ends_at_the_floor() -> None:
    figure = Figure(layout="constrained")
    falls = {"plain": 1e-3, "gated": 0.9, "gone": 0.0}
    details = [
        {"run": run, "layer": 1, "k": k, "mean": fall**k, "low": fall**k / 2, "high": 2 * fall**k}
        for run, fall in falls.items()
        for k in range(20)
    ]
    _plot(figure, details)
    (axes,) = figure.axes
    assert axes.get_ylim() == pytest.approx((FLOOR, 6))
    assert f"down to {FLOOR:g} of the largest" in axes.get_ylabel()
    looks = {(line.get_marker(), line.get_linestyle()) for line in axes.lines}
    assert len(looks) == len(falls)


def test_settings_out_of_range_are_refused() -> None:
    for wrong in ({"rows": 0}, {"positions": 0}, {"layer": -1}, {"length": 1}):
        with pytest.raises(ValueError, match=next(iter(wrong))):
            GradientReach(**wrong)
