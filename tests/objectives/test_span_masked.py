from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy import stats
from torch.nn import functional as F

from foreword.data.rng import RowRng
from foreword.nn.boundary_head import outside
from foreword.objectives.span_masked import SpanMasked
from foreword.testing.objectives import corrupt
from foreword.types import Array, Example, Rows

from ..contracts.cases import FIRST, SEED, Case, rows, vocab

CASE = Case("span_masked", "encoder", "transformer")
MASK = vocab().id("[MASK]")


def inputs(example: Example) -> Array:
    assert example.source is not None
    return example.source.ids


def words_alone(length: int, batch: int) -> Rows:
    """Rows in which every ordinary token is a word; one document each."""
    given = rows([[length]] * batch)
    given.ids[:] = np.where(given.ids >= FIRST, FIRST + (given.ids - FIRST) // 2 * 2 + 1, given.ids)
    assert vocab().starts_word[given.ids[given.ids >= FIRST]].all()
    return given


def spans(chosen: Array) -> list[tuple[int, int, int]]:
    """Row, start and end of every run, found one token at a time."""
    spans = []
    for row, line in enumerate(chosen):
        edges = np.flatnonzero(np.diff(np.concatenate([[0], line.astype(int), [0]])))
        spans += [(row, int(a), int(b)) for a, b in edges.reshape(-1, 2)]
    return spans


def truncated_geometric(stop: float, most: int) -> Array:
    lengths = np.arange(1, most + 1)
    return np.asarray(stats.geom.pmf(lengths, stop) / stats.geom.cdf(most, stop))


@pytest.mark.parametrize(("stop", "most"), [(0.2, 10), (0.5, 4), (0.05, 20)])
def test_lengths_are_geometric(stop: float, most: int) -> None:
    draws = RowRng(SEED, np.arange(1)).uniform(20_000)[0]
    result = SpanMasked(stop=stop, longest=most).lengths(draws, most)
    counts = np.bincount(result, minlength=most + 1)[1:]
    assert stats.chisquare(counts, len(draws) * truncated_geometric(stop, most)).pvalue > 0.01
    assert result.max() == most


def test_placed_spans_have_geometric_lengths() -> None:
    masked = spans(corrupt(SpanMasked(), words_alone(2000, 20)).weights > 0)
    lengths = np.array([end - start for _, start, end in masked])
    counts = np.bincount(lengths, minlength=11)[1:]
    assert lengths.max() == 10
    assert lengths.mean() == pytest.approx(3.8, abs=0.15)  # Joshi et al. 2020, section 3.1
    assert stats.chisquare(counts, len(lengths) * truncated_geometric(0.2, 10)).pvalue > 0.01


@pytest.mark.parametrize("rate", [0.15, 0.3])
def test_each_row_has_its_share_masked(rate: float) -> None:
    given = words_alone(200, 30)
    targets = corrupt(SpanMasked(rate=rate), given).weights.sum(1)
    assert targets.tolist() == [np.rint(rate * 199)] * 30  # all but </s>


def test_a_row_without_room_has_fewer_targets() -> None:
    given = rows([[4, 4, 4], [12], [12]])
    targets = corrupt(SpanMasked(rate=1.0, longest=10), given).weights.sum(1)
    assert 1 <= targets[0] <= 6
    assert (targets[1:] <= 10).all()


def test_spans_are_whole_words_of_one_document_and_do_not_touch() -> None:
    given = rows([[50, 50], [100], [64], [3, 3, 60, 2]] * 20)
    example = corrupt(SpanMasked(), given)
    chosen, first = example.weights > 0, vocab().starts_word[given.ids]
    for row, start, end in spans(chosen):
        documents = given.documents[row, start - 1 : end + 1]
        assert len(documents) == end - start + 2
        assert (documents == documents[0]).all()
        assert first[row, start] or given.positions[row, start] == 0
        assert first[row, end] or given.ids[row, end] < FIRST
        assert (given.ids[row, start:end] >= FIRST).all()


def test_a_span_has_one_fate() -> None:
    given = words_alone(128, 300)
    example = corrupt(SpanMasked(), given)
    shown, fates = inputs(example), []
    for row, start, end in spans(example.weights > 0):
        is_mask = shown[row, start:end] == MASK
        assert is_mask.all() or not is_mask.any()
        is_kept = (shown[row, start:end] == given.ids[row, start:end]).all()
        fates.append(0 if is_mask.all() else 2 if is_kept else 1)
    n, counts = len(fates), np.bincount(fates, minlength=3)
    for count, share in zip(counts, (0.8, 0.1, 0.1), strict=True):
        assert abs(count - n * share) < 4 * np.sqrt(n * share * (1 - share))
    assert (shown[example.weights == 0] == given.ids[example.weights == 0]).all()


def test_every_position_is_chosen_about_equally_often() -> None:
    counts = corrupt(SpanMasked(longest=3), words_alone(41, 3000)).weights.sum(0)[2:-3]
    assert counts.std() / counts.mean() < 0.1


def test_boundaries_are_the_positions_outside_of_a_span() -> None:
    runs = torch.tensor([[0, 1, 1, 0, 1, 0], [0, 0, 1, 1, 1, 0]]).bool()
    before, after = outside(runs)
    assert before[runs].tolist() == [0, 0, 3, 1, 1, 1]
    assert after[runs].tolist() == [3, 3, 5, 5, 5, 5]


def test_the_boundary_head_reads_boundaries_and_position_alone() -> None:
    """Against the formula of section 3.2, one token at a time."""
    model, batch = CASE.build(), CASE.batch(rows([[30, 20], [50]]))
    hidden = model.backbone(batch)
    head, token = model.heads["boundary"], model.token_head
    states, total = hidden.states.detach().requires_grad_(), torch.zeros(())
    one, gelu, norm, two, _, last = head.layers
    chosen = np.asarray(batch.weights > 0)
    for row, start, end in spans(chosen):
        for position in range(start, end):
            p = head.position_embedding.weight[position - start]
            h = torch.cat([states[row, start - 1], states[row, end], p])
            h = norm(gelu(one(h)))
            h = last(gelu(two(h)))
            logits = token.weight @ h + token.bias
            total = total + F.cross_entropy(logits, batch.targets[row, position])
    loss = CASE.loss(model, batch)
    torch.testing.assert_close(loss.components["boundary"][0], total)
    (gradient,) = torch.autograd.grad(total, states)
    assert not gradient[batch.weights > 0].any()  # nothing of the span itself


def test_the_loss_is_the_sum_of_both_predictions() -> None:
    model, batch = CASE.build(), CASE.batch(rows([[40]] * 3))
    loss, n = CASE.loss(model, batch), batch.weights.sum()
    alone = SpanMasked(boundary=False).loss(model, batch)
    torch.testing.assert_close(loss.components["masked"][0], alone.total)
    torch.testing.assert_close(loss.total, alone.total + loss.components["boundary"][0])
    assert loss.count == alone.count == n
    assert {part[1].item() for part in loss.components.values()} == {n.item()}


def test_without_the_boundary_objective_only_berts_head_remains() -> None:
    backbone = CASE.build().backbone
    assert set(SpanMasked(boundary=False).heads(backbone, vocab())) == {"token"}


def test_positions_beyond_the_last_share_its_embedding() -> None:
    head = SpanMasked(positions=2).heads(CASE.build().backbone, vocab())["boundary"]
    state = torch.randn(3, 24)
    logits = head(state[:1].expand(3, -1), state[1:2].expand(3, -1), torch.arange(3))
    assert torch.equal(logits[1], logits[2])
    assert not torch.equal(logits[0], logits[1])


def test_a_span_longer_than_a_row_is_refused() -> None:
    with pytest.raises(ValueError, match="longest: a span of 10 words"):
        SpanMasked().require_room(11)
    SpanMasked().require_room(12)
