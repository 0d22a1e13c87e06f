"""The contract of fine-tuning strategies, as functions."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import is_dataclass

import torch
from torch import nn

from foreword.nn.model import neural
from foreword.testing.models import tiny_model
from foreword.testing.tokenizers import SENTENCES
from foreword.tuning.network import HeadNetwork, Network
from foreword.tuning.strategies._contract import Strategy


def check_strategy(strategy: Strategy) -> None:
    """Check all that a strategy promises, on a tiny encoder.

    Raises:
        AssertionError: a promise is broken.
    """
    assert is_dataclass(type(strategy)), "a strategy is a frozen dataclass"
    for check in STRATEGY_CHECKS:
        check(strategy)


def _network() -> Network:
    trained = tiny_model("encoder", SENTENCES)
    backbone = neural(trained.model.backbone)
    return HeadNetwork(backbone, nn.Linear(backbone.settings.d_model, 2))


def check_the_rate_is_positive(strategy: Strategy) -> None:
    """Check that the peak learning rate is a positive number."""
    rate = strategy.peak_lr(_network().backbone.settings)
    assert 0 < rate < float("inf"), f"the peak learning rate is {rate}"


def check_it_trains_the_head_and_what_it_says(strategy: Strategy) -> None:
    """Check which parameters are trained, whatever was trained before."""
    for before in (True, False):
        network = _network()
        network.requires_grad_(before)
        strategy.prepare(network)
        assert all(p.requires_grad for p in network.head.parameters()), "the head is not trained"
        trains_backbone = any(p.requires_grad for p in network.backbone.parameters())
        assert trains_backbone == strategy.trains_backbone, "trains_backbone is not what it does"


def check_only_trained_parts_are_in_training_mode(strategy: Strategy) -> None:
    """Check that the head trains, and that a frozen backbone has no dropout."""
    network = _network().eval()
    strategy.prepare(network)
    strategy.train(network)
    assert network.head.training, "the head is not in training mode"
    if not strategy.trains_backbone:
        assert not network.backbone.training, "a frozen backbone is in training mode"


def check_it_keeps_the_weights(strategy: Strategy) -> None:
    """Check that preparing a network changes no weight."""
    network = _network()
    before = {name: p.detach().clone() for name, p in network.named_parameters()}
    strategy.prepare(network)
    for name, p in network.named_parameters():
        assert torch.equal(p, before[name]), f"{name} has changed"


STRATEGY_CHECKS: tuple[Callable[[Strategy], None], ...] = (
    check_the_rate_is_positive,
    check_it_trains_the_head_and_what_it_says,
    check_only_trained_parts_are_in_training_mode,
    check_it_keeps_the_weights,
)
