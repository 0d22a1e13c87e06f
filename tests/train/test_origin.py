"""Where a run came from."""

from __future__ import annotations

import shlex
import sys

import pytest

from foreword.train.origin import command, origin


def test_a_command_can_be_typed_again(monkeypatch: pytest.MonkeyPatch) -> None:
    words = ["pretrain", "gpt2_mini", "--data", "my texts/*.txt", "--set", 'packing.before=""']
    monkeypatch.setattr(sys, "argv", ["foreword", *words])
    assert shlex.split(command()) == ["foreword", *words]
    assert origin()["command"] == command()
