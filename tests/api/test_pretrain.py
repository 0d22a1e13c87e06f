"""`foreword.pretrain` and `foreword.resume`, as a person calls them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from foreword import import_, pretrain, resume
from foreword.errors import UserError
from foreword.runs import run as running
from foreword.runs.recipe import load_recipe
from foreword.runs.run import require_free, starting
from foreword.runs.run_folder import read_recipe
from foreword.train import joining

TEXTS = [f"The cat number {n} sat on the mat and looked at dog number {n + 1}." for n in range(200)]
SMALL: dict[str, Any] = {"tokenizer.vocab": 400, "packing.length": 16, "train.batch": 4}


@pytest.mark.full
def test_any_iterable_of_texts_is_trained_on(tmp_path: Path) -> None:
    def texts() -> Iterator[str]:
        yield from TEXTS

    result = pretrain(
        "gpt2_tiny", texts=texts(), out=tmp_path / "run", steps=3, settings=SMALL, progress=False
    )
    assert result.is_done
    assert result.last["train"]["step"] == 3
    assert result.loss is not None
    assert "done           yes" in repr(result)
    assert "<td" in result._repr_html_()
    assert isinstance(result.load("cpu").generate("The cat", tokens=2), str)
    assert resume(tmp_path / "run", progress=False).is_done


def test_a_recipe_may_be_an_object(tmp_path: Path) -> None:
    recipe = load_recipe("gpt2_tiny", ["packing.length=16", "tokenizer.vocab=400"])
    text = tmp_path / "text.txt"
    text.write_text("\n".join(TEXTS), encoding="utf-8")
    pretrain(
        recipe, text, tmp_path / "run", documents="line", steps=1, progress=False,
        settings={"model.layers": 1, "train.batch": 2},
    )  # fmt: skip
    made = read_recipe(tmp_path / "run")
    assert made.model.layers == 1  # type: ignore[attr-defined]
    assert made.packing.length == 16
    assert made.read.documents == "line"


@pytest.mark.full
def test_a_given_progress_receives_stages_and_records(tmp_path: Path) -> None:
    class Told:
        def __init__(self) -> None:
            self.stages: list[str] = []
            self.kinds: set[str] = set()

        def __enter__(self) -> Told:
            return self

        def __exit__(self, *error: object) -> None:
            self.stages.append("end")

        def note(self, text: str) -> None:
            pass

        warn = note

        def stage(self, name: str) -> Any:
            self.stages.append(name)
            return lambda *_: None

        def record(self, record: dict[str, Any], progress: float) -> None:
            self.kinds.add(record["kind"])

    told = Told()
    pretrain("gpt2_tiny", texts=TEXTS, out=tmp_path / "r", steps=2, settings=SMALL, progress=told)
    stages = [name for n, name in enumerate(told.stages) if told.stages[n - 1 : n] != [name]]
    assert stages[:5] == [
        "reading text", "training the tokenizer", "cutting text into tokens", "building the model",
        "training",
    ]  # fmt: skip
    assert {"evaluating", "saving"} < set(stages) and stages[-2:] == ["training", "end"]
    assert told.kinds >= {"train", "heldout"}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({}, "--data: name the text"),
        ({"texts": "one text"}, "got one text; data= takes paths"),
        ({"texts": [1]}, r"texts\[0\]: expected a text, got 1"),
        ({"texts": []}, "texts is empty"),
        ({"texts": TEXTS, "steps": 1, "hours": 1}, "give one budget, not 2"),
        ({"texts": TEXTS, "settings": "model.layers=6"}, "expected a table"),
        ({"texts": TEXTS, "settings": {"model.layrs": 6}}, "did you mean 'layers'"),
        ({"data": "/nowhere"}, "/nowhere"),
    ],
)
def test_a_mistake_is_one_line_and_leaves_nothing(
    arguments: dict[str, Any], message: str, tmp_path: Path
) -> None:
    with pytest.raises(UserError, match=message):
        pretrain("gpt2_tiny", out=tmp_path / "run", progress=False, **arguments)
    assert not list(tmp_path.iterdir())


@pytest.mark.full
def test_a_budget_among_the_settings_takes_the_place_of_the_recipes(tmp_path: Path) -> None:
    recipe = load_recipe("gpt2_tiny", ["train.hours=10"])
    settings = {**SMALL, "train.steps": 2}
    result = pretrain(recipe, texts=TEXTS, out=tmp_path / "run", settings=settings, progress=False)
    assert result.is_done
    train = read_recipe(tmp_path / "run").train
    assert (train.hours, train.steps) == (None, 2)


def test_a_process_says_why_before_it_undoes_the_run_that_others_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run, there = tmp_path / "run", []
    monkeypatch.setattr(joining, "fail_first", lambda: there.append((run / "recipe.toml").exists()))
    with pytest.raises(UserError, match="but a row needs 16"):
        pretrain("gpt2_tiny", texts=["A cat.", "A dog."], out=run, settings=SMALL, progress=False)
    assert there == [True]
    assert not run.exists()


def test_a_run_that_another_process_began_meanwhile_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run, options = tmp_path / "run", {"texts": ["A cat.", "A dog."], "settings": SMALL}

    def another_is_first(*_: object) -> None:
        run.mkdir()
        (run / "recipe.toml").touch()
        require_free(run)

    monkeypatch.setattr(running, "start", another_is_first)
    with pytest.raises(UserError, match="already holds a run"):
        pretrain("gpt2_tiny", out=run, progress=False, **options)
    assert (run / "recipe.toml").exists()


def test_a_new_run_is_written_by_one_process_and_whole_or_not_at_all(tmp_path: Path) -> None:
    run = tmp_path / "run"
    with pytest.raises(UserError, match="no disk"), starting(run):
        (run / "run.json").touch()
        raise UserError("no disk")
    assert not run.exists()
    with starting(run), pytest.raises(UserError, match="another process is writing"):
        import_(tmp_path / "model", run)
