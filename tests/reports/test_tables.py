"""Tables are never wider than the page."""

from __future__ import annotations

from foreword.reports.tables import PAGE, Table, characters, key_value_table
from tests.reports.test_page import check


def wide(columns: int) -> Table:
    names = [f"column {n}" for n in range(columns)]
    return Table(names, [["name", *["1,234.567 ± 0.123"] * (columns - 1)]], [False] + [True] * 99)


def test_a_wide_table_is_split_into_tables_that_fit_and_begin_alike() -> None:
    table = wide(12)
    parts = table.parts()
    assert len(parts) > 1
    assert all(part[0] == 0 for part in parts)
    assert [c for part in parts for c in part[1:]] == list(range(1, 12))
    assert all(sum(map(table.width, part)) <= PAGE for part in parts)
    html = table.html()
    check(html)
    assert html.count('<div class="card"><table>') == len(parts)


def test_a_narrow_table_stays_whole() -> None:
    assert wide(4).parts() == [[0, 1, 2, 3]]


def test_long_text_wraps_and_numbers_do_not() -> None:
    table = Table(["a", "text"], [["x", "word " * 500]], [False, False])
    assert table.parts() == [[0, 1]]


def test_a_single_column_wider_than_the_page_is_kept() -> None:
    table = Table(["a", "b"], [["x", "1" * 500]], [False, True])
    assert table.parts() == [[0, 1]]


def test_korean_counts_double() -> None:
    assert characters("한국 ab") == 7


def test_names_and_cells_are_escaped() -> None:
    html = Table(['<b "x">', "n"], [["<script>", "1"]], [False, True]).html()
    check(html)
    assert "<script>" not in html and 'data-name="&lt;b &quot;x&quot;&gt;"' in html
    assert "&lt;i&gt;" in key_value_table({"<i>": {"a": "<i>"}})


def test_columns_of_records_come_in_order_of_first_occurrence() -> None:
    table = Table.of_records([{"a_b": "x", "n": 1}, {"n": None, "c": 2.5}])
    assert table.columns == ["a b", "n", "c"]
    assert table.is_number == [False, True, True]
    assert table.rows == [["x", "1", "–"], ["–", "–", "2.500"]]
