from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

from foreword.nn.masks import Causal, Full, SameDocument
from foreword.train.opened import Opened, open_run
from foreword.tune import rows
from foreword.tune.contracts import Labelled, Network
from foreword.tune.course import build_network, outputs_of, start_head
from foreword.tune.framing import frame_of
from foreword.tune.rows import Examples, first_fit
from foreword.tune.tasks.classify import Classify
from foreword.types import Batch
from tests.tune.runs import LAYOUTS, make_run, reviews

LABELS = ("bad", "good")
TASK = Classify(dropout=0.0)


def examples_of(opened: Opened, labelled: list[Labelled]) -> Examples:
    frame = frame_of(opened.recipe, opened.vocab, None)
    encoded = TASK.encode(labelled, opened.tokenizer, frame)
    return Examples(encoded, TASK.targets(labelled, LABELS), frame)


def network_of(opened: Opened) -> Network:
    network = build_network(opened, TASK, LABELS, None)
    start_head(network, 1)
    return network.train()


def gradients(network: Network) -> dict[str, Tensor]:
    found = {n: p.grad.clone() for n, p in network.named_parameters() if p.grad is not None}
    network.zero_grad()
    return found


def one_per_row(examples: Examples, width: int) -> tuple[Batch, Tensor]:
    """By hand: an example a row, padded to `width`; and the place of each one's answer."""
    frame, count = examples.frame, len(examples)
    ids = torch.zeros(count, width, dtype=torch.long)
    segments, documents = torch.zeros_like(ids), torch.full_like(ids, -1)
    for n, example in enumerate(examples.encoded):
        length = len(example.ids)
        ids[n, :length] = torch.from_numpy(example.ids)
        segments[n, :length] = torch.from_numpy(example.segments)
        documents[n, :length] = 0
    positions = torch.arange(width).expand(count, width)
    own = SameDocument(documents, documents)
    mask = Causal() & own if frame.is_causal else own
    batch = Batch(ids, positions, mask, segments=segments if frame.has_segments else None)
    if frame.start is None:
        last = torch.tensor([len(e.ids) - 1 for e in examples.encoded])
        return batch, torch.zeros_like(last) if frame.reads_first else last
    starts = torch.full((count, 1), frame.start)
    zeros = torch.zeros_like(starts)
    cross = SameDocument(zeros, documents)
    decoder = Batch(starts, zeros, Full(), source=batch, cross_mask=cross)
    return decoder, torch.zeros(count, dtype=torch.long)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_packed_rows_give_the_gradient_of_padded_ones(tmp_path: Path, layout: str) -> None:
    opened = open_run(make_run(tmp_path, layout), "cpu")
    labelled = [e._replace(pair="we saw the day") for e in reviews(13, 2)]
    examples = examples_of(opened, labelled)
    network = network_of(opened)

    batch, spots = one_per_row(examples, 32)
    states = network.backbone(batch).states[torch.arange(13), spots]
    padded = TASK.loss(network.head(states), torch.from_numpy(examples.targets))
    padded.total.backward()
    expected = gradients(network)

    order = np.random.default_rng(0).permutation(13)
    packed = [b.to("cpu") for b in examples.batches(order, "cpu")]
    losses = [TASK.loss(outputs_of(network, b), b.targets) for b in packed]
    torch.stack([loss.total for loss in losses]).sum().backward()
    found = gradients(network)

    source = packed[0].batch.source or packed[0].batch
    assert len(source.ids) < 13, "nothing was packed, so nothing is tested"
    assert float(sum(loss.weight for loss in losses)) == 13
    torch.testing.assert_close(sum(loss.total for loss in losses), padded.total)
    assert found.keys() == expected.keys()
    for name, gradient in expected.items():
        torch.testing.assert_close(found[name], gradient, rtol=1e-4, atol=2e-5, msg=name)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_fixed_shapes_and_few_tokens_at_once_change_nothing(
    tmp_path: Path, layout: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened = open_run(make_run(tmp_path, layout), "cpu")
    examples = examples_of(opened, reviews(30, 3))
    network = network_of(opened)

    def outputs(device: str) -> tuple[Tensor, list[tuple[int, ...]]]:
        found, shapes = torch.zeros(30, 2), []
        for batch in examples.batches(np.arange(30), device):
            moved = batch.to("cpu")
            found[moved.numbers] = outputs_of(network, moved)
            source = moved.batch.source or moved.batch
            shapes.append(tuple(source.ids.shape))
        return found, shapes

    free, _ = outputs("cpu")
    monkeypatch.setattr(rows, "TOKENS_AT_ONCE", {"cpu": 1 << 14, "cuda": 96})
    fixed, shapes = outputs("cuda")  # the shapes that CUDA gets; computed here
    assert len(shapes) > 1
    assert all(width == 32 and count in (1, 2, 4) for count, width in shapes)
    assert not fixed.isnan().any()
    torch.testing.assert_close(fixed, free)
    fixed.sum().backward()
    assert all(not g.isnan().any() for g in gradients(network).values())


def test_first_fit_fills_the_first_row_with_room() -> None:
    assert first_fit([5, 4, 3, 2, 6, 1], 8) == [[0, 2], [1, 3, 5], [4]]


def test_every_example_is_there_once(tmp_path: Path) -> None:
    opened = open_run(make_run(tmp_path), "cpu")
    examples = examples_of(opened, reviews(50, 4))
    numbers = np.arange(49, 9, -1)
    seen = np.concatenate([b.numbers for b in examples.batches(numbers, "cpu")])
    assert sorted(seen.tolist()) == sorted(numbers.tolist())
    for batch in examples.batches(numbers, "cpu"):
        cls = opened.vocab.id("[CLS]")
        assert (batch.batch.ids[batch.rows, batch.columns] == cls).all()
        assert (batch.targets == examples.targets[batch.numbers]).all()
