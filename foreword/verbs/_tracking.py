"""The arguments of verbs whose records go to trackers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated

from foreword.trackers._contract import Tracker
from foreword.verbs._contract import Flag


@dataclass(frozen=True, kw_only=True)
class Tracks:
    """Where records go.

    Attributes:
        track: also send the records to tensorboard or wandb, or, in Python, to a tracker object;
            repeatable.
    """

    track: Annotated[str | Tracker | Sequence[str | Tracker], Flag(takes=list[str])] = ()
