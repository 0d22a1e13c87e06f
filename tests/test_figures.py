"""Plots are drawn in fonts that have their characters."""

from __future__ import annotations

import warnings
from collections.abc import Iterator

import matplotlib
import pytest
from matplotlib.figure import Figure

from foreword import figures

OF_ANOTHER_FONT = "⌒"  # not in DejaVu Sans, but in DejaVu Sans Mono, which Matplotlib brings along


@pytest.fixture(autouse=True)
def fresh() -> Iterator[None]:
    figures._fonts_of.cache_clear()
    yield
    figures._fonts_of.cache_clear()


def labelled(text: str) -> figures.Rendered:
    with matplotlib.rc_context(figures.STYLE), warnings.catch_warnings():
        warnings.simplefilter("error")
        figure = Figure(figsize=(3, 2), layout="constrained")
        axes = figure.add_subplot()
        axes.set_xticks([0.0, 1.0], [text, "b"])
        return figures.render(figure)


def test_a_character_is_drawn_in_the_first_font_that_has_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    families, missing = figures._fonts_for(["abc é", OF_ANOTHER_FONT])
    assert families[0] == figures.FONT and len(families) == 2 and not missing
    drawn = labelled(OF_ANOTHER_FONT)
    assert drawn.note == ""
    monkeypatch.setattr(figures, "_fonts_of_machine", list)
    figures._fonts_of.cache_clear()
    assert labelled(OF_ANOTHER_FONT).data != drawn.data


def test_a_script_without_a_font_is_named_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(figures, "_fonts_of_machine", list)
    note = labelled("한국어 中").note
    assert "Chinese, Hangul characters" in note and "Noto Sans CJK" in note


def test_fonts_that_draw_boxes_for_anything_are_not_used() -> None:
    names = {entry.name for entry in figures._fonts_of_machine()}
    assert names and not any(name.startswith("Last Resort") for name in names)


def test_plain_text_needs_no_other_font() -> None:
    assert figures._fonts_for(["plain\ntext é"]) == ((figures.FONT,), frozenset())
