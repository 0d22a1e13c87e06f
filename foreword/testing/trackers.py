"""The contract of trackers: a function for each promise."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import is_dataclass
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from foreword.runs.tracking import Tracking, trackers_of
from foreword.settings import config
from foreword.trackers._contract import Tracker

CONFIG = {"model": {"kind": "transformer", "layers": 2}, "train": {"steps": 4, "seed": 0}}
RECORDS: tuple[dict[str, Any], ...] = (
    {"kind": "train", "step": 1, "loss": 6.5, "lr": 1e-3, "skipped": 0},
    {"kind": "heldout", "step": 1, "loss": 6.4, "perplexity": None, "bits_per_byte": float("inf")},
    {"kind": "samples", "step": 1, "samples": [{"prompt": "a [MASK]", "text": "line\n\nline"}]},
    {"kind": "train", "step": 2, "loss": 6.0, "lr": 1e-3, "skipped": 0},
    {"kind": "train", "offline": True, "step": 3, "loss": float("nan")},
    {"kind": "samples", "step": 3, "samples": []},
)


def check_tracker(tracker: Tracker) -> None:
    """Check all that a tracker promises, in temporary folders.

    Args:
        tracker: settings of the kind, a frozen dataclass.

    Raises:
        AssertionError: a promise is broken.
    """
    assert is_dataclass(type(tracker)), "a tracker is a frozen dataclass"
    for check in TRACKER_CHECKS:
        check(tracker)


def check_its_settings_are_a_plain_record(tracker: Tracker) -> None:
    """Check that the settings survive a table, and that the package it requires is there."""
    assert config.build(type(tracker), config.to_table(tracker), "tracker") == tracker
    assert trackers_of([tracker, tracker]) == [tracker]


def check_it_takes_every_record(tracker: Tracker) -> None:
    """Check that no record stops it or is changed, and that a resumed run continues."""
    with TemporaryDirectory() as place:
        for last in (3, len(RECORDS)):  # ended, then resumed
            records, config_table = copy.deepcopy(RECORDS[:last]), copy.deepcopy(CONFIG)
            notes = list[str]()
            tracking = Tracking(Path(place), "a run", notes.append, partial(dict, config_table))
            tracking.open([tracker])
            for record in records:
                tracking.record(record)
            tracking.close(is_failed=last == 3)
            assert not notes, f"it failed: {notes[0]}"
            assert repr(records) == repr(RECORDS[:last]), "it changes a record"
            assert config_table == CONFIG, "it changes the recipe"


def check_it_may_see_nothing(tracker: Tracker) -> None:
    """Check that a run may end before its first record."""
    with TemporaryDirectory() as place:
        run = tracker.open(Path(place), "a run", "0" * 16)
        run.close(is_failed=True)


def check_it_keeps_to_one_folder(tracker: Tracker) -> None:
    """Check that it writes at most one name into the run folder."""
    with TemporaryDirectory() as place:
        run = tracker.open(Path(place), "a run", "1" * 16)
        run.configure(CONFIG)
        run.record(RECORDS[0])
        run.close(is_failed=False)
        names = [path.name for path in Path(place).iterdir()]
        assert len(names) <= 1, f"it writes {names}"
        assert all((Path(place) / name).is_dir() for name in names), f"{names[0]}: not a folder"


TRACKER_CHECKS: tuple[Callable[[Tracker], None], ...] = (
    check_its_settings_are_a_plain_record,
    check_it_takes_every_record,
    check_it_may_see_nothing,
    check_it_keeps_to_one_folder,
)
