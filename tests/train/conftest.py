from __future__ import annotations

from pathlib import Path

import pytest

from tests import shelf
from tests.train import runs


@pytest.fixture(scope="session")
def text() -> Path:
    """A folder of text."""
    return shelf.made("text", runs.write_text)
