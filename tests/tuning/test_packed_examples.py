from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

from foreword.nn.feedforward import FeedForward
from foreword.nn.masks import CausalMask, DocumentMask, FullMask
from foreword.runs.run_folder import open_run
from foreword.runs.trained_model import TrainedModel
from foreword.tables.examples import Labelled
from foreword.tuning import packed_examples
from foreword.tuning.input_template import Pooling, template_of
from foreword.tuning.network import Network
from foreword.tuning.packed_examples import PooledExamples, first_fit
from foreword.tuning.starting_network import build_network
from foreword.tuning.tasks.classify import Classify
from foreword.types import Batch
from tests.tuning.runs import LAYOUTS, make_run, reviews

LABELS = ("bad", "good")
TASK = Classify(dropout=0.0)


def examples_of(
    trained: TrainedModel, labelled: list[Labelled], pooling: Pooling | None = None
) -> PooledExamples:
    template = template_of(trained.recipe, trained.vocab, None)
    encoded = Classify(pooling=pooling).encode(labelled, trained.tokenizer, template)
    return PooledExamples(encoded, TASK.targets(labelled, LABELS), template)


def network_of(trained: TrainedModel, pooling: Pooling | None = None) -> Network:
    network = build_network(trained, replace(TASK, pooling=pooling), LABELS, None)
    network.initialise_head(1)
    network.token_head = None  # as without an auxiliary loss
    return network.train()


def gradients(network: Network) -> dict[str, Tensor]:
    by_name = {n: p.grad.clone() for n, p in network.named_parameters() if p.grad is not None}
    network.zero_grad()
    return by_name


def one_per_row(examples: PooledExamples, width: int) -> Batch:
    """By hand: an example a row, padded to `width`."""
    template, count = examples.template, len(examples)
    ids = torch.zeros(count, width, dtype=torch.long)
    segments, documents = torch.zeros_like(ids), torch.full_like(ids, -1)
    for n, example in enumerate(examples.encoded):
        length = len(example.ids)
        ids[n, :length] = torch.from_numpy(example.ids)
        segments[n, :length] = torch.from_numpy(example.segments)
        documents[n, :length] = 0
    positions = torch.arange(width).expand(count, width)
    own = DocumentMask(documents, documents)
    mask = CausalMask() & own if template.is_causal else own
    batch = Batch(ids, positions, mask, segments=segments if template.has_segments else None)
    if template.start is None:
        return batch
    starts = torch.full((count, 1), template.start)
    zeros = torch.zeros_like(starts)
    cross = DocumentMask(zeros, documents)
    return Batch(starts, zeros, FullMask(), source=batch, cross_mask=cross)


def positions_of_the_last_layer(network: Network) -> list[int]:
    """Return a list that gets the number of positions of each call of the last feed-forward."""
    counts: list[int] = []
    last = network.backbone.layer_modules()[-1]
    for module in last.modules():
        if isinstance(module, FeedForward):
            module.register_forward_hook(lambda _, given, made: counts.append(made[..., 0].numel()))
    return counts


READINGS = [
    ("encoder", "first"),
    ("encoder", "mean"),
    ("encoder", "max"),
    ("decoder", "max"),
    ("two_streams", "mean"),
    ("decoder", "mean"),
    ("decoder", "last"),
    ("recurrent", "last"),
    ("prefix", "last"),
    ("encoder_decoder", "first"),
]


