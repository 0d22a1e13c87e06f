"""LSTM encoder-decoders with every attention to the source, packed and alone, cached and not."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from foreword.models.seq2seq import Seq2Seq
from foreword.nn.document_spans import DocumentSpans
from foreword.nn.init import initialise
from foreword.nn.masks import CausalMask, FullMask
from foreword.nn.model import Model
from foreword.settings import kinds
from foreword.types import Batch

from ..contracts.cases import SIZE, Case, is_scored, logits, rows, select_rows, tiny, vocab

CASE = Case("translate", "encoder_decoder", "seq2seq")
ALIGNMENTS = kinds.names("nn/source_attentions")
every_alignment = pytest.mark.parametrize("name", ALIGNMENTS)


def build(name: str, **settings: Any) -> Model:
    chosen = replace(
        tiny("seq2seq"), attention=kinds.load("nn/source_attentions", name)(), **settings
    )
    backbone = chosen.build(SIZE)
    model = Model(backbone, kinds.load("objectives", "translate")().heads(backbone, vocab()))
    initialise(model, 1)
    return model.eval()


def forms() -> list[Any]:
    """Every attention to the source: one direction or two, with and without input feeding."""
    params = []
    for name in ALIGNMENTS:
        params += [pytest.param(name, {"bidirectional": both}) for both in (True, False)]
        if name != "none":
            params.append(pytest.param(name, {"input_feeding": True}))
    return params


every_form = pytest.mark.parametrize(("name", "settings"), forms())


@pytest.mark.product
@every_form
def test_packed_pairs_give_the_logits_of_each_alone(name: str, settings: dict[str, Any]) -> None:
    model, many = build(name, **settings), rows([[12, 8, 4], [7, 3], [20]])
    together = CASE.batch(many)
    packed = logits(model, together)[is_scored(together)]
    alone = []
    for row in range(len(many)):
        for number in range(int(many.documents[row].max()) + 1):
            inside = many.documents[row] == number
            one = replace(select_rows(many, [row]), segments=None, parts=())
            cut = {
                key: getattr(many, key)[row][None, inside]
                for key in ("ids", "positions", "segments")
            }
            batch = CASE.batch(replace(one, documents=0 * cut["ids"], **cut))
            alone.append(logits(model, batch)[is_scored(batch)])
    torch.testing.assert_close(packed, torch.cat(alone), atol=1e-5, rtol=1e-5)


@pytest.mark.product
@every_form
def test_cached_decoding_equals_one_pass(name: str, settings: dict[str, Any]) -> None:
    model, batch = build(name, **settings), CASE.batch(rows([[20], [20]]))
    expected = model.backbone(batch).states
    memory, actual = None, []
    for n in range(expected.shape[1]):
        if n == 0:
            part = replace(batch, ids=batch.ids[:, :1], positions=batch.positions[:, :1])
            part = replace(part, documents=batch.documents[:, :1])
        else:
            part = Batch(batch.ids[:, n, None], batch.positions[:, n, None], CausalMask(n))
            part = replace(part, cross_mask=FullMask())
        hidden = model.backbone(part, memory)
        memory = hidden.cache
        actual.append(hidden.states)
    torch.testing.assert_close(torch.cat(actual, 1), expected, atol=1e-5, rtol=1e-5)


@pytest.mark.product
@every_form
def test_every_parameter_learns(name: str, settings: dict[str, Any]) -> None:
    model = build(name, **settings)
    CASE.loss(model, CASE.batch(rows([[30, 9]] * 4))).total.backward()
    still = [name for name, p in model.named_parameters() if p.grad is None or not p.grad.any()]
    assert not still


def naive(name: str, aligner: Any, h: Tensor, s: Tensor) -> Tensor:
    """The score of one pair of states, as the papers write it."""
    match name:
        case "mean":
            return torch.zeros(())
        case "dot":
            return h @ s
        case "bilinear":
            return h @ aligner.source.weight @ s
        case _:
            inner = aligner.target.weight @ h + aligner.source.weight @ s + aligner.source.bias
            return aligner.score.weight[0] @ torch.tanh(inner)


@pytest.mark.parametrize("name", [name for name in ALIGNMENTS if name != "none"])
def test_scores_and_means_equal_those_of_the_papers(name: str) -> None:
    aligner = kinds.load("nn/source_attentions", name)().build(6)
    x, source = torch.randn(2, 3, 6), torch.randn(2, 4, 6)
    is_token = torch.tensor([[True] * 4, [True, True, False, False]])
    with torch.no_grad():
        mean, weights = aligner(x, source, aligner.prepare(source), is_token)
        for b, length in enumerate((4, 2)):
            for t in range(3):
                states = source[b, :length]
                scores = torch.stack([naive(name, aligner, x[b, t], s) for s in states])
                expected = scores.exp() / scores.exp().sum()
                torch.testing.assert_close(weights[b, t, :length], expected)
                assert (weights[b, t, length:] == 0).all()
                torch.testing.assert_close(mean[b, t], expected @ states)


def test_an_empty_source_gives_zeros() -> None:
    aligner = kinds.load("nn/source_attentions", "dot")().build(6)
    x, source = torch.randn(1, 3, 6), torch.randn(1, 4, 6)
    mean, weights = aligner(x, source, source, torch.zeros(1, 4, dtype=torch.bool))
    assert not mean.any()
    assert not weights.any()


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"d_model": 15}, "d_model: bidirectional requires an even number"),
        (
            {"input_feeding": True, "attention": kinds.load("nn/source_attentions", "none")()},
            "input_feed",
        ),
    ],
)
def test_impossible_settings_are_refused(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Seq2Seq(**settings)


def test_documents_are_cut_out_of_rows_and_joined_again() -> None:
    documents = torch.tensor([[0, 0, 1, -1], [0, 1, 1, 1], [-1, -1, -1, -1], [0, 0, 0, 0]])
    pieces = DocumentSpans.of(documents)
    assert pieces.rows.tolist() == [0, 0, 1, 1, 3]
    assert pieces.starts.tolist() == [0, 2, 0, 1, 0]
    assert pieces.lengths.tolist() == [2, 1, 1, 3, 4]
    x = torch.randn(4, 4, 3)
    back = pieces.join(pieces.cut(x), (4, 4))
    torch.testing.assert_close(back, x * (documents >= 0)[..., None])
    others = DocumentSpans.of(torch.tensor([[0, 1, 2], [1, 1, -1], [0, 1, 2], [0, -1, -1]]))
    which, is_found = pieces.match(others)
    assert is_found.tolist() == [True, True, False, True, True]
    assert which[is_found].tolist() == [0, 1, 3, 7]
