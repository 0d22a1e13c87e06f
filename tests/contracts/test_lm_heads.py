"""What every LM head promises, for every file in `nn/lm_heads/`; the adaptive has an oracle."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from foreword.errors import UserError
from foreword.models.lstm import LSTM
from foreword.nn.lm_heads.adaptive import Adaptive, AdaptiveHead
from foreword.nn.model import Model
from foreword.runs.recipe import load_recipe
from foreword.settings import kinds
from foreword.types import Batch, Hidden

from .cases import vocab

VOCAB, D_MODEL, D_EMBEDDING = 61, 16, 12
SETTINGS: dict[str, list[dict[str, Any]]] = {
    "softmax": [{}, {"bias": True}],
    "adaptive": [{"cutoffs": (20, 45), "factor": 1.0}, {"cutoffs": (7,), "factor": 2.0}],
}
CASES = [
    (kind, settings, is_tied)
    for kind in kinds.names("nn/lm_heads")
    for settings in SETTINGS.get(kind, [{}])
    for is_tied in (False, True)
    if not (is_tied and settings.get("factor", 1) > 1)
]
every_output = pytest.mark.parametrize(("kind", "settings", "is_tied"), CASES)


def build(kind: str, settings: dict[str, Any], is_tied: bool, **more: Any) -> Model:
    output = kinds.load("nn/lm_heads", kind)(**settings)
    model = LSTM(d_model=D_MODEL, layers=1, tied=is_tied, lm_head=output, dropout=0.0, **more)
    backbone = model.build(VOCAB)
    made = Model(backbone, nn.ModuleDict({"token": backbone.build_token_head()}))
    torch.manual_seed(1)
    for parameter in made.parameters():
        nn.init.normal_(parameter, std=0.3)
    return made


def batch() -> tuple[Hidden, Batch]:
    """States of three rows of seven positions, some of weight 0."""
    torch.manual_seed(2)
    states = torch.randn(3, 7, D_MODEL, requires_grad=True)
    targets = torch.randint(0, VOCAB, (3, 7))
    weights = (torch.rand(3, 7) < 0.8) * torch.rand(3, 7)
    return Hidden(states), Batch(targets, targets, None, targets, weights)


@every_output
@pytest.mark.parametrize("d_embedding", [None, D_EMBEDDING])
def test_the_loss_equals_that_of_the_full_distribution(
    kind: str, settings: dict[str, Any], is_tied: bool, d_embedding: int | None
) -> None:
    """Values and gradients are equal, although positions of weight 0 are left out."""
    model = build(kind, settings, is_tied, d_embedding=d_embedding)
    head, (hidden, given) = model.token_head, batch()
    learned = [hidden.states, *(p for p in head.parameters())]

    def gradients(total: Tensor) -> list[Tensor]:
        actual = torch.autograd.grad(total, learned, allow_unused=True)
        return [
            torch.zeros_like(p) if g is None else g for p, g in zip(learned, actual, strict=True)
        ]

    loss = head.loss(hidden, given)
    log_probs = head(hidden.states).log_softmax(-1)
    assert log_probs.shape == (3, 7, VOCAB)
    expected = -(log_probs.gather(2, given.targets[..., None])[..., 0] * given.weights).sum()
    torch.testing.assert_close(loss.total, expected)
    torch.testing.assert_close(loss.count, given.weights.sum())
    for ours, theirs in zip(gradients(loss.total), gradients(expected), strict=True):
        torch.testing.assert_close(ours, theirs, atol=1e-5, rtol=1e-4)


@every_output
def test_embeddings_are_shared_only_if_tied(
    kind: str, settings: dict[str, Any], is_tied: bool
) -> None:
    model = build(kind, settings, is_tied)
    shared = set(model.backbone.embedding.parameters()) & set(model.heads.parameters())
    assert bool(shared) == is_tied
    own = sum(p.numel() for p in set(model.heads.parameters()) - shared)
    assert own < VOCAB * D_MODEL if is_tied else own > 0


def theirs_of(head: AdaptiveHead, cutoffs: tuple[int, ...], factor: float) -> nn.Module:
    """Return PyTorch's module with the weights of `head`."""
    theirs = nn.AdaptiveLogSoftmaxWithLoss(D_MODEL, VOCAB, list(cutoffs), div_value=factor)
    weights = [torch.cat([head.cluster_layers[0].weight, head.clusters.weight])]
    for narrow, wide in zip(head.projections, head.cluster_layers[1:], strict=True):
        weights += [narrow.weight, wide.weight]
    with torch.no_grad():
        for mine, other in zip(weights, theirs.parameters(), strict=True):
            other.copy_(mine)
    return theirs


@pytest.mark.parametrize(("cutoffs", "factor"), [((20, 45), 4.0), ((1,), 2.0), ((9, 20, 60), 1.0)])
def test_adaptive_equals_pytorchs(cutoffs: tuple[int, ...], factor: float) -> None:
    model = build("adaptive", {"cutoffs": cutoffs, "factor": factor}, is_tied=False)
    head, (hidden, given) = model.heads["token"], batch()
    assert isinstance(head, AdaptiveHead)
    theirs = theirs_of(head, cutoffs, factor)
    assert sum(p.numel() for p in head.parameters()) == sum(p.numel() for p in theirs.parameters())
    torch.testing.assert_close(
        head(hidden.states).flatten(0, 1), theirs.log_prob(hidden.states.flatten(0, 1))
    )
    output, _ = theirs(hidden.states.flatten(0, 1), given.targets.flatten())
    whole = replace(given, weights=torch.ones_like(given.weights))
    torch.testing.assert_close(head.loss(hidden, whole).total, -output.sum())


@pytest.mark.parametrize(
    ("name", "assignments", "message"),
    [
        ("lstm_tiny", ["cutoffs=[20, 20]"], "cutoffs: expected one or more, ascending"),
        ("lstm_tiny", ["cutoffs=[20]"], "model.lm_head.factor: must be 1 where"),
        ("lstm_tiny", ["cutoffs=[9999]", "factor=1"], "the vocabulary has 147 tokens"),
        ("bert_tiny", ["cutoffs=[20]"], "model.lm_head: the objective brings its own output layer"),
    ],
)
def test_impossible_settings_are_refused(name: str, assignments: list[str], message: str) -> None:
    settings = [f"model.lm_head.{assignment}" for assignment in assignments]
    with pytest.raises(UserError) as caught:
        load_recipe(name, ["model.lm_head=adaptive", *settings]).build(vocab())
    assert message in str(caught.value)


def test_cutoffs_come_from_a_recipe() -> None:
    recipe = load_recipe("lstm_tiny", ["model.lm_head={kind='adaptive', cutoffs=[120], factor=1}"])
    assert recipe.model.lm_head == Adaptive((120,), 1.0)
    assert isinstance(recipe.build(vocab()).token_head, AdaptiveHead)
