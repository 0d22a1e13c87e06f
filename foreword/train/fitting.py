"""From token shards to a model of counts: fitted at once, where others take step after step.

A run of such a model is done or has not begun: its one checkpoint is written last.
"""

from __future__ import annotations

import math
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, cast

import numpy as np

from foreword import atomic
from foreword.data.prepared import Prepared
from foreword.data.rng import RowRng
from foreword.data.shards import Shards
from foreword.data.wrapped import Wrapped
from foreword.errors import UserError
from foreword.ngrams.counting import CHUNK, NONE
from foreword.ngrams.table import Table
from foreword.nn.model import Model
from foreword.text.special import UNK
from foreword.train import checkpoint
from foreword.train.budget import Spent
from foreword.train.continued import START
from foreword.train.loop import Progress
from foreword.train.recipe import Recipe
from foreword.types import Array, Rows, Vocab

FOLDER = ".counting"  # in a run folder: counts while they are needed
MEASURED = 1 << 20  # tokens of the training text that its loss is measured on


class Counted(Protocol):
    """A backbone that is fitted."""

    table: Table

    def fit(
        self,
        stream: Array,
        start: int,
        is_word: Array,
        folder: Path,
        progress: Callable[[float, float], None],
    ) -> None:
        """Counts texts, one after the other, each beginning with `start`."""


def counted(model: Model) -> Counted:
    """The model's backbone, as one that is fitted."""
    return cast(Counted, model.backbone)


def words_of(recipe: Recipe, vocab: Vocab) -> Array:
    """What may be predicted: all but special tokens, with [UNK] and what ends a document.

    These are the words over which KenLM spreads what unigrams leave. Returns (vocab,) bool.
    """
    is_word = ~vocab.is_special
    ends = (UNK, getattr(recipe.packing, "after", ""))
    is_word[[vocab.id(name) for name in ends if name in vocab.special]] = True
    return is_word


@dataclass(frozen=True)
class Texts:
    """Documents one after the other, wrapped as the packing does.

    Attributes:
        stream: of their tokens.
        start: the token before each document.
        is_word: see `words_of`.
    """

    stream: Wrapped
    start: int
    is_word: Array

    @classmethod
    def of(cls, recipe: Recipe, shards: Shards, vocab: Vocab) -> Texts:
        """The documents of shards, as the recipe's packing wraps them.

        Raises:
            UserError: it puts nothing before a document, or the same as after it.
        """
        before, after = (getattr(recipe.packing, side, "") for side in ("before", "after"))
        if not before or before == after:
            raise UserError(
                "packing.before: a model of counts is given a token that begins each text, and "
                'nothing else; use packing.before="<s>" with packing.kind=documents'
            )
        stream = Wrapped(shards, vocab, before, after)
        return cls(stream, vocab.id(before), words_of(recipe, vocab))

    def __len__(self) -> int:
        """Tokens, with those that begin and end documents."""
        return len(self.stream)

    def read(self, first: int, stop: int) -> Array:
        """The tokens from `first` to `stop` - 1, (tokens,) int64."""
        return self.stream.read(np.array([first]), np.array([stop - first])).ids

    def store(self, file: Path, dtype: np.dtype[np.generic]) -> Array:
        """All tokens in a file, mapped; (tokens,)."""
        stored = np.lib.format.open_memmap(file, "w+", dtype, (len(self),))
        for at in range(0, len(self), CHUNK):
            stored[at : at + CHUNK] = self.read(at, min(at + CHUNK, len(self)))
        return stored


@dataclass(frozen=True)
class Measured:
    """How likely a table finds texts, and how much of them it had seen.

    Attributes:
        nats: negative log-probability of all tokens but those that begin texts.
        tokens: how many.
        ngrams: by order, how many of that length the texts hold; (order,) int64.
        unseen: of these, how many the table does not have; (order,) int64.
    """

    nats: float
    tokens: int
    ngrams: Array
    unseen: Array

    @property
    def loss(self) -> float:
        """Nats per token."""
        return self.nats / max(1, self.tokens)


def measure(table: Table, texts: Texts, most: int | None = None) -> Measured:
    """How likely the table finds the texts, or their first `most` tokens.

    Every document is read whole, wherever rows of a packing would be cut.
    """
    order, end = table.about.order, min(len(texts), most or len(texts))
    nats, tokens = 0.0, 0
    ngrams, unseen = np.zeros(order, dtype=np.int64), np.zeros(order, dtype=np.int64)
    is_known = table.seen_words()
    for at in range(0, end, CHUNK):
        before = min(at, order)  # enough to know the contexts of what follows
        ids = texts.read(at - before, min(at + CHUNK, end))
        found = table.find(ids)
        nats -= float(table.log_probs_of(ids, found)[before:].sum())
        is_text = ids[before:] != texts.start
        tokens += int(is_text.sum())
        for n, numbers in enumerate(found):
            there = numbers[before:][is_text]
            is_seen = there >= 0 if n else is_known[there]
            ngrams[n] += int((there != NONE).sum())
            unseen[n] += int((~is_seen & (there != NONE)).sum())
    return Measured(nats, tokens, ngrams, unseen)


