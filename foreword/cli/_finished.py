"""The end of `pretrain` and `resume`: what is printed, and the exit status."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from foreword.cli import console
from foreword.cli._process import INTERRUPTED
from foreword.errors import PeerError

if TYPE_CHECKING:
    from foreword.api.pretrain import PretrainingResult

RECIPE = "recipe.toml"  # which a run has once it has begun
INTERRUPTION = "FOREWORD_INTERRUPTION"  # names the file that tells the launcher of one


def finish(run: Path, work: Callable[[], PretrainingResult], *, as_json: bool) -> int:
    """Train, print how it ended and return the exit status.

    Args:
        run: the run folder.
        work: trains.
        as_json: whether to print one JSON document.
    """
    from foreword.train.joining import launched_rank

    try:
        result = work()
    except (KeyboardInterrupt, PeerError) as error:
        is_interrupt = isinstance(error.__cause__ or error, KeyboardInterrupt)
        if not is_interrupt or launched_rank():
            raise  # the launcher or the first process says so
        if INTERRUPTION in os.environ:  # the launcher knows whether a person sent the signal
            Path(os.environ[INTERRUPTION]).touch()
        else:
            say_interrupted(run)
        return INTERRUPTED
    if launched_rank():  # the first process tells
        return 0 if result.is_done else INTERRUPTED
    if as_json:
        console.emit({"run": str(run), "done": result.is_done, "last": dict(result.last)})
    elif result.is_done:
        console.say(f"done: {run}  ('foreword report {run}' shows it)")
    else:
        console.say(f"stopped and saved; 'foreword resume {run}' continues")
    return 0 if result.is_done else INTERRUPTED


def say_interrupted(run: Path) -> None:
    """Print that a run was interrupted before it saved."""
    if (run / RECIPE).is_file():
        console.say(f"interrupted; 'foreword resume {run}' continues")
    else:
        console.say("interrupted before the run began; run the same command again")
