"""Progress displays: a terminal, a notebook, the caller's own, or none."""

from __future__ import annotations

from collections.abc import Callable
from types import TracebackType
from typing import Any, Protocol

from foreword.display import lines
from foreword.display.bar import Advance, Bar, rough
from foreword.display.lines import line_of, prompt_and_text, say
from foreword.errors import UserError
from foreword.runs.stages import EVALUATING, SAVING, TRAINING
from foreword.train.log import components


class ProgressDisplay(Protocol):
    """A receiver of a run's progress; a context manager that is entered while the run trains.

    Write one to show progress elsewhere: `foreword.pretrain(..., progress=mine)`.
    """

    def __enter__(self) -> ProgressDisplay:
        """Open the display."""

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        """Close the display."""

    def note(self, text: str) -> None:
        """Show a message of one line."""

    def warn(self, text: str) -> None:
        """Show a message that is shown even where others are not wanted."""

    def stage(self, name: str) -> Callable[..., None]:
        """Begin the stage `name`; return a callback of its progress: done, total and notes."""

    def record(self, record: dict[str, Any], progress: float) -> None:
        """Show a record of the run's log, at `progress`, the share of the budget spent."""


class Quiet:
    """A `ProgressDisplay` that shows warnings alone.

    Args:
        warns: whether it shows them; of several processes one does.
    """

    def __init__(self, *, warns: bool = True) -> None:
        self._warns = warns

    def __enter__(self) -> Quiet:
        return self

    def __exit__(self, *error: object) -> None:
        pass

    def note(self, text: str) -> None:
        """Ignore it."""

    def warn(self, text: str) -> None:
        """Print a line."""
        if self._warns:
            lines.say(text)

    def stage(self, name: str) -> Callable[..., None]:
        """Ignore it."""
        return lambda *_: None

    def record(self, record: dict[str, Any], progress: float) -> None:
        """Ignore it."""


class LiveProgress:
    """A `ProgressDisplay` with a live line, and above it messages, and lines for some records.

    Args:
        bar: the live line; default: the one that fits the terminal or the notebook.
        announces: whether each stage is announced by a line where nothing can be live.
    """

    def __init__(self, bar: Bar | None = None, *, announces: bool = True) -> None:
        self._bar, self._announces = bar or lines.progress(), announces
        self._advance: Advance | None = None
        self._printed = -1.0

    def __enter__(self) -> LiveProgress:
        self._bar.__enter__()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        self._bar.__exit__(kind, error, at)

    def note(self, text: str) -> None:
        """Print a line."""
        say(text)

    def warn(self, text: str) -> None:
        """Print a line."""
        say(text)

    def stage(self, name: str) -> Advance:
        """Begin a stage; return a function that takes what is done, the total, and notes.

        Training goes on after each evaluation and each checkpoint, which are announced by no line.
        """
        is_brief = name in (EVALUATING, SAVING)
        self._advance = self._bar.stage(
            name,
            is_announced=self._announces and not is_brief,
            has_lines=name != TRAINING,
            continues=name == TRAINING,
            is_brief=is_brief,
        )
        return self._advance

    def record(self, record: dict[str, Any], progress: float) -> None:
        """Update the bar; print a line for some training records and for all others."""
        kind = record["kind"]
        if record.get("offline"):
            say(f"step {record['step']:>7,}  training loss {record['loss']:.4f}")
        elif kind == "train":
            self._train(record, progress)
        elif kind == "heldout":
            bits, perplexity = record["bits_per_byte"], record["perplexity"]
            parts = [f"step {record['step']:>7,}", f"held-out loss {record['loss']:.4f}"]
            parts += [f"perplexity {perplexity:,.2f}"] if perplexity is not None else []
            parts += [f"{bits:.3f} bits per byte"] if bits is not None else []
            parts += _components(record)
            parts += [f"{name} {loss:.4f}" for name, loss in record.get("sources", {}).items()]
            say(line_of(parts, [1, 0, *range(2, len(parts))]))
        elif kind == "probes":
            parts = [f"step {record['step']:>7,}", *_components(record)]
            say(line_of(parts, [1, 0, *range(2, len(parts))]))
        else:
            for sample in record["samples"][:1]:  # the log has all, and the report shows them
                say(prompt_and_text(sample["prompt"], sample["text"]))

    def _train(self, record: dict[str, Any], progress: float) -> None:
        loss = f"loss {record['loss']:.4f}"
        speed = f"{record['tokens_per_second']:,.0f} tokens/s"
        if self._advance is not None:
            self._advance(progress, 1.0, loss, speed)
        if progress >= self._printed + 0.025 or self._printed < 0:
            ranks = {  # the parts of the line; the highest ranks are left out first
                f"step {record['step']:>7,}": 1,
                loss: 0,
                speed: 4,
                f"lr {record['lr']:.2e}": 5,
                f"{progress:4.0%}": 2,
            }
            if self._printed >= 0 and progress < 1:  # the first step is slower than the others
                ranks[f"{rough(record['seconds'] / progress * (1 - progress))} left"] = 3
            self._printed = progress
            say(line_of(list(ranks), list(ranks.values())))


def _components(record: dict[str, Any]) -> list[str]:
    return [f"{name.replace('_', ' ')} {value:.4f}" for name, value in components(record).items()]


def progress_of(progress: bool | ProgressDisplay, *, announces: bool = False) -> ProgressDisplay:
    """Return a progress display: a live one for True, a quiet one for False.

    Args:
        progress: the argument `progress` of the API's functions.
        announces: as in `LiveProgress`.

    Raises:
        UserError: it is neither, nor a display.
    """
    if isinstance(progress, bool):
        return LiveProgress(announces=announces) if progress else Quiet()
    methods = ("__enter__", "__exit__", "note", "warn", "stage", "record")
    if lacking := [name for name in methods if not hasattr(progress, name)]:
        raise UserError(
            f"progress: expected True, False or a display; {progress!r} has no method {lacking[0]}"
        )
    return progress
