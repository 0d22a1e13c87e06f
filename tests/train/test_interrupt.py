"""A signal while another process of the training has ended already."""

from __future__ import annotations

import os
import signal
from typing import Any, cast

import pytest

from foreword.errors import UserError
from foreword.process import signals
from foreword.train.interrupt import stops_on_signals

LOST = RuntimeError("[gloo/transport/tcp/pair.cc:547] Connection closed by peer")


class Loop:
    """What of a loop the handler uses."""

    is_stopping = is_saved = False

    def stop(self) -> None:
        self.is_stopping = True

    def warn(self, message: str) -> None:
        pass


def test_a_stop_that_cannot_be_saved_says_so() -> None:
    with (
        pytest.raises(UserError, match="not saved: another process had ended"),
        stops_on_signals(cast(Any, Loop())),
    ):
        os.kill(os.getpid(), signal.SIGTERM)
        raise LOST


def test_an_error_of_others_without_a_signal_stays_theirs() -> None:
    with (
        pytest.raises(RuntimeError, match="Connection closed"),
        stops_on_signals(cast(Any, Loop())),
    ):
        raise LOST


def test_a_fault_of_its_own_while_stopping_stays_its_own() -> None:
    with (
        pytest.raises(RuntimeError, match="a fault of ours"),
        stops_on_signals(cast(Any, Loop())),
    ):
        os.kill(os.getpid(), signal.SIGTERM)
        raise RuntimeError("a fault of ours")


def test_the_first_signal_after_another_process_had_one_does_not_leave_at_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(signals, "TOGETHER", 0.0)
    loop = Loop()
    loop.stop()  # as the others agreed
    with pytest.raises(KeyboardInterrupt), stops_on_signals(cast(Any, loop)):
        os.kill(os.getpid(), signal.SIGINT)
        loop.is_saved = True
        os.kill(os.getpid(), signal.SIGINT)
    assert loop.is_saved
