"""The live line of each verb in a pseudo-terminal."""

from __future__ import annotations

import random
import re
import time
from pathlib import Path

import pytest

from foreword.cli.main import run
from tests.cli.terminal import Terminal
from tests.cli.test_translation import RECIPE, SENTENCES, write
from tests.comparison import grids
from tests.train import runs
from tests.tuning.runs import reviews

ENDLESS = "100000"  # steps
COLOUR = re.compile(r"\x1b\[(\d+;)*(3|4|9|10)\d[\d;]*m")


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Texts, recipes, labelled examples, a grid, and two runs."""
    folder = tmp_path_factory.mktemp("made")
    text = runs.write_text(folder / "text")
    (folder / "tiny.toml").write_text(runs.recipe("encoder").dumps())
    words = ["pretrain", str(folder / "tiny.toml"), "--data", str(text)]
    assert run([*words, "--out", str(folder / "run")]) == 0
    (folder / "translator.toml").write_text(RECIPE.format(model="seq2seq"))
    words = ["pretrain", str(folder / "translator.toml"), "--data", str(write(folder, SENTENCES))]
    assert run([*words, "--out", str(folder / "translator")]) == 0
    (folder / "some.en").write_text("\n".join(SENTENCES[:6]) + "\n")
    for name, count in (("train", 64), ("dev", 32)):
        lines = [f"{e.text}\t{e.label}" for e in reviews(count, count)]
        (folder / f"{name}.tsv").write_text("\n".join(["text\tlabel", *lines, ""]))
    grids.write_files(folder / "grid")
    grids.write_grid(folder / "grid", cells=[grids.MASKED])
    draw = random.Random(1)
    letters = "abcdefghijklmnopqrstuvwxyz"
    odd = ["".join(draw.choices(letters, k=9)) for _ in range(100_000)]
    (folder / "odd.txt").write_text(" ".join(odd))  # a tokenizer learns long of such
    (folder / "long.txt").write_text(
        "\n\n".join(f"{a} {b}. {b} {a}." for a, b in zip(odd, odd[::-1], strict=True))
    )
    return folder


def words_of(made: Path, out: Path, line: str) -> list[str]:
    """A command line, with its folders filled in."""
    return line.format(made=made, out=out).split()


def check(terminal: Terminal, columns: int) -> None:
    """Makes sure that the live line was drawn, always fitted, and has left nothing behind."""
    lines = terminal.live_lines()
    assert lines
    assert max(map(len, lines)) < columns, max(lines, key=len)
    assert not set(lines) & set(terminal.lines) and "Traceback" not in terminal.text, terminal.text
    assert "\x1b[?25l" not in terminal.printed  # the cursor stays to be seen
    assert "fault" not in terminal.text


TUNE = "tune --strategy=full {made}/run --train {made}/train.tsv --dev {made}/dev.tsv --out {out}"
VERBS = {
    "pretrain": ("{made}/tiny.toml --data {made}/text --out {out}", 100, "training"),
    "prepare": ("{made}/text --out {out} --kind word", 40, "cutting text into tokens"),
    "tokenizer": ("train {made}/text --out {out} --vocab 150", 30, "training the tokenizer"),
    "tune": (f"{TUNE[5:]} --name {{out.parent.name}} --epochs 1", 60, "tuning"),
    "compare": ("{made}/grid/grid.toml --out {out}", 80, "masked"),
    "evaluate": ("{made}/run", 25, "measuring"),
    "translate": ("{made}/translator --source {made}/some.en --tokens 9", 200, "translating"),
    "probe": ("{made}/run gradient_reach", 50, "probing run"),
    "score": ("{made}/run --file {made}/text/0.txt", 40, "scoring"),
}


@pytest.mark.product(only=("tune",))
@pytest.mark.parametrize("verb", VERBS)
def test_a_verb_runs_to_its_end_on_one_live_line(verb: str, made: Path, tmp_path: Path) -> None:
    line, columns, stage = VERBS[verb]
    colourless = {"NO_COLOR": "1"} if columns == 40 else {}
    words = [verb, *words_of(made, tmp_path / "out", line)]
    is_new = verb == "score"
    with Terminal(words, columns=columns, environment=colourless, is_new_python=is_new) as terminal:
        assert terminal.wait() == 0, terminal.text
        check(terminal, columns)
        assert any(stage in one for one in terminal.live_lines()), terminal.live_lines()
        assert bool(colourless) <= (not COLOUR.search(terminal.printed))


@pytest.mark.product(few=1)
@pytest.mark.parametrize("verb", ["pretrain", "tune"])
def test_a_dumb_terminal_gets_plain_lines(verb: str, made: Path, tmp_path: Path) -> None:
    words = [verb, *words_of(made, tmp_path / "out", VERBS[verb][0])]
    with Terminal(words, environment={"TERM": "dumb"}) as terminal:
        assert terminal.wait() == 0, terminal.text
        assert "\x1b" not in terminal.printed
        assert ("training the tokenizer" if verb == "pretrain" else "accuracy") in terminal.text


@pytest.mark.full
def test_a_narrowed_window_keeps_a_run_on_one_line(made: Path, tmp_path: Path) -> None:
    words = ["pretrain", *words_of(made, tmp_path / "run", VERBS["pretrain"][0])]
    with Terminal([*words, "--steps", ENDLESS], columns=120) as terminal:
        terminal.shows("tokens/s  lr")
        terminal.resize(30, 20)
        before = len(terminal.live_lines())
        terminal.until(lambda it: any(len(one) < 30 for one in it.live_lines()[before:]))
        drawn = len(terminal.live_lines())
        terminal.until(lambda it: len(it.live_lines()) > drawn + 1)
        assert max(map(len, terminal.live_lines()[drawn:])) < 30
        terminal.resize(90, 30)
        terminal.press_ctrl_c()
        assert terminal.wait() == 130, terminal.text
        assert "stopped and saved" in terminal.text
        check(terminal, 120)
    with Terminal(["resume", str(tmp_path / "run")], columns=40) as terminal:
        terminal.shows("resuming from step")
        terminal.until(lambda it: any("training" in one for one in it.live_lines()))
        terminal.press_ctrl_c()
        assert terminal.wait() == 130, terminal.text
        check(terminal, 40)


@pytest.mark.full
def test_fine_tuning_survives_a_resize_and_ends_at_ctrl_c(made: Path, tmp_path: Path) -> None:
    words = words_of(made, tmp_path / "out", f"{TUNE} --name never --epochs 5000")
    with Terminal(words, columns=80, environment={"NO_COLOR": "1"}) as terminal:
        terminal.until(lambda it: any("of about" in one for one in it.live_lines()))
        terminal.resize(40, 30)
        drawn = len(terminal.live_lines())
        terminal.until(lambda it: len(it.live_lines()) > drawn + 1)
        assert len(terminal.live_lines()[-1]) < 40
        interrupt(terminal, 80)
        assert not COLOUR.search(terminal.printed)
    assert not (tmp_path / "out").exists()


def interrupt(terminal: Terminal, columns: int = 100) -> None:
    """Presses Ctrl-C, and makes sure of one line, the status and that nothing lives on."""
    began = time.monotonic()
    terminal.press_ctrl_c()
    assert terminal.wait() == 130, terminal.text
    assert time.monotonic() - began < 20
    check(terminal, columns)
    said = " ".join(terminal.text.split("\n\n")[0].split())
    assert re.search(r"(\^C|^|\s)foreword: interrupted(; the same command continues)?$", said)
    assert terminal.orphans() == []


@pytest.mark.product(few=2)
@pytest.mark.parametrize(
    ("line", "stage"),
    [
        (
            "tokenizer train {made}/odd.txt --out {out} --kind unigram --vocab 20000",
            "choosing the vocabulary  1 s",
        ),
        (
            "prepare {made}/long.txt --out {out} --tokenizer {made}/run/tokenizer",
            "cutting text into tokens",
        ),
        ("evaluate {made}/run --file {made}/long.txt", "measuring the loss"),
    ],
    ids=["a tokenizer", "worker processes", "an evaluation"],
)
def test_ctrl_c_ends_a_verb_at_once(line: str, stage: str, made: Path, tmp_path: Path) -> None:
    with Terminal(words_of(made, tmp_path / "out", line)) as terminal:
        terminal.until(lambda it: any(stage in one for one in it.live_lines()))
        interrupt(terminal)
    assert not (tmp_path / "out").exists() or not any((tmp_path / "out").glob("*[!.lock]"))


@pytest.mark.full
def test_a_comparison_stopped_by_ctrl_c_continues(made: Path, tmp_path: Path) -> None:
    words = ["compare", *words_of(made, tmp_path / "out", VERBS["compare"][0]), "--steps"]
    with Terminal([*words, ENDLESS]) as terminal:
        terminal.until(lambda it: any("loss" in one for one in it.live_lines()))
        terminal.press_ctrl_c()
        assert terminal.wait() == 130, terminal.text
        assert "the same command continues" in terminal.text
        check(terminal, 100)
    with Terminal([*words, ENDLESS], columns=60) as terminal:
        terminal.shows("resuming from step")
        terminal.press_ctrl_c()
        assert terminal.wait() == 130, terminal.text
        check(terminal, 60)


def test_a_demo_stopped_by_ctrl_c_says_how_to_continue(tmp_path: Path) -> None:
    with Terminal(["demo", "--out", str(tmp_path / "demo"), "--quick"]) as terminal:
        terminal.until(lambda it: any("reading" in one for one in it.live_lines()))
        terminal.press_ctrl_c()
        assert terminal.wait() == 130, terminal.text
        assert re.search(r"continues: \S*.*foreword demo", " ".join(terminal.text.split()))
        assert "--quick" in terminal.text
        check(terminal, 100)


def test_ctrl_c_while_python_starts_shows_no_traceback() -> None:
    with Terminal(["show", "families"], is_new_python=True) as terminal:
        while not terminal.has_loaded("_ctypes"):  # in the midst of the imports
            time.sleep(0.01)
        terminal.press_ctrl_c()
        terminal.wait()
        assert "Traceback" not in terminal.text
