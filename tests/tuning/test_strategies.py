"""Strategies of fine-tuning: what each trains, at which rate, and what is saved."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from foreword.errors import UserError
from foreword.nn.low_rank import LowRankLinear
from foreword.nn.model import neural
from foreword.runs.run_folder import open_run
from foreword.runs.trained_model import TrainedModel
from foreword.settings import kinds
from foreword.train.optimizers.adamw import AdamW
from foreword.train.optimizers.muon import Muon
from foreword.train.optimizers.sgd import SGD
from foreword.tuning.network import Network
from foreword.tuning.settings import TuneSettings
from foreword.tuning.starting_network import build_network, reinitialise_layers
from foreword.tuning.strategies._contract import Strategy
from foreword.tuning.strategies.frozen import Frozen
from foreword.tuning.strategies.gradual_unfreezing import GradualUnfreezing
from foreword.tuning.strategies.layer_decay import LayerDecay
from foreword.tuning.strategies.lora import LoRA
from foreword.tuning.strategies.top_layers import TopLayers
from foreword.tuning.tasks.classify import Classify, ClassJudge
from foreword.tuning.tasks.tag import Tag
from foreword.tuning.tasks.text_to_text import TextToText
from foreword.tuning.tune import variants
from foreword.tuning.tune_result import save_network
from foreword.tuning.tuned_model import load_tuned
from tests.tuning.runs import make_run, reviews, tune

LAYOUTS = ("encoder", "decoder", "bidirectional", "recurrent", "encoder_decoder")
WITHOUT_MAPS = ("bidirectional", "recurrent")  # linear ones, in their layers
LEARNING = ("encoder", "encoder_decoder")  # trained until they have learned the task
TASK, LABELS = Classify(), ("bad", "good")
FAST = TuneSettings(seeds=1, epochs=3, batch=24, precision="fp32")
# Strategies that train a part of the backbone or change over the steps, at rates for tiny models.
PARTS = [
    TopLayers(layers=1, lr=1.5e-2),
    GradualUnfreezing(over=0.3, lr=5e-3),
    LayerDecay(lr=5e-3),
]


def network_of(trained: TrainedModel, task: Any = TASK) -> Network:
    return build_network(trained, task, LABELS, None)


@pytest.fixture
def network(tmp_path: Path) -> Network:
    return network_of(open_run(make_run(tmp_path), "cpu"))


def trained_names(network: Network) -> set[str]:
    return {name for name, p in network.named_parameters() if p.requires_grad}


@pytest.mark.product
@pytest.mark.parametrize("strategy", [*PARTS, LoRA(lr=3e-3)], ids=kinds.name_of)
@pytest.mark.parametrize("layout", LAYOUTS)
def test_every_layout_predicts_what_it_was_scored_by(
    layout: str, strategy: Strategy, tmp_path: Path
) -> None:
    trained = open_run(make_run(tmp_path / "run", layout), "cpu")
    learns = layout in LEARNING  # the others take each strategy's steps in few
    settings = replace(FAST, strategy=strategy, epochs=3 if learns else 1)
    if learns and isinstance(strategy, LoRA):
        settings = replace(settings, epochs=5)
    if learns and isinstance(strategy, GradualUnfreezing):  # its lower layers begin late
        settings = replace(settings, epochs=6, batch=16)
    train, dev = reviews(300 if learns else 40, 1), reviews(50, 2)
    if isinstance(strategy, LoRA) and layout in WITHOUT_MAPS:
        pytest.skip("layers without linear maps, which lora refuses")
    result = tune(trained, TASK, train, dev, settings)
    # Below one trained layer everything is random here: no model is pretrained.
    assert not learns or result.rows[0]["accuracy"] > (
        0.62 if isinstance(strategy, TopLayers) else 0.75
    )
    save_network(result, tmp_path / "tuned")
    predicted, _ = load_tuned(tmp_path / "tuned", "cpu").predict([e.text for e in dev])
    right = sum(label == e.label for label, e in zip(predicted, dev, strict=True))
    assert right / len(dev) == result.rows[0]["accuracy"]


@pytest.mark.parametrize("layout", WITHOUT_MAPS)
def test_lora_refuses_layers_without_linear_maps(layout: str, tmp_path: Path) -> None:
    trained = open_run(make_run(tmp_path / "run", layout), "cpu")
    with pytest.raises(UserError, match="targets: the model's layers have no linear map"):
        tune(trained, TASK, reviews(40, 1), reviews(50, 2), replace(FAST, strategy=LoRA()))


def test_only_the_top_layers_and_the_head_are_trained(network: Network) -> None:
    TopLayers(layers=1).prepare(network, 1)
    assert trained_names(network) == {
        name
        for name, _ in network.named_parameters()
        if name.startswith(("head", "backbone.stack.blocks.1", "backbone.stack.final_norm"))
    }


def test_the_top_layers_of_an_encoder_that_is_read_are_its_own(tmp_path: Path) -> None:
    trained = open_run(make_run(tmp_path, "encoder_decoder"), "cpu")
    for task, stack in ((Tag(), "encoder"), (TASK, "decoder")):
        network = network_of(trained, task)
        TopLayers(layers=1).prepare(network, 1)
        named = {name.split(".")[1] for name in trained_names(network) if "backbone" in name}
        assert named == {stack}


def test_an_output_layer_tied_to_a_frozen_embedding_stays_frozen(tmp_path: Path) -> None:
    trained = open_run(make_run(tmp_path, "encoder_decoder"), "cpu")
    network = network_of(trained, TextToText())
    TopLayers(layers=1).prepare(network, 1)
    assert not network.backbone.embedding.token.weight.requires_grad
    assert any("decoder.blocks.1" in name for name in trained_names(network))


@pytest.mark.parametrize(
    ("strategy", "message"),
    [
        (TopLayers(layers=3), "tune.strategy.layers: the model has 2 layers, got 3"),
        (LoRA(rank=33), "tune.strategy.rank: must be at most 32, the smaller side of"),
        (LoRA(targets=("q",)), "no linear map 'q'; they have down, key_value, output, query, up"),
        (LoRA(targets=()), "targets: name at least one of down, key_value, output, query, up"),
    ],
)
def test_what_the_model_has_not_is_refused(
    network: Network, strategy: Strategy, message: str
) -> None:
    with pytest.raises(UserError, match=message):
        strategy.prepare(network, 1)


@pytest.mark.parametrize("strategy", PARTS, ids=kinds.name_of)
def test_layers_that_share_their_weights_are_refused(strategy: Strategy, tmp_path: Path) -> None:
    network = network_of(open_run(make_run(tmp_path, share="all"), "cpu"))
    with pytest.raises(UserError, match="share their weights; use --strategy full"):
        strategy.prepare(network, 1)


def test_lora_changes_shared_layers_once(tmp_path: Path) -> None:
    network = network_of(open_run(make_run(tmp_path, share="all"), "cpu"))
    LoRA(rank=2).prepare(network, 1)
    assert sum(isinstance(m, LowRankLinear) for m in network.modules()) == 5


def test_layers_join_from_the_top_at_equal_intervals(network: Network) -> None:
    strategy = GradualUnfreezing(over=0.6)  # two layers, then the embeddings
    strategy.prepare(network, 1)
    trained = []
    for progress in (0.0, 0.19, 0.2, 0.39, 0.4, 0.6, 1.0):
        strategy.advance(network, progress)
        depths = network.parameters_by_depth()
        trained.append([all(p.requires_grad for p in parameters) for parameters in depths])
    none, one, two, every = [False] * 3, [False, False, True], [False, True, True], [True] * 3
    assert trained == [none, none, one, one, two, every, every]


def test_training_begins_with_a_layer_where_the_head_has_no_weights_of_its_own(
    tmp_path: Path,
) -> None:
    network = network_of(open_run(make_run(tmp_path, "encoder_decoder"), "cpu"), TextToText())
    strategy = GradualUnfreezing()
    strategy.prepare(network, 1)
    strategy.advance(network, 0.0)
    assert {name.split(".")[3] for name in trained_names(network) if "blocks" in name} == {"1"}


def test_the_best_epoch_is_restored_with_layers_that_joined_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first epoch trains the head and one layer; those below are as they were then."""
    trained = open_run(make_run(tmp_path), "cpu")
    scores = iter([0.9, 0.1, 0.1])
    monkeypatch.setattr(ClassJudge, "scores", lambda *given: {"accuracy": next(scores)})
    monkeypatch.setattr(ClassJudge, "baselines", lambda *given: {})
    strategy = GradualUnfreezing(over=0.6, lr=1e-2)
    settings = replace(FAST, strategy=strategy, keep="best", epochs=3, batch=8)
    network = tune(trained, TASK, reviews(32, 1), reviews(8, 2), settings).network
    before = network_of(trained)
    for depth, same in enumerate((True, True, False)):
        pairs = zip(
            network.parameters_by_depth()[depth], before.parameters_by_depth()[depth], strict=True
        )
        assert all(torch.equal(now, then) for now, then in pairs) == same


