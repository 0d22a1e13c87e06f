"""What each rung of the ladder costs, in training and in writing: tokens/s and steps that wait.

    python benchmarks/rungs.py TEXT...

Every rung is trained for a few steps on the text, on the same road as `foreword pretrain`, and then
writes. Rates are per second of CPU time on one thread, which other work on the machine disturbs
less than the clock's. Models of counts and word vectors are fitted, in one pass over the text. The
sequence to sequence models read pairs: 24 words of the text, and the 24 behind them; their speed
does not depend on what these say.

Steps that wait: how many layers must be computed one after the other, each from the one before.
In training on a row of L tokens a recurrent layer takes L of them, in either direction; a
Transformer or a window computes all places of a layer at once. Pairs of a row are computed side by
side, so it takes as many as a pair has tokens, and one more to look at the source. In writing each
token waits for the one before it in every neural rung.
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
from foreword.data.packing.parallel import ENDS
from foreword.data.prepared_text import PreparedText
from foreword.data.shards import Shards
from foreword.evaluate import decoding
from foreword.evaluate.loaded import load
from foreword.evaluate.sampling import Sampling
from foreword.models.elmo import ELMo
from foreword.models.seq2seq import Seq2Seq
from foreword.nn.recurrent import RecurrentSettings
from foreword.runs import run as running
from foreword.runs.offline import reading_of
from foreword.runs.recipe import Recipe, load_recipe
from foreword.types import Vocab

RUNGS = {
    "unigram": "ngram_1",
    "bigram": "ngram_2",
    "trigram": "ngram_3",
    "4-gram": "ngram_4",
    "5-gram": "ngram_5",
    "word2vec": "word2vec_mini",
    "fixed window": "fixed_window_mini",
    "RNN": "rnn_mini",
    "GRU": "gru_mini",
    "LSTM": "lstm_mini",
    "ELMo": "elmo_mini",
    "seq2seq": "seq2seq_mini_no_attention",
    "seq2seq, attention": "seq2seq_mini",
    "Transformer": "gpt2_mini",
    "Transformer-XL": "transformer_xl_mini",
}
WARM = 2  # steps that are not timed
LENGTH = 128  # of a row
PROMPT = "the"
SIDE = 24  # words of each side of a pair


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
        seconds = self.seconds[-1] - self.seconds[WARM - 1]
        return (self.tokens[-1] - self.tokens[WARM - 1]) / seconds


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
    clock = Clock()
    running.carry_on(folder, clock, lambda name: lambda done, total: None)
    if given is None:
        (folder / "tokenizer").rename(tokenizer)
        (folder / "tokenizer").symlink_to(tokenizer)
    loaded = load(folder)
    shards = PreparedText.load(folder / "shards", verify=False).train
    trains_offline = recipe.model.trains_offline
    return Rung(
        loaded.trained.model.count_parameters(),
        _rate(lambda: _fit(recipe, shards, loaded.tokenizer.vocab))
        if trains_offline
        else clock.rate,
        row_steps(recipe, shards),
        _rate(lambda: _write(loaded.trained, tokens)),
        getattr(recipe.model, "layers", 1),
    )


def row_steps(recipe: Recipe, shards: Shards) -> int:
    """How many steps wait for one another, in training on a row."""
    model = recipe.model
    if model.trains_offline:
        return 1
    if isinstance(model, Seq2Seq):
        pair = shards.tokens_total / len(shards) + ENDS  # the mean
        return round(pair) * model.layers + (model.attention.build(model.d_model) is not None)
    is_recurrent = isinstance(model, RecurrentSettings | ELMo)
    return int(recipe.packing.length if is_recurrent else 1) * int(model.layers)


def _fit(recipe: Recipe, shards: Shards, vocab: Vocab) -> int:
    """One pass over the text; returns how many tokens it has."""
    with tempfile.TemporaryDirectory() as folder:
        reading = reading_of(recipe, shards, vocab, Path(folder))
        return recipe.build(vocab).backbone.fit(reading).tokens


def _write(prompted: Any, tokens: int) -> int:
    """One text, one token after the other; returns how many."""
    start = decoding.starts_of(prompted, [PROMPT])
    (written,) = decoding.decode(prompted, start, Sampling(tokens=tokens), np.empty(0, np.int64))
    return len(written.ids)


def _rate(work: Callable[[], int]) -> float:
    work()
    began = time.process_time()
    done = work()
    return done / (time.process_time() - began)


def small(recipe: str, vocab: int, steps: int) -> Recipe:
    """A recipe as it is measured: for a few steps, or once through the text."""
    trains_offline = load_recipe(recipe).model.trains_offline
    settings = [
        f"tokenizer={{kind='bpe', vocab={vocab}}}",
        "train.epochs=1" if trains_offline else f"train.steps={steps + WARM}",
        "train.evaluations=1",
        "train.heldout_rows=1",
        "train.checkpoints=1",
        "prepare.heldout=0.01",
        f"packing.length={LENGTH}",
    ]
    return load_recipe(recipe, settings)


def write_pairs(texts: list[str], stem: Path) -> str:
    """Parallel text made of a plain one: two files of one name; returns one of them."""
    words = [word for text in texts for word in Path(text).read_text("utf-8").split()]
    starts = range(0, len(words) - 2 * SIDE + 1, 2 * SIDE)
    for language, at in (("en", 0), ("de", SIDE)):
        lines = [" ".join(words[start + at : start + at + SIDE]) for start in starts]
        stem.with_suffix(f".{language}").write_text("\n".join(lines) + "\n", encoding="utf-8")
    return str(stem.with_suffix(".en"))


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
    columns = ("rung", "parameters", "trains, tokens/s", f"steps a row of {LENGTH}")
    print("|", " | ".join((*columns, "writes, tokens/s", "steps a token")), "|")
    print("|---" * 6 + "|")
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        pairs = write_pairs(given.texts, folder / "pairs")
        for name, recipe in RUNGS.items():
            made = small(recipe, given.vocab, given.steps)
            texts = [pairs] if made.model.reads_source else given.texts
            found = measure(made, texts, folder / "tokenizer", folder / recipe, given.tokens)
            cells = (f"{found.parameters:,}", f"{found.reads:,.0f}", f"{found.row_steps:,}")
            row = (name, *cells, f"{found.writes:,.0f}", f"{found.token_steps}")
            print("|", " | ".join(row), "|", flush=True)


if __name__ == "__main__":
    main()
