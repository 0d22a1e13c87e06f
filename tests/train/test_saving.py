"""Checkpoints that are written while training goes on."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest
import torch
from torch import nn

from foreword.disk import atomic
from foreword.errors import PeerError, UserError
from foreword.nn.sharded import Share
from foreword.train import checkpoint, joining, tensor_files
from foreword.train.checkpoint import Contents
from foreword.train.joining import FAILED, Notes
from foreword.train.saving import Saver

NAMES = [tensor_files.name_of("weights", number, 2) for number in range(2)]


@pytest.fixture
def store(monkeypatch: pytest.MonkeyPatch) -> torch.distributed.Store:
    """The store through which a second process, the test, talks to this one."""
    store = torch.distributed.HashStore()
    monkeypatch.setattr(joining, "new_notes", lambda: Notes(store, "notes"))
    return store


def contents(values: torch.Tensor) -> Contents:
    """Return what the first of two processes writes."""
    return Contents(
        {NAMES[0]: {"a": values}}, Share(0, 2, is_copy=False), {"step": 7}, nn.Identity()
    )


def test_a_checkpoint_has_its_name_when_every_process_has_written(
    store: torch.distributed.Store, tmp_path: Path
) -> None:
    folder, other, values = tmp_path / "step", Notes(store, "notes"), torch.zeros(3, 2)
    named: list[bool] = []
    with Saver() as saver:
        saver.save(folder, contents(values), lambda: named.append(folder.is_dir()))
        values += 1  # training goes on
        other.read("1/begun", lambda: None)
        entry = tensor_files.write(
            atomic.partial_folder(folder) / NAMES[1], {"a": torch.ones(2, 2)}
        )
        saver.check()
        assert not folder.exists()
        other.post("1/1", json.dumps({NAMES[1]: entry}))
        saver.wait()
        assert named == [True]
    checkpoint.verify(folder)
    with tensor_files.opened(folder, "weights") as opened:
        assert opened["a"][...].tolist() == [[0.0, 0.0]] * 3 + [[1.0, 1.0]] * 2


def test_a_failure_to_write_is_raised_where_training_goes_on(
    store: torch.distributed.Store, tmp_path: Path
) -> None:
    (tmp_path / "file").touch()
    saver = Saver()
    saver.save(tmp_path / "file" / "step", contents(torch.zeros(1)), lambda: None)
    with pytest.raises(UserError, match="file/step: cannot be written"):
        saver.wait()
    saver.check()  # said once


def test_a_checkpoint_is_given_up_when_training_fails(
    store: torch.distributed.Store, tmp_path: Path
) -> None:
    begin = time.monotonic()
    with pytest.raises(RuntimeError, match="of training"), Saver() as saver:
        saver.save(tmp_path / "step", contents(torch.zeros(1)), lambda: None)
        Notes(store, "notes").read("1/begun", lambda: None)
        raise RuntimeError("an error of training")
    assert not list(tmp_path.iterdir())
    assert time.monotonic() - begin < joining.LEAVING


def test_a_checkpoint_is_given_up_when_another_process_has_failed(
    store: torch.distributed.Store, tmp_path: Path
) -> None:
    saver = Saver()
    saver.save(tmp_path / "step", contents(torch.zeros(1)), lambda: None)
    store.add(FAILED, 1)
    with pytest.raises(PeerError):
        saver.wait()
    assert not list(tmp_path.iterdir())
