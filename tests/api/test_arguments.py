"""Wrong and unusual arguments of every function: one line that names the argument, or they work."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import foreword
from foreword.display.results import Facts, Part, Result, ResultTable
from foreword.errors import UserError
from foreword.verbs._run import PretrainingResult
from tests.frames import Frame, Series

TEXTS = [f"The cat number {n} sat on the mat and looked at dog number {n + 1}." for n in range(200)]
SMALL: dict[str, Any] = {"tokenizer.vocab": 400, "packing.length": 16, "train.batch": 4}
LONG = "It was a bright cold day in April, and the clocks were striking thirteen. " * 8


def pretrain(out: Path, texts: Any = TEXTS, **arguments: Any) -> PretrainingResult:
    how: dict[str, Any] = {"steps": 1, "settings": SMALL, "progress": False}
    return foreword.pretrain("gpt2_tiny", out=out, texts=texts, **how | arguments)


@pytest.mark.parametrize("name", ["my texts.txt", "my te*.txt"])
def test_a_path_of_several_words_is_a_path(name: str, tmp_path: Path) -> None:
    (tmp_path / "my texts.txt").write_text("\n\n".join(TEXTS), encoding="utf-8")
    made = foreword.prepare(str(tmp_path / name), tmp_path / "out", kind="char", progress=False)
    assert made.folder.is_dir()


class OtherProgress:
    def note(self, text: str) -> None:
        pass


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"steps": 1.5}, "--steps: expected a whole number, got 1.5"),
        ({"steps": 0}, "--steps: must be a whole number from 1"),
        ({"field": 3}, "--field: expected a string, got 3"),
        ({"field": "body"}, "--field: cannot be combined with texts"),
        ({"out": 4}, "--out: expected a path, got 4"),
        ({"track": 3}, "--track: expected names of trackers, or trackers; got 3"),
        ({"track": [3]}, r"--track: expected names of trackers, or trackers; got \[3\]"),
        ({"settings": None}, "settings: expected a table, such as .*, got None"),
        ({"settings": {"model.layers": None}}, "settings: model.layers is None; leave it out"),
        ({"hooks": [print]}, r"hooks\[0\]: expected an object of a class of .*Hook, got <built-in"),
        ({"hooks": print}, "hooks: expected a list of hooks, got <built-in"),
        ({"progress": None}, "progress: expected True, False or a display"),
        ({"progress": OtherProgress()}, "progress: .* has no method __enter__"),
        ({"heldout": [3]}, "--heldout: expected a path, got 3"),
        ({"recipe": 3}, "RECIPE: expected a path, got 3"),
        ({"texts": 3}, "texts: expected a list of texts, got 3"),
        ({"texts": ["a", None]}, r"texts\[1\]: expected a text, got None"),
        ({"texts": Frame({"text": TEXTS})}, "texts: expected a list of texts, got a Frame; choose"),
        (
            {"texts": None, "data": Frame({"text": TEXTS})},
            "--data: expected a list of paths, got",
        ),
        ({"texts": None, "data": [LONG]}, "is not a path; --data takes paths, texts takes the"),
        ({"texts": None, "data": LONG}, "is not a path; --data takes paths, texts takes the"),
        ({"texts": None, "data": "a\0b"}, "is not a path"),
        (
            {"texts": None, "data": ["A short text.", "And another."]},
            "'A short text.': there is no such file or folder; --data takes paths, texts takes",
        ),
    ],
)
def test_a_wrong_argument_of_pretrain_is_named_and_leaves_nothing(
    arguments: dict[str, Any], message: str, tmp_path: Path
) -> None:
    given: dict[str, Any] = {"recipe": "gpt2_tiny", "out": tmp_path / "run", "texts": TEXTS}
    given |= {"steps": 1, "settings": SMALL, "progress": False}
    with pytest.raises(UserError, match=message) as caught:
        foreword.pretrain(**given | arguments)
    assert "\n" not in str(caught.value)
    assert not list(tmp_path.iterdir())


def test_only_the_command_line_has_more_text() -> None:
    with pytest.raises(TypeError, match="pretrain\\(\\) has no argument 'more'"):
        foreword.pretrain("gpt2_tiny", more="x")  # type: ignore[call-arg]


def test_arguments_are_checked_before_texts_are_read(tmp_path: Path) -> None:
    texts = iter(TEXTS)
    for wrong in ({"hooks": [print]}, {"settings": {"model.layrs": 1}}, {"hours": 1}):
        with pytest.raises(UserError):
            pretrain(tmp_path / "run", texts, **wrong)
    assert len(list(texts)) == len(TEXTS)


@pytest.mark.parametrize(
    ("function", "arguments", "message"),
    [
        ("load", [None], "RUN: expected a path, got None"),
        ("resume", [None], "RUN: expected a path, got None"),
        ("compare", [3, "text"], "GRID: expected a path, got 3"),
        ("prepare", [[LONG], "shards"], "is not a path; --data takes paths, texts takes the"),
        ("prepare", [], "give data, which takes paths, or texts"),
        ("tune", [3, "a.tsv", "b.tsv"], "RUN: expected a path, got 3"),
    ],
)
def test_a_wrong_argument_of_other_functions_is_named(
    function: str, arguments: list[Any], message: str
) -> None:
    with pytest.raises(UserError, match=message):
        getattr(foreword, function)(*arguments)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"lr": "high"}, "--lr: expected a number, got 'high'"),
        ({"name": None}, "--name: expected a string, got None"),
        ({"name": "x" * 300}, "--name: must be at most 200 bytes"),
        ({"compare": "yes"}, "--compare: expected true or false, got 'yes'"),
        ({"prefix": [3]}, r"prefix\[0\]: expected a text, got 3"),
    ],
)
def test_a_wrong_argument_of_tune_is_named(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(UserError, match=message):
        foreword.tune("run", [("a", "b")], [("a", "b")], **arguments, strategy="full")


@pytest.mark.full
def test_numbers_of_numpy_are_numbers(tmp_path: Path) -> None:
    settings = SMALL | {"model.layers": np.int64(1), "model.dropout": np.float32(0.5)}
    run = pretrain(
        tmp_path / "run", Series(TEXTS), steps=np.int64(2), heldout=np.float32(0.25),
        settings=settings,
    )  # fmt: skip
    assert run.last["train"]["step"] == 2
    recipe = run.load("cpu").recipe
    assert recipe.model.layers == 1 and recipe.model.dropout == 0.5
    assert recipe.prepare.heldout == 0.25


@pytest.mark.full
def test_results_are_taken_for_their_folders(tmp_path: Path) -> None:
    shards = foreword.prepare(
        texts=iter(TEXTS), out=tmp_path / "shards", vocab=350, heldout=0.2, progress=False
    )
    how: dict[str, Any] = {"steps": 1, "settings": {"packing.length": 16, "train.batch": 4}}
    run = foreword.pretrain("gpt2_tiny", shards, tmp_path / "run", progress=False, **how)
    assert foreword.resume(run, progress=False).is_done
    assert foreword.evaluate(run, progress=False).loss is not None
    assert repr(foreword.load(run, "cpu")) == repr(foreword.load(tmp_path / "run", "cpu"))
    examples = [("good", 1), ("bad", 0)] * 4
    tuned = foreword.tune(
        run, examples, examples, seeds=1, epochs=1, progress=False, strategy="full"
    )
    assert len(foreword.predict(tuned, ["good"], progress=False).predictions) == 1
    assert repr(foreword.load(tuned)) == f"<classify, 2 labels, {tuned.out}>"


def test_texts_are_prepared_once_and_never_overwritten(tmp_path: Path) -> None:
    how: dict[str, Any] = {"vocab": 350, "progress": False}
    made = foreword.prepare(texts=TEXTS, out=tmp_path / "shards", **how)
    assert sum(part.documents for part in made.prepared.counts.values()) == len(TEXTS)
    with pytest.raises(UserError, match=r"shards\.jsonl: already exists"):
        foreword.prepare(texts=TEXTS, out=tmp_path / "shards", **how)
    assert foreword.prepare(tmp_path / "shards.jsonl", tmp_path / "shards", **how).prepared.reused
    with pytest.raises(UserError, match=r"texts\[1\]: expected a text"):
        foreword.prepare(texts=["a", 1], out=tmp_path / "other", **how)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["shards", "shards.jsonl"]


@pytest.mark.full
def test_two_threads_with_one_out_do_not_mix(tmp_path: Path) -> None:
    is_begun, may_end = threading.Event(), threading.Event()
    ended: list[Any] = []

    def slow() -> Any:
        yield TEXTS[0]
        is_begun.set()
        may_end.wait(60)
        yield from TEXTS[1:]

    thread = threading.Thread(target=lambda: ended.append(pretrain(tmp_path / "run", slow())))
    thread.start()
    assert is_begun.wait(60)
    with pytest.raises(UserError, match=r"run\.jsonl: another process or thread is writing it"):
        pretrain(tmp_path / "run")
    may_end.set()
    thread.join()
    assert ended[0].is_done
    assert (tmp_path / "run.jsonl").read_text(encoding="utf-8").count("\n") == len(TEXTS)
    with pytest.raises(UserError, match="already holds a run"):
        pretrain(tmp_path / "run")


def test_a_path_may_be_shown() -> None:
    recipe = Path(foreword.__file__).parent / "recipes" / "gpt2_tiny.toml"
    assert repr(foreword.show(recipe)) == repr(foreword.show(str(recipe)))


class Long(Result):
    def tables(self) -> list[Part]:
        rows = [{"text": "word " * 10_000, "n": 1}, {"text": "two\nlines", "n": 2}]
        return [Facts({"note": "a\nb " * 10_000}), ResultTable(rows)]


def test_a_result_is_shown_in_short_lines() -> None:
    lines = repr(Long()).split("\n")
    assert len(lines) == 6
    assert max(map(len, lines)) < 450 and len(lines[4]) < 80
    assert "…" in lines[4] and lines[4].endswith("  1")
    assert lines[5].split() == ["two", "lines", "2"]
    page = Long()._repr_html_()
    assert len(page) < 1200 and "two lines" in page
