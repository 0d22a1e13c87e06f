"""The contract of every tracker, checked for every file in `trackers/` whose package is there."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from foreword.settings import kinds
from foreword.testing import TRACKER_CHECKS
from foreword.trackers._contract import Tracker


@pytest.mark.parametrize("check", TRACKER_CHECKS, ids=lambda check: check.__name__)
@pytest.mark.parametrize("name", kinds.names("trackers"))
def test_every_tracker_keeps_the_contract(
    check: Callable[[Tracker], None], name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WANDB_MODE", "offline")
    tracker: Tracker = kinds.load("trackers", name)()
    if tracker.package:
        pytest.importorskip(tracker.package)
    check(tracker)
