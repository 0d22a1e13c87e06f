"""The display of a run in progress."""

from __future__ import annotations

from types import TracebackType
from typing import Any

from foreword.display.bar import Advance, Bar
from foreword.display.lines import line_of, prompt_and_text, say
from foreword.formatting import rough
from foreword.runs.stages import EVALUATING, JOBS, SAVING, TRAINING
from foreword.train.log import STAGE, components, in_words


class LiveProgress:
    """A `ProgressDisplay`: a live line for the stages, and lines for records and messages above it.

    Args:
        bar: the live line.
        announces: whether each stage is a line where there is no live one.
    """

    def __init__(self, bar: Bar, *, announces: bool = True) -> None:
        self._bar, self._announces = bar, announces
        self._advance: Advance | None = None
        self._printed, self._stage = -1.0, 0

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

    def stage(self, name: str) -> Advance:
        """Begin a stage; return a function that takes what is done, the total, and notes.

        Training goes on after each evaluation and each checkpoint, which are announced by no line,
        and so do jobs beside each other after what comes between them.
        """
        is_brief = name in (EVALUATING, SAVING)
        self._advance = self._bar.stage(
            name,
            is_announced=self._announces and not is_brief,
            has_lines=name != TRAINING,
            continues=name in (TRAINING, JOBS),
            is_brief=is_brief,
        )
        return self._advance

    def note(self, text: str) -> None:
        """Print a line."""
        say(text)

    def warn(self, text: str) -> None:
        """Print a line."""
        say(text)

    def record(self, record: dict[str, Any], progress: float) -> None:
        """Update the bar; print a line for some training records and for all others."""
        kind = record["kind"]
        if record.get("offline"):
            say(f"step {record['step']:>7,}  training loss {record['loss']:.4f}")
        elif kind == "train":
            self._train(record, progress)
        elif kind == "heldout":
            bits, perplexity = record["bits_per_byte"], record["perplexity"]
            most = "at most " if record.get("is_bound") else ""
            parts = [f"step {record['step']:>7,}", f"held-out loss {most}{record['loss']:.4f}"]
            parts += [f"perplexity {most}{perplexity:,.2f}"] if perplexity is not None else []
            parts += [f"{most}{bits:.3f} bits per byte"] if bits is not None else []
            parts += [
                f"{n.replace('_', ' ')} {value:.4f}" for n, value in components(record).items()
            ]
            parts += [f"{name} {loss:.4f}" for name, loss in record.get("sources", {}).items()]
            say(line_of(parts, [1, 0, *range(2, len(parts))]))
        elif kind == STAGE:
            if record["stage"] != self._stage and record["stages"] > 1:  # not along a curve
                stage = f"stage {record['stage']} of {record['stages']}"
                say(line_of([f"step {record['step']:>7,}", f"{stage}: {in_words(record)}"], [1, 0]))
            self._stage = record["stage"]
        elif kind == "probes":
            parts = [
                f"{name.replace('_', ' ')} {value:.4f}"
                for name, value in components(record).items()
            ]
            say(line_of([f"step {record['step']:>7,}", *parts], [1, 0, *range(2, len(parts) + 1)]))
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
