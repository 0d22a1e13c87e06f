"""The display of a run in progress."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from foreword.display.bar import Advance, Bar, clock
from foreword.display.lines import line_of, say, side_by_side
from foreword.runs.corpus import TRAINING
from foreword.train.log import components


class RunDisplay:
    """Progress bars for the stages, a line per train record, a paragraph per evaluation."""

    def __init__(self, bar: Bar) -> None:
        self._bar = bar
        self._advance: Advance | None = None
        self._printed = -1.0

    def stage(self, name: str) -> Callable[[float, float], None]:
        """Begin a stage; return a function that takes what is done and the total."""
        self._advance = self._bar.stage(name, is_announced=True, has_lines=name != TRAINING)
        return self._advance

    def note(self, text: str) -> None:
        """Print a line."""
        say(text)

    def record(self, record: dict[str, Any], progress: float) -> None:
        """Update the bar; print a line for some training records and for all others."""
        kind = record["kind"]
        if record.get("fitted"):
            say(f"step {record['step']:>7,}  training loss {record['loss']:.4f}")
        elif kind == "train":
            self._train(record, progress)
        elif kind == "heldout":
            bits, perplexity = record["bits_per_byte"], record["perplexity"]
            parts = [f"step {record['step']:>7,}", f"held-out loss {record['loss']:.4f}"]
            parts += [f"perplexity {perplexity:,.2f}"] if perplexity is not None else []
            parts += [f"{bits:.3f} bits per byte"] if bits is not None else []
            parts += [
                f"{n.replace('_', ' ')} {value:.4f}" for n, value in components(record).items()
            ]
            say(line_of(parts, [1, 0, *range(2, len(parts))]))
        else:
            for sample in record["samples"]:
                say(side_by_side(sample["prompt"], sample["text"]))

    def samples(self) -> list[dict[str, str]]:
        """Return none; the run adds them."""
        return []

    def _train(self, record: dict[str, Any], progress: float) -> None:
        loss = f"loss {record['loss']:.4f}"
        speed = f"{record['tokens_per_second']:,.0f} tokens/s"
        matmul = f"{record['share_of_matmul']:.0%} of matmul speed"
        if self._advance is not None:
            self._advance(progress, 1.0, loss, speed, matmul)
        if progress >= self._printed + 0.025 or self._printed < 0:
            self._printed = progress
            left = record["seconds"] / progress * (1 - progress) if progress else 0.0
            ranks = {  # the parts of the line; the highest ranks are left out first
                f"step {record['step']:>7,}": 1,
                loss: 0,
                speed: 4,
                matmul: 6,
                f"lr {record['lr']:.2e}": 5,
                f"{progress:4.0%}": 2,
                f"{clock(left)} left": 3,
            }
            say(line_of(list(ranks), list(ranks.values())))
