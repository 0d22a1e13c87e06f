"""Fine-tuning that starts from a model tuned on another task."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from foreword import tune
from foreword.cli.main import run as command
from foreword.disk import stored
from foreword.errors import UserError
from foreword.tuning.starting_network import starting_network
from foreword.tuning.tasks._headed import below_output
from foreword.tuning.tasks.classify import Classify
from foreword.tuning.tuned_model import load_tuned, open_start
from tests.tuning.runs import make_run, reviews

FAST: dict[str, Any] = {"seeds": 1, "epochs": 1, "device": "cpu", "progress": False, "lr": 3e-3}
TRAIN, DEV = ([(e.text, e.label) for e in reviews(n, n)] for n in (64, 24))
THREE = [  # "bad" in two classes
    (text, label if label == "good" else f"bad{n // 2 % 2}")
    for n, (text, label) in enumerate(TRAIN)
]


@pytest.fixture(params=["encoder", "decoder", "bidirectional", "recurrent", "encoder_decoder"])
def first(tmp_path: Path, request: pytest.FixtureRequest) -> Path:
    run = make_run(tmp_path / "run", request.param)
    return tune(run, TRAIN, DEV, name="first", **FAST, strategy="full").out


@pytest.mark.product(few=1)
def test_the_backbone_is_the_tuned_one_and_the_head_is_new(first: Path) -> None:
    trained = open_start(first, "cpu")
    tuned = load_tuned(first, "cpu").network
    task, labels = Classify(), ("a", "b", "c")
    network = starting_network(trained, task, labels, 1, (), from_scratch=False)
    for mine, theirs in zip(
        network.backbone.parameters(), tuned.backbone.parameters(), strict=True
    ):
        assert torch.equal(mine, theirs)
    assert network.head[-1].out_features == 3  # type: ignore[index]


@pytest.mark.product(few=1)
def test_another_task_is_learned_and_its_origin_is_noted(first: Path, tmp_path: Path) -> None:
    done = tune(first, THREE, THREE, name="second", **FAST, strategy="full")
    assert done.out == first / "tuned" / "second"
    assert done.rows[0]["start"] == "tuned on first"
    content = stored.read(done.evaluation)
    assert content["settings"]["tuned_from"] == str(first)
    assert len(load_tuned(done.out, "cpu").labels) == 3
    assert load_tuned(first, "cpu").labels == ("bad", "good")  # as it was
    again = tune(
        done, TRAIN, DEV, name="third", **FAST, strategy="full"
    )  # a result stands for its folder
    assert again.rows[0]["start"] == "tuned on second"


@pytest.mark.full
def test_tokens_that_the_first_task_trained_are_not_initialised_again(tmp_path: Path) -> None:
    first = tune(
        make_run(tmp_path, "decoder"), TRAIN, DEV, name="first", **FAST, strategy="full"
    ).out
    before = load_tuned(first, "cpu").network.backbone.embedding.token.weight
    settings = {"tune.strategy.layers": 1}
    second = tune(first, TRAIN, DEV, name="b", strategy="top_layers", settings=settings, **FAST)
    after = load_tuned(second.out, "cpu").network.backbone.embedding.token.weight
    assert torch.equal(before, after)


def test_the_hidden_layer_of_the_first_head_is_kept(tmp_path: Path) -> None:
    run = make_run(tmp_path)
    settings = {"task.hidden_layer": "tanh", "task.pooling": "first"}
    first = tune(run, TRAIN, DEV, name="first", settings=settings, **FAST, strategy="full").out
    trained, labels = open_start(first, "cpu"), ("a", "b", "c")
    kept = below_output(load_tuned(first, "cpu").network.head)[0].weight
    for layer, same in (("tanh", True), ("gelu", False)):
        task = Classify(hidden_layer=layer)  # type: ignore[arg-type]
        head = starting_network(trained, task, labels, 1, (), from_scratch=False).head
        assert torch.equal(below_output(head)[0].weight, kept) == same


def test_what_needs_the_heads_of_pretraining_is_refused(tmp_path: Path) -> None:
    decoder = tune(
        make_run(tmp_path / "a", "decoder"), TRAIN, DEV, name="x", **FAST, strategy="full"
    ).out
    with pytest.raises(UserError, match=r"task\.auxiliary: requires the output layer of pretrai"):
        tune(
            decoder, TRAIN, DEV, name="y", settings={"task.auxiliary": 0.5}, **FAST, strategy="full"
        )
    t5 = tune(
        make_run(tmp_path / "b", "encoder_decoder"), TRAIN, DEV, name="x", **FAST, strategy="full"
    ).out
    with pytest.raises(UserError, match="tasks that are answered in text: requires the output"):
        tune(t5, TRAIN, DEV, name="y", task="text_to_text", **FAST)


def test_other_verbs_name_what_a_tuned_model_is_for(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    first = tune(make_run(tmp_path), TRAIN, DEV, name="first", **FAST, strategy="full").out
    assert command(["fill", str(first), "the [MASK]"]) == 2
    assert "may start 'foreword tune'" in capsys.readouterr().err
