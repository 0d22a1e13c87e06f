from __future__ import annotations

import weakref
from collections.abc import Callable
from dataclasses import replace

import pytest
import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence

from foreword.errors import UserError
from foreword.nn.dropout import seeded
from foreword.nn.unrolled import layers_of, run_layers
from foreword.settings import kinds
from foreword.testing.cases import SIZE
from foreword.types import Hidden, Queries

from ..contracts.cases import rows, tiny
from ..contracts.test_models import case_of

RECURRENT = ("rnn", "lstm", "gru")
NEURAL = [name for name in kinds.names("models") if not kinds.load("models", name).is_count_based]
WITHOUT_LAYERS = {"seq2seq"}
WITHOUT_GRADIENTS = {"word_vectors"}


@pytest.mark.parametrize("name", NEURAL)
@pytest.mark.parametrize("documents", [[[20]], [[12, 8]]], ids=["one", "two"])
def test_states_by_layer_equal_those_of_the_model(name: str, documents: list[list[int]]) -> None:
    case = case_of(name)
    model, batch = case.build(), case.batch(rows(documents * 3))
    plain, by_layer = model.backbone(batch), model.backbone.by_layer(batch)
    assert plain.layers is None
    torch.testing.assert_close(by_layer.states, plain.states)
    if name in WITHOUT_LAYERS:
        assert by_layer.layers is None
        pytest.skip("a model without states by layer")
    assert len(by_layer.layers) in (1, tiny(name).layers + 1)  # a table of vectors: the first alone
    read = batch if batch.source is None else batch.source
    assert all(layer.shape[:2] == read.ids.shape for layer in by_layer.layers)
    if batch.source is None:
        torch.testing.assert_close(by_layer.layers[-1], plain.states)


@pytest.mark.parametrize("name", ["transformer", "encoder_decoder"])
@torch.no_grad()
def test_states_of_layers_are_freed_unless_they_are_asked_for(name: str) -> None:
    case = case_of(name)
    settings = replace(tiny(name), layers=3)
    backbone = settings.build(SIZE)
    stack = backbone.stack if name == "transformer" else backbone.encoder
    inputs: list[weakref.ref[Tensor]] = []
    alive = []

    def note(block: nn.Module, given: tuple[Tensor, ...]) -> None:
        alive.append(sum(x() is not None for x in inputs[1:]))  # the first is the caller's
        inputs.append(weakref.ref(given[0]))

    for block in stack.blocks:
        block.register_forward_pre_hook(note)
    batch = case.batch(rows([[20]] * 3))
    backbone(batch)
    assert alive == [0, 0, 0]
    inputs.clear()
    backbone.by_layer(batch)
    assert alive[3:] == [0, 0, 1]


@pytest.mark.parametrize("name", RECURRENT)
def test_single_layers_in_turn_equal_the_recurrent_core(name: str) -> None:
    backbone = case_of(name).build().backbone
    x = torch.randn(2, 7, backbone.core.input_size)
    expected, _ = backbone.core(x)
    for layer in layers_of(backbone.core):
        x, _ = layer(x)
    torch.testing.assert_close(x, expected)


@pytest.mark.parametrize("both", [False, True])
@pytest.mark.parametrize("is_packed", [False, True])
@pytest.mark.parametrize("core", [nn.RNN, nn.GRU, nn.LSTM])
def test_layers_with_negligible_dropout_equal_the_recurrent_core(
    core: Callable[..., nn.RNNBase], is_packed: bool, both: bool
) -> None:
    """With a rate too small to drop anything, layer after layer equals torch's module."""
    made = core(6, 5, 3, batch_first=True, bidirectional=both, dropout=1e-9)
    generator = torch.Generator().manual_seed(1)
    x = torch.randn(4, 7, 6, generator=generator)
    h = torch.randn(3 * (1 + both), 4, 5, generator=generator)
    state = (h, h + 1) if core is nn.LSTM else h
    if is_packed:
        x = pack_padded_sequence(x, torch.tensor([3, 7, 1, 5]), True, enforce_sorted=False)
    for given in (None, state):
        actual, expected = run_layers(made, x, given), made.eval()(x, given)
        made.train()
        torch.testing.assert_close(actual, expected)


def test_recurrent_dropout_acts_between_layers_in_training_only() -> None:
    """The second layer is the identity, so its output shows which inputs were dropped."""
    core = nn.RNN(1, 200, 2, bias=False, batch_first=True, dropout=0.4)
    for name, weight in core.named_parameters():
        nn.init.zeros_(weight)
        if name == "weight_ih_l0":
            nn.init.ones_(weight)
        elif name == "weight_ih_l1":
            nn.init.eye_(weight)
    x = torch.full((50, 1, 1), 0.1)
    entered = torch.tensor(0.1).tanh()
    with seeded(3, torch.device("cpu")):
        out, _ = run_layers(core, x, None)
    kept = (entered / 0.6).tanh()
    assert (out == 0).float().mean().item() == pytest.approx(0.4, abs=0.02)
    torch.testing.assert_close(out[out != 0], kept.expand(int((out != 0).sum())))
    out, _ = run_layers(core.eval(), x, None)
    torch.testing.assert_close(out, entered.tanh().expand_as(out))


@pytest.mark.parametrize("name", [*RECURRENT, "elmo"])
@pytest.mark.parametrize("documents", [[[20]], [[12, 8]]], ids=["one", "two"])
def test_unrolled_states_equal_forward_states(name: str, documents: list[list[int]]) -> None:
    case = case_of(name)
    model, batch = case.build(), case.batch(rows(documents * 3))
    expected = model.backbone(batch).states
    torch.testing.assert_close(model.backbone.with_layer_gradients(batch).states, expected)


@pytest.mark.parametrize("name", sorted(WITHOUT_GRADIENTS))
def test_models_without_gradients_of_layers_say_so(name: str) -> None:
    case = case_of(name)
    with pytest.raises(UserError, match=r"offers no gradients|no gradients"):
        case.build().backbone.with_layer_gradients(case.batch(rows([[10]])))


@pytest.mark.parametrize("name", [name for name in NEURAL if name not in WITHOUT_GRADIENTS])
def test_layer_gradients_equal_finite_differences(name: str) -> None:
    """The gradient with respect to what enters the first layer, against finite differences."""
    case = case_of(name)
    model, batch = case.build("rotary"), case.batch(rows([[10]]))
    model = model.double()
    token, index, small = 5, 3, 1e-6
    read = batch if batch.source is None else batch.source
    assert not (batch.ids == token).any() and not (read.ids == token).any()
    read.ids[0, index] = token  # of its own, so that its embedding can be moved alone
    last = batch.ids.shape[1] - 1 if batch.part(Queries) is None else 0
    generator = torch.Generator().manual_seed(1)
    way = torch.randn(tiny(name).state_width, generator=generator, dtype=torch.float64)

    def value() -> Tensor:
        return (traced().states[0, last] * way).sum()

    def traced() -> Hidden:
        return model.backbone.with_layer_gradients(batch)

    hidden = traced()
    assert hidden.layers is not None
    (gradient,) = torch.autograd.grad((hidden.states[0, last] * way).sum(), hidden.layers[:1])
    table = model.backbone.embedding.token.weight.data
    values = []
    for step in (small, -2 * small):
        table[token, 0] += step
        values.append(float(value().detach()))
    assert float(gradient[0, index, 0]) == pytest.approx(
        (values[0] - values[1]) / (2 * small), 1e-4
    )
