"""The contract of fine-tuning strategies, as functions."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import is_dataclass, replace

import torch
from torch import Tensor, nn

from foreword.nn.dropout import seeded
from foreword.nn.model import neural
from foreword.runs.trained_model import TrainedModel
from foreword.tables.examples import Labelled
from foreword.testing.models import tiny_model
from foreword.testing.tokenizers import SENTENCES
from foreword.train.optimizers.adamw import AdamW
from foreword.tuning.input_template import template_of
from foreword.tuning.network import HeadNetwork, Network
from foreword.tuning.packed_examples import PooledBatch, PooledExamples
from foreword.tuning.starting_network import adapted
from foreword.tuning.strategies._contract import Strategy
from foreword.tuning.tasks.classify import Classify

SEED = 1


def check_strategy(strategy: Strategy) -> None:
    """Check all that a strategy promises, on a tiny encoder.

    Raises:
        AssertionError: a promise is broken.
    """
    assert is_dataclass(type(strategy)), "a strategy is a frozen dataclass"
    for check in STRATEGY_CHECKS:
        check(strategy)


def _trained() -> TrainedModel:
    return tiny_model("encoder", SENTENCES)


def _network(trained: TrainedModel | None = None, strategy: Strategy | None = None) -> Network:
    """Return a network; with a strategy, one of the settings that this asks for."""
    trained = trained or _trained()
    if strategy is not None:
        trained = adapted(trained, strategy, SEED)
    backbone = neural(trained.model.backbone)
    network = HeadNetwork(backbone, nn.Linear(backbone.settings.d_model, 2), needs=Classify().needs)
    network.initialise_head(SEED)
    return network


def _batch(trained: TrainedModel) -> PooledBatch:
    examples = [Labelled(text, str(n % 2)) for n, text in enumerate(SENTENCES)]
    template = template_of(trained.recipe, trained.vocab, None)
    task = Classify()
    encoded = task.encode(examples, trained.tokenizer, template)
    targets = task.targets(examples, task.labels(examples))
    packed = PooledExamples(encoded, targets, template)
    return next(packed.scoring_batches("cpu")).to("cpu")


def _outputs(network: Network, batch: PooledBatch) -> Tensor:
    with torch.no_grad():
        return network.eval().outputs(batch.features(network), batch.windows)


def _train(strategy: Strategy, network: Network, batch: PooledBatch, steps: int) -> None:
    """Train as fine-tuning does, with one batch."""
    lr = strategy.peak_lr(network.backbone.settings)
    optimizer = AdamW(lr=lr, decay=0.0).build(network, strategy.rate_factors(network))
    for step in range(steps):
        strategy.advance(network, step / steps)
        network.train_parts()
        with seeded(step, torch.device("cpu")):
            outputs = network.outputs(batch.features(network), batch.windows)
        nn.functional.cross_entropy(outputs, batch.targets).backward()  # type: ignore[no-untyped-call]
        for name, parameter in network.named_parameters():
            has_none = parameter.requires_grad or parameter.grad is None
            assert has_none, f"{name} is frozen and has a gradient"
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)


def check_the_rate_is_positive(strategy: Strategy) -> None:
    """Check that the peak learning rate is a positive number."""
    rate = strategy.peak_lr(_network(strategy=strategy).backbone.settings)
    assert 0 < rate < float("inf"), f"the peak learning rate is {rate}"


def check_it_trains_the_head_and_what_it_says(strategy: Strategy) -> None:
    """Check which parameters are trained, whatever was trained before."""
    for before in (True, False):
        network = _network(strategy=strategy)
        network.requires_grad_(before)
        strategy.prepare(network, SEED)
        assert all(p.requires_grad for p in network.head.parameters()), "the head is not trained"
        trains_backbone = any(p.requires_grad for p in network.backbone.parameters())
        assert trains_backbone == strategy.trains_backbone, "trains_backbone is not what it does"


def check_what_it_prepares_is_trained_in_the_end(strategy: Strategy) -> None:
    """Check that all that `prepare` marks, and nothing else, is trained at some time."""
    network = _network(strategy=strategy)
    strategy.prepare(network, SEED)
    marked = {name for name, p in network.named_parameters() if p.requires_grad}
    trained = set[str]()
    for tenth in range(11):
        strategy.advance(network, tenth / 10)
        now = {name for name, p in network.named_parameters() if p.requires_grad}
        assert now <= marked, f"{sorted(now - marked)[:1]} is trained, but was not marked"
        trained |= now
    assert trained == marked, f"{sorted(marked - trained)[:1]} is marked, but never trained"


def check_its_settings_are_those_of_a_tuned_model_too(strategy: Strategy) -> None:
    """Check that a model tuned by the strategy can be tuned by it again."""
    settings = strategy.model_settings(_network().backbone.settings)
    assert strategy.model_settings(settings) == settings, "it changes the settings of its own"


def check_preparing_keeps_weights_and_outputs(strategy: Strategy) -> None:
    """Check that neither `model_settings` nor `prepare` changes a weight or an output."""
    trained = _trained()
    network, batch = _network(trained), _batch(trained)
    before = {name: p.detach().clone() for name, p in network.named_parameters()}
    outputs = _outputs(network, batch)
    network = _network(trained, strategy)
    strategy.prepare(network, SEED)
    after = dict(network.named_parameters())
    for name, weight in before.items():
        assert name in after, f"{name} is gone"
        assert torch.equal(after[name], weight), f"{name} has changed"
    assert torch.equal(_outputs(network, batch), outputs), "the outputs have changed"


def check_training_changes_what_is_marked_alone(strategy: Strategy) -> None:
    """Check that steps change every marked parameter, and leave the others as they are."""
    trained = _trained()
    network = _network(trained, strategy)
    strategy.prepare(network, SEED)
    before = {name: p.detach().clone() for name, p in network.named_parameters()}
    marked = {name for name, p in network.named_parameters() if p.requires_grad}
    _train(strategy, network, _batch(trained), 10)
    changed = {n for n, p in network.named_parameters() if not torch.equal(p, before[n])}
    assert changed <= marked, f"{sorted(changed - marked)[:1]} has changed, but is not marked"
    head = {name for name in marked if name.startswith("head.")}
    assert head <= changed, "the head has not changed"
    assert strategy.trains_backbone == bool(changed - head), "trains_backbone is not what it does"


def check_a_finished_network_computes_the_same(strategy: Strategy) -> None:
    """Check that a trained network has its first form after `finish`, and the same outputs."""
    trained = _trained()
    network, batch = _network(trained, strategy), _batch(trained)
    names = network.state_dict().keys()
    strategy.prepare(network, SEED)
    _train(strategy, network, batch, 5)
    expected = _outputs(network, batch)
    strategy.finish(network)
    assert network.state_dict().keys() == names, "finish leaves parameters of its own"
    assert torch.equal(_outputs(network, batch), expected), "finish changes the outputs"


def check_it_is_reproducible(strategy: Strategy) -> None:
    """Check that two networks prepared from one seed learn the same."""
    results = []
    for _ in range(2):
        trained = _trained()
        network, batch = _network(trained, strategy), _batch(trained)
        fresh = replace(strategy)
        fresh.prepare(network, SEED)
        _train(fresh, network, batch, 3)
        results.append(_outputs(network, batch))
    assert torch.equal(*results), "two trainings of one seed differ"


STRATEGY_CHECKS: tuple[Callable[[Strategy], None], ...] = (
    check_the_rate_is_positive,
    check_it_trains_the_head_and_what_it_says,
    check_what_it_prepares_is_trained_in_the_end,
    check_its_settings_are_those_of_a_tuned_model_too,
    check_preparing_keeps_weights_and_outputs,
    check_training_changes_what_is_marked_alone,
    check_a_finished_network_computes_the_same,
    check_it_is_reproducible,
)
