from __future__ import annotations

from pathlib import Path

import pytest

from tests.train import runs


@pytest.fixture(scope="session")
def text(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of text."""
    return runs.write_text(tmp_path_factory.mktemp("text") / "text")
