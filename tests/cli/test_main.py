"""The command line: its streams, its exit status and its interrupts."""

from __future__ import annotations

import errno
import json
import os
import re
import shlex
import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import IO, Any

import pytest

from foreword import __version__
from foreword.cli import main
from foreword.cli.main import run, verbs
from foreword.errors import UserError, quoted_command
from foreword.runs.run_folder import is_finished
from foreword.settings import kinds
from tests import forking
from tests.train import runs


def test_version_prints_the_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert main.run(["--version"]) == 0
    assert capsys.readouterr().out == f"foreword {__version__}\n"


def test_every_file_of_the_folder_is_a_verb(capsys: pytest.CaptureFixture[str]) -> None:
    names = {file.stem.rstrip("_") for file in (kinds.ROOT / "verbs").glob("[!_]*.py")}
    assert set(main.verbs()) == {name.replace("_", "-") for name in names} | {
        "claims",
        "lab",
        "scale",
        "tokenizer",
    }
    assert main.run(["--help"]) == 0
    output = capsys.readouterr().out
    for verb in main.verbs():
        assert verb in output


def test_without_words_the_help_is_shown(capsys: pytest.CaptureFixture[str]) -> None:
    assert run([]) == 0
    shown = capsys.readouterr().out
    assert run(["--help"]) == 0
    assert capsys.readouterr().out == shown
    assert "--version" in shown


def test_the_help_names_every_verb_once_and_cuts_no_description(
    capsys: pytest.CaptureFixture[str],
) -> None:
    run([])
    shown = capsys.readouterr().out
    names = [line.split()[0] for line in shown.splitlines() if re.match(r"  [a-z][a-z-]+  ", line)]
    assert sorted(names) == sorted(verbs())
    assert "..." not in shown.partition("Start:")[2].partition("First steps")[0]
    assert max(map(len, shown.splitlines())) <= 80
    assert "Other:" not in shown


