"""What every architecture promises, for every file in `models/`."""

from __future__ import annotations

from dataclasses import fields, replace

import pytest
import torch
from torch import Tensor

from foreword.nn.init import initialise
from foreword.nn.model import (
    MemoryBackbone,
    Model,
    ModelSettings,
    NeuralBackbone,
    SourceBackbone,
)
from foreword.nn.offline_training import OfflineArchitecture, OfflineBackbone
from foreword.settings import kinds

from .cases import CASES, SIZE, TRAINED, Case, is_scored, logits, rows, select_rows, tiny, vocab

MODELS = kinds.names("models")
every_model = pytest.mark.parametrize("name", MODELS)
every_case = pytest.mark.parametrize("case", CASES, ids=str)
every_trained_case = pytest.mark.parametrize("case", TRAINED, ids=str)


def case_of(name: str) -> Case:
    return next(case for case in CASES if case.model == name)


@every_model
def test_every_model_has_an_objective_and_a_layout(name: str) -> None:
    assert any(case.model == name for case in CASES)


@every_model
def test_equal_seeds_give_equal_weights(name: str) -> None:
    one, other = case_of(name).build(), case_of(name).build()
    for first, second in zip(one.parameters(), other.parameters(), strict=True):
        assert torch.equal(first, second)


@every_model
def test_models_build_on_the_meta_device(name: str) -> None:
    with torch.device("meta"):
        backbone = tiny(name).build(100)
    assert all(p.is_meta for p in backbone.parameters())


@every_model
def test_settings_are_hashable_and_compare_by_value(name: str) -> None:
    settings = tiny(name)
    assert replace(settings) == settings
    assert hash(settings) == hash(replace(settings))


@every_model
def test_each_model_builds_a_backbone_that_can_do_what_its_flags_say(name: str) -> None:
    settings = tiny(name)
    backbone = settings.build(100)
    assert settings.is_count_based == (not isinstance(settings, ModelSettings))
    assert settings.is_count_based == (not isinstance(backbone, NeuralBackbone))
    assert settings.trains_offline == isinstance(settings, OfflineArchitecture)
    assert settings.trains_offline == isinstance(backbone, OfflineBackbone)
    assert settings.reads_source == isinstance(backbone, SourceBackbone)
    assert not settings.memory or isinstance(backbone, MemoryBackbone)
    if isinstance(settings, OfflineArchitecture):
        assert settings.offline_epochs("epochs", 1) == 1


@pytest.mark.product
@every_case
def test_a_row_has_the_same_states_alone_and_in_a_batch(case: Case) -> None:
    many, model = rows([[20], [12, 8], [20], [7, 7, 6]]), case.build("rotary")
    together = case.batch(many)
    scores = logits(model, together)
    for n in range(len(many)):
        alone = case.batch(select_rows(many, [n]))
        one, other = (is_scored(b)[r] for b, r in ((alone, 0), (together, n)))
        torch.testing.assert_close(
            logits(model, alone)[0][one], scores[n][other], atol=1e-5, rtol=1e-5
        )


@pytest.mark.product
@every_trained_case
def test_every_parameter_learns(case: Case) -> None:
    model = case.build("t5_bias")
    case.loss(model, case.batch(rows([[30]] * 4))).total.backward()
    still = [name for name, p in model.named_parameters() if p.grad is None or not p.grad.any()]
    assert not still


@pytest.mark.product
@every_trained_case
def test_bfloat16_gives_nearly_the_loss_of_float32(case: Case) -> None:
    model, batch = case.build(), case.batch(rows([[30]] * 4))
    expected = case.loss(model, batch).total
    with torch.autocast("cpu", torch.bfloat16):
        states = model.backbone(batch).states
        actual = case.loss(model, batch).total
    assert states.dtype == torch.bfloat16
    torch.testing.assert_close(actual, expected, rtol=0.03, atol=0.0)


@pytest.mark.product
@every_trained_case
def test_evaluation_uses_no_dropout(case: Case) -> None:
    settings = case.model_settings()
    rates = {"dropout", "attention_dropout"} & {f.name for f in fields(settings)}
    settings = replace(settings, **dict.fromkeys(rates, 0.3))
    backbone = settings.build(SIZE)
    heads = kinds.load("objectives", case.objective)().heads(backbone, vocab())
    model, batch = Model(backbone, heads), case.batch(rows([[20]] * 2))
    initialise(model, 1)

    def run() -> Tensor:
        return logits(model, batch)

    assert not torch.equal(run(), run())
    model.eval()
    assert torch.equal(run(), run())
