from __future__ import annotations

import sys
from importlib.machinery import ModuleSpec

import pytest

from . import stand_in


@pytest.fixture
def wandb(monkeypatch: pytest.MonkeyPatch) -> None:
    """The stand-in, in place of the package."""
    monkeypatch.setattr(stand_in, "__spec__", ModuleSpec("wandb", None))
    monkeypatch.setitem(sys.modules, "wandb", stand_in)
    monkeypatch.setattr(stand_in, "HEARD", {})
    monkeypatch.setattr(stand_in, "FAILS", [])
