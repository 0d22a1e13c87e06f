"""Long texts are read whole, in windows whose states become one."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from foreword import tune as tune_files
from foreword.disk import manifest, stored
from foreword.runs.run_folder import open_run
from foreword.runs.trained_model import TrainedModel
from foreword.tables.examples import Labelled, LabelledTexts
from foreword.tuned_exports.folder import cutting
from foreword.tuning import packed_examples, windows
from foreword.tuning.features import Features
from foreword.tuning.input_template import InputTemplate
from foreword.tuning.job import Examples
from foreword.tuning.network import Network
from foreword.tuning.outputs import predict
from foreword.tuning.settings import TuneSettings
from foreword.tuning.starting_network import build_network
from foreword.tuning.strategies.frozen import Frozen
from foreword.tuning.strategies.full import Full
from foreword.tuning.strategies.lora import LoRA
from foreword.tuning.tasks._contract import Task
from foreword.tuning.tasks.choice import Choice
from foreword.tuning.tasks.classify import Classify
from foreword.tuning.tasks.embed import Embed
from foreword.tuning.tasks.regress import Regress
from foreword.tuning.tune_data import TuneData, draw_and_encode
from foreword.tuning.tuned_folder import FILE, KIND, VERSION
from foreword.tuning.tuned_model import load_tuned
from foreword.tuning.windows import STEP_WINDOWS, WindowPooling, drawn, overlapping
from tests.tuning.runs import BAD, GOOD, LAYOUTS, OTHER, make_run, reviews, tune

CPU, FP32 = torch.device("cpu"), torch.float32
POOLINGS: tuple[Any, ...] = ("mean", "max", "attention")
FAST: dict[str, Any] = {"device": "cpu", "progress": False}


def long_reviews(count: int, seed: int, words: int = 70) -> list[Labelled]:
    """Texts of one window or of several, with a telling word at the end."""
    rng = np.random.default_rng(seed)
    fillers = [" ".join(rng.choice(OTHER, n % 3 * words // 2)) for n in range(count)]
    texts = zip(fillers, reviews(count, seed), strict=True)
    return [one._replace(text=f"{filler} {one.text}".strip()) for filler, one in texts]


def questions(count: int) -> list[Labelled]:
    return [
        Labelled("we saw", str(n % 2), json.dumps([one.text, GOOD[0], BAD[0]]))
        for n, one in enumerate(long_reviews(count, 1))
    ]


def pairs(count: int) -> list[Labelled]:
    return [one._replace(label="", pair=f"{one.text} day") for one in long_reviews(count, 1)]


TASKS: dict[str, tuple[Callable[[Any], Task], Callable[[int], list[Labelled]]]] = {
    "classify": (lambda how: Classify(windows=how, dropout=0.0), lambda n: long_reviews(n, 1)),
    "pairs": (
        lambda how: Classify(windows=how, dropout=0.0),
        lambda n: [one._replace(pair="we saw the day") for one in long_reviews(n, 1)],
    ),
    "regress": (
        lambda how: Regress(windows=how, dropout=0.0),
        lambda n: [one._replace(label=str(k % 5)) for k, one in enumerate(long_reviews(n, 1))],
    ),
    "choice": (lambda how: Choice(windows=how, dropout=0.0), questions),
    "embed": (lambda how: Embed(windows=how), pairs),
}


def encoded(trained: TrainedModel, task: Task, examples: list[Labelled]) -> TuneData:
    part = Examples(examples, examples)
    return draw_and_encode(trained, task, [TuneSettings(seeds=1, max_length=16)], part)


def network_of(data: TuneData, task: Task) -> Network:
    network = build_network(data.trained, task, data.labels, None)
    network.initialise_head(1)
    network.token_head = None
    with torch.no_grad():
        for parameter in network.window_pooling.parameters() if network.window_pooling else ():
            parameter.normal_(generator=torch.Generator().manual_seed(2))
    return network


@pytest.mark.parametrize("length", [1, 8, 9, 15, 16, 17, 40, 200])
def test_windows_hold_every_token_and_overlap(length: int) -> None:
    ids = list(range(length))
    parts = [list(part) for part in overlapping(ids, 8)]
    assert len(parts) == 1 or {len(part) for part in parts} == {8}
    assert sorted({n for part in parts for n in part}) == ids
    shared = [len({*a} & {*b}) for a, b in itertools.pairwise(parts)]
    assert min(shared, default=2) >= 2
    assert len(parts) == 1 + max(0, -(-(length - 8) // 6)), "no more than needed"


@pytest.mark.parametrize(
    ("first", "second", "cut", "kept"), [(40, 4, False, 4), (4, 40, False, 4), (40, 39, True, 6)]
)
def test_the_longer_text_of_a_pair_has_windows(
    first: int, second: int, cut: bool, kept: int
) -> None:
    template = InputTemplate((1,), (2,), 16, False, True, separator=(3,))
    texts = list(template.windows(range(100, 100 + first), range(200, 200 + second), is_cut=False))
    assert len(texts) > 3 and all(len(text.ids) == 16 and text.was_cut == cut for text in texts)
    seen = {int(n) for text in texts for n in text.ids}
    longer = range(100, 100 + first) if first > second else range(200, 200 + second)
    shorter = range(200, 200 + kept) if first > second else range(100, 100 + kept)
    assert seen == {1, 2, 3, *longer, *shorter}
    assert all({*shorter} <= {*text.ids.tolist()} for text in texts)


def test_a_step_reads_few_windows_evenly_and_in_time_all() -> None:
    parts = [drawn(np.arange(30), epoch) for epoch in range(10)]
    assert all(len(part) == STEP_WINDOWS and np.diff(part).min() >= 3 for part in parts)
    assert {int(n) for part in parts for n in part} == set(range(30))
    assert drawn(np.arange(8), 3).tolist() == list(range(8))
    assert drawn(np.arange(30), None).tolist() == list(range(30))


@pytest.mark.parametrize("how", POOLINGS)
def test_states_of_windows_become_one(how: Any) -> None:
    states = torch.randn(6, 5, generator=torch.Generator().manual_seed(1))
    pooling = WindowPooling(how, 5)
    if pooling.attention is not None:
        mean = WindowPooling("mean", 5)(states, torch.tensor([1, 5]))
        torch.testing.assert_close(pooling(states, torch.tensor([1, 5])), mean)
        torch.nn.init.normal_(pooling.attention.weight)
        shares = torch.softmax(states[1:] @ pooling.attention.weight[0], dim=0)
        expected = shares @ states[1:]
    else:
        expected = states[1:].amax(0) if how == "max" else states[1:].mean(0)
    one, many = pooling(states, torch.tensor([1, 5]))
    assert torch.equal(one, states[0]), "a single window stays as it is"
    torch.testing.assert_close(many, expected)


@pytest.mark.product(few=4)
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("name", TASKS)
@pytest.mark.parametrize("how", POOLINGS)
def test_a_text_has_the_same_output_alone_and_among_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, layout: str, name: str, how: Any
) -> None:
    """Whatever fits in memory at once, and with cached features."""
    trained = open_run(make_run(tmp_path, layout), "cpu")
    make, examples_of = TASKS[name]
    task, examples = make(how), examples_of(14)
    data = encoded(trained, task, examples)
    assert any(one.is_continued for one in data.dev[0].encoded)
    assert not any(one.was_cut for one in data.dev[0].encoded)
    network = network_of(data, task)
    together = predict(network, data.dev[0], CPU, FP32)
    cached = Features.compute(network, data.dev[0], CPU, FP32, lambda: None)
    np.testing.assert_allclose(predict(network, cached, CPU, FP32), together, rtol=1e-4, atol=1e-5)
    with torch.no_grad():
        (batch,) = cached.batches(np.arange(14), "cpu")
        batch = batch.to("cpu")
        outputs = network.eval().outputs(batch.features(network), batch.windows)
    np.testing.assert_allclose(outputs, together, rtol=1e-4, atol=1e-5)
    monkeypatch.setattr(packed_examples, "TOKENS_AT_ONCE", {"cpu": 32})  # a few windows at once
    few = predict(network, data.dev[0], CPU, FP32)
    np.testing.assert_allclose(few, together, rtol=1e-4, atol=1e-5)
    alone = [
        predict(network, encoded(trained, task, [*examples[:2], one]).dev[0], CPU, FP32)
        for one in examples[2:6]
    ]
    size = len(together) // 14
    expected = together[2 * size : 6 * size]
    found = np.concatenate([one[2 * size :] for one in alone])
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", TASKS)
def test_micro_batches_give_the_gradient_of_the_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    trained = open_run(make_run(tmp_path, "decoder"), "cpu")
    make, examples_of = TASKS[name]
    task = make("attention")
    data = encoded(trained, task, examples_of(9))
    network = network_of(data, task).eval()
    gradients = []
    for tokens in (1 << 14, 32):
        monkeypatch.setattr(packed_examples, "TOKENS_AT_ONCE", {"cpu": tokens})
        network.zero_grad()
        batches = [batch.to("cpu") for batch in data.train.batches(np.arange(9), "cpu", epoch=1)]
        assert (len(batches) > 1) == (tokens == 32 and name != "embed")
        for batch in batches:
            outputs = network.training_outputs(
                batch.features(network), batch.targets, batch.windows
            )
            task.loss(outputs, batch.targets, batch.numbers).total.backward()
        gradients.append({n: p.grad for n, p in network.named_parameters() if p.grad is not None})
    assert "window_pooling.attention.weight" in gradients[0]
    for parameter, gradient in gradients[0].items():
        torch.testing.assert_close(gradients[1][parameter], gradient, rtol=1e-3, atol=1e-4)


def test_the_auxiliary_loss_counts_a_text_once_whatever_its_windows(tmp_path: Path) -> None:
    trained = open_run(make_run(tmp_path, "decoder"), "cpu")
    task = Classify(auxiliary=0.5)
    data = encoded(trained, task, long_reviews(9, 1))
    for batch in data.train.batches(np.arange(9), "cpu"):
        parts = [batch, *batch.further]
        total = sum(float(np.asarray(part.batch.weights).sum()) for part in parts)
        assert total == pytest.approx(0.5 * len(batch.numbers))


def test_texts_that_fit_give_bit_for_bit_what_a_cut_gives(tmp_path: Path) -> None:
    trained = open_run(make_run(tmp_path), "cpu")
    results = [
        tune(trained, Classify(windows=how), reviews(40, 1), reviews(20, 2), TuneSettings(seeds=1))
        for how in ("cut", "mean", "attention")
    ]
    weights = [dict(result.network.state_dict()) for result in results]
    for other in weights[1:]:
        assert all(torch.equal(weight, other[name]) for name, weight in weights[0].items())
    assert results[0].epochs == results[1].epochs


LEARNERS: list[tuple[Any, Any, dict[str, Any]]] = [
    ("mean", Frozen(lr=3e-2), {}),
    ("max", LoRA(lr=2e-2), {}),
    ("attention", Frozen(lr=3e-2), {}),
    ("attention", Full(lr=1e-2), {"mix_layers": True}),
]


@pytest.mark.product(few=2)
@pytest.mark.parametrize(("how", "strategy", "settings"), LEARNERS)
def test_the_end_of_a_long_text_is_learned(
    tmp_path: Path, how: Any, strategy: Any, settings: dict[str, Any]
) -> None:
    """The telling words are beyond the first window, which alone a cut reads."""
    trained = open_run(make_run(tmp_path), "cpu")
    train, dev = (
        [one._replace(text=f"{'the film ' * 12} {' '.join([one.text] * 3)}") for one in part]
        for part in (reviews(150, 1), reviews(60, 2))
    )
    chosen = TuneSettings(strategy=strategy, seeds=1, epochs=4, max_length=16)
    task = Classify(windows=how, pooling="mean", **settings)
    whole = tune(trained, task, train, dev, chosen).rows[0]["accuracy"]
    cut = tune(trained, cutting(task), train, dev, chosen).rows[0]["accuracy"]
    assert whole > cut + 0.1


def test_a_huge_text_is_read_in_bounded_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trained = open_run(make_run(tmp_path), "cpu")
    task = Classify()
    data = encoded(trained, task, [Labelled("the film " * 5000, name) for name in ("bad", "good")])
    monkeypatch.setattr(packed_examples, "TOKENS_AT_ONCE", {"cpu": 1024})
    network, shapes = network_of(data, task), []
    run_backbone = type(network).run_backbone

    def noting(self: Network, batch: Any) -> Any:
        shapes.append(batch.ids.numel())
        return run_backbone(self, batch)

    monkeypatch.setattr(type(network), "run_backbone", noting)
    assert predict(network, data.dev[0], CPU, FP32).shape == (2, 2)
    assert max(shapes) <= 1024 and sum(shapes) > 20_000
    shapes.clear()
    for batch in data.train.batches(np.arange(2), "cpu", epoch=0):
        batch.to("cpu").features(network)
    assert sum(shapes) <= 2 * STEP_WINDOWS * 16


def test_a_model_saved_before_there_were_windows_cuts(tmp_path: Path) -> None:
    examples = [(one.text, one.label) for one in long_reviews(12, 1)]
    run = make_run(tmp_path / "run")
    texts = [text for text, _ in examples]
    cut = tune_files(run, examples, examples, strategy="full", seeds=1, epochs=1, name="cut",
                     settings={"task.windows": "cut"}, **FAST).out  # fmt: skip
    expected = load_tuned(cut, "cpu").outputs(texts)
    about = stored.read(cut / FILE)
    del about["task"]["windows"]
    (cut / FILE).write_text(stored.dumps({k: v for k, v in about.items() if k != stored.CHECKSUM}))
    manifest.write(cut, KIND, VERSION)
    older = load_tuned(cut, "cpu")
    assert older.task.needs.windows == "cut"
    assert np.array_equal(older.outputs(texts), expected)
    whole = replace(older, task=replace(older.task, windows="mean"))
    assert not np.allclose(whole.outputs(texts), expected)


@pytest.mark.parametrize("how", ["attention", "max"])
def test_a_tuned_model_predicts_what_it_was_scored_by(tmp_path: Path, how: Any) -> None:
    train, dev = ([(o.text, o.label) for o in long_reviews(24, seed)] for seed in (1, 2))
    run = make_run(tmp_path / "run")
    done = tune_files(run, train, dev, strategy="full", seeds=1, epochs=2, lr=1e-2, **FAST,
                      settings={"task.windows": how})  # fmt: skip
    tuned = load_tuned(done.out, "cpu")
    labels, _ = tuned.predict([text for text, _ in dev])
    right = np.mean([label == answer for label, (_, answer) in zip(labels, dev, strict=True)])
    assert right == pytest.approx(done.rows[0]["accuracy"])
    counted: list[int] = []
    examples = LabelledTexts.of(Labelled(text) for text, _ in dev)
    _, cut = tuned.answer(examples, probabilities=False, done=counted.append)
    assert (cut, sum(counted)) == (0, 24), "each text is counted once"
    assert windows.STEP_WINDOWS == 8, "as the docstring of `PooledTask.windows` says"
