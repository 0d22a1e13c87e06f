"""The contract of every fine-tuning task, checked for every file in `tuning/tasks/`."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest

from foreword import kinds
from foreword.testing.tasks import TASK_CHECKS, reviews
from foreword.tuning.labelled import Labelled
from foreword.tuning.tasks._contract import Task


@pytest.mark.parametrize("kind", kinds.names("tuning/tasks"))
@pytest.mark.parametrize("check", TASK_CHECKS, ids=lambda check: check.__name__)
def test_every_task_keeps_the_contract(
    check: Callable[[Task, Sequence[Labelled]], None], kind: str
) -> None:
    check(kinds.load("tuning/tasks", kind)(), reviews(34, 1))
