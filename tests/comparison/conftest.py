from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.comparison import grids


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the files of a grid."""
    return grids.write_files(tmp_path_factory.mktemp("grid"))


@pytest.fixture(scope="session")
def finished(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a finished comparison."""
    out = tmp_path_factory.mktemp("finished") / "out"
    grids.compare(folder, out)
    return out


@pytest.fixture
def out(finished: Path, tmp_path: Path) -> Path:
    """A copy of the finished comparison."""
    shutil.copytree(finished, tmp_path / "out")
    return tmp_path / "out"
