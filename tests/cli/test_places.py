"""Outputs: devices are kept, full disks leave no partial files, removed folders stay removed."""

from __future__ import annotations

import errno
import os
import resource
import shutil
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
from safetensors import SafetensorError

from foreword.cli.main import run
from foreword.data import write_shards as preparing
from foreword.disk import atomic
from foreword.errors import UserError
from foreword.evaluation import heldout
from foreword.probes.gradient_reach import GradientReach
from foreword.runs import hooks
from foreword.runs.recipe import load_recipe
from foreword.train import checkpoint, log
from foreword.train.loop import Loop
from foreword.tuning import tune_and_save, tune_result
from tests.damage import copied
from tests.train import runs
from tests.tuning.runs import reviews

FULL = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
# The message of safetensors.
NO_ROOM = "Error while serializing: I/O error: No space left on device (os error 28)"


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run, its text, and labelled text."""
    folder = tmp_path_factory.mktemp("made")
    text = runs.write_text(folder / "text")
    small = ("tokenizer.kind=word", "packing.length=16", "train.steps=2", "train.compile=off")
    recipe = load_recipe("gpt2_tiny", small)
    runs.train_run(runs.begin(recipe, text, folder / "run"))
    for name, seed in (("train", 1), ("dev", 2)):
        lines = [f"{example.text}\t{example.label}" for example in reviews(8, seed)]
        (folder / f"{name}.tsv").write_text("\n".join(["text\tlabel", *lines]) + "\n")
    return folder


@pytest.fixture
def here(made: Path, tmp_path: Path) -> Path:
    """A copy to work in."""
    return copied(made, tmp_path / "here")


def words_of(verb: str, here: Path, out: Path) -> list[str]:
    """A command that writes to `out`, or into the run where it has no --out."""
    one, text = str(here / "run"), str(here / "text")
    labelled = ["--train", str(here / "train.tsv"), "--dev", str(here / "dev.tsv")]
    tiny = ["--seeds", "1", "--epochs", "1", "--name", "x"]
    words = {
        "prepare": ["prepare", text, "--kind", "char"],
        "pretrain": ["pretrain", "gpt2_tiny", "--data", text, "--steps", "1"],
        "tokenizer": ["tokenizer", "train", text, "--kind", "char"],
        "tune": ["tune", "--strategy=full", one, *labelled, *tiny],
        "vectors": ["export", one, "--format", "word2vec"],
        "export": ["export", one],
        "import": ["import", one],
        "report": ["report", one],
        "demo": ["demo"],
        "probe": ["probe", one, "gradient_reach"],
        "compare": ["compare", "ladder", "--data", text, "--hours", "0.01"],
        "evaluate": ["evaluate", one, "--data", text],
    }[verb]
    return words if verb == "evaluate" else [*words, "--out", str(out)]


def fails(words: list[str], capsys: pytest.CaptureFixture[str]) -> str:
    """The line that a command fails with."""
    capsys.readouterr()
    assert run(words) == 2
    captured = capsys.readouterr().err
    assert "Traceback" not in captured
    (line,) = (line for line in captured.splitlines() if line.startswith("foreword: "))
    return line


FILES = ("vectors", "report")  # verbs whose --out is a file
OUT = ("prepare", "pretrain", "tokenizer", "tune", "export", "import", "demo", "compare", *FILES)


@pytest.mark.product(few=1)
@pytest.mark.parametrize("verb", OUT)
def test_a_pipe_is_not_replaced(
    verb: str, here: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    for place in (pipe, tmp_path / "link"):
        if place != pipe:
            place.symlink_to(pipe)
        line = fails(words_of(verb, here, place), capsys)
        assert line.endswith("; choose another --out")
    assert pipe.is_fifo()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["here", "link", "pipe"]


@pytest.mark.product(few=2)
@pytest.mark.parametrize("verb", [*OUT, "probe"])
def test_an_unwritable_out_is_refused_before_the_work(
    verb: str,
    here: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(tune_and_save, "tune", pytest.fail)
    monkeypatch.setattr(GradientReach, "measure", pytest.fail)
    (tmp_path / "file").write_text("mine")
    (tmp_path / "folder").mkdir()
    (tmp_path / "loop").symlink_to("loop")
    before = sorted(tmp_path.rglob("*"))
    for name in ("file/y", "file/deep/y"):
        line = fails(words_of(verb, here, tmp_path / name), capsys)
        above = tmp_path / "file"
        assert line == f"foreword: {tmp_path / name}: {above} is a file; choose another --out"
    wrong, kind = ("folder", "folder") if verb in FILES else ("file", "file")
    line = fails(words_of(verb, here, tmp_path / wrong), capsys)
    assert line == f"foreword: {tmp_path / wrong}: is a {kind}; choose another --out"
    line = fails(words_of(verb, here, tmp_path / "loop"), capsys)
    assert line.endswith("loop: is a link that leads to itself; choose another --out")
    for place in ("/proc/x", "/sys/x/y", str(tmp_path / "folder" / ("x" * 251))):
        assert "cannot be written: " in fails(words_of(verb, here, Path(place)), capsys)
    assert sorted(tmp_path.rglob("*")) == before


def test_a_run_whose_scores_cannot_be_written_is_not_fine_tuned(
    here: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tune_and_save, "tune", pytest.fail)
    (here / "run" / "evaluations").write_text("")
    line = fails(words_of("tune", here, tmp_path / "out"), capsys)
    assert "evaluations is a file" in line


@pytest.mark.product(few=1)
@pytest.mark.parametrize("verb", ["prepare", "tokenizer", "tune", "export", "report", "evaluate"])
def test_a_full_disk_leaves_nothing_half_written(
    verb: str,
    here: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def full(number: int) -> None:
        raise FULL

    before = sorted(path for path in here.rglob("*") if path.suffix != "")
    monkeypatch.setattr(os, "fsync", full)
    line = fails(words_of(verb, here, tmp_path / "out"), capsys)
    assert "cannot be written: No space left on device" in line
    monkeypatch.undo()
    assert sorted(path for path in here.rglob("*") if path.suffix != "") == before
    left = {path.name for path in (tmp_path / "out").rglob("*")}
    assert left <= {atomic.LOCK}
    assert run(words_of(verb, here, tmp_path / "out")) == 0


@pytest.mark.full
def test_a_disk_that_fills_with_weights_is_reported_in_one_line(
    here: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def full(*given: Any, **more: Any) -> None:
        raise SafetensorError(NO_ROOM)

    monkeypatch.setattr(tune_result, "save_file", full)
    line = fails(words_of("tune", here, tmp_path / "out"), capsys)
    assert line.endswith("out: cannot be written: No space left on device")
    assert sorted(path.name for path in tmp_path.iterdir()) == [".out.seeds", "here"]
    monkeypatch.undo()
    assert run(words_of("tune", here, tmp_path / "out")) == 0
    assert "1 seed was trained by an earlier call" in capsys.readouterr().err
    assert sorted(path.name for path in tmp_path.iterdir()) == ["here", "out"]


@contextmanager
def largest_file(size: int) -> Iterator[None]:
    """Limit the size of files: writes fail as on a full disk."""
    limits, compiles = resource.getrlimit(resource.RLIMIT_FSIZE), not sys.dont_write_bytecode
    sys.dont_write_bytecode = True  # Python keeps what it could write of a compiled module
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, limits[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        sys.dont_write_bytecode = not compiles


def test_the_size_limit_cuts_no_compiled_module(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "seldom_imported.py").write_text(f"WORDS = {'word ' * 100!r}")
    monkeypatch.setattr(sys, "pycache_prefix", None)
    monkeypatch.syspath_prepend(tmp_path)
    with largest_file(100):
        import_module("seldom_imported")
    assert not list(tmp_path.rglob("*.pyc"))


@pytest.mark.product(few=1)
@pytest.mark.parametrize("verb", ["export", "vectors", "tune", "import"])
@pytest.mark.parametrize("size", [100, 20_000])  # refuses the first file, or the weights
def test_a_write_beyond_the_size_limit_leaves_nothing(
    verb: str, size: int, here: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    if verb == "import":
        assert run(words_of("export", here, here / "exported")) == 0
        (here / "run").rename(here / "trained")
        (here / "exported").rename(here / "run")
    before = sorted(here.rglob("*"))
    with largest_file(size):
        line = fails(words_of(verb, here, tmp_path / "out"), capsys)
    assert "cannot be written: File too large" in line
    assert sorted(here.rglob("*")) == before
    assert [path.name for path in tmp_path.iterdir()] == ["here"]


def after(done: Callable[..., Any], folder: Path) -> Callable[..., Any]:
    """Return a function that calls another and then removes a folder."""

    def wrapper(*given: Any, **more: Any) -> Any:
        result = done(*given, **more)
        shutil.rmtree(folder)
        return result

    return wrapper


@pytest.mark.parametrize(
    ("verb", "module", "name"),
    [("tune", tune_and_save, "tune"), ("evaluate", heldout, "on_shards")],
)
def test_a_run_removed_meanwhile_is_not_recreated(
    verb: str,
    module: Any,
    name: str,
    here: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, name, after(getattr(module, name), here / "run"))
    words = words_of(verb, here, here / "run" / "tuned")
    assert "run: was removed while it was written to" in fails(words, capsys)
    assert not (here / "run").exists()


def test_a_run_removed_while_it_trains_is_not_recreated(made: Path, tmp_path: Path) -> None:
    for checkpoints in (1, 12):  # the log, or a checkpoint, is what is written next
        one = runs.begin(runs.recipe(checkpoints=checkpoints), made / "text", tmp_path / "run")
        remove = runs.Quiet(4, lambda: shutil.rmtree(tmp_path / "run"))
        with pytest.raises(UserError, match="run: was removed while it was written to"):
            runs.train_run(one, remove)
        assert not one.exists()


@pytest.mark.product(few=1)
@pytest.mark.parametrize("name", ["recipe.toml", "run.json"])
def test_a_run_that_loses_a_file_stops_at_the_next_checkpoint(
    name: str, made: Path, tmp_path: Path
) -> None:
    one = runs.begin(runs.recipe(checkpoints=12), made / "text", tmp_path / "run")
    with pytest.raises(UserError, match=f"{name}: was removed while the run trained"):
        runs.train_run(one, runs.Quiet(4, lambda: (one / name).rename(tmp_path / "kept")))
    assert checkpoint.all_in(one)[-1].name == checkpoint.name_of(4)
    (tmp_path / "kept").rename(one / name)
    assert runs.train_run(one)


@pytest.mark.full
def test_a_run_that_loses_its_recipe_is_not_done_and_keeps_its_weights(
    here: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def lose(saves: hooks.SaveCheckpoints, loop: Loop) -> None:
        saves.run(loop)
        for name in ("recipe.toml", log.FILE):
            (tmp_path / "out" / name).unlink()

    monkeypatch.setattr(hooks.SaveCheckpoints, "end", lose)
    words = [*words_of("pretrain", here, tmp_path / "out"), "--set", "tokenizer.kind=word"]
    line = fails(words, capsys)
    assert "recipe.toml: was removed while the run trained" in line
    assert (checkpoint.all_in(tmp_path / "out")[-1] / "weights.safetensors").is_file()


def test_shards_cut_short_while_a_run_reads_them_are_named(made: Path, tmp_path: Path) -> None:
    one = runs.begin(runs.recipe(), made / "text", tmp_path / "run")
    shards = one / "shards" / "train.bin"
    with pytest.raises(UserError, match="cut short while it was read: 2 bytes"):
        runs.train_run(one, runs.Quiet(4, lambda: os.truncate(shards, 2)))


def test_shards_removed_meanwhile_are_not_recreated(
    here: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(
        preparing.ShardBuilder, "encode", after(preparing.ShardBuilder.encode, tmp_path / "out")
    )
    monkeypatch.setattr(preparing.ShardBuilder, "ensure_split", lambda making: None)
    line = fails(words_of("prepare", here, tmp_path / "out"), capsys)
    assert "out: was removed while it was written to" in line
    assert not (tmp_path / "out").exists()


@pytest.mark.full
def test_a_link_is_kept_and_its_target_replaced(here: Path, tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "out").symlink_to(tmp_path / "elsewhere")
    assert run(words_of("tune", here, tmp_path / "out")) == 0
    assert (tmp_path / "out").is_symlink()
    assert (tmp_path / "elsewhere" / "weights.safetensors").is_file()
    (tmp_path / "page.html").symlink_to(tmp_path / "real.html")
    assert run(words_of("report", here, tmp_path / "page.html")) == 0
    assert (tmp_path / "page.html").is_symlink() and (tmp_path / "real.html").is_file()
