"""Worker processes that fail: one line for the user, and their traceback with --debug alone."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from foreword.cli.main import run
from foreword.data import shard_builder
from tests.data.test_prepare import make_texts, write

FAILING = """#!/bin/sh
echo Traceback >&2
echo 'ValueError: no such thing' >&2
exit 1
"""
KILLED_AT_WORK = """#!/bin/sh
head -c 32 >/dev/null
kill -9 $$
"""


@pytest.mark.parametrize(
    ("program", "status", "line"),
    [
        (FAILING, 1, "a worker process failed: ValueError: no such thing"),
        (KILLED_AT_WORK, 2, "a worker process died (status 137), probably out of memory"),
    ],
)
def test_a_failed_worker_is_reported_in_one_line(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
    program: str,
    status: int,
    line: str,
) -> None:
    path = write(tmp_path / "a.jsonl", make_texts(400))
    (tmp_path / "python").write_text(program)
    (tmp_path / "python").chmod(0o755)
    monkeypatch.setattr(shard_builder, "_SMALL", 0)
    monkeypatch.setattr(shard_builder, "_BATCH", 2000)
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
    words = ["prepare", str(path), "--out", str(tmp_path / "shards"), "--kind", "char"]
    assert run(words) == status
    captured = capfd.readouterr()
    assert captured.out == ""
    assert line in captured.err
    assert captured.err.count("\n") == 1, "no traceback of the worker's"
    assert not (tmp_path / "shards" / "prepared.json").exists()
    assert run(words, is_debug=True) == status
    assert "Traceback" in capfd.readouterr().err
