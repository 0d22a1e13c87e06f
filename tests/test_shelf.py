"""Runs on the shelf are made once, and no test changes what another one gets."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests import shelf


def test_a_folder_is_made_once_and_what_a_test_writes_stays_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(shelf.FOLDER, str(tmp_path))
    calls = []

    def make(folder: Path) -> None:
        calls.append(folder)
        folder.mkdir()
        (folder / "file").write_text("made")

    one, other = (shelf.copied("key", make, tmp_path / name) for name in ("one", "other"))
    (one / "file").write_text("changed")
    assert (other / "file").read_text() == (shelf.made("key", make) / "file").read_text() == "made"
    shelf.made("another key", make)
    assert len(calls) == 2


def test_what_failed_as_it_was_made_is_made_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(shelf.FOLDER, str(tmp_path))

    def fail(folder: Path) -> None:
        folder.mkdir()
        (folder / "half").touch()
        raise OSError

    with pytest.raises(OSError):
        shelf.made("key", fail)
    assert list(shelf.made("key", Path.mkdir).iterdir()) == []
