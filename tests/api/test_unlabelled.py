"""Unlabelled text of the task: the model is continued on it before it is tuned."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import foreword
from foreword.errors import UserError
from foreword.runs.recipe import load_recipe
from foreword.runs.run_folder import read_recipe
from foreword.verbs._run import TrainsRun
from tests.train import runs
from tests.tuning.runs import make_run, reviews

DEV = [(e.text, e.label) for e in reviews(12, 2)]
TRAIN = [(e.text, e.label) for e in reviews(20, 1)]
TEXTS = [e.text for e in reviews(200, 3)]
FAST: dict[str, Any] = {
    "strategy": "frozen",
    "seeds": 1,
    "epochs": 1,
    "device": "cpu",
    "progress": False,
}


@pytest.fixture
def base(tmp_path: Path) -> Path:
    text = tmp_path / "general"
    runs.write_text(text)
    return runs.whole(runs.recipe("encoder", steps=40), text, tmp_path / "base")


@pytest.fixture
def texts(tmp_path: Path) -> Path:
    file = tmp_path / "texts.jsonl"
    lines = [*TEXTS, DEV[0][0], f"  {DEV[1][0]}"]
    file.write_text("".join(json.dumps({"text": line}) + "\n" for line in lines))
    return file


def tune(base: Path, texts: Path, **arguments: Any) -> Any:
    return foreword.tune(base, TRAIN, DEV, unlabelled=texts, **FAST | arguments)


def adapted_runs(base: Path) -> list[Path]:
    return sorted(path for path in (base / "adapted").iterdir() if path.is_dir())


def test_tuning_starts_from_a_run_that_pretrain_would_make(base: Path, texts: Path) -> None:
    result = tune(base, texts)
    [run] = adapted_runs(base)
    read = [json.loads(line)["text"] for line in Path(f"{run}.jsonl").read_text().splitlines()]
    assert read == [*TEXTS, *dict.fromkeys(text for text, _ in TRAIN)]  # no text of dev
    left = f"{len(read)} unlabelled texts, those of the training examples among them; 2 that are"
    assert any(note.startswith(left) for note in result.content["notes"])
    assert f"adapted model: {run}" in result.content["notes"]
    assert "adapt.prepare.heldout=0.1 holds out a tenth" in result.content["notes"][-1]
    assert result.content["settings"]["data"]["adapted"] == str(run)
    assert result.out == base / "tuned" / "data-adapted"
    # Its recipe is written out: a share of the rate, the model's text beside the new, a budget.
    made, own = read_recipe(run), read_recipe(base)
    assert made.optimizer.lr == own.optimizer.lr / 2
    assert (made.objective, made.packing, made.train.batch) == (own.objective, own.packing, 4)
    assert [source.weight for source in made.data.sources] == [0.8, 0.2]
    assert made.data.sources[1].path == str(base / "shards")
    assert made.train.tokens == pytest.approx(0.2 * 40 * 4 * 16, rel=0.1)
    assert made.continuation is None
    given = {"from_": base, "settings": {"train.device": "cpu"}, "progress": False}
    foreword.pretrain("adapt_encoder", f"{run}.jsonl", base / "same", **given)
    foreword.pretrain(run / "recipe.toml", None, base / "written_out", **given)
    for name in ("same", "written_out"):
        assert runs.last_bytes(base / name) == runs.last_bytes(run)


def test_an_adapted_run_is_resumed_and_used_again_but_never_for_others(
    base: Path, texts: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def killed(self: TrainsRun, progress: Any) -> None:
        runs.die_at(self.folder, 2)
        raise runs.Killed

    with monkeypatch.context() as patched:
        patched.setattr(TrainsRun, "train", killed)
        with pytest.raises(runs.Killed):
            tune(base, texts)
    tune(base, texts)
    [run] = adapted_runs(base)
    whole = shutil.copytree(base, tmp_path / "whole", ignore=shutil.ignore_patterns("adapted"))
    tune(whole, texts, name="whole")
    assert runs.last_bytes(adapted_runs(whole)[0]) == runs.last_bytes(run)
    before = runs.last_bytes(run)
    # The same texts in a table are the same texts.
    table = tmp_path / "texts.tsv"
    table.write_text("\n".join(["text", *TEXTS]) + "\n")
    assert tune(base, table).was_done
    tune(base, table, name="other", epochs=2)
    assert adapted_runs(base) == [run]
    settings = {"adapt.continuation.lr": 0.1, "adapt.prepare.heldout": 0.1}
    note = tune(base, texts, settings=settings, name="slower").content["notes"][-1]
    losses = re.search(r"texts held out: (\S+) before, (\S+) after", note)
    assert losses is not None and float(losses[1]) > float(losses[2]) > 0
    table.write_text("\n".join(["text", *TEXTS[1:]]) + "\n")
    tune(base, table, name="fewer")
    assert len(adapted_runs(base)) == 3
    assert runs.last_bytes(run) == before


@pytest.mark.parametrize(
    ("start", "arguments", "message"),
    [
        (lambda base: foreword.tune(base, TRAIN, DEV, **FAST).out, {}, "is a tuned model"),
        (lambda base: base, {"texts": "absent.jsonl"}, "absent.jsonl: there is no such file"),
        (lambda base: base, {"settings": {"adapt.lr": 1}}, "lr: "),
        (lambda base: base, {"texts": None, "settings": {"adapt.lr": 1}}, "--set adapt: "),
    ],
)
def test_what_cannot_be_adapted_is_refused(
    start: Callable[[Path], Path], arguments: dict[str, Any], message: str, tmp_path: Path
) -> None:
    base = make_run(tmp_path / "run")
    file = tmp_path / "texts.jsonl"
    file.write_text(json.dumps({"text": "we saw a film"}) + "\n")
    with pytest.raises(UserError, match=message):
        tune(start(base), **{"texts": file} | arguments)


def test_a_recipe_that_continues_requires_a_model(texts: Path, tmp_path: Path) -> None:
    assert load_recipe("adapt_encoder").continuation is not None
    with pytest.raises(UserError, match="adapt_encoder: continues a model; --from names it"):
        foreword.pretrain("adapt_encoder", texts, tmp_path / "run", progress=False)
