"""The live line in a notebook, with a stand-in for IPython."""

from __future__ import annotations

import sys
import time
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from foreword.display import lines
from foreword.display.notebook import NotebookBar, is_notebook


def test_a_notebook_updates_one_output(monkeypatch: pytest.MonkeyPatch) -> None:
    shown: list[str] = []

    class Output:
        def update(self, data: dict[str, str], *, raw: bool) -> None:
            assert raw
            shown.append(data["text/plain"])

    def display(data: dict[str, str], **_: Any) -> Output:
        return Output()

    ipython, inner = ModuleType("IPython"), ModuleType("IPython.display")
    inner.display = display  # type: ignore[attr-defined]
    ipython.get_ipython = lambda: SimpleNamespace(kernel=1)  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "IPython", ipython)
    monkeypatch.setitem(sys.modules, "IPython.display", inner)

    assert is_notebook()
    bar = lines.progress()
    assert isinstance(bar, NotebookBar)
    with bar:
        advance = bar.stage("training")
        advance(1, 4, "loss 5.68")
        ends = time.monotonic() + 10
        while not any("loss 5.68" in line for line in shown) and time.monotonic() < ends:
            time.sleep(0.02)
    assert any("training" in line and "25%" in line and "loss 5.68" in line for line in shown)
    assert shown[-1] == ""


def test_plain_python_is_not_a_notebook() -> None:
    assert not is_notebook()
