"""The dial's rules are tested without scaling laws, whatever laws the package has."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from foreword.planning import laws
from foreword.settings import config


@pytest.fixture(scope="session")
def lawless(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The shipped files without their laws."""
    folder = tmp_path_factory.mktemp("recipes") / "laws"
    folder.mkdir()
    for file in laws.FOLDER.glob("*.toml"):
        table = config.read_toml(file)
        table.pop("law", None)
        (folder / file.name).write_text(config.dumps(table), encoding="utf-8")
    return folder


@pytest.fixture(autouse=True)
def without_laws(lawless: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(laws, "FOLDER", lawless)
    laws.laws.cache_clear()
    yield
    laws.laws.cache_clear()
