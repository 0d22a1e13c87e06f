"""Parameters are read where hooks see it: FSDP gathers a module's when its `forward` begins."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import pytest
from torch import nn
from torch.nn.modules import module as hooks

from foreword.nn.attentions._contract import RecurrenceKind
from foreword.nn.lm_heads.adaptive import Adaptive
from foreword.nn.model import Model
from foreword.settings import kinds
from foreword.testing.cases import SIZE, rows, vocab

from ..contracts.cases import TRAINED, Case

CASES = [case for case in TRAINED if not kinds.load("models", case.model).trains_offline]
CONTAINERS = (nn.ModuleList, nn.ModuleDict, nn.Sequential)


@contextmanager
def reads_outside_forward(model: Model) -> Iterator[set[str]]:
    """Yield the parameters that were read while neither their module nor the one around it ran."""
    around: dict[int, set[int]] = {}
    names = {}

    def visit(module: nn.Module, outer: int, name: str) -> None:
        around.setdefault(id(module), {id(module)}).add(outer)
        names[id(module)] = name
        own = outer if isinstance(module, CONTAINERS) else id(module)
        for key, child in module.named_children():
            visit(child, own, f"{name}.{key}")

    visit(model, 0, "model")
    running: list[int] = []
    reads: set[str] = set()
    read = nn.Module.__getattr__

    def watch(module: nn.Module, name: str) -> Any:
        value = read(module, name)
        is_ours = isinstance(value, nn.Parameter) and id(module) in around
        if is_ours and not around[id(module)] & set(running):
            reads.add(f"{names[id(module)]}.{name}")
        return value

    begin = hooks.register_module_forward_pre_hook(lambda m, _: running.append(id(m)))
    end = hooks.register_module_forward_hook(lambda m, *_: running.pop() and None)
    nn.Module.__getattr__ = watch  # type: ignore[method-assign, assignment]
    try:
        yield reads
    finally:
        nn.Module.__getattr__ = read  # type: ignore[method-assign]
        begin.remove()
        end.remove()


def outside_forward(case: Case, length: int = 16, **settings: Any) -> set[str]:
    """Return the parameters that the loss of a tiny model reads outside of `forward`."""
    backbone = replace(case.model_settings(), segments=2, **settings).build(SIZE)
    model = Model(backbone, case.instance.heads(backbone, vocab()))
    batch = case.batch(rows([[length], [length]]))
    with reads_outside_forward(model) as reads:
        case.loss(model, batch).total.backward()
    return reads


@pytest.mark.product
@pytest.mark.parametrize("case", CASES, ids=str)
def test_parameters_are_read_in_a_forward(case: Case) -> None:
    assert not outside_forward(case)


@pytest.mark.parametrize("position", kinds.names("nn/positions"))
def test_position_schemes_read_their_tables_in_a_forward(position: str) -> None:
    scheme = kinds.load("nn/positions", position)()
    for case in (
        Case("causal", "decoder", "transformer"),
        Case("permutation", "two_streams", "transformer"),
    ):
        assert not outside_forward(case, position=scheme)


@pytest.mark.parametrize("name", kinds.names("nn/attentions"))
def test_attention_mechanisms_read_their_weights_in_a_forward(name: str) -> None:
    kind = kinds.load("nn/attentions", name)
    attention = kind(length=16) if name == "linformer" else kind()
    is_recurrent = isinstance(attention, RecurrenceKind)
    case = Case(*("causal", "decoder") if is_recurrent else ("masked", "encoder"), "transformer")
    assert not outside_forward(case, attention=attention, dense_every=2)


def test_an_adaptive_softmax_reads_its_rows_in_a_forward() -> None:
    case = Case("causal", "decoder", "lstm")
    assert not outside_forward(case, lm_head=Adaptive(cutoffs=(20, 60)), tied=False)


def test_a_weight_read_by_another_module_fails_the_check() -> None:
    case = Case("masked", "encoder", "transformer")
    model = case.build()
    with reads_outside_forward(model) as reads:
        _ = model.token_head.weight
    assert reads == {"model.heads.token.weight"}
