"""What people get wrong in their first hour, answered in one line with a way out."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import pyarrow as pa
import pytest
from pyarrow import parquet

from foreword import compare, evaluate, prepare, pretrain, resume, tune
from foreword.data.read_documents import find_files
from foreword.disk import atomic, stored
from foreword.errors import UserError
from foreword.reports.page import write_page
from foreword.runs.run_folder import open_run
from foreword.tables.columns import Columns
from foreword.tables.examples import Labelled, overlap_note
from foreword.tables.read import read_table
from foreword.tables.table import labelled
from foreword.tuning.job import Examples, TuneJob
from foreword.tuning.open_tuned import open_tuned
from foreword.tuning.tasks.classify import Classify
from tests.train import runs

EXAMPLES = [(f"a {word} film", label) for word, label in (("good", "1"), ("bad", "0"))] * 6


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("first")
    text = runs.write_text(folder / "text")
    pretrain(runs.recipe("encoder", steps=1), text, folder / "run", progress=False)
    return folder / "run"


@pytest.fixture(scope="module")
def tuned(run: Path) -> Path:
    return tune(
        run, EXAMPLES, EXAMPLES[:4], seeds=1, epochs=1, name="t", progress=False, strategy="full"
    ).out


@pytest.mark.parametrize("use", [open_run, evaluate, resume])
def test_a_tuned_model_in_place_of_a_run_is_named_as_such(
    use: Callable[[Path], Any], tuned: Path
) -> None:
    with pytest.raises(UserError, match="a fine-tuned model, which "):
        use(tuned)


def test_a_run_in_place_of_a_tuned_model_is_named_as_such(run: Path) -> None:
    with pytest.raises(UserError, match="was pretrained and not fine-tuned"):
        open_tuned(run)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("config.json", "a Hugging Face model becomes a run by 'foreword import"),
        ("grid.toml", "it is a comparison, with its runs in"),
        ("prepared.json", "token shards, for 'foreword pretrain RECIPE --data"),
        ("tokenizer.json", "it holds a tokenizer alone"),
    ],
)
def test_another_folder_in_place_of_a_run_is_named(name: str, message: str, tmp_path: Path) -> None:
    (tmp_path / name).write_text("{}", encoding="utf-8")
    with pytest.raises(UserError, match=message):
        open_run(tmp_path)


def test_a_checkpoint_cannot_be_resumed_and_names_its_run(run: Path) -> None:
    folder = next((run / "checkpoints").iterdir())
    with pytest.raises(UserError, match=f"it is a checkpoint of {run}"):
        resume(folder, progress=False)


def test_files_that_are_not_read_come_with_a_way_out(run: Path, tmp_path: Path) -> None:
    for name, message in (("a.csv", "column that --field names"), ("a.pdf", "extract their text")):
        (tmp_path / name).write_text("x", encoding="utf-8")
        with pytest.raises(UserError, match=message):
            find_files([tmp_path / name])
    with pytest.raises(UserError, match=r"no text file in it; .*; a table as"):
        find_files([tmp_path])
    with pytest.raises(UserError, match="is a run, not text"):
        find_files([run])


def test_measurements_are_no_classes() -> None:
    with pytest.raises(UserError, match=r"the labels are numbers \(0.1, 0.2, ...\).*'regress'"):
        Classify().labels([Labelled("a", "0.1"), Labelled("b", "0.2"), Labelled("c", "3")])
    halves = [Labelled("a", label) for label in ("0.5", "1.0", "1.5") * 4]
    assert Classify().labels(halves) == ("0.5", "1.0", "1.5")
    assert Classify().labels([Labelled("a", "1"), Labelled("b", "2")]) == ("1", "2")


@pytest.mark.full
def test_dev_examples_that_are_trained_on_are_counted(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = [f"the {n} cats\t{n % 2}" for n in range(12)]
    tables = {"train": rows, "dev": [*rows[:3], "another text\t1"]}
    for name, lines in tables.items():
        text = "\n".join(["text\tlabel", *lines])
        (tmp_path / f"{name}.tsv").write_text(text, encoding="utf-8")
    files = [tmp_path / "train.tsv", tmp_path / "dev.tsv"]
    result = tune(run, *files, seeds=1, epochs=1, name="overlap", progress=False, strategy="full")
    warning = "3 of the 4 dev examples are training examples too"
    assert warning in " ".join(capsys.readouterr().err.split())
    assert any(warning in note for note in stored.read(result.evaluation)["notes"])
    assert warning in repr(result)
    assert warning in write_page(run).read_text(encoding="utf-8")
    one = [Labelled(str(n), "1") for n in range(200)]
    assert overlap_note([[Labelled("7", "1")]], one) is None
    assert overlap_note([[Labelled("7", "1", "pair")]], one[7:8]) is None


def test_a_copy_of_the_training_text_is_not_held_out(tmp_path: Path) -> None:
    text = tmp_path / "text.txt"
    text.write_text("Some text. And more of it.\n" * 20, encoding="utf-8")
    shutil.copy(text, tmp_path / "dev.txt")
    with pytest.raises(UserError, match=r"dev.txt: has the same content as .*text.txt"):
        prepare(text, tmp_path / "out", heldout=tmp_path / "dev.txt", progress=False)


def test_columns_that_are_not_used_may_hold_anything(tmp_path: Path) -> None:
    broken = pa.array([b"\xff\xfe", b"\xff"]).view(pa.string())
    table = pa.table({"text": ["a b", "c"], "label": ["1", "0"], "note": broken})
    parquet.write_table(table, tmp_path / "a.parquet")
    examples, skipped = labelled(read_table(tmp_path / "a.parquet"), Columns())
    assert [example.text for example in examples] == ["a b", "c"]
    assert skipped == 0
    with pytest.raises(UserError, match="column 'note', byte 0"):
        labelled(read_table(tmp_path / "a.parquet"), Columns("note"))


def test_a_folder_that_is_replaced_needs_a_writable_parent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "out").mkdir()
    tried: list[Path] = []
    monkeypatch.setattr(atomic, "_make_and_remove", tried.append)
    job = TuneJob(
        Classify(), Examples([], []), evaluation=tmp_path / "s.json", folder=tmp_path / "o"
    )
    job.done(cast("Any", None))
    assert tried[0].parent == tmp_path


def test_a_file_in_the_way_of_a_result_must_be_moved_away(run: Path, tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(run, copy, ignore=shutil.ignore_patterns("evaluations"))
    (copy / "evaluations").write_text("a file", encoding="utf-8")
    with pytest.raises(UserError, match="evaluations: is a file; move it away"):
        evaluate(copy, progress=False)


@pytest.mark.parametrize(
    "line",
    ['data = [""]', 'heldout = [""]', 'tasks = [{ name = "t", train = "", dev = "dev.tsv" }]'],
)
def test_an_empty_path_in_a_grid_is_refused(line: str, tmp_path: Path) -> None:
    grid = tmp_path / "grid.toml"
    grid.write_text(f'{line}\n[[cells]]\nrecipe = "gpt2_tiny"\n', encoding="utf-8")
    with pytest.raises(UserError, match=f"{line.split()[0]}.*: the path is empty"):
        compare(grid, out=tmp_path / "out", steps=1, progress=False)