@pytest.mark.product
@pytest.mark.parametrize(("layout", "pooling"), READINGS)
def test_packed_rows_give_the_gradient_of_padded_ones(
    tmp_path: Path, layout: str, pooling: Pooling
) -> None:
    trained = open_run(make_run(tmp_path, layout), "cpu")
    labelled = [e._replace(pair="we saw the day") for e in reviews(13, 2)]
    examples = examples_of(trained, labelled, pooling)
    network = network_of(trained, pooling)

    actual = network.backbone(one_per_row(examples, 32)).states
    read = [actual[n, e.pooled_positions] for n, e in enumerate(examples.encoded)]
    states = torch.stack([each.amax(0) if pooling == "max" else each.mean(0) for each in read])
    padded = TASK.loss(network.head(states), torch.from_numpy(examples.targets), torch.arange(13))
    padded.total.backward()
    expected = gradients(network)

    order = np.random.default_rng(0).permutation(13)
    computed = positions_of_the_last_layer(network)
    packed = [b.to("cpu") for b in examples.batches(order, "cpu")]
    losses = [TASK.loss(network.outputs(b.features(network)), b.targets, b.numbers) for b in packed]
    torch.stack([loss.total for loss in losses]).sum().backward()
    found_gradients = gradients(network)

    if pooling in ("first", "last") and layout in ("encoder", "decoder", "prefix"):
        assert computed[0] < packed[0].batch.ids.numel() / 3, "read positions alone"
    source = packed[0].batch.source or packed[0].batch
    assert len(source.ids) < 13, "nothing was packed, so nothing is tested"
    assert float(sum(loss.count for loss in losses)) == 13
    torch.testing.assert_close(sum(loss.total for loss in losses), padded.total)
    assert found_gradients.keys() == expected.keys()
    for name, gradient in expected.items():
        torch.testing.assert_close(found_gradients[name], gradient, rtol=1e-4, atol=2e-5, msg=name)


def test_the_auxiliary_loss_weights_every_text_equally(tmp_path: Path) -> None:
    """By hand: the mean over each text's predicted tokens, summed over texts, times the weight."""
    trained = open_run(make_run(tmp_path, "decoder"), "cpu")
    examples = replace(examples_of(trained, reviews(13, 2)), auxiliary=0.5)
    network = build_network(trained, TASK, LABELS, None).train()
    assert network.token_head is not None
    expected = actual = 0.0
    for row, example in zip(one_per_row(examples, 32).ids, examples.encoded, strict=True):
        ids = row[: len(example.ids)][None]
        batch = Batch(ids, torch.arange(ids.shape[1])[None], CausalMask())
        logits = network.token_head(network.backbone(batch).states)[0, :-1]
        expected += 0.5 * torch.nn.functional.cross_entropy(logits, ids[0, 1:]).item()
    for packed in examples.batches(np.arange(13), "cpu"):
        batch = packed.to("cpu").batch
        actual += network.token_head.loss(network.backbone(batch), batch).total.item()
    assert actual == pytest.approx(expected, rel=1e-5)


@pytest.mark.product(few=2)
@pytest.mark.parametrize("layout", LAYOUTS)
def test_fixed_shapes_and_small_batches_give_the_same_outputs(
    tmp_path: Path, layout: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    trained = open_run(make_run(tmp_path, layout), "cpu")
    examples = examples_of(trained, reviews(30, 3))
    network = network_of(trained)

    def outputs(device: str) -> tuple[Tensor, list[tuple[int, ...]]]:
        outputs, shapes = torch.zeros(30, 2), []
        for batch in examples.batches(np.arange(30), device):
            moved = batch.to("cpu")
            outputs[moved.numbers] = network.outputs(moved.features(network))
            source = moved.batch.source or moved.batch
            shapes.append(tuple(source.ids.shape))
        return outputs, shapes

    free, _ = outputs("cpu")
    monkeypatch.setattr(packed_examples, "TOKENS_AT_ONCE", {"cpu": 1 << 14, "cuda": 96})
    fixed, shapes = outputs("cuda")  # the shapes that CUDA gets; computed here
    assert len(shapes) > 1
    assert all(width == 32 and count in (1, 2, 4) for count, width in shapes)
    assert not fixed.isnan().any()
    torch.testing.assert_close(fixed, free)
    fixed.sum().backward()
    assert all(not g.isnan().any() for g in gradients(network).values())


def test_first_fit_chooses_the_first_row_with_room() -> None:
    assert first_fit([5, 4, 3, 2, 6, 1], 8) == [[0, 2], [1, 3, 5], [4]]


def test_every_example_is_packed_once(tmp_path: Path) -> None:
    trained = open_run(make_run(tmp_path), "cpu")
    examples = examples_of(trained, reviews(50, 4), "first")
    numbers = np.arange(49, 9, -1)
    seen = np.concatenate([b.numbers for b in examples.batches(numbers, "cpu")])
    assert sorted(seen.tolist()) == sorted(numbers.tolist())
    for batch in examples.batches(numbers, "cpu"):
        cls = trained.vocab.id("[CLS]")
        assert (batch.batch.ids[batch.rows, batch.columns] == cls).all()
        assert (batch.targets == examples.targets[batch.numbers]).all()