@pytest.mark.parametrize("group", main.groups())
def test_the_help_of_a_group_cuts_no_description(
    group: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run([group, "--help"]) == 0
    shown = capsys.readouterr().out
    assert "..." not in shown.partition("Commands:")[2]
    assert max(map(len, shown.splitlines())) <= 80


@pytest.mark.product(few=6)
@pytest.mark.parametrize("verb", main.verbs())
def test_every_verb_has_help(verb: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main.run([verb, "--help"]) == 0
    output = capsys.readouterr().out
    assert f"foreword {verb}" in output
    assert len(output.splitlines()) > 5


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["pretrian"], "no command 'pretrian'; did you mean 'pretrain'?"),
        (["claims", "list"], "No such command 'list'; there is: run, table"),
        (["claims", "tabel"], "No such command 'tabel'. Did you mean 'table'?"),
        (["pretrain"], "Missing argument"),
        (["probe", "run"], "'RUN...'; usage: foreword probe RUN... NAME"),
        (["pretrain", "bert_tiny", "--daat", "x"], "No such option: --daat"),
        (["resume", "/no/such/run"], "/no/such/run: no such folder"),
    ],
)
def test_mistakes_are_reported_in_one_line(
    words: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main.run(words) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith("foreword: ")
    assert captured.err.count("\n") == 1
    assert message in captured.err


def test_a_huge_value_is_quoted_by_its_two_ends(capsys: pytest.CaptureFixture[str]) -> None:
    assert main.run(["x" * 9_000 + "y"]) == 2
    error = capsys.readouterr().err
    assert error.startswith("foreword: no command 'xxx")
    assert "...(8," in error
    assert "xxy'" in error
    assert len(error) < 1_000


@pytest.mark.parametrize(
    ("raised", "status", "message"),
    [
        (UserError("a\n  mistake"), 2, "foreword: a mistake\n"),
        (PermissionError(13, "Permission denied", "/x"), 2, "foreword: /x: Permission denied\n"),
        (KeyboardInterrupt(), 130, "foreword: interrupted\n"),
        (ZeroDivisionError("oh"), 1, "internal error: ZeroDivisionError: oh; --debug"),
        (MemoryError("1 GB"), 2, "out of memory: less text may fit (1 GB)\n"),
        (MemoryError(), 2, "out of memory: less text may fit\n"),
        (RuntimeError("can't allocate memory: 1 GB"), 2, "a smaller model or batch may fit (can't"),
    ],
)
def test_errors_give_their_exit_status_and_one_line(
    raised: BaseException,
    status: int,
    message: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def fail(expected: str | None) -> None:
        raise raised

    monkeypatch.setattr(main, "assemble", fail)
    assert main.run(["show"]) == status
    error = capsys.readouterr().err
    assert message in error
    assert "Traceback" not in error
    assert main.run(["show"], is_debug=True) == status
    assert "Traceback" in capsys.readouterr().err


@pytest.mark.parametrize("message", ["", "stopped; the same command continues"])
def test_an_interrupt_within_a_verb_is_reported(
    message: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupt(*given: object) -> None:
        try:
            os.kill(os.getpid(), signal.SIGTERM)
        except KeyboardInterrupt:
            raise KeyboardInterrupt(message) from None

    monkeypatch.setattr("foreword.runs.run_folder.open_run", interrupt)
    assert main.run(["export", "run", "--out", "x"]) == 130
    assert capsys.readouterr().err.strip() == f"foreword: {message or 'interrupted'}"


def test_an_interrupt_hidden_by_another_error_is_reported(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """As libraries do that are just being imported."""

    def hide(*given: object) -> None:
        try:
            os.kill(os.getpid(), signal.SIGTERM)
        except KeyboardInterrupt:
            raise ImportError("initialization failed") from None

    monkeypatch.setattr("foreword.runs.run_folder.open_run", hide)
    assert main.run(["export", "run", "--out", "x"]) == 130
    assert capsys.readouterr().err.strip() == "foreword: interrupted"


INTERRUPTED = """
import atexit, os, signal
from foreword.cli import main

def verb(name):
    exec("os.kill(os.getpid(), signal.SIGTERM)")  # as many imports do

atexit.register(print, "taken down")
main.assemble = verb
main.main(["show"])
"""


def test_an_interrupted_process_exits_at_once_with_130() -> None:
    """Native code left in a thread aborts one that takes its interpreter down.

    And `python -m` ends by SIGINT after all when an interrupt came out of `exec`.
    """
    done = subprocess.run([sys.executable, "-c", INTERRUPTED], capture_output=True, text=True)
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "foreword: interrupted\n")


def test_debug_is_an_option_of_every_verb(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = {}

    def run(words: list[str], *, is_debug: bool) -> int:
        seen.update(words=words, is_debug=is_debug)
        return 5

    monkeypatch.setattr(main, "run", run)
    with pytest.raises(SystemExit) as left:
        main.main(["show", "kinds", "--debug"])
    assert left.value.code == 5
    assert seen == {"words": ["show", "kinds"], "is_debug": True}


@pytest.mark.product(few=1)
@pytest.mark.parametrize(
    ("words", "is_new_python"),
    [
        (["show", "kinds"], False),
        (["show", "kinds", "--json"], False),
        (["show", "grids"], False),
        (["--help"], True),
    ],
)
def test_a_closed_pipe_is_not_an_error(words: list[str], is_new_python: bool) -> None:
    """As in `foreword show kinds | head -1`."""
    read, write = os.pipe()
    os.close(read)
    with os.fdopen(write) as stdout:
        assert with_streams(words, stdout=stdout, is_new_python=is_new_python) == ("", 0)


@pytest.mark.product(few=1)
@pytest.mark.parametrize("words", [["show", "kinds"], ["show", "kinds", "--json"], ["--version"]])
def test_unwritable_output_is_reported_in_one_line(words: list[str]) -> None:
    is_new_python = words == ["--version"]  # which is quick
    with Path("/dev/full").open("w") as full:
        found = with_streams(words, stdout=full, is_new_python=is_new_python)
    message = "foreword: the output cannot be written: No space left on device\n"
    assert found == (message, 2)
    found = with_streams(words, closed=1, is_new_python=is_new_python)
    message = "foreword: the output cannot be written: Bad file descriptor\n"
    assert found == (message, 2)


LOST: list[dict[str, Any]] = [
    {"stderr": "/dev/full"},
    {"stderr": "gone"},
    {"closed": 2},
    {"closed": 12},
]


@pytest.mark.full
@pytest.mark.parametrize("streams", LOST)
def test_unwritable_messages_do_not_stop_the_work(streams: dict[str, Any], tmp_path: Path) -> None:
    text = runs.write_text(tmp_path / "text")
    words = ["tokenizer", "train", str(text), "--kind", "char", "--out", str(tmp_path / "made")]
    is_new_python = streams == {"closed": 2}
    _, status = with_streams([*words, "--json"], **streams, is_new_python=is_new_python)
    assert (tmp_path / "made" / "tokenizer.json").is_file()
    assert status == (2 if streams.get("closed") == 12 else 0)


@pytest.mark.full
def test_training_continues_without_a_standard_error(tmp_path: Path) -> None:
    text = runs.write_text(tmp_path / "text")
    recipe = tmp_path / "tiny.toml"
    recipe.write_text(runs.recipe("encoder", steps=2).dumps())
    words = ["pretrain", str(recipe), "--data", str(text), "--out", str(tmp_path / "run")]
    assert with_streams(words, stderr="/dev/full")[1] == 0
    assert is_finished(tmp_path / "run")


def with_streams(
    words: list[str],
    *,
    stdout: IO[Any] | None = None,
    stderr: str = "",
    closed: int = 0,
    is_new_python: bool = False,
) -> tuple[str, int]:
    """Run a command, with some streams (the digits of `closed`) closed from the beginning.

    Returns:
        what it wrote to its standard error, and its status
    """
    with tempfile.TemporaryFile() as output, tempfile.TemporaryFile() as errors:
        streams = {0: output.fileno(), 1: (stdout or output).fileno(), 2: errors.fileno()}
        if stderr == "gone":
            read, streams[2] = os.pipe()
            os.close(read)
        elif stderr:
            streams[2] = os.open(stderr, os.O_WRONLY)
        given = {n: file for n, file in streams.items() if not closed or str(n) not in str(closed)}
        status = forking.start(words, given, is_new_python=is_new_python).wait()
        if stderr:
            os.close(streams[2])
        errors.seek(0)
        return errors.read().decode(), status


def test_help_and_mistakes_do_not_import_torch() -> None:
    """They must be quick; torch takes a second to import."""
    code = (
        "import sys; from foreword.cli.main import run; run(['--help']); run(['oops']); "
        "import json; sys.stderr.write(json.dumps('torch' in sys.modules))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        cwd=Path(__file__).parents[2],
    )
    assert json.loads(done.stderr.splitlines()[-1]) is False


def test_a_circular_link_is_reported_in_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    loop = tmp_path / "loop"
    loop.symlink_to(loop)
    assert (
        main.run(["pretrain", "gpt2_tiny", "--data", str(loop), "--out", str(tmp_path / "r")]) == 2
    )
    error = capsys.readouterr().err
    assert str(loop) in error
    assert error.count("\n") == 1


def test_output_on_a_full_disk_is_reported_in_one_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def full(*given: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(main, "assemble", full)
    assert main.run(["show", "recipes"]) == 2
    assert (
        capsys.readouterr().err
        == "foreword: the output cannot be written: No space left on device\n"
    )


@pytest.mark.parametrize("folder", ["runs/books", "my runs/a b", "it's here"])
def test_a_command_in_a_message_can_be_pasted(folder: str) -> None:
    text = quoted_command("report", folder)
    assert text[0] == text[-1]
    assert shlex.split(text[1:-1]) == ["foreword", "report", folder]
