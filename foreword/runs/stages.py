"""The stages of a run, by the names that its progress shows."""

from __future__ import annotations

from collections.abc import Callable

# A stage's name -> what takes its progress: what is done, the total (0 if unknown), and notes.
Stage = Callable[[str], Callable[..., None]]

TRAINING = "training"  # the steps themselves
EVALUATING = "evaluating"  # between steps: the held-out loss, and samples
SAVING = "saving"  # between steps: a checkpoint
LOOP_STAGES = (TRAINING, EVALUATING, SAVING)  # they follow each other until the budget is spent


def unwatched(_: str) -> Callable[..., None]:
    """Report no stage."""
    return lambda *_: None
