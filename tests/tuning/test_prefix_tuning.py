"""Prefix tuning: what it trains, and the tuned model, which is used like any other."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from foreword import tune
from foreword.cli.main import run as command
from foreword.errors import UserError
from foreword.evaluation.decoding import decode, starts_of, stops_of
from foreword.evaluation.sampling import GREEDY
from foreword.nn.attention_prefix import AttentionPrefix
from foreword.nn.masks import CausalMask
from foreword.nn.stack_settings import StackSettings
from foreword.runs.run_folder import open_run
from foreword.runs.trained_model import TrainedModel
from foreword.tuning.drift import change_of, distances, line
from foreword.tuning.open_tuned import open_tuned
from foreword.tuning.published_head import published_head
from foreword.tuning.settings import TuneSettings
from foreword.tuning.starting_network import adapted, build_network
from foreword.tuning.strategies.frozen import Frozen
from foreword.tuning.strategies.prefix_tuning import PrefixTuning
from foreword.tuning.tasks.classify import Classify
from foreword.tuning.tasks.tag import Tag
from foreword.tuning.tuned_model import load_tuned, open_start
from foreword.types import Batch
from tests.tuning.runs import make_run, reviews
from tests.tuning.runs import tune as tune_network
from tests.tuning.tasks.test_chat import SINGLE

LENGTH = 3
FAST: dict[str, Any] = {"strategy": "prefix_tuning", "seeds": 1, "epochs": 2, "device": "cpu"}
FAST |= {"lr": 3e-2, "progress": False, "settings": {"tune.strategy.length": LENGTH}}
TRAIN, DEV = ([(e.text, e.label) for e in reviews(n, n)] for n in (64, 24))


def prefix_of(model: TrainedModel) -> dict[str, torch.Tensor]:
    backbone = model.model.backbone
    return {name: p for name, p in backbone.state_dict().items() if ".prefix." in name}


@pytest.mark.product(few=1)
@pytest.mark.parametrize("layout", ["encoder", "decoder", "encoder_decoder"])
def test_the_saved_model_predicts_what_was_scored_and_only_its_prefixes_are_new(
    layout: str, tmp_path: Path
) -> None:
    run = make_run(tmp_path, layout)
    result = tune(run, TRAIN, DEV, name="tuned", **FAST)
    tuned = load_tuned(result.out, "cpu")
    predicted, _ = tuned.predict([text for text, _ in DEV])
    right = np.mean([label == known for label, (_, known) in zip(predicted, DEV, strict=True)])
    assert right == result.rows[0]["accuracy"]
    settings = tuned.recipe.model
    assert isinstance(settings, StackSettings) and settings.attention_prefix == LENGTH
    before = open_run(run, "cpu").model.backbone.state_dict()
    after = tuned.network.backbone.state_dict()
    prefixes = {name for name in after if ".prefix." in name}
    assert after.keys() - prefixes == before.keys()
    fresh = list(tuned.template.fresh)  # tokens that pretraining never used
    for name, weight in before.items():
        changed = (after[name][: len(weight)] != weight).reshape(len(weight), -1).any(1)
        is_token = name == "embedding.token.weight"
        assert set(changed.nonzero().flatten().tolist()) <= set(fresh if is_token else [])
    gates = [after[name] for name in prefixes if name.endswith("gate")]
    assert len(gates) == (2 if layout != "encoder_decoder" else 6)
    assert all(gate.all() for gate in gates)
    head = sum(p.numel() for p in tuned.network.head.parameters())
    each = 2 * LENGTH * settings.heads * settings.head_width + settings.heads
    trained = len(gates) * each + len(fresh) * settings.d_model + head
    assert result.rows[0]["trained_parameters"] == trained


def test_a_task_that_reads_the_encoder_trains_its_prefixes_alone(tmp_path: Path) -> None:
    strategy = PrefixTuning(length=LENGTH)
    trained = adapted(open_run(make_run(tmp_path, "encoder_decoder"), "cpu"), strategy, 1)
    network = build_network(trained, Tag(), ("a", "b"), None)
    strategy.prepare(network, 1)
    trained_names = [n for n, p in network.backbone.named_parameters() if p.requires_grad]
    assert len(trained_names) == 2 * 3
    assert all(name.startswith("encoder.") for name in trained_names)


def test_a_prefix_of_random_values_differs_by_seed(tmp_path: Path) -> None:
    trained = open_run(make_run(tmp_path), "cpu")
    one, same, other = (prefix_of(adapted(trained, PrefixTuning(), seed)) for seed in (1, 1, 2))
    name = "stack.blocks.1.attention.prefix.values"
    assert torch.equal(one[name], same[name]) and not torch.equal(one[name], other[name])
    assert adapted(trained, Frozen(), 1) is trained


@torch.no_grad()
def greedy(prompted: TrainedModel, start: list[int], count: int) -> list[int]:
    """The likeliest tokens, each computed from all before it, without a cache."""
    written = list(start)
    stops = set(stops_of(prompted).tolist())
    forbidden = set(np.flatnonzero(prompted.vocab.is_special).tolist()) - stops
    for _ in range(count):
        ids = torch.tensor([written])
        hidden = prompted.model.backbone(Batch(ids, torch.arange(len(written))[None], CausalMask()))
        logits = prompted.model.token_head(hidden.states[0, -1:])[0]
        logits[list(forbidden)] = -torch.inf
        written.append(int(logits.argmax()))
        if written[-1] in stops:
            written.pop()
            break
    return written[len(start) :]


@pytest.mark.full
def test_a_model_tuned_to_chat_writes_with_a_cache_what_it_writes_without(tmp_path: Path) -> None:
    run = make_run(tmp_path, "decoder")
    tuned = tune(run, SINGLE * 4, SINGLE, name="chat", task="chat", **FAST).out
    trained = open_run(tuned, "cpu")
    assert any(gate.any() for name, gate in prefix_of(trained).items() if name.endswith("gate"))
    prompted = trained
    for start in starts_of(prompted, ["the film was", "a day in town"]):
        new = decode(prompted, [start], replace(GREEDY, tokens=12), stops_of(prompted))[0]
        assert new.ids.tolist() == greedy(prompted, start.target.tolist(), 12)


@pytest.mark.product(few=1)
@pytest.mark.parametrize("layout", ["decoder", "encoder_decoder"])
def test_a_model_that_answers_in_text_is_loaded_with_its_prefix(
    layout: str, tmp_path: Path
) -> None:
    run = make_run(tmp_path, layout)
    result = tune(run, TRAIN, DEV, name="words", task="text_to_text", **FAST)
    writer = open_tuned(result.out, "cpu")
    answers = writer.predict([text for text, _ in DEV])
    right = np.mean([answer == label for answer, (_, label) in zip(answers, DEV, strict=True)])
    assert right == result.rows[0]["accuracy"]


@pytest.mark.full
def test_a_prefix_is_trained_on_or_kept_by_the_next_tuning(tmp_path: Path) -> None:
    first = tune(make_run(tmp_path), TRAIN, DEV, name="first", **FAST).out
    start = open_start(first, "cpu")
    before = prefix_of(start)
    assert adapted(start, PrefixTuning(length=LENGTH), 7) is start
    again = tune(first, TRAIN, DEV, name="again", **{**FAST, "epochs": 1}).out
    frozen = tune(
        first, TRAIN, DEV, name="frozen", **{**FAST, "strategy": "frozen", "settings": ()}
    )
    for folder, same in ((again, False), (frozen.out, True)):
        after = prefix_of(open_start(folder, "cpu"))
        assert after.keys() == before.keys()
        assert all(torch.equal(after[name], p) for name, p in before.items()) is same
    with pytest.raises(UserError, match=r"tune\.strategy\.length: the model has a prefix of 3, "):
        tune(first, TRAIN, DEV, name="longer", **{**FAST, "settings": ()})


def test_the_next_tuning_has_the_head_that_a_model_without_a_prefix_would_have(
    tmp_path: Path,
) -> None:
    run = make_run(tmp_path, "decoder", activation="gelu_tanh", init="gpt2", position="learned")
    plain = open_run(run, "cpu")
    expected = published_head(plain, "SequenceClassification")
    assert published_head(adapted(plain, PrefixTuning(), 1), "SequenceClassification") == expected
    assert expected is not None and expected.architecture == "GPT2ForSequenceClassification"


@pytest.mark.parametrize("layout", ["recurrent", "bidirectional", "word_vectors"])
def test_a_model_without_self_attention_is_refused(layout: str, tmp_path: Path) -> None:
    trained = open_run(make_run(tmp_path, layout), "cpu")
    with pytest.raises(UserError, match="has no self-attention to give a prefix; use full or fro"):
        settings = TuneSettings(strategy=PrefixTuning(), seeds=1)
        tune_network(trained, Classify(), reviews(8, 1), reviews(8, 2), settings)


def test_what_the_prefix_changed_is_measured_from_closed_gates(tmp_path: Path) -> None:
    run = make_run(tmp_path)
    out = tune(run, TRAIN, DEV, name="tuned", **FAST).out
    change = change_of(open_tuned(out, "cpu"), open_run(run, "cpu"), reviews(24, 24), "tuned")
    gates = {name: w for name, w in change.start.items() if name.endswith("prefix.gate")}
    assert len(gates) == 2 and not any(gate.any() for gate in gates.values())
    before, after = line(change, [0.0, 1.0])
    assert before != after and distances(change)["all"] > 0


def test_a_model_with_a_prefix_is_not_exported(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = make_run(tmp_path / "run", "decoder")
    out = tmp_path / "exported"
    for task, train in (("classify", TRAIN), ("chat", SINGLE)):
        settings = {**FAST, "epochs": 1}
        tuned = tune(run, train, train, name=task, task=task, **settings).out
        for options, words in (
            ([], "has a learned prefix of attention (model.attention_prefix), which no"),
            (["--adapter", str(run)], "has no adapter; tune with --strategy lora"),
        ):
            assert command(["export", str(tuned), "--out", str(out), *options]) == 2
            error = capsys.readouterr().err.splitlines()
            assert words in error[-1] and "lora" in error[-1]
            assert not out.exists()


def test_modules_of_a_prefix_are_found_in_shared_layers_once(tmp_path: Path) -> None:
    trained = open_run(make_run(tmp_path, share="all"), "cpu")
    model = adapted(trained, PrefixTuning(), 1).model
    assert sum(isinstance(module, AttentionPrefix) for module in model.modules()) == 1
