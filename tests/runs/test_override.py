"""A run that blew up continues with a lower learning rate, and says so."""

from __future__ import annotations

from pathlib import Path

import pytest

from foreword.errors import TrainingStoppedError, UserError
from foreword.nn.heads import TokenHead
from foreword.runs.override import override
from foreword.runs.provenance import read_state
from foreword.runs.run_folder import read_recipe
from foreword.train import checkpoint
from foreword.types import Batch, Hidden, Loss
from tests.train import runs


@pytest.mark.full
def test_a_run_that_blew_up_continues_with_new_settings(
    text: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = runs.begin(runs.recipe(max_nonfinite_steps=2), text, tmp_path / "run")
    runs.die_at(run, 8)
    healthy = TokenHead.loss

    def burst(head: TokenHead, hidden: Hidden, batch: Batch) -> Loss:
        loss = healthy(head, hidden, batch)
        return Loss(loss.total * float("inf"), loss.count)

    with monkeypatch.context() as broken:
        broken.setattr(TokenHead, "loss", burst)
        with pytest.raises(
            TrainingStoppedError, match=r"resume .*/run --set optimizer\.lr=0\.0005' resumes"
        ):
            runs.train_run(run)
    assert checkpoint.all_in(run)[-1].name == checkpoint.name_of(6)
    before = read_recipe(run)
    override(run, ["optimizer.lr=1e-5", "train.clip=0.5"])
    after = read_recipe(run)
    assert (after.optimizer.lr, after.train.clip) == (1e-5, 0.5)
    assert (after.model, after.schedule) == (before.model, before.schedule)
    assert runs.train_run(run)
    rates = {record["step"]: record["lr"] for record in runs.logged(run, "train")}
    assert max(rates[step] for step in rates if step > 6) <= 1e-5 < rates[6]
    override(run, ["optimizer.lr=1e-6"])
    assert read_state(run)["overrides"] == [
        {"after": "step-00000006", "set": ["optimizer.lr=1e-5", "train.clip=0.5"]},
        {"after": "step-00000012", "set": ["optimizer.lr=1e-6"]},
    ]


def test_a_setting_equal_to_the_old_is_not_recorded(text: Path, tmp_path: Path) -> None:
    run = runs.begin(runs.recipe(), text, tmp_path / "run")
    override(run, [f"optimizer.lr={read_recipe(run).optimizer.lr}"])
    assert "overrides" not in read_state(run)


@pytest.mark.parametrize(
    ("assignment", "message"),
    [
        (
            "model.layers=3",
            r"--set model.layers=3: a run that has begun accepts only optimizer\.\*",
        ),
        ("train.seed=2", "accepts only optimizer"),
        ("optimizer.kind=sgd", r"except kind"),
        ("optimizer=adamw", "accepts only optimizer"),
        ("optimizer.lrr=1", "optimizer.lrr: kind 'adamw' has no such setting; did you mean 'lr'"),
        ("optimizer.lr=-1", "optimizer.lr: must be a number above 0"),
        ("train.clip", "expected key.name=value"),
    ],
)
def test_other_settings_are_refused(
    text: Path, tmp_path: Path, assignment: str, message: str
) -> None:
    run = runs.begin(runs.recipe(), text, tmp_path / "run")
    before = (run / "recipe.toml").read_bytes(), (run / "run.json").read_bytes()
    with pytest.raises(UserError, match=message):
        override(run, [assignment])
    assert ((run / "recipe.toml").read_bytes(), (run / "run.json").read_bytes()) == before
