"""`metrics.jsonl`: every record that was logged is read, and none is lost to resuming."""

from __future__ import annotations

from pathlib import Path

import pytest

from foreword.errors import UserError
from foreword.train import log

ENDS = "a\u2028b\u2029c\u0085d\x0b\x0c\x1ee"  # lines to Python, not to JSON


def test_records_with_unicode_line_ends_are_kept(tmp_path: Path) -> None:
    records = [{"kind": "samples", "step": n, "text": ENDS} for n in (1, 2)]
    for record in records:
        log.append(tmp_path, record)
    assert log.read(tmp_path) == records
    log.rewind(tmp_path, 1)
    assert log.read(tmp_path) == records[:1]


def test_a_cut_last_line_is_ignored_and_other_broken_lines_are_refused(tmp_path: Path) -> None:
    log.append(tmp_path, {"kind": "train", "step": 1})
    whole = (tmp_path / log.FILE).read_bytes()
    for last in (b'{"step": 2, "te', b'{"text": "\xc3', b"\0\0\0"):
        (tmp_path / log.FILE).write_bytes(whole + last)
        assert log.read(tmp_path) == [{"kind": "train", "step": 1}]
    (tmp_path / log.FILE).write_bytes(whole + b'{"st\n' + whole)
    with pytest.raises(UserError, match=r"metrics\.jsonl:2: not JSON"):
        log.rewind(tmp_path, 1)
    assert (tmp_path / log.FILE).read_bytes() == whole + b'{"st\n' + whole
