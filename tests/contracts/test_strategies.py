"""The contract of every fine-tuning strategy, checked for every file in `tuning/strategies/`."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from foreword.settings import kinds
from foreword.testing.strategies import STRATEGY_CHECKS
from foreword.tuning.strategies._contract import Strategy


@pytest.mark.product
@pytest.mark.parametrize("kind", kinds.names("tuning/strategies"))
@pytest.mark.parametrize("check", STRATEGY_CHECKS, ids=lambda check: check.__name__)
def test_every_strategy_keeps_the_contract(check: Callable[[Strategy], None], kind: str) -> None:
    check(kinds.load("tuning/strategies", kind)())
