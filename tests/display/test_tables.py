"""Tables that are too wide for the window."""

from __future__ import annotations

import pytest

from foreword import formatting
from foreword.display import tables


@pytest.mark.parametrize("width", [80, 120])
@pytest.mark.parametrize("longest", [8, 46])
def test_each_part_of_a_wide_table_tells_its_rows_apart(
    width: int, longest: int, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tables.out, "_width", width)
    names = [f"column {n}" for n in range(12)]
    models = ("gpt", "gpt, random weights")
    rows = [[run, f"{kind * longest}", *[0.5] * 12] for run in models for kind in "ab"]
    tables.table("", ["run", "kind", *names], rows)
    lines = capsys.readouterr().out.splitlines()
    heads = [line for line in lines if "run " in line and "┃" in line]
    assert len(heads) > 1
    assert all("kind" in line and "column" in line for line in heads)
    assert "column 0" in heads[0]
    assert max(map(len, lines)) <= width
    assert sum(line.startswith("├") for line in lines) == len(heads)  # before random weights


def test_a_line_separates_blanks_whose_candidates_follow_an_empty_cell(
    capsys: pytest.CaptureFixture[str],
) -> None:
    for blanks in (1, 3):
        rows = [[n if rank == 0 else "", "word"] for n in range(blanks) for rank in range(2)]
        tables.table("", ["blank", "filling"], rows)
        lines = capsys.readouterr().out.splitlines()
        assert [n for n, line in enumerate(lines[3:]) if line.startswith("├")] == [2, 5][
            : blanks - 1
        ]


def test_a_title_is_as_wide_as_the_window_not_as_the_table(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tables.out, "_width", 80)
    title = "direct fit: L = E + A / N^alpha + B / D^beta"
    tables.table(title, ["value", "fit"], [["E", "1.69"]])
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == title and lines[1].startswith("┏")
    tables.table(40 * "long ", ["value", "fit"], [["E", "1.69"]])
    assert max(map(len, capsys.readouterr().out.splitlines())) <= 80


@pytest.mark.parametrize(
    ("value", "text"), [(0.01234, "0.0123"), (28.44, "28.4"), (999.6, "1,000"), (2842.3, "2,842")]
)
def test_large_numbers_are_whole_and_never_powers_of_ten(value: float, text: str) -> None:
    assert formatting.rounded(value) == text
    assert "e" not in formatting.figure(value, 3)
    assert "e" not in formatting.figure(10 * value - 0.4)


def test_lines_are_cut_where_the_console_ends() -> None:
    assert tables._cuts([3, 3, 3, 20, 1], 10) == [(0, 2), (2, 3), (3, 4), (4, 5)]
    assert tables._cuts([], 10) == []
