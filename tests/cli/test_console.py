"""Tables for people fit their window."""

from __future__ import annotations

import errno
import io
import os
import sys

import pytest
from rich.cells import cell_len

from foreword.cli._streams import guarded
from foreword.cli.main import run as command
from foreword.display import lines, tables
from foreword.display.bar import Bar
from foreword.display.run import LiveProgress

COLUMNS = ["cell", "recipe", *(f"number {n}" for n in range(9))]
ROW = ["Transformer-XL", "transformer_xl_mini", *(f"{n}2,345 MB" for n in range(9))]


def test_a_table_too_wide_continues_below(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(tables.out, "width", 80)
    tables.table("Cells", COLUMNS, [ROW])
    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines)) <= 80
    assert sum("Cells" in line for line in lines) == 1
    text = "\n".join(lines)
    assert text.count("Transformer-XL") > 1
    for name in ("transformer_xl_mini", *(f"{n}2,345" for n in range(9))):
        assert text.count(name) == 1, name


@pytest.mark.product(few=1)
@pytest.mark.parametrize("width", [20, 40])
def test_a_narrow_window_shows_rows_as_lists_of_whole_words(
    width: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(tables.out, "width", width)
    meaning = "share of each row's tokens that are masked and predicted"
    columns = ["setting", "default", "values", "meaning"]
    tables.table("", columns, [["rate", 0.15, "above 0, up to 1", meaning]])
    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines)) < width
    assert lines[:2] == ["rate", "  default: 0.1500"]
    assert " ".join(" ".join(lines[2:]).split()) == f"values: above 0, up to 1 meaning: {meaning}"
    assert command(["show", "masked"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) < 4000 // width
    assert max(map(len, lines)) < width


class _Closed(io.StringIO):
    """A terminal that was closed; it counts the failed writes."""

    failures = 0

    def isatty(self) -> bool:
        return True

    def write(self, text: str) -> int:
        self.failures += 1
        raise OSError(errno.EIO, os.strerror(errno.EIO))


def test_a_closed_terminal_does_not_stop_the_work(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal, stages = _Closed(), []
    monkeypatch.setattr(sys, "stderr", terminal)
    with guarded():
        lines.say("a line")
        for is_live in (True, False):
            with Bar(lines.say, is_live=is_live, is_coloured=False) as bar:
                bar.stage("one", is_announced=True)(1, 2)
                lines.say("a line above")
                if is_live:
                    sys.stderr.write("half")
                stages.append(is_live)
    assert stages == [True, False]
    assert terminal.failures >= 4


def test_samples_are_shown_on_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    text = "one\r\ntwo\n\n\x1b[31mthree\u00a0"
    assert lines.prompt_and_text("a\nb", text) == "    a⏎b  ->  one ⏎two⏎⏎ [31mthree "
    monkeypatch.setattr(lines.err, "_force_terminal", True)
    monkeypatch.setattr(lines.err, "width", 61)
    for before, after in (("a b " * 30, "c d " * 30), ("a", "漢字" * 60), ("a b " * 30, "c")):
        line = lines.prompt_and_text(before, after)
        assert cell_len(line) in (59, 60)
        assert line.startswith(f"    {before[:20].rstrip()}") and line.count("…") in (1, 2)
        assert f"  ->  {after[:10].rstrip()}" in line
    assert lines.prompt_and_text("short", "text") == "    short  ->  text"


def test_a_sample_of_a_long_text_shows_its_first_blank(monkeypatch: pytest.MonkeyPatch) -> None:
    text = "one of a great many words before the sea and the {} of the sea " + "and more " * 9
    monkeypatch.setattr(lines.err, "_force_terminal", True)
    monkeypatch.setattr(lines.err, "width", 81)
    line = lines.prompt_and_text(text.format("[MASK]"), text.format("«ship»"))
    assert line.startswith("    …sea and the [MASK] of the sea") and cell_len(line) == 80
    assert "  ->  …sea and the «ship» of the sea" in line


def test_a_narrow_window_shows_the_loss_first(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(lines.err, "_force_terminal", True)
    monkeypatch.setattr(lines.err, "width", 30)
    printed = list[str]()
    display = LiveProgress(Bar(printed.append, is_live=False, is_coloured=False))
    losses = {"step": 1, "loss": 9.1234, "perplexity": 8.0, "bits_per_byte": 2.0}
    display.record({"kind": "heldout", **losses}, 0.5)
    speed = {"lr": 0.1, "tokens_per_second": 9.0, "share_of_matmul": 0.5, "seconds": 2.0}
    display.record({"kind": "train", "step": 1, "loss": 9.1234, **speed}, 0.5)
    printed_lines = capsys.readouterr().err.splitlines()
    assert printed_lines == ["held-out loss 9.1234", "step       1  loss 9.1234"]


def test_training_shows_one_sample_and_only_numbers_that_a_newcomer_understands(
    capsys: pytest.CaptureFixture[str],
) -> None:
    display = LiveProgress(Bar(lambda text: None, is_live=False, is_coloured=False))
    speed = {"lr": 0.1, "tokens_per_second": 9.0, "share_of_matmul": 1.11, "seconds": 2.0}
    for step in (1, 5, 10):
        display.record({"kind": "train", "step": step, "loss": 9.1234, **speed}, step / 10)
    samples = [{"prompt": f"prompt {n}", "text": f"text {n}"} for n in range(3)]
    display.record({"kind": "samples", "step": 10, "samples": samples}, 1.0)
    lines = capsys.readouterr().err.splitlines()
    assert [" left" in line for line in lines] == [False, True, False, False]
    assert lines[1].endswith(" 50%  2 s left")
    assert lines[3] == "    prompt 0  ->  text 0"
    assert "matmul" not in "".join(lines)


def test_a_table_that_fits_is_not_split(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(tables.out, "width", 200)
    tables.table("", COLUMNS, [ROW])
    assert capsys.readouterr().out.count("Transformer-XL") == 1


def test_long_texts_fold_within_one_table(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(tables.out, "width", 60)
    tables.table("", ["cell", "text", "score"], [["a", "many words " * 30, 0.25]])
    output = capsys.readouterr().out
    assert output.count("score") == 1
    assert "0.25" in output
    assert max(map(len, output.splitlines())) <= 60


def test_texts_are_shown_to_the_letter(capsys: pytest.CaptureFixture[str]) -> None:
    hostile = "[bold]x[/bold] :smile: <b> &amp; \\"
    tables.table(f"1 {hostile}", [f"2 {hostile}", "n"], [[f"3 {hostile}", 0.5], [None, 1200]])
    tables.facts({f"4 {hostile}": f"5 {hostile}"})
    tables.out.print(f"6 {hostile}", style="dim")
    output = " ".join(capsys.readouterr().out.split())
    for text in (*(f"{n} {hostile}" for n in range(1, 7)), "0.5000", "–", "1,200"):
        assert text in output, text
