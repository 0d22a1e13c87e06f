"""The gated delta rule: chunks against steps, against transformers, against autograd."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor
from torch.func import functional_call
from torch.nn import functional as F

from foreword.nn import delta_rule
from foreword.nn.delta_rule import DeltaInputs, gated_delta_rule, in_chunks, step_by_step
from foreword.nn.short_convolution import ShortConvolution

BATCH, HEADS, LENGTH, D_KEY, D_VALUE = 2, 3, 37, 8, 5
DOCUMENTS = torch.stack([torch.arange(LENGTH) // 11, torch.arange(LENGTH) // 20])
DOCUMENTS[1, 30:] = -1  # padding


def inputs(*, batch: int = BATCH, length: int = LENGTH, decay: float = 3.0) -> DeltaInputs:
    random = torch.Generator().manual_seed(1)
    shape = (batch, HEADS, length)

    def drawn(*width: int) -> Tensor:
        return torch.randn(*shape, *width, dtype=torch.float64, generator=random)

    q, k = (F.normalize(drawn(D_KEY), dim=-1) for _ in range(2))
    gates = drawn(), drawn()
    log_decay, write = -decay * gates[0].abs(), gates[1].sigmoid()
    parts = (q * D_KEY**-0.5, k, drawn(D_VALUE), log_decay, write)
    return DeltaInputs(*(part.requires_grad_() for part in parts))


def outcome(out: tuple[Tensor, Tensor], given: DeltaInputs) -> list[Tensor]:
    """The output, the last state, and all gradients."""
    total = sum(part.square().sum() for part in out)
    assert isinstance(total, Tensor)
    return [*out, *torch.autograd.grad(total, list(given))]


@pytest.mark.parametrize("documents", [None, DOCUMENTS], ids=["one text", "documents"])
@pytest.mark.parametrize("begins", [False, True], ids=["from zeros", "from a state"])
def test_chunks_of_every_length_equal_steps(documents: Tensor | None, begins: bool) -> None:
    given = inputs()
    state = torch.randn(BATCH, HEADS, D_KEY, D_VALUE, dtype=torch.float64) if begins else None
    expected = outcome(step_by_step(given, documents, state), given)
    for chunk in (1, 4, 16, 64):
        actual = outcome(in_chunks(given, documents, state, chunk), given)
        for one, other in zip(actual, expected, strict=True):
            torch.testing.assert_close(one, other, atol=1e-12, rtol=1e-9)


@pytest.mark.parametrize("documents", [None, DOCUMENTS], ids=["one text", "documents"])
def test_long_rows_in_segments_equal_whole_ones(
    documents: Tensor | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    given = inputs()
    monkeypatch.setattr(delta_rule, "SEGMENT", 11)  # the first document ends where one does
    actual = outcome(gated_delta_rule(given, documents, None, 4), given)
    monkeypatch.setattr(delta_rule.Recomputation, "is_off", True)
    expected = outcome(gated_delta_rule(given, documents, None, 4), given)
    for one, other in zip(actual, expected, strict=True):
        torch.testing.assert_close(one, other, atol=1e-12, rtol=1e-9)


def test_gradients_equal_finite_differences() -> None:
    given = [part[:1, :1, :7].detach().requires_grad_() for part in inputs()]
    documents = torch.tensor([[0] * 3 + [1] * 4])
    state = torch.randn(1, 1, D_KEY, D_VALUE, dtype=torch.float64, requires_grad=True)

    def rule(state: Tensor, *parts: Tensor) -> Any:
        return in_chunks(DeltaInputs(*parts), documents, state, 4)

    assert torch.autograd.gradcheck(rule, (state, *given))
    convolution = ShortConvolution(5, 4).double()
    x = torch.randn(1, 7, 5, dtype=torch.float64, requires_grad=True)
    recent = torch.randn(1, 3, 5, dtype=torch.float64, requires_grad=True)
    convolve = lambda *given: convolution(*given, documents)  # noqa: E731
    assert torch.autograd.gradcheck(convolve, (x, recent))
    weight = convolution.weight
    convolve = lambda w: functional_call(convolution, {"weight": w}, (x, recent, documents))  # noqa: E731
    assert torch.autograd.gradcheck(convolve, (weight.detach().requires_grad_(),))


@pytest.mark.parametrize("form", ["chunk", "recurrent"])
def test_the_rule_is_that_of_transformers(form: str) -> None:
    modelling = pytest.importorskip("transformers.models.qwen3_next.modeling_qwen3_next")
    given = DeltaInputs(*(part.detach().float() for part in inputs()))
    q, k, v, log_decay, write = (part.transpose(1, 2) for part in given)
    out, state = getattr(modelling, f"torch_{form}_gated_delta_rule")(
        q * D_KEY**0.5, k, v, g=log_decay, beta=write, output_final_state=True
    )
    actual, last = in_chunks(given, None, None, 16)
    torch.testing.assert_close(actual, out.transpose(1, 2), atol=1e-5, rtol=1e-4)
    torch.testing.assert_close(last, state, atol=1e-5, rtol=1e-4)


def test_a_document_does_not_know_those_before_it_nor_the_padding() -> None:
    given = inputs()
    is_second = (DOCUMENTS == 1)[:, None]
    others = DeltaInputs(
        *(
            torch.where(is_second if part.ndim == 3 else is_second[..., None], part, part.flip(1))
            for part in given
        )
    )
    one, other = (in_chunks(each, DOCUMENTS, None, 16)[0] for each in (given, others))
    second = is_second[..., None].expand_as(one)
    assert torch.equal(one[second], other[second])
    assert not torch.equal(one, other)


def test_a_text_of_one_token_repeated_and_long_decays_stay_exact_in_float32() -> None:
    given = inputs(length=256)
    same = given._replace(k=given.k[:, :, :1].expand_as(given.k), log_decay=given.log_decay * 0)
    for case in (same._replace(write=torch.ones_like(same.write)), inputs(length=256, decay=30.0)):
        expected = step_by_step(case, None, None)[0]
        narrow = DeltaInputs(*(part.float() for part in case))
        actual = in_chunks(narrow, None, None, 64)[0]
        assert (actual - expected).abs().max() < 1e-5 * expected.abs().max()


def test_a_kernel_gets_documents_as_edges_and_gives_the_state_of_the_last(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # The kernel of `flash-linear-attention` needs CUDA: here a stand-in with its signature.
    def kernel(q: Tensor, k: Tensor, v: Tensor, **options: Any) -> tuple[Tensor, Tensor]:
        edges = options["cu_seqlens"]
        given = (q, k, v, options["g"], options["beta"])
        parts = DeltaInputs(*(part.transpose(1, 2) for part in given))
        spans = zip(edges[:-1].tolist(), edges[1:].tolist(), strict=True)
        texts = [DeltaInputs(*(part[:, :, a:b] for part in parts)) for a, b in spans]
        outs, states = zip(*(step_by_step(text, None, None) for text in texts), strict=True)
        return torch.cat(outs, 2).transpose(1, 2), torch.cat(states)

    given = inputs()
    expected = in_chunks(given, DOCUMENTS, None, 16)
    actual = delta_rule._by_kernel(kernel, given, DOCUMENTS)
    for one, other in zip(actual, expected, strict=True):
        torch.testing.assert_close(one, other)
    monkeypatch.setattr(delta_rule, "_kernel", lambda: kernel)  # not asked on the CPU
    assert torch.equal(gated_delta_rule(given, DOCUMENTS, None, 16)[0], expected[0])
