"""Damaged files of runs, shards and tuned models are refused in one line."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from foreword.cli.main import run
from foreword.errors import UserError
from foreword.train import checkpoint
from foreword.tuning.tuned_model import load_tuned
from tests import damage
from tests.train import runs
from tests.tuning.runs import reviews

Read = Callable[[Path], Any]  # what a command makes of a folder; a line of `UserError` if it cannot


class Refused(Exception):  # noqa: N818
    """The message of a command that refused."""


def command(*words: str, passes: bool = False) -> Callable[..., Any]:
    """Return a reader: what a command prints for a folder."""

    def read(folder: Path, capsys: pytest.CaptureFixture[str]) -> str:
        status = run([word.replace("RUN", str(folder)) for word in words])
        captured = capsys.readouterr()
        lines = [line for line in captured.err.splitlines() if line.startswith("foreword: ")]
        assert "Traceback" not in captured.err, captured.err
        assert status in (0, 2), captured.err
        assert len(lines) == (status == 2), captured.err
        if status == 2 or passes or "the one before it is used" in captured.err:
            raise Refused(captured.err)
        return captured.out

    return read


def predict(folder: Path, capsys: pytest.CaptureFixture[str]) -> list[list[float]]:
    """Return the outputs of a tuned model for a text."""
    try:
        outputs: list[list[float]] = load_tuned(folder, "cpu").outputs(["the cat"]).tolist()
    except UserError as error:
        assert "\n" not in str(error)
        raise Refused(str(error)) from error
    return outputs


SCORE = command("score", "RUN", "the cat sat", "--json")
EVALUATE = command("evaluate", "RUN", "--json")
RESUME = command("resume", "RUN", "--json", passes=True)
# Of logs and results a report shows what there is.
REPORT = command("report", "RUN", passes=True)
READERS: dict[str, tuple[Callable[..., Any], ...]] = {
    "run/recipe.toml": (SCORE, REPORT),
    "run/run.json": (SCORE, EVALUATE, REPORT),
    "run/metrics.jsonl": (REPORT,),
    "run/evaluations/evaluate-heldout.json": (REPORT,),
    "run/tokenizer/tokenizer.json": (SCORE,),
    "run/tokenizer/tokenizer_config.json": (SCORE,),
    "run/tokenizer/manifest.json": (SCORE,),
    "run/shards/prepared.json": (EVALUATE,),
    "run/shards/train.bin": (EVALUATE,),
    "run/shards/train.idx": (EVALUATE,),
    "run/shards/heldout.bin": (EVALUATE,),
    "run/shards/heldout.idx": (EVALUATE,),
    "run/checkpoints/LAST/weights.safetensors": (SCORE,),
    "run/checkpoints/LAST/state.json": (SCORE,),
    "run/checkpoints/LAST/manifest.json": (SCORE,),
    "run/checkpoints/LAST/optimizer.safetensors": (SCORE,),
    "tuned/labels.json": (predict,),
    "tuned/scores.json": (predict,),
    "tuned/recipe.toml": (predict,),
    "tuned/manifest.json": (predict,),
    "tuned/weights.safetensors": (predict,),
    "tuned/tokenizer/tokenizer.json": (predict,),
    "tuned/tokenizer/tokenizer_config.json": (predict,),
    "tuned/tokenizer/manifest.json": (predict,),
}


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run with an evaluation, and a network tuned on it."""
    folder = tmp_path_factory.mktemp("made")
    text = runs.write_text(folder / "text")
    whole = runs.begin(runs.recipe(checkpoints=4, kept_checkpoints=4), text, folder / "run")
    assert runs.train_run(whole)
    assert run(["evaluate", str(whole)]) == 0
    for name, seed in (("train", 1), ("dev", 2)):
        lines = [f"{example.text}\t{example.label}" for example in reviews(12, seed)]
        (folder / f"{name}.tsv").write_text("\n".join(["text\tlabel", *lines]) + "\n")
    words = ["--train", str(folder / "train.tsv"), "--dev", str(folder / "dev.tsv")]
    tuned = str(folder / "tuned")
    assert (
        run(
            [
                "tune",
                "--strategy=full",
                str(whole),
                *words,
                "--seeds",
                "1",
                "--epochs",
                "1",
                "--out",
                tuned,
            ]
        )
        == 0
    )
    return folder


def test_every_file_of_a_run_has_a_test_of_damage(made: Path) -> None:
    last = checkpoint.all_in(made / "run")[-1].name
    known = {name.replace("LAST", last) for name in READERS}
    there = {
        file.relative_to(made).as_posix()
        for top in ("run", "tuned")
        for file in (made / top).rglob("*")
        if file.is_file() and file.name != ".lock"
    }
    ours = ("/shards/tokenizer/", "/README.md")  # copies, and what only people read
    not_read = {name for name in there - known if not any(part in name for part in ours)}
    assert {Path(name).parent.name for name in not_read} <= {"evaluations", *_earlier(made)}
    assert known <= there


def _earlier(made: Path) -> set[str]:
    return {folder.name for folder in checkpoint.all_in(made / "run")[:-1]}


@pytest.mark.product(few=2)
@pytest.mark.parametrize("name", READERS)
def test_a_damaged_file_is_refused_or_has_no_effect(
    made: Path,
    tmp_path: Path,
    name: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    top, _, rest = name.replace("LAST", checkpoint.all_in(made / "run")[-1].name).partition("/")
    for reader in READERS[name]:
        capsys.readouterr()
        expected = None
        if reader is not REPORT:
            with suppress(Refused):
                expected = reader(damage.copied(made / top, tmp_path / top), capsys)
        for kind in damage.kinds(Path(rest)):
            folder = damage.copied(made / top, tmp_path / top)
            if not damage.damage(folder / rest, kind):
                continue
            try:
                assert reader(folder, capsys) == expected, kind
            except Refused:
                continue
            except Exception as error:
                raise AssertionError(f"{name}, {kind}") from error


@pytest.mark.product(few=1)
@pytest.mark.parametrize("name", ["run.json", "metrics.jsonl", "shards/train.idx"])
def test_resume_refuses_damaged_files(
    tmp_path: Path, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    text = runs.write_text(tmp_path / "text")
    stopped = runs.begin(runs.recipe(), text, tmp_path / "stopped")
    runs.die_at(stopped, 7)
    for kind in ("a folder", "cut", "flipped", "nothing in it", "numbers as texts", "endless"):
        folder = damage.copied(stopped, tmp_path / "run")
        if kind in damage.kinds(folder / name) and damage.damage(folder / name, kind):
            with pytest.raises(Refused):
                RESUME(folder, capsys)
