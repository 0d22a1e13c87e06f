"""A run that goes on from another's checkpoint to an end of its own: the decay of a long training.

Up to the checkpoint both are one training, so only what concerns later steps may differ: the
budget, the part of the schedule that is to come, and how often is measured and saved.
"""

from __future__ import annotations

import math
import shutil
from collections.abc import Sequence
from pathlib import Path

from foreword.data.mixture_plan import TOLERANCE
from foreword.errors import UserError
from foreword.runs import provenance
from foreword.runs.corpus import SHARDS
from foreword.runs.recipe import Recipe
from foreword.runs.run import starting
from foreword.runs.run_folder import Run, is_run
from foreword.runs.sources import is_prepared
from foreword.runs.trained_model import is_checkpoint
from foreword.settings import config, kinds
from foreword.train import checkpoint, log
from foreword.train.budget import Budget, Progress
from foreword.train.loop import TrainingState

NOTHING = Progress()
LATER = ("schedule", "train.evaluations", "train.checkpoints", "train.kept_checkpoints")
SAMPLED_STEPS = 1000  # of those before the checkpoint, at which rates are compared


def branch(start: Path, out: Path, budget: Budget | None, assignments: Sequence[str] = ()) -> None:
    """Begin a run in a new folder that goes on from a checkpoint of another run.

    Args:
        start: a checkpoint, or a run for its newest one.
        out: the folder of the new run.
        budget: of the whole training, the steps before the checkpoint included; None for the run's.
        assignments: settings of `schedule.*`, and how often to measure and save.

    Raises:
        UserError: there is no such checkpoint, or the new run would have come to it otherwise.
    """
    folder = start.parent.parent if is_checkpoint(start) and is_run(start.parent.parent) else start
    run = Run(folder)
    if run.recipe.model.trains_offline:
        raise UserError(f"{folder}: was trained offline, and has no steps to go on from")
    if not start.is_dir():
        kept = ", ".join(one.name for one in checkpoint.all_in(folder))
        raise UserError(f"{start}: no such checkpoint; the run has {kept}")
    saved = checkpoint.newest(folder) if folder == start else start
    checkpoint.verify(saved)
    state = TrainingState.load(checkpoint.read_state(saved))
    recipe = going_on(run.recipe, budget, assignments, state.before)
    _require_same_beginning(run.recipe, recipe, state, saved.name)
    with starting(out):
        shutil.copytree(folder / "tokenizer", out / "tokenizer")
        shutil.copytree(saved, out / "checkpoints" / saved.name)
        shutil.copyfile(folder / log.FILE, out / log.FILE)
        log.rewind(out, state.spent.steps, keeps_stages=False)
        origin = {"run": str(folder.resolve()), "checkpoint": saved.name}
        noted = {**run.noted, **provenance.make_provenance(recipe), "branched": origin}
        noted.pop("forecast", None)  # of another budget
        noted |= {"texts": _texts(run), "heldout": []}
        provenance.write_files(out, noted, recipe)


def _texts(run: Run) -> list[str]:
    """Return what the new run reads: the token shards of the old one."""
    texts, shards = run.noted.get("texts", []), run.folder.resolve() / SHARDS
    names = [source.name for source in run.recipe.data.sources] or [""]
    if len(texts) != len(names):  # files that are one text
        return [str(shards)]
    return [
        text if is_prepared(text) else str(shards / name)
        for text, name in zip(texts, names, strict=True)
    ]


def before_decay(run: Path, budget: Budget) -> Path:
    """Return the newest checkpoint of a run that goes on to another budget.

    Raises:
        UserError: none does.
    """
    recipe, kept = Run(run).recipe, checkpoint.all_in(run)
    error = UserError(f"{run}: has no checkpoint")
    for saved in reversed(kept):
        state = TrainingState.load(checkpoint.read_state(saved))
        try:
            longer = going_on(recipe, budget, before=state.before)
            _require_same_beginning(recipe, longer, state, saved.name)
        except UserError as found:
            error = found
        else:
            return saved
    raise error


