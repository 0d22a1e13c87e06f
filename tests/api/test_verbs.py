"""The other functions of the Python interface, as a person calls them."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from foreword import compare, evaluate, prepare, pretrain, show, tune
from foreword.errors import UserError
from foreword.evaluation.loaded import LoadedModel
from foreword.reports.page import write_page
from foreword.tuning.tuned_model import TunedModel
from foreword.verbs._load import load
from tests.frames import Frame, Series

TEXTS = [f"The cat number {n} sat on the mat and looked at dog number {n + 1}." for n in range(300)]
SMALL: dict[str, Any] = {
    "packing.length": 16, "train.batch": 4, "model.layers": 1, "model.d_model": 16,
    "model.heads": 1, "model.d_ff": 16,
}  # fmt: skip
EXAMPLES = [(f"a {word} film", label) for word, label in (("good", "1"), ("bad", "0"))] * 6


@pytest.fixture(scope="module")
def shards(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("shards")
    text = folder / "text.txt"
    text.write_text("\n".join(TEXTS), encoding="utf-8")
    made = prepare(
        text, folder / "made", kind="bpe", vocab=420, documents="line", heldout=0.2, progress=False
    )
    assert "vocabulary  420" in repr(made)
    assert "heldout" in made._repr_html_()
    return made.folder


@pytest.fixture(scope="module")
def run(shards: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("run") / "run"
    pretrain("gpt2_tiny", shards, folder, steps=2, settings=SMALL, progress=False)
    return folder


def test_prepared_text_is_reused(shards: Path) -> None:
    again = prepare(
        shards.parent / "text.txt", shards, kind="bpe", vocab=420, documents="line", heldout=0.2,
        progress=False,
    )  # fmt: skip
    assert again.prepared.reused


def test_evaluate_returns_the_loss_and_its_baselines(run: Path) -> None:
    result = evaluate(run, progress=False)
    assert result.loss is not None
    assert result.file.is_file()
    assert [row["what"] for row in result.rows][1:] == ["bigram counts", "unigram counts"]
    assert "unigram counts" in repr(result) and "bits per byte" in repr(result)


@pytest.mark.product(few=3)
@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"rows": -1}, "--rows: must be a whole number from 1 to"),
        ({"rows": 0}, "--rows: must be a whole number from 1 to"),
        ({"rows": 1.5}, "--rows: expected a whole number, got 1.5"),
        ({"rows": "a"}, "--rows: expected a whole number, got 'a'"),
        ({"streams": -3}, "--streams: must be a whole number from 0 to"),
        ({"context_lengths": []}, "--context-lengths []: expected numbers"),
        ({"context_lengths": 64}, "--context-lengths 64: expected numbers"),
        ({"context_lengths": [-1]}, "--context-lengths: must be a whole number from 0 to"),
        ({"context_lengths": [0.5]}, "--context-lengths: must be a whole number from 0 to"),
    ],
    ids=str,
)
def test_evaluate_refuses_impossible_numbers_and_keeps_the_result(
    run: Path, arguments: dict[str, Any], message: str
) -> None:
    file = evaluate(run, rows=1, progress=False).file
    before = file.read_bytes()
    with pytest.raises(UserError, match=re.escape(message)):
        evaluate(run, progress=False, **arguments)
    assert file.read_bytes() == before


def test_evaluate_takes_lengths_of_memory_as_numbers_or_as_on_the_command_line(run: Path) -> None:
    given = [evaluate(run, context_lengths=m, progress=False).rows for m in ([0, 8], "0,8")]
    assert given[0] == given[1]
    assert [row["memory"] for row in given[0]] == [0, 8]


def test_tune_accepts_examples_given_in_python(run: Path) -> None:
    result = tune(run, EXAMPLES, EXAMPLES[:4], seeds=1, epochs=1, progress=False, strategy="full")
    assert result.out == run / "tuned" / "data"
    assert 0 <= result.rows[0]["accuracy"] <= 1
    assert result.content["settings"]["data"]["train"] == "12 examples given in Python"
    assert "accuracy" in repr(result)
    assert "macro F1" in repr(result)
    assert "macro F1" in write_page(run).read_text(encoding="utf-8")
    tuned = result.load("cpu")
    assert isinstance(tuned, TunedModel)
    assert tuned.predict(["a good film"])[0][0] in ("0", "1")
    assert isinstance(load(run, "cpu"), LoadedModel)


def test_a_loaded_model_takes_any_list_of_texts_and_refuses_what_is_none(run: Path) -> None:
    loaded = load(run, "cpu")
    assert isinstance(loaded, LoadedModel)
    states = loaded.encode(TEXTS[:2])
    assert all(map(np.array_equal, loaded.encode(Series(TEXTS[:2])), states))
    assert len(loaded.generate(iter(TEXTS[:2]), tokens=1)) == 2
    for wrong, message in [
        (lambda: loaded.score(None), "text: expected a text, got None"),
        (lambda: loaded.fill(3), "text: expected a text, got 3"),
        (lambda: loaded.encode(["a", None]), r"text\[1\]: expected a text, got None"),
        (lambda: loaded.generate({"a": 1}), "prompt: expected a list of texts, got a dict"),
        (lambda: loaded.encode(Frame({"a": TEXTS})), "text: expected a list of texts, got a Frame"),
    ]:
        with pytest.raises(UserError, match=message):
            wrong()


@pytest.mark.full
def test_the_report_says_that_only_some_rows_were_evaluated(run: Path) -> None:
    assert evaluate(run, rows=1, progress=False).content["max_rows"] == 1
    page = write_page(run).read_text(encoding="utf-8")
    assert "at most the first 1 rows of the held-out text" in page
    evaluate(run, progress=False)
    assert "at most the first 1 rows" not in write_page(run).read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"task": "clasify"}, "did you mean 'classify'"),
        ({"compare": True, "from_scratch": True}, "--compare cannot be combined"),
        ({"settings": {"epochs": 3}}, "expected task.NAME=value or tune.NAME=value"),
        ({"name": "a/b"}, "must be a name, not a path"),
    ],
)
def test_a_mistake_in_tuning_is_one_line(
    arguments: dict[str, Any], message: str, run: Path
) -> None:
    with pytest.raises(UserError, match=message):
        tune(run, EXAMPLES, EXAMPLES, progress=False, **arguments, strategy="full")


def test_compare_runs_a_grid_file(shards: Path, tmp_path: Path) -> None:
    grid = tmp_path / "grid.toml"
    grid.write_text(
        '[set]\npacking = { kind = "documents", length = 16 }\ntrain = { batch = 4 }\n'
        '[[cells]]\nrecipe = "gpt2_tiny"\nlabel = "one"\n',
        encoding="utf-8",
    )
    planned = compare(grid, shards, tmp_path / "out", steps=2, dry_run=True, progress=False)
    assert planned.forecast is not None and planned.status == 0
    assert planned.forecast.jobs == 1 and planned.forecast.seconds > 0
    assert "FLOPs/token" in repr(planned) and "1 job, " in planned.notes[0]
    result = compare(grid, shards, tmp_path / "out", steps=2, progress=False)
    assert result.is_done and result.status == 0
    assert not result.failures
    assert "one" in repr(result)
    assert (tmp_path / "out" / "table.md").is_file()


@pytest.mark.full
def test_a_comparison_shows_pretraining_and_fine_tuning(shards: Path, tmp_path: Path) -> None:
    rows = "\n".join(["text\tlabel", *("\t".join(example) for example in EXAMPLES)])
    (tmp_path / "films.tsv").write_text(rows + "\n", encoding="utf-8")
    grid = tmp_path / "grid.toml"
    grid.write_text(
        '[set]\npacking = { kind = "documents", length = 16 }\ntrain = { batch = 4 }\n'
        '[[cells]]\nrecipe = "gpt2_tiny"\nlabel = "one"\n'
        '[[tasks]]\nname = "films"\ntrain = "films.tsv"\ndev = "films.tsv"\n'
        "tune = { seeds = 1, epochs = 1 }\n",
        encoding="utf-8",
    )
    result = compare(grid, shards, tmp_path / "out", steps=2, progress=False)
    shown = repr(result)
    assert re.search(r"cell +recipe +parameters", shown)
    assert re.search(r"cell +films, accuracy +films, accuracy, from scratch", shown)
    assert "films, accuracy" in result._repr_html_()
    assert any("dev examples are training examples too" in note for note in result.notes)


@pytest.mark.full
def test_pages_have_text_and_html_forms() -> None:
    page = show("masked")
    assert page.data()[0]["name"] == "masked"
    assert "rate" in repr(page)
    assert "<pre>objectives/masked" in page._repr_html_()
    assert "layers = 3" in repr(show("bert_tiny", {"model.layers": 3}))
