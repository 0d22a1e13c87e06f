"""The contract of every candidate, checked for every file in `tuning/candidates/`."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from foreword.settings import kinds
from foreword.testing.candidates import CANDIDATE_CHECKS
from foreword.tuning.candidates._contract import Learner


@pytest.mark.product
@pytest.mark.parametrize("kind", kinds.names("tuning/candidates"))
@pytest.mark.parametrize("check", CANDIDATE_CHECKS, ids=lambda check: check.__name__)
def test_every_candidate_keeps_the_contract(check: Callable[[Learner], None], kind: str) -> None:
    check(kinds.load("tuning/candidates", kind)())
