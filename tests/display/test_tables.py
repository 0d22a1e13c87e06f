"""Tables that are too wide for the window."""

from __future__ import annotations

import pytest

from foreword.display import tables


def test_each_part_of_a_wide_table_tells_its_rows_apart(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tables.out, "_width", 80)
    names = [f"column {n}" for n in range(8)]
    rows = [[run, kind, *[0.5] * 8] for run in ("gpt", "bert") for kind in ("syntax", "topic")]
    tables.table("", ["run", "kind", *names], rows)
    shown = capsys.readouterr().out
    heads = [line for line in shown.splitlines() if "run" in line]
    assert len(heads) > 1
    assert all("kind" in line for line in heads)
    assert max(map(len, shown.splitlines())) < 80


def test_long_first_columns_leave_room_for_the_others(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tables.out, "_width", 80)
    rows = [["run", "a" * 20, "b" * 20 + str(n), 0.5, 0.25, 0.125] for n in range(2)]
    tables.table("", ["run", "first", "second", "one", "two", "three"], rows)
    heads = [line for line in capsys.readouterr().out.splitlines() if "run" in line and "┃" in line]
    assert sum("first" in line for line in heads) == 1
