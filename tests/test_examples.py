"""The plug-ins in `docs/examples/` keep the contracts of their folders."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import pytest

from foreword import kinds, plugins
from foreword.data.rng import RowRng
from foreword.objectives.masked import Masked
from foreword.testing import check_objective, check_optimizer, check_position, check_schedule
from foreword.types import Example, Rows, Vocab

from .test_plugins import EXAMPLES

CHECKS = {
    "objectives/skip_causal": check_objective,
    "nn/positions/recency": check_position,
    "train/optimizers/lion": check_optimizer,
    "train/schedules/quadratic": check_schedule,
}


@pytest.fixture(autouse=True)
def examples() -> Iterator[None]:
    with plugins.plugins([EXAMPLES]):
        yield


@pytest.mark.parametrize("kind", CHECKS)
def test_an_example_keeps_its_contract(kind: str) -> None:
    folder, _, name = kind.rpartition("/")
    CHECKS[kind](kinds.load(folder, name)())  # type: ignore[operator]


class Rising:
    """A schedule that breaks its promise."""

    def factor(self, progress: float, step: int, total: float) -> float:
        return 2 * progress


def test_a_broken_promise_is_found() -> None:
    with pytest.raises(AssertionError, match="the factor falls to 0"):
        check_schedule(Rising())


def test_an_objective_that_shows_its_targets_is_found() -> None:
    @dataclass(frozen=True)
    class Leaky(Masked):
        """Masked tokens that are left as they are."""

        def corrupt(self, rows: Rows, rng: RowRng, vocab: Vocab) -> Example:
            example = super().corrupt(rows, rng, vocab)
            return replace(example, source=replace(example.source, ids=rows.ids))

    with pytest.raises(AssertionError):
        check_objective(Leaky())
