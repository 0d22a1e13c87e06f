"""Training in stages, and with numbers that change: which step does what, and exact resuming."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from foreword.cli.main import run as main
from foreword.errors import UserError
from foreword.runs import run as running
from foreword.runs.branch import _require_same_beginning, branch, going_on
from foreword.runs.corpus import corpus
from foreword.runs.recipe import Recipe
from foreword.runs.run_folder import Run, open_run
from foreword.runs.setup import set_up_training
from foreword.runs.staged import StagedBatches
from foreword.settings import config, kinds
from foreword.train import checkpoint, log
from foreword.train.budget import Budget, Progress
from foreword.train.loop import Loop, TrainingState
from foreword.train.tensor_files import opened
from tests.train import runs
from tests.train.test_processes import require_same
from tests.train.together import train_run, train_together

STAGES = {
    "stages": [
        {
            "share": 0.5,
            "objective": "causal",
            "layout": "decoder",
            "model": {"dropout": 0.0},
            "optimizer": {"decay": {"from": 0.1, "to": 0.3}},
        }
    ],
    "objective": {"kind": "masked", "rate": {"from": 0.6, "to": 0.1}},
    "model": {"attention_dropout": {"from": 0.0, "to": 0.5}},
    "optimizer": {"kind": "adamw", "decay": 0.5},
}
STEPS = 8


def recipe(**train: Any) -> Recipe:
    """Return a recipe that is causal for four steps and masked for four."""
    more = {"steps": STEPS, "checkpoints": STEPS, "kept_checkpoints": STEPS, "evaluations": 2}
    return runs.build(config.merge(runs.table("encoder", **{**more, **train}), STAGES))


def changes(run: Path) -> dict[int, dict[str, Any]]:
    """Return the records of stages of a run by their steps."""
    return {record["step"]: record for record in runs.logged(run, "stage")}


def test_a_run_does_what_its_stages_say_and_resumes_exactly(text: Path, tmp_path: Path) -> None:
    whole = runs.whole(recipe(), text, tmp_path / "whole")
    records = changes(whole)
    assert [records[step]["stage"] for step in range(STEPS)] == [1] * 4 + [2] * 4
    assert (records[0]["objective"], records[4]["objective"]) == ("causal", "masked")
    rates = [records[step]["objective.rate"] for step in (5, 6, 7)]
    assert np.allclose(np.diff(rates), -0.5 * 5 / 19, atol=1e-6)
    assert [records[step]["optimizer.decay"] for step in (1, 4)] == [
        pytest.approx(0.1 + 1 / 19),
        0.5,
    ]
    # Each stage is measured by its own objective too, and the last one's throughout.
    heldout = runs.logged(whole, "heldout")
    assert ["causal" in record for record in heldout] == [True, False]
    # Heads that a stage does not use get no gradient and no decay; a checkpoint is of its stage.
    at = [whole / "checkpoints" / checkpoint.name_of(step) for step in (1, 4, 5)]
    heads = []
    for folder in at:
        with opened(folder, "weights") as weights:
            heads.append(weights["heads.token.transform.0.weight"][...])
    assert (heads[0] == heads[1]).all() and not (heads[1] == heads[2]).all()
    assert [kinds.name_of(open_run(one).recipe.objective) for one in at] == ["causal"] * 2 + [
        "masked"
    ]
    assert open_run(whole).recipe.stages is None
    # Killed in the middle of the first stage, at the boundary, before a curve's value, and late.
    for died in (3, 5, 6, 8):
        run = runs.begin(recipe(), text, tmp_path / f"died-{died}")
        runs.die_at(run, died)
        assert runs.train_run(run)
        assert runs.last_bytes(run) == runs.last_bytes(whole), died
        for kind in ("train", "heldout", "stage"):
            assert runs.logged(run, kind) == runs.logged(whole, kind), (died, kind)


def test_batches_are_a_function_of_recipe_and_step(text: Path, tmp_path: Path) -> None:
    run = Run(runs.begin(recipe(), text, tmp_path / "run"))
    setup = set_up_training(run.recipe, *corpus(run, runs.stage))
    batches = StagedBatches(setup.feed, setup.recipe.segments())
    batches.begins = [0] * 20 + [4] * 5 + [5]  # a stage has twenty values of its curves
    ahead = batches.ahead(0)
    in_order = [next(ahead) for _ in range(STEPS)]
    ahead.close()
    for step in reversed(range(STEPS)):
        for one, other in zip(batches.micro_batches(step), in_order[step], strict=True):
            assert (one.ids == other.ids).all() and (one.targets == other.targets).all()
    masks = setup.vocab.id("[MASK]")
    assert [any((b.ids == masks).any() for b in one) for one in in_order] == [False] * 4 + [
        True
    ] * 4


def test_the_step_at_which_a_stage_began_is_kept_where_hours_are_counted(
    text: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pace = 1.0
    monkeypatch.setattr(Loop, "elapsed", lambda loop: pace * loop.state.spent.steps)
    run = runs.begin(recipe(hours=12 / 3600, checkpoints=3, evaluations=1), text, tmp_path / "run")
    runs.die_at(run, 7)
    assert checkpoint.all_in(run)[-1].name == checkpoint.name_of(4)
    begun = {step: record for step, record in changes(run).items() if step <= 6}
    assert begun[6]["objective"] == "masked"
    pace = 1.5  # by this clock, the half would be over at step 4
    assert runs.train_run(run)
    assert {step: record for step, record in changes(run).items() if step <= 6} == begun


def _with_sgd(made: Recipe, **more: Any) -> Recipe:
    """Return the recipe with SGD, whose weights differ as its gradients do."""
    table = config.to_table(made)
    table["optimizer"] = {"kind": "sgd", "lr": 0.1, "decay": {"from": 0.0, "to": 0.1}}
    table["stages"][0].pop("optimizer")
    return runs.build(config.merge(table, more))


@pytest.mark.parametrize("kind", ["ddp", pytest.param("fsdp", marks=pytest.mark.full)])
def test_two_processes_train_the_stages_of_one(kind: str, text: Path, tmp_path: Path) -> None:
    made = recipe(batch=8, micro_batch=2, threads=1, steps=4, checkpoints=1)
    run, alone = (
        runs.begin(_with_sgd(made, parallel={"kind": one}), text, tmp_path / one)
        for one in (kind, "auto")
    )
    assert set(train_together(2, [(run, 0)], tmp_path / "printed")) == {0}, (
        tmp_path / "printed"
    ).read_text()
    train_run(alone)
    require_same(run, alone)
    assert changes(run) == changes(alone)


def test_the_weights_of_sources_change_and_resume_exactly(text: Path, tmp_path: Path) -> None:
    paths = {name: runs.write_text(tmp_path / name, 2, seed) for seed, name in enumerate("ab", 5)}
    sources = [{"name": n, "path": str(p), "weight": 1.0} for n, p in paths.items()]
    table = runs.table("encoder", steps=STEPS, checkpoints=STEPS, kept_checkpoints=STEPS, batch=8)
    table["data"] = {"sources": sources}
    table["stages"] = [
        {"share": 0.5, "data": {"sources": {"b": {"weight": 0}}}},
        {"share": 0.25, "data": {"sources": {"b": {"weight": {"from": 0, "to": 1}}}}},
    ]
    whole, run = (tmp_path / name for name in ("whole", "run"))
    for folder in (whole, run):
        running.start(runs.build(table), running.Inputs(tuple(map(str, paths.values()))), folder)
    runs.train_run(whole)
    read = Run(whole).noted["data"]["sources"]
    assert 0.12 < read["b"]["share"] < 0.22
    runs.die_at(run, 6)
    assert runs.train_run(run)
    assert runs.last_bytes(run) == runs.last_bytes(whole)


def test_check_and_report_show_the_stages(
    text: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "staged.toml"
    file.write_text(recipe().dumps())
    assert main(["check", str(file), "--data", str(text), "--rows", "1"]) == 0
    shown = capsys.readouterr().out
    cells = " ".join(re.findall(r"[\w.,]+", shown))  # of a table, whose lines may be broken
    assert "objective.rate 0.6 to 0.1" in cells and "optimizer.decay 0.1 to 0.3" in cells
    first, second = shown.split("stage 1, row 1 of 4")[1].split("stage 2, row 1 of 4")
    assert "[MASK]" not in first and "[MASK]" in second
    run = runs.whole(recipe(), text, tmp_path / "run")
    assert main(["report", str(run)]) == 0
    page = (run / "report.html").read_text()
    for stage, step, objective in ((1, 0, "causal"), (2, 4, "masked")):
        assert re.search(rf"Stage {stage}, from step {step}: [^<]*objective {objective}", page)


def trunk(schedule: Any, **more: Any) -> Recipe:
    table = runs.table("decoder", steps=16, checkpoints=8, kept_checkpoints=8)
    return runs.build({**table, "schedule": schedule, **more})


WSD = {"kind": "wsd", "decay": 0.5, "warmup": {"steps": 3}}


def test_a_decay_from_a_checkpoint_equals_the_run_trained_alone(text: Path, tmp_path: Path) -> None:
    long = runs.whole(trunk(WSD), text, tmp_path / "long")
    start = long / "checkpoints" / checkpoint.name_of(4)
    assert main(["resume", str(start), "--out", str(tmp_path / "short"), "--steps", "8"]) == 0
    table = config.to_table(trunk(WSD))
    alone = runs.whole(
        runs.build(config.merge(table, {"train": {"steps": 8}})), text, tmp_path / "a"
    )
    assert runs.last_bytes(tmp_path / "short") == runs.last_bytes(alone)
    assert runs.logged(tmp_path / "short", "train") == runs.logged(alone, "train")
    assert Run(tmp_path / "short").noted["branched"]["checkpoint"] == checkpoint.name_of(4)
    assert len(checkpoint.all_in(long)) == 8


def test_a_run_goes_on_to_a_larger_budget_from_before_its_decay(text: Path, tmp_path: Path) -> None:
    """With a warm-up by share of FLOPs, of which the first step knows no total."""
    schedule = {**WSD, "warmup": {"share": 0.3}}
    table = config.merge(config.to_table(trunk("wsd")), {"schedule": schedule})
    run = runs.begin(runs.build(table), text, tmp_path / "steps")
    train_run(run)
    flops = log.read(run)[-1]["flops"]
    of_flops = {"train": {"flops": flops, "kept_checkpoints": 9}}
    less = runs.begin(runs.build(config.merge(table, of_flops)), text, tmp_path / "less")
    train_run(less)
    before_decay = checkpoint.all_in(less)[3]
    branch(before_decay, tmp_path / "more", Budget("flops", 2 * flops))
    train_run(tmp_path / "more")
    assert checkpoint.newest(tmp_path / "more").name == checkpoint.name_of(32)
    # Of a budget that first embeddings had a part of, the warm-up is a share of the rest.
    state = TrainingState.load(checkpoint.read_state(before_decay))
    used = Progress(flops=0.3 * flops)
    spent = replace(state.spent, flops=state.spent.flops + used.flops)
    state = replace(state, before=used, spent=spent)
    old = runs.build(config.merge(table, {"train": {"flops": flops + used.flops}}))
    more = Budget("flops", 2 * flops)
    _require_same_beginning(old, going_on(old, more, before=used), state, "it")
    with pytest.raises(UserError, match="the learning rate up to it"):
        _require_same_beginning(old, going_on(old, more), state, "it")


@pytest.mark.parametrize(
    ("made", "budget", "settings", "message"),
    [
        ({"schedule": WSD}, 5, [], "the decay of 5 steps would have begun before it"),
        ({"schedule": WSD}, 4, [], "has used up 4 steps already"),
        ({"schedule": "linear"}, 8, [], "the learning rate up to step-00000004"),
        ({"schedule": WSD}, 8, ["optimizer.lr=1"], "accepts only schedule"),
        ({"schedule": WSD, "stages": [{"share": 0.2}]}, 8, [], "stages: what changes before"),
        ({"schedule": WSD, "train": {"average": 0.6}}, 8, [], "train.average: "),
        ({"schedule": {**WSD, "warmup": {"share": 0.1}}}, None, [], "--tokens: the warm-up"),
    ],
)
def test_a_checkpoint_that_another_budget_would_not_come_to_is_refused(
    made: dict[str, Any],
    budget: int | None,
    settings: list[str],
    message: str,
    text: Path,
    tmp_path: Path,
) -> None:
    table = config.merge(config.to_table(trunk("constant")), made)
    run = runs.begin(runs.build(table), text, tmp_path / "run")
    runs.die_at(run, 5)
    wanted = Budget("tokens", 1e4) if budget is None else Budget("steps", budget)
    with pytest.raises(UserError, match=message):
        branch(run, tmp_path / "out", wanted, settings)
    with pytest.raises(UserError, match=r"step-7: no such checkpoint; the run has .*step-0+4"):
        branch(run / "checkpoints" / "step-7", tmp_path / "out", wanted)
    assert not (tmp_path / "out").exists()
