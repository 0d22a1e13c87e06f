"""The live line: what it says in a window of any width, and that print goes above it."""

from __future__ import annotations

import io
import sys
import time

import pytest
from rich.cells import cell_len

from foreword.display import bar as _bar
from foreword.display.bar import Bar, Stage, fit_parts
from foreword.display.run import LiveProgress
from foreword.formatting import rough


def draw(filled: int, size: int) -> str:
    return "#" * filled + "-" * (size - filled)


@pytest.fixture
def stage(monkeypatch: pytest.MonkeyPatch) -> Stage:
    """A third done in ten seconds."""
    now = iter((1.0, 10.0))
    monkeypatch.setattr(_bar.time, "monotonic", lambda: next(now))
    stage = Stage("training", began=0.0)
    stage.advance(0.0, 1.0)
    stage.advance(0.36, 1.0, "loss 5.7", "33,165 tokens/s")
    return stage


def test_the_line_fits_any_window_and_keeps_what_matters_most(stage: Stage) -> None:
    for room in range(1, 200):
        assert cell_len(stage.line(room, 10.0, draw)) <= room
    assert stage.line(12, 10.0, draw) == "training"
    assert stage.line(20, 10.0, draw) == "training   36%"
    assert stage.line(39, 10.0, draw) == "training   36%  loss 5.7  16 s left"
    assert stage.line(150, 10.0, draw) == (
        f"training {draw(14, 40)}   36%  loss 5.7  33,165 tokens/s  10 s of about 26 s"
    )


def test_the_time_left_falls_between_updates(stage: Stage) -> None:
    assert "14 s left" in stage.line(39, 12.0)
    assert "0 s left" in stage.line(39, 100.0)


def test_the_elapsed_time_is_shown_where_it_fits() -> None:
    stage = Stage("cutting text into tokens", began=time.monotonic() - 5)
    stage._past.append((stage.began, 0.0))
    stage.advance(1.0, 2.0)
    assert "5 s of about 10 s" in stage.line(79, stage.began + 5, draw)


def test_updates_within_a_moment_give_no_time_left() -> None:
    stage = Stage("translating", began=time.monotonic() - 8)
    for n in range(1, 129):
        stage.advance(n, 300)
    assert " of about" not in stage.line(79, stage.began + 8, draw)


def test_a_stage_of_unknown_length_shows_the_elapsed_time() -> None:
    stage = Stage("looking", began=0.0)
    assert stage.line(80, 65.0, draw) == "looking  1 min 5 s"
    assert stage.line(14, 65.0, draw) == "looking"


def test_fit_parts_drops_the_highest_rank_first() -> None:
    assert fit_parts(["one", "two", "three"], [0, 2, 1], 40) == "one  two  three"
    assert fit_parts(["one", "two", "three"], [0, 2, 1], 12) == "one  three"
    assert fit_parts(["one", "two", "three"], [0, 2, 1], 2) == "o…"


def test_an_estimate_is_rounded_the_more_the_longer_it_is() -> None:
    printed = [rough(seconds) for seconds in (-1, 5.4, 58, 61, 203, 599, 750, 3599, 7460)]
    assert printed[:5] == ["0 s", "5 s", "58 s", "1 min", "3 min 20 s"]
    assert printed[5:] == ["10 min", "12 min", "1 h", "2 h 4 min"]


class _Screen(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_printed_text_goes_above_the_live_line(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    screen, file = _Screen(), io.StringIO()
    monkeypatch.setattr(sys, "stderr", screen)
    monkeypatch.setattr(sys, "stdout", file)
    with Bar(file.write, is_live=True, is_coloured=False) as bar:
        bar.stage("one")
        sys.stderr.write("a line\n")
        sys.stderr.write("half")
        sys.stdout.write("output\n")
    assert (sys.stdout, sys.stderr) == (file, screen)
    assert file.getvalue() == "output\n"
    live = "\r\x1b[Jone  0 s\r"
    assert screen.getvalue() == f"{live}\r\x1b[Ja line\none  0 s\r\r\x1b[Jhalf"


def test_a_stage_that_goes_on_keeps_its_time_and_is_announced_once() -> None:
    printed: list[str] = []
    with Bar(printed.append, is_live=False, is_coloured=False) as bar:
        display = LiveProgress(bar)
        display.stage("training")
        began = bar._stages["training"].began
        for between in ("evaluating", "saving", "evaluating"):
            display.stage(between)
            display.stage("training")
        assert bar._stages["training"].began == began
    assert printed == ["training"]


def test_a_stage_that_ends_at_once_is_not_drawn(monkeypatch: pytest.MonkeyPatch) -> None:
    screen = _Screen()
    monkeypatch.setattr(sys, "stderr", screen)
    with Bar(screen.write, is_live=True, is_coloured=False) as bar:
        display = LiveProgress(bar)
        display.stage("training")
        display.stage("saving")
        display.stage("training")
    assert "training" in screen.getvalue() and "saving" not in screen.getvalue()


def test_without_a_terminal_a_long_stage_prints_its_progress(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(_bar, "SECONDS", 0.001)
    printed: list[str] = []
    with Bar(printed.append, is_live=False, is_coloured=False) as bar:
        bar.stage("short")
        assert printed == []
        monkeypatch.setattr(_bar, "FIRST_LINE", 0.0)
        bar.stage("long")(3, 4, "a note")
        while not printed:
            pass
        bar.stage("at once", is_announced=True, has_lines=False)
    assert printed[0].startswith("long") and printed[1:] == ["at once"]
