"""Generation on a device without float64, such as Apple's GPU."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from foreword.evaluation import beam, decoder, sampling
from foreword.evaluation.beam import Beams
from foreword.evaluation.decoding import decode, starts_of, stops_of
from foreword.evaluation.sampling import Sampling, sample_tokens
from tests.evaluation.conftest import Make

TEXTS = ["The cat", "A bird sang in the"]


class NoFloat64(TorchDispatchMode):
    """Refuses to make float64 tensors."""

    def __torch_dispatch__(
        self, function: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        made = function(*args, **(kwargs or {}))
        for tensor in made if isinstance(made, tuple) else [made]:
            assert getattr(tensor, "dtype", None) != torch.float64, function
        return made


def refusing(work: Callable[..., Any]) -> Callable[..., Any]:
    def worked(*arguments: Any) -> Any:
        with NoFloat64():
            return work(*arguments)

    return worked


@pytest.fixture
def without_float64(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (beam, decoder, sampling):
        monkeypatch.setattr(module, "widest", lambda device: torch.float32)
    monkeypatch.setattr(decoder, "sample_tokens", refusing(sample_tokens))
    monkeypatch.setattr(beam._Search, "__init__", refusing(beam._Search.__init__))
    monkeypatch.setattr(beam._Search, "_extend", refusing(beam._Search._extend))


@pytest.mark.usefixtures("without_float64")
def test_generation_needs_no_float64(make_prompted: Make) -> None:
    prompted = make_prompted("decoder")
    starts, stops = starts_of(prompted, TEXTS), stops_of(prompted)
    warm = Sampling(tokens=8, temperature=0.7, top_k=5, top_p=0.9)
    assert len(decode(prompted, starts, warm, stops)) == 2
    found = beam.search(prompted, starts, Beams(2, tokens=6), stops)
    assert [len(texts) for texts in found] == [2, 2]
    greedy = decode(prompted, starts, Sampling(tokens=6, temperature=0), stops)
    one = beam.search(prompted, starts, Beams(1, tokens=6), stops)
    assert [texts[0].ids.tolist() for texts in one] == [text.ids.tolist() for text in greedy]


@pytest.mark.usefixtures("without_float64")
def test_a_draw_next_to_one_chooses_a_token_that_has_probability() -> None:
    logits = torch.tensor([[0.3, 1.0, 2.0, float("-inf")]])
    draws = torch.tensor([1 - 2.0**-53], dtype=torch.float64).float()  # 1 in float32
    assert sample_tokens(logits, Sampling(temperature=1.0, top_k=0), draws).item() == 2
