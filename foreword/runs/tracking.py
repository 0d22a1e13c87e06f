"""The records of a run in trackers, such as TensorBoard, besides its own log."""

from __future__ import annotations

import importlib.util
import secrets
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from foreword.disk import stored
from foreword.errors import DamagedError, UserError
from foreword.runs.run_folder import read_recipe
from foreword.runs.stages import ProgressReporter
from foreword.settings import config, kinds
from foreword.trackers._contract import TrackedRun, Tracker
from foreword.train import log

FILE = "trackers.json"  # in a tracked folder: each tracker's identity, and its last steps by kind

Note = Callable[[str], None]


def trackers_of(track: str | Tracker | Sequence[str | Tracker]) -> list[Tracker]:
    """Return trackers by name, each once.

    Raises:
        UserError: there is no such tracker, or its package is not installed.
    """
    trackers: dict[str, Tracker] = {}
    requests = [track] if isinstance(track, str | Tracker) else track
    is_list = isinstance(requests, Sequence)
    if not is_list or not all(isinstance(request, str | Tracker) for request in requests):
        raise UserError(f"--track: expected names of trackers, or trackers; got {track!r}")
    for request in requests:
        tracker: Tracker = (
            kinds.load("trackers", request)() if isinstance(request, str) else request
        )
        name = kinds.name_of(tracker)
        if tracker.package and importlib.util.find_spec(tracker.package) is None:
            raise UserError(
                f"--track {name}: the package {tracker.package} is not installed; "
                "pip install 'foreword[track]'"
            )
        trackers[name] = tracker
    return list(trackers.values())


@dataclass
class _Seen:
    """What a tracker knows of a run; stored by `Tracking`.

    Attributes:
        identity: the identity of the run.
        steps: the last step of each kind of record.
    """

    identity: str
    steps: dict[str, int]


class Tracking:
    """The trackers of one folder.

    Each record reaches each tracker once, in order, however often the run is killed and resumed: a
    tracker that is new, or was left out for a while, first receives the earlier records.

    Args:
        folder: what is tracked: a run folder.
        name: the name to display.
        note: called with a line when a tracker fails.
        config_of: returns the table to configure trackers with, at the first record.
        earlier: returns all records so far, at the first record and at the end.
    """

    def __init__(
        self,
        folder: Path,
        name: str,
        note: Note,
        config_of: Callable[[], Mapping[str, Any]],
        earlier: Callable[[], Sequence[Mapping[str, Any]]] = tuple,
    ) -> None:
        self._folder, self._name, self._note = folder, name, note
        self._config_of, self._earlier = config_of, earlier
        self._runs: dict[str, TrackedRun] = {}
        self._seen = _read(folder / FILE)
        self._is_configured = False

    def open(self, trackers: Sequence[Tracker]) -> None:
        """Begin to track.

        Raises:
            UserError: a tracker cannot.
        """
        if trackers:
            self._folder.mkdir(parents=True, exist_ok=True)
        for tracker in trackers:
            name = kinds.name_of(tracker)
            seen = self._seen.setdefault(name, _Seen(secrets.token_hex(8), {}))
            try:
                self._runs[name] = tracker.open(self._folder, self._name, seen.identity)
            except Exception as error:
                self.close(is_failed=True)
                raise UserError(f"--track {name}: {_line(error)}") from error

    def record(self, record: Mapping[str, Any]) -> None:
        """Pass on a record, after those before it that a tracker has not seen."""
        self._catch_up()
        self._send(record)

    def close(self, *, is_failed: bool) -> None:
        """Pass on what is left, and end the tracking."""
        if not is_failed:
            self._catch_up()
        for name in list(self._runs):
            with self._dropping(name):
                self._runs[name].close(is_failed=is_failed)
        self._runs.clear()

    def _catch_up(self) -> None:
        if self._is_configured or not self._runs:
            return
        self._is_configured = True
        table = self._config_of()
        for name in list(self._runs):
            with self._dropping(name):
                self._runs[name].configure(table)
        for record in self._earlier():
            self._send(record)

    def _send(self, record: Mapping[str, Any]) -> None:
        kind, step = record["kind"], record["step"]
        is_new = False
        for name in list(self._runs):
            steps = self._seen[name].steps
            if step > steps.get(kind, -1):
                with self._dropping(name):
                    self._runs[name].record(record)
                    steps[kind], is_new = step, True
        if is_new:
            seen = {n: {"identity": s.identity, "steps": s.steps} for n, s in self._seen.items()}
            stored.write(self._folder / FILE, {"trackers": seen})

    @contextmanager
    def _dropping(self, name: str) -> Iterator[None]:
        """Drop a tracker that fails, with a note; training continues."""
        try:
            yield
        except Exception as error:
            del self._runs[name]
            self._note(f"{name}: tracking stopped: {_line(error)}; training continues")


class _Tracked:
    """A reporter whose records also go to trackers (`ProgressReporter`)."""

    def __init__(self, reporter: ProgressReporter, tracking: Tracking) -> None:
        self.note, self.warn, self.stage = reporter.note, reporter.warn, reporter.stage
        self._reporter, self._tracking = reporter, tracking

    def record(self, record: dict[str, Any], progress: float) -> None:
        self._reporter.record(record, progress)
        self._tracking.record(record)


@contextmanager
def tracked(
    run: Path, trackers: Sequence[Tracker], reporter: ProgressReporter
) -> Iterator[ProgressReporter]:
    """Track a run within a `with` block; provide the reporter to train it with.

    Args:
        run: the run folder.
        trackers: where its records go too.
        reporter: receives them first, and a line when a tracker fails.

    Raises:
        UserError: it is not a run, or a tracker cannot begin.
    """
    if not trackers:
        yield reporter
        return
    read_recipe(run)  # raises if it is not a run
    tracking = Tracking(
        run,
        run.absolute().name,
        reporter.warn,
        lambda: config.to_table(read_recipe(run)),
        lambda: log.read(run),
    )
    with closing(tracking, trackers):
        yield _Tracked(reporter, tracking)


@contextmanager
def closing(tracking: Tracking, trackers: Sequence[Tracker]) -> Iterator[None]:
    """Track within a `with` block.

    Raises:
        UserError: a tracker cannot begin.
    """
    tracking.open(trackers)
    try:
        yield
    except BaseException:
        tracking.close(is_failed=True)
        raise
    tracking.close(is_failed=False)


def _read(file: Path) -> dict[str, _Seen]:
    """Return what each tracker knows, by name.

    Raises:
        DamagedError: the file is damaged.
    """
    if not file.is_file():
        return {}
    try:
        trackers = stored.read(file)["trackers"]
        return {n: _Seen(str(s["identity"]), dict(s["steps"])) for n, s in trackers.items()}
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        raise DamagedError(f"{file}: damaged; delete it to track the run anew") from error


def _line(error: Exception) -> str:
    """Return an error in one line."""
    return " ".join(str(error).split()) or type(error).__name__