@pytest.mark.parametrize("settings", [AdamW(lr=1e-3), SGD(lr=1e-3), Muon(lr=1e-3)])
def test_each_layer_has_the_rate_of_its_depth(network: Network, settings: Any) -> None:
    strategy = LayerDecay(decay=0.5)
    strategy.prepare(network, 1)
    optimizer = settings.build(network, strategy.rate_factors(network))
    rates = {p: group["lr"] for group in optimizer.param_groups for p in group["params"]}
    assert rates.keys() == set(network.parameters())
    for depth, parameters in enumerate(network.parameters_by_depth()):
        assert {rates[p] for p in parameters} == {1e-3 * 0.5 ** (3 - depth)}
    assert {rates[p] for p in network.head.parameters()} == {1e-3}


def test_a_low_rank_map_is_the_published_formula() -> None:
    """Hu et al. 2022, section 4.1: h = W x + alpha / r B A x, in float64 by hand."""
    random = torch.Generator().manual_seed(1)
    linear = nn.Linear(6, 4)
    x = torch.randn(3, 6)
    adapted = LowRankLinear(linear, rank=2, scale=16 / 2, dropout=0.0, random=random)
    assert torch.equal(adapted(x), linear(x))
    with torch.no_grad():
        adapted.lora_b.normal_(generator=random)
    w, b, a, r = (t.double() for t in (linear.weight, linear.bias, adapted.lora_a, adapted.lora_b))
    expected = (x.double() @ w.T + b + 16 / 2 * (x.double() @ a.T @ r.T)).float()
    for training in (True, False):
        torch.testing.assert_close(adapted.train(training)(x), expected, atol=1e-5, rtol=1e-5)
    assert torch.equal(adapted.eval()(x), adapted.merged()(x))


