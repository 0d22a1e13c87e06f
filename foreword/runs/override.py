"""Overrides of a run that has begun: settings of the optimizer, clipping and processes."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from foreword.disk import atomic
from foreword.errors import UserError
from foreword.runs.recipe import Recipe
from foreword.runs.run_folder import Run, require_recipe
from foreword.settings import config
from foreword.train import checkpoint


def override(run: Path, assignments: Sequence[str]) -> None:
    """Override settings of a run's recipe, such as `optimizer.lr=1e-4`, before it is resumed.

    The recipe is rewritten, and `run.json` records under `overrides` what was set and after which
    checkpoint. The optimizer's state stays as in the checkpoint.

    Args:
        run: the run folder.
        assignments: `key=value`, settings of the optimizer except its kind, `train.clip`, or
            `parallel.*`.

    Raises:
        UserError: the folder is not a run, another setting is named, or the run is in use.
    """
    require_recipe(run)
    for assignment in assignments:
        key = assignment.partition("=")[0].strip()
        part, _, name = key.partition(".")
        is_of_optimizer = part == "optimizer" and name not in ("", "kind")
        if not (key == "train.clip" or is_of_optimizer or (part == "parallel" and name)):
            raise UserError(
                f"--set {assignment}: a run that has begun accepts only optimizer.* (except kind), "
                "train.clip and parallel.*; to change anything else, start a new run"
            )
    with atomic.locked(run):
        opened = Run(run)
        table = config.assign(config.to_table(opened.recipe), assignments)
        changed = config.build(Recipe, table)
        if changed == opened.recipe:
            return
        whole = checkpoint.all_in(run)
        note = {"after": whole[-1].name if whole else None, "set": list(assignments)}
        opened.noted["overrides"] = [*opened.noted.get("overrides", []), note]
        opened.set_recipe(changed)
