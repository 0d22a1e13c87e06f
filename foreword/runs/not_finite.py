"""The error that ends a run whose weights or losses are not finite."""

from __future__ import annotations

from pathlib import Path

from foreword.errors import TrainingStoppedError, quoted_command
from foreword.runs.recipe import Recipe
from foreword.train import checkpoint


def non_finite_error(
    run: Path, recipe: Recipe, why: str, last_finite_step: int = -1, begun_step: int = -1
) -> TrainingStoppedError:
    """Return the error that ends a run: the cause, the last good checkpoint, and what to lower.

    Checkpoints that gave no finite loss are removed, except the only one.

    Args:
        run: the run folder.
        recipe: the recipe of the run.
        why: what was not finite.
        last_finite_step: the last step whose weights gave a finite loss.
        begun_step: the step that this process began from; -1 for a new run.
    """
    good, lr = checkpoint.delete_after(run, last_finite_step), recipe.optimizer.lr
    if good is None and (only := checkpoint.all_in(run)):
        return TrainingStoppedError(
            f"{why}; the only checkpoint, {only[-1]}, gave no finite loss: start a new run with a "
            f"lower optimizer.lr than {lr:g}"
        )
    where = "no checkpoint yet" if good is None else f"the last good checkpoint is {good}"
    verb = "starts over" if good is None else "resumes from it"
    has_failed_at_once = good is not None and last_finite_step == begun_step
    further = f"; without {good} it goes back one checkpoint further" if has_failed_at_once else ""
    again = quoted_command("resume", run, "--set", f"optimizer.lr={lr / 2:.2g}")
    return TrainingStoppedError(f"{why}; {where}; {again} {verb} at a lower rate{further}")