def going_on(
    old: Recipe,
    budget: Budget | None,
    assignments: Sequence[str] = (),
    before: Progress = NOTHING,
) -> Recipe:
    """Return the recipe of a run that goes on; a warm-up by share keeps its length.

    Args:
        old: the recipe of the run before.
        budget: of the whole training; None for the old one's.
        assignments: settings of what is to come.
        before: what was used before the first step, of which a warm-up is no share.

    Raises:
        UserError: an assignment concerns what has been, or is wrong.
    """
    for assignment in assignments:
        key = assignment.partition("=")[0].strip()
        if not any(key == name or key.startswith(f"{name}.") for name in LATER):
            raise UserError(
                f"--set {assignment}: a run that goes on from a checkpoint accepts only "
                f"{', '.join(LATER)} and a budget"
            )
    table = config.to_table(old)
    was, warmup = Budget.of(old.train), table["schedule"].get("warmup", {})
    if budget is not None:
        if not warmup.get("steps") and warmup.get("share"):
            if budget.unit != was.unit:
                raise UserError(
                    f"--{budget.unit}: the warm-up of the run is a share of its {was.unit}; give "
                    f"--{was.unit}"
                )
            less = was.amount * (1 - was.progress(before))
            more = budget.amount * (1 - budget.progress(before))
            warmup["share"] = min(warmup["share"] * less / more, 1 - TOLERANCE)
        table["train"] = config.to_table(budget.applied_to(old.train))
    return config.build(Recipe, config.assign(table, assignments))


def _require_same_beginning(old: Recipe, new: Recipe, state: TrainingState, name: str) -> None:
    """Check that both recipes come to the checkpoint by the same steps.

    Raises:
        UserError: they do not.
    """
    steps, was, budget = state.spent.steps, Budget.of(old.train), Budget.of(new.train)
    if budget.progress(state.spent) >= 1:
        raise UserError(
            f"{name}: has used up {budget.describe()} already; the budget is that of the whole "
            "training, the steps before the checkpoint included"
        )
    if budget == was and new.schedule == old.schedule:
        return

    def rate(recipe: Recipe, budget: Budget, step: int) -> float:
        """Return the factor of the learning rate before a step, of those taken at an even pace."""
        progress = budget.progress_of_steps(state.spent, state.before) * step / steps
        return recipe.schedule.factor(progress, step, budget.total_steps(step, progress))

    first = 0 if was.unit == "steps" else 1  # for the first step the others have no estimate yet
    sampled = {round(n * (steps - 1) / SAMPLED_STEPS) for n in range(SAMPLED_STEPS + 1)}
    if not all(
        math.isclose(rate(old, was, s), rate(new, budget, s), rel_tol=1e-6)
        for s in sorted(sampled)
        if s >= first
    ):
        is_wsd = kinds.name_of(new.schedule) == "wsd"
        needs = f"; the decay of {budget.describe()} would have begun before it" if is_wsd else ""
        raise UserError(
            f"schedule: the learning rate up to {name} would have been another{needs}. A run that "
            "goes on from a checkpoint needs a part of schedule 'wsd' or 'constant' in which the "
            "rate is constant"
        )
    # What depends on the length of the training must not have begun.
    last = budget.progress_of_steps(state.spent, state.before) * (steps - 1) / max(steps, 1)
    segments = new.segments()[1:]
    if len(state.begins) > 1 or (segments and last >= segments[0].begin - TOLERANCE):
        raise UserError(
            f"stages: what changes before {name} would have changed at another step of "
            f"{budget.describe()}; choose a checkpoint of the first stage, and a budget that "
            "begins the second one after it"
        )
    if state.averaged or budget.progress(state.spent) >= 1 - new.train.average:
        raise UserError(f"train.average: the average of weights would have begun before {name}")
    limits = any(source.epochs is not None for source in new.data.sources)
    if limits or (new.data.sources and new.packing.is_contiguous):
        raise UserError(
            "data.sources: the order in which sources with limits of epochs, or streams, are read "
            "depends on the budget"
        )
