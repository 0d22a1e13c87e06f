"""What each rung of the ladder costs, in training and in writing: tokens/s and steps that wait.

    python benchmarks/rungs.py TEXT...

Every rung is trained for a few steps on the text, on the same road as `foreword pretrain`, and then
writes. Rates are per second of CPU time on one thread, which other work on the machine disturbs
less than the clock's. A model of counts is fitted in one pass over the text.

Steps that wait: how many layers must be computed one after the other, each from the one before.
In training on a row of L tokens a recurrent layer takes L of them; a Transformer or a window
computes all places of a layer at once. In writing each token waits for the one before it in every
neural rung.
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np
import torch

from foreword.cli._process import settle
from foreword.evaluate import decoding
from foreword.evaluate.loaded import load
from foreword.evaluate.sampling import Sampling
from foreword.nn.recurrent import RecurrentSettings
from foreword.train import run as running
from foreword.train.recipe import Recipe, load_recipe

RUNGS = {
    "5-gram": "ngram_mini",
    "fixed window": "fixed_window_mini",
    "RNN": "rnn_mini",
    "GRU": "gru_mini",
    "LSTM": "lstm_mini",
    "Transformer": "gpt2_mini",
    "Transformer-XL": "transformer_xl_mini",
}
WARM = 2  # steps that are not timed
PROMPT = "the"


@dataclass
class Clock:
    """Watches a run: seconds of CPU time and tokens read, step by step."""

    seconds: list[float] = field(default_factory=list)
    tokens: list[int] = field(default_factory=list)

    def note(self, text: str) -> None:
        """Nothing is said."""

    def record(self, record: dict[str, Any], progress: float) -> None:
        """A step is over."""
        if record["kind"] == "train":
            self.seconds.append(time.process_time())
            self.tokens.append(record["tokens"])

    def samples(self) -> list[dict[str, str]]:
        """Nothing is looked at."""
        return []

    @property
    def rate(self) -> float:
        """Tokens per second after the first steps."""
        seconds = self.seconds[-1] - self.seconds[WARM]
        return (self.tokens[-1] - self.tokens[WARM]) / seconds


@dataclass(frozen=True)
class Rung:
    """What was measured.

    Attributes:
        parameters: of the model; of counts, its numbers.
        reads: tokens per second in training.
        row_steps: that wait for each other, in training on a row.
        writes: tokens per second in writing.
        token_steps: that wait for each other, in writing a token.
    """

    parameters: int
    reads: float
    row_steps: int
    writes: float
    token_steps: int


def measure(recipe: Recipe, texts: list[str], tokenizer: Path, folder: Path, tokens: int) -> Rung:
    """Trains a rung for a few steps, and lets it write."""
    given = str(tokenizer) if tokenizer.is_dir() else None
    running.start(recipe, running.Inputs(tuple(texts), given), folder)
    clock, began = Clock(), time.process_time()
    running.carry_on(folder, clock, lambda name: lambda done, total: None)
    seconds = time.process_time() - began
    if given is None:
        (folder / "tokenizer").rename(tokenizer)
        (folder / "tokenizer").symlink_to(tokenizer)
    loaded = load(folder)
    model, settings = loaded.opened.model, recipe.model
    is_fitted = settings.is_fitted
    layers = getattr(settings, "layers", 1)
    waits = recipe.packing.length if isinstance(settings, RecurrentSettings) else 1
    reads = loaded.opened.state["spent"]["tokens"] / seconds if is_fitted else clock.rate
    return Rung(
        model.count_parameters(),
        reads,
        1 if is_fitted else waits * layers,
        _rate(lambda: _write(loaded.subject, tokens)),
        layers,
    )


def _write(subject: Any, tokens: int) -> int:
    """One text, one token after the other; returns how many."""
    start = decoding.starts_of(subject, [PROMPT])
    (written,) = decoding.write(subject, start, Sampling(tokens=tokens), np.empty(0, np.int64))
    return len(written.ids)


def _rate(work: Callable[[], int]) -> float:
    work()
    began = time.process_time()
    done = work()
    return done / (time.process_time() - began)


def main() -> None:
    """Prints the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("texts", nargs="+", help="files to train on")
    parser.add_argument("--steps", type=int, default=12, help="of training")
    parser.add_argument("--tokens", type=int, default=64, help="to write")
    parser.add_argument("--vocab", type=int, default=8_192, help="of the tokenizer that all share")
    given = parser.parse_args()
    settle()
    torch.set_num_threads(1)
    columns = ("rung", "parameters", "trains, tokens/s", "steps a row of 128")
    print("|", " | ".join((*columns, "writes, tokens/s", "steps a token")), "|")
    print("|---" * 6 + "|")
    with tempfile.TemporaryDirectory() as folder:
        for name, recipe in RUNGS.items():
            settings = [
                f"tokenizer={{kind='bpe', vocab={given.vocab}}}",
                f"train.steps={given.steps + WARM}",
                "train.evaluations=1",
                "train.heldout_rows=1",
                "train.checkpoints=1",
                "prepare.heldout=0.01",
            ]
            made = load_recipe(recipe, settings)
            run = Path(folder) / recipe
            found = measure(made, given.texts, Path(folder) / "tokenizer", run, given.tokens)
            cells = (f"{found.parameters:,}", f"{found.reads:,.0f}", f"{found.row_steps:,}")
            row = (name, *cells, f"{found.writes:,.0f}", f"{found.token_steps}")
            print("|", " | ".join(row), "|", flush=True)


if __name__ == "__main__":
    main()
