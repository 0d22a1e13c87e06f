"""The estimated memory of a run against the peak of its process."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from foreword.planning.memory import MemoryUse, extrapolate, nbytes
from foreword.runs.activation_bytes import ActivationCounter
from foreword.runs.counted import row_bytes
from foreword.runs.recipe import load_recipe
from foreword.runs.setup import rows_that_fit
from foreword.settings import config
from tests import forking
from tests.train import runs


@pytest.mark.full
@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_the_estimate_is_near_the_peak_of_the_process(tmp_path: Path) -> None:
    # Much to hold, little to compute. 82 MB: glibc keeps freed blocks of up to 64 in the arena of
    # the thread that asked for them, so that the peaks of equal runs would differ by one.
    table = {"kind": "learned", "length": 80_000}
    made = config.merge(
        runs.table("encoder", steps=2, evaluations=1, checkpoints=1),
        {"model": {"d_model": 256, "position": table}},
    )
    recipe = tmp_path / "mini.toml"
    recipe.write_text(runs.build(made).dumps())
    text = str(runs.write_text(tmp_path / "text"))
    output, words = tmp_path / "output", [str(recipe), "--data", text]
    trained = forking.start_into(["pretrain", *words, "--out", str(tmp_path / "run")], output)
    assert trained.wait() == 0, output.read_text()
    measured = trained.peak
    output = tmp_path / "checked"
    assert forking.run(["check", *words, "--json"], output) == 0, output.read_text()
    printed = output.read_text()
    memory = json.loads(printed[printed.index("{") :])["memory_bytes"]
    assert memory["total"] == sum(
        memory[part] for part in memory if part not in ("total", "available")
    )
    assert measured > 600e6  # the libraries alone are about 400
    assert memory["total"] == pytest.approx(measured, rel=0.15)


def test_counting_what_is_kept_frees_the_graph() -> None:
    """A hook that returns an operation's own result would keep its graph alive."""
    freed: list[bool] = []

    class Witness(torch.autograd.Function):
        @staticmethod
        def forward(ctx: torch.autograd.function.FunctionCtx, x: torch.Tensor) -> torch.Tensor:
            y = x.exp()
            ctx.save_for_backward(y)
            ctx.witness = _Freed(freed)  # type: ignore[attr-defined]
            return y

    model = torch.nn.Linear(2, 2)
    with ActivationCounter(model):
        Witness.apply(model(torch.zeros(1, 2)).sum())  # type: ignore[no-untyped-call]
    assert freed == [True]


class _Freed:
    def __init__(self, freed: list[bool]) -> None:
        self._freed = freed

    def __del__(self) -> None:
        self._freed.append(True)


def test_arrays_count_once() -> None:
    ids = np.zeros(10, np.int64)
    assert nbytes((ids, ids, np.zeros(5, np.int32))) == 100


def test_the_parts_sum_to_the_total() -> None:
    memory = MemoryUse(1, 2, 3, 4, 5, 6, 7, 8, available=100)
    assert list(memory.parts.values()) == [1, 2, 3, 4, 5, 6, 7, 8]
    assert memory.total == 36


@pytest.mark.parametrize(
    ("measured", "message"),
    [([60, 100], 340), ([100, 90], 90), ([10, 100], 400), ([-9, -8], -8)],
)
def test_extrapolated_memory_grows_at_most_in_proportion_to_rows(
    measured: list[int], message: int
) -> None:
    assert extrapolate(measured, [4, 8], 32) == message


def test_the_default_micro_batch_halves_in_float32() -> None:
    low, high = (
        row_bytes(load_recipe("bert_base"), dtype) for dtype in (torch.bfloat16, torch.float32)
    )
    memory = 8 * 72 * low  # an eighth is for activations
    assert [rows_that_fit(memory, each) for each in (low, high)] == [64, 32]