@dataclass(frozen=True)
class Fitted:
    """A model that has been fitted, and what is known of it.

    Attributes:
        model: fitted.
        spent: what it took.
        train: on the training text, or its beginning.
        heldout: on the held-out text; None where there is none.
    """

    model: Model
    spent: Spent
    train: Measured
    heldout: Measured | None


@contextmanager
def fitting(
    run: Path,
    recipe: Recipe,
    prepared: Prepared,
    vocab: Vocab,
    progress: Callable[[float, float], None],
) -> Iterator[Fitted]:
    """A fitted model, whose counts lie in the run folder until the context is left.

    Raises:
        UserError: a text that cannot be counted, a recipe that does not fit, a full disk.
    """
    if (run / START).exists():
        raise UserError("--from: a model of counts starts from text alone; leave it out")
    folder = run / FOLDER
    shutil.rmtree(folder, ignore_errors=True)  # of one that was killed
    began = time.monotonic()
    model = recipe.build(vocab)
    _require_plain(recipe, vocab)
    texts = Texts.of(recipe, prepared.train, vocab)
    _require_words(prepared.train, vocab)
    with atomic.explained(folder):
        folder.mkdir()
        try:
            stream = texts.store(folder / "stream.npy", prepared.train.tokens.dtype)
            counted(model).fit(stream, texts.start, texts.is_word, folder, progress)
            table = counted(model).table
            spent = Spent(1, len(texts), 0.0, time.monotonic() - began)
            heldout = None
            if prepared.heldout.tokens_total:
                heldout = measure(table, Texts.of(recipe, prepared.heldout, vocab))
            yield Fitted(model.eval(), spent, measure(table, texts, MEASURED), heldout)
        finally:
            shutil.rmtree(folder, ignore_errors=True)


def is_done(run: Path) -> bool:
    """Whether the run has its checkpoint, and it is whole."""
    try:
        checkpoint.newest(run)
    except UserError:
        return False
    return True


def save(run: Path, fitted: Fitted) -> None:
    """Writes the checkpoint, with which the run is done.

    Raises:
        UserError: the disk is full.
    """
    folder = run / "checkpoints" / checkpoint.name_of(fitted.spent.steps)
    loss = None if fitted.heldout is None else fitted.heldout.loss
    state = Progress(fitted.spent, best_loss=loss, best=folder.name)
    checkpoint.save(folder, fitted.model, None, state.dump())


def notes(fitted: Fitted) -> list[str]:
    """What was counted, in how long, and what is worth knowing of it; a line each."""
    table, seconds = counted(fitted.model).table, fitted.spent.seconds
    orders = range(1, table.about.order + 1)
    sizes = ", ".join(f"{table.size_of(n):,} {n}-grams" for n in orders)
    size = sum(map(table.bytes_of, orders))
    rate = fitted.spent.tokens / max(seconds, 1e-9)
    said = f"{sizes}: {size / 1e6:,.1f} MB, in {seconds:.1f} s ({rate:,.0f} tokens/s)"
    return [said, *table.about.notes]


def records(fitted: Fitted, bytes_per_token: float) -> list[dict[str, Any]]:
    """What `metrics.jsonl` says of it."""
    is_normalised = counted(fitted.model).table.about.is_normalised
    took = fitted.spent
    spent = {"step": took.steps, "tokens": took.tokens, "flops": 0.0, "seconds": took.seconds}
    rate = took.tokens / max(took.seconds, 1e-9)
    found: list[dict[str, Any]] = [
        {"kind": "train", **spent, "loss": fitted.train.loss, "tokens_per_second": rate}
    ]
    if fitted.heldout is not None:
        loss = fitted.heldout.loss
        figures: dict[str, float | None] = {"perplexity": None, "bits_per_byte": None}
        if is_normalised:  # scores that are no probabilities have neither
            figures["perplexity"] = math.exp(loss) if loss < 700 else math.inf
            figures["bits_per_byte"] = loss / math.log(2) / bytes_per_token
        predictions = {"predictions": fitted.heldout.tokens}
        found.append({"kind": "heldout", **spent, "loss": loss, **figures, **predictions})
    return found


def _require_plain(recipe: Recipe, vocab: Vocab) -> None:
    """Makes sure that the objective is to go on with the text as it is.

    Raises:
        UserError: it is another.
    """
    ids = np.flatnonzero(~vocab.is_special)[None, : recipe.packing.length]
    rows = Rows(ids, np.zeros_like(ids), np.arange(ids.size)[None], np.zeros(1, np.int64))
    example = recipe.objective.corrupt(rows, RowRng(0, rows.numbers), vocab)
    if example.source is not None or example.is_aligned:
        raise UserError(
            "objective.kind: a model of counts predicts each token from those before; use 'causal'"
        )


def _require_words(shards: Shards, vocab: Vocab) -> None:
    """Makes sure that there are words to choose among.

    Raises:
        UserError: there are not.
    """
    is_there = np.zeros(vocab.size, dtype=bool)
    for at in range(0, shards.tokens_total, CHUNK):
        is_there[shards.tokens[at : at + CHUNK]] = True
        if is_there.sum() > 1:
            return
    raise UserError(
        f"{shards.prefix}: the text is one token over and over, and there is nothing to predict; "
        "give more text, or a tokenizer that knows more words"
    )