def test_lora_trains_as_many_parameters_as_the_formula_says(tmp_path: Path) -> None:
    """rank * (inputs + outputs) of each map, and the head; the saved model has none of its own."""
    trained = open_run(make_run(tmp_path), "cpu")
    settings = replace(FAST, epochs=1, strategy=LoRA(rank=4, targets=("query", "up")))
    result = tune(trained, TASK, reviews(16, 1), reviews(8, 2), settings)
    layers, width = 2, 32
    ff = neural(trained.model.backbone).layer_modules()[0][0].feedforward.up.out_features  # type: ignore[index]
    maps = layers * 4 * ((width + width) + (width + ff))
    assert result.rows[0].about["trained_parameters"] == maps + 2 * width + 2
    own = {f"backbone.{name}" for name in trained.model.backbone.state_dict()}
    assert {n for n in result.network.state_dict() if n.startswith("backbone")} == own
    before, after = trained.model.backbone.state_dict(), result.network.backbone.state_dict()
    changed = {name.split(".")[-2] for name in after if not torch.equal(after[name], before[name])}
    assert changed == {"query", "up"}


def test_the_top_layers_begin_as_those_of_an_untrained_network(tmp_path: Path) -> None:
    trained = open_run(make_run(tmp_path), "cpu")
    for parameter in trained.model.parameters():
        parameter.data.add_(0.01)  # its weights are random as well, and norms 1
    network, untrained = network_of(trained), build_network(trained, TASK, LABELS, 3)
    before = network_of(trained)
    reinitialise_layers(network, untrained, 1)
    depths = [n.parameters_by_depth() for n in (network, before, untrained)]
    for depth, other in enumerate((1, 1, 2)):
        pairs = zip(depths[0][depth], depths[other][depth], strict=True)
        assert all(torch.equal(now, then) for now, then in pairs)
    assert not torch.equal(depths[0][2][0], depths[1][2][0])


@pytest.mark.parametrize("layout", ["recurrent", "bidirectional", "encoder_decoder"])
def test_every_kind_of_layer_is_initialised_again_in_place(layout: str, tmp_path: Path) -> None:
    trained = open_run(make_run(tmp_path, layout), "cpu")
    network, untrained = network_of(trained), build_network(trained, TASK, LABELS, 3)
    reinitialise_layers(network, untrained, 1)
    same = {
        name
        for (name, p), q in zip(network.named_parameters(), untrained.parameters(), strict=True)
        if p.ndim > 1 and torch.equal(p, q)
    }
    top = {"recurrent": "_l1", "bidirectional": ".1.", "encoder_decoder": "decoder.blocks.1."}
    assert same
    assert all(top[layout] in name for name in same)


@pytest.mark.parametrize(
    ("strategy", "layers", "message"),
    [
        (Frozen(), 1, "strategy 'frozen' does not train all of the layers"),
        (LoRA(), 1, "strategy 'lora' does not train"),
        (TopLayers(layers=1), 2, "initialised again; use --strategy full"),
        (LayerDecay(), 3, "tune.reinit_layers: the model has 2 layers, got 3"),
    ],
)
def test_layers_that_would_stay_random_are_refused(
    strategy: Strategy, layers: int, message: str, tmp_path: Path
) -> None:
    trained = open_run(make_run(tmp_path), "cpu")
    settings = replace(FAST, strategy=strategy, reinit_layers=layers)
    with pytest.raises(UserError, match=message):
        tune(trained, TASK, reviews(8, 1), reviews(8, 2), settings)


def test_layers_that_share_weights_are_not_initialised_again(tmp_path: Path) -> None:
    network = network_of(open_run(make_run(tmp_path, share="attention"), "cpu"))
    with pytest.raises(UserError, match="layers of this model share weights; leave it out"):
        reinitialise_layers(network, network, 1)


def test_a_comparison_initialises_layers_of_the_first_variant_alone() -> None:
    settings = variants(replace(FAST, reinit_layers=1))
    assert [one.reinit_layers for one in settings] == [1, 0, 0]
    with pytest.raises(ValueError, match="reinit_layers: requires pretrained layers"):
        replace(FAST, reinit_layers=1, from_scratch=True)
