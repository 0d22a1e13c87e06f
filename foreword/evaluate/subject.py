"""What is looked at: a model with its recipe and tokenizer, and what its training taught it to do.

A family is not known by name. What the objective makes of a row shows it: a prediction in place
(fills blanks), a text alone (goes on), or a source and a target (answers), the source perhaps with
sentinels for what is missing. Objectives yet to be written are so understood.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import torch
from torch import Tensor

from foreword import kinds
from foreword.errors import UserError
from foreword.nn.model import Backbone, Model
from foreword.text.tokenizer import Tokenizer
from foreword.train.device import autocast
from foreword.train.opened import Opened
from foreword.train.recipe import Recipe
from foreword.train.trial import probe
from foreword.types import Array, Batch, Example, Hidden, Tokens, Vocab

PROBED = 64  # rows that show what sources look like


@dataclass(frozen=True)
class Form:
    """What some sources look like: the token before them, 0 or 1, and whether they hold blanks."""

    mode: tuple[int, ...]
    has_sentinels: bool


@dataclass(frozen=True)
class Subject:
    """A model to look at.

    Attributes:
        model: in evaluation mode, on `device`.
        recipe: it was trained with.
        tokenizer: it was trained with.
        device: where the model lies.
        dtype: what it computes in.
        name: what messages call it.
    """

    model: Model
    recipe: Recipe
    tokenizer: Tokenizer
    device: torch.device
    dtype: torch.dtype = torch.float32
    name: str = "this model"

    @classmethod
    def of(cls, opened: Opened) -> Subject:
        """The subject in an opened run."""
        return cls(
            model=opened.model,
            recipe=opened.recipe,
            tokenizer=opened.tokenizer,
            device=opened.device,
            dtype=opened.dtype,
            name=str(opened.run),
        )

    # -- what it does ------------------------------------------------------------------------------

    @cached_property
    def example(self) -> Example:
        """What its objective makes of one row of ordinary tokens."""
        return probe(self.recipe, self.vocab)

    @property
    def fills_in_place(self) -> bool:
        """It predicts hidden tokens where they stand: a masked language model."""
        return self.example.is_aligned

    @property
    def continues(self) -> bool:
        """It predicts each token of a text from those before: a causal language model."""
        return self.example.source is None

    @property
    def answers(self) -> bool:
        """It reads a source and writes a target."""
        return not self.fills_in_place and not self.continues

    @cached_property
    def forms(self) -> tuple[Form, ...]:
        """What its sources look like, those that hide least first; none where it has no source."""
        source = probe(self.recipe, self.vocab, PROBED).source if self.answers else None
        if source is None:
            return ()
        is_there = source.documents >= 0
        found: dict[Form, None] = {}
        for row in np.argsort(-is_there.sum(1), kind="stable"):
            ids = source.ids[row, is_there[row]]
            mode = ids[: int(self.vocab.is_special[ids[0]])]  # the text itself begins with a word
            has_sentinels = bool(np.isin(ids[len(mode) :], self.vocab.sentinels).any())
            found[Form(tuple(mode.tolist()), has_sentinels)] = None
        return tuple(found)

    @property
    def uses_sentinels(self) -> bool:
        """Its sources may hold sentinels for what is missing, and targets say what that is."""
        return any(form.has_sentinels for form in self.forms)

    @property
    def reads_plain(self) -> bool:
        """Its sources may be text without sentinels, which its targets go on with or mend."""
        return any(not form.has_sentinels for form in self.forms)

    def modes(self, ids: Array) -> int:
        """How many tokens before the text in `ids` name a mode of its training, 0 or 1."""
        return int(any(ids[:1].tolist() == list(form.mode) for form in self.forms if form.mode))

    def source_of(self, ids: Array) -> Array:
        """`ids` as a source of its training, with mode token and end; its own mode is kept."""
        mode = ids[: self.modes(ids)]
        text = ids[len(mode) :]
        if not len(mode):
            has_sentinels = bool(np.isin(text, self.vocab.sentinels).any())
            fitting = [form for form in self.forms if form.has_sentinels == has_sentinels]
            mode = np.asarray([*fitting, *self.forms][0].mode, dtype=np.int64)
        return np.concatenate([mode, self.before, text, self.end])

    @property
    def is_counted(self) -> bool:
        """It was fitted to the text at once; it has neither hidden states nor gradients."""
        return self.recipe.model.is_counted

    @property
    def family(self) -> str:
        """One phrase for people."""
        if self.is_counted:
            order, smoothing = (getattr(self.recipe.model, key) for key in ("order", "smoothing"))
            return f"{order}-gram model ({kinds.name_of(smoothing)})"
        layout = kinds.name_of(self.recipe.layout).replace("_", "-")
        return f"{layout} model (objective {kinds.name_of(self.recipe.objective)})"

    def hidden(self, source: Tokens, target: Tokens, weights: Array) -> Example:
        """What a model that predicts in place is asked: all tokens with weight at once.

        Args:
            source: what it reads.
            target: what is right, of the same shape.
            weights: 1 where it is asked, (batch, length) float32.
        """
        order = None
        if self.example.order is not None:  # the context first, and then all that is asked
            order = np.where(weights > 0, 0, -1)
        return Example(source, target, weights, is_aligned=True, order=order)

    def require_token_head(self) -> None:
        """Makes sure that it predicts tokens at all.

        Raises:
            UserError: it has no head for that.
        """
        if "token" not in self.model.heads:
            raise UserError(f"{self.name}: this {self.family} has no head that predicts tokens")

    # -- how its training wrapped texts ------------------------------------------------------------

    @property
    def vocab(self) -> Vocab:
        """Of its tokenizer."""
        return self.tokenizer.vocab

    @property
    def limit(self) -> int | None:
        """The most tokens its positions allow, or None."""
        return self.recipe.model.limit

    @property
    def reach(self) -> int:
        """The most tokens that it saw at once in training: a row and what it looks back at.

        One that is counted reads texts whole.
        """
        if self.is_counted:
            return 1 << 62
        return self.recipe.packing.length + self.recipe.model.memory

    @cached_property
    def before(self) -> Array:
        """What its packing puts before a document, (0 or 1,) int64."""
        return self._special(self.recipe.packing.before)

    @cached_property
    def after(self) -> Array:
        """What its packing puts after a document, (0 or 1,) int64."""
        return self._special(self.recipe.packing.after)

    @cached_property
    def opening(self) -> Array:
        """What a text begins with when the model is to read it from left to right.

        The token before a document; without one, the token after the document before, where
        training let documents see each other.
        """
        return self.before if len(self.before) or self.recipe.packing.separate else self.after

    @cached_property
    def end(self) -> Array:
        """What closes its sources and targets, (0 or 1,) int64."""
        source = self.example.source
        if source is None:
            return self._special("")
        last = source.ids[0, -1:]
        is_end = self.vocab.is_special[last] & ~np.isin(last, self.vocab.sentinels)
        return np.asarray(last[is_end])

    def _special(self, name: str) -> Array:
        return np.array([self.vocab.id(name)] if name else [], dtype=np.int64)

    def wrap(self, ids: Array) -> Array:
        """`ids` as a whole document in a row of its own, as its packing wraps it.

        Raises:
            UserError: it is longer than the model can read.
        """
        whole = np.concatenate([self.before, ids, self.after])
        self.check_length(len(whole))
        return whole

    @property
    def head(self) -> Array:
        """What stands before a text that it reads, (0 or 1,) int64."""
        return self.opening if self.continues else self.before

    def framed(self, ids: Array) -> Array:
        """`ids` as a text that it reads: with `head` before it, and what ends texts behind.

        Raises:
            UserError: it is longer than the model can read.
        """
        tail = self.after if self.fills_in_place else self.end
        whole = np.concatenate([self.head, ids, tail])
        self.check_length(len(whole))
        return whole

    def check_length(self, length: int) -> None:
        """Makes sure that the model has so many places.

        Raises:
            UserError: it has not.
        """
        if self.limit is not None and length > self.limit:
            raise UserError(
                f"the text has {length} tokens, and {self.name} has {self.limit} places; "
                "give a shorter one"
            )

    # -- how it computes ---------------------------------------------------------------------------

    def read(self, batch: Batch, memory: Any = None) -> Hidden:
        """The states of `batch` that the token head reads, without gradients, in `dtype`.

        Args:
            batch: of numpy arrays or tensors.
            memory: what an earlier call returned.
        """
        return self._run(self.model.reader, batch, memory)

    def _run(self, reader: Backbone, batch: Batch, memory: Any = None) -> Hidden:
        with torch.no_grad(), autocast(self.device, self.dtype):
            hidden: Hidden = reader(batch.to(self.device), memory)
        return hidden

    def encode(self, texts: Tokens) -> Array:
        """The last hidden states of texts: of the encoder, where there is one.

        Args:
            texts: (batch, length), padded on the right.

        Returns:
            (batch, length, d_model) float32.

        Raises:
            UserError: an empty text, or a model that has no states.
        """
        if self.is_counted:
            raise UserError(f"{self.name}: this {self.family} has no hidden states")
        batch = self.reading(texts)
        if batch.source is not None:
            return self._encode_source(batch.source)
        # A decoder with a source arranges source and target in one row; the source comes first.
        states = self._run(self.model.backbone, batch).states
        found: Array = states[:, : texts.ids.shape[1]].float().cpu().numpy()
        return found

    def reading(self, texts: Tokens) -> Batch:
        """A batch that makes the model read texts with nothing hidden.

        Raises:
            UserError: an empty text.
        """
        if not (texts.documents[:, :1] == 0).all():
            raise UserError("a text is empty; there is nothing to encode")
        if self.fills_in_place:  # with nothing hidden, and so no second stream
            example = self.hidden(texts, texts, np.zeros(texts.ids.shape, dtype=np.float32))
        else:
            ones = np.ones(texts.ids.shape, dtype=np.float32)
            example = Example(None if self.continues else texts, texts, ones)
        return replace(self.recipe.layout.arrange(example, self.vocab), queries=None)

    def _encode_source(self, source: Batch) -> Array:
        backbone: Any = self.model.backbone  # of a model that reads a source
        with torch.no_grad(), autocast(self.device, self.dtype):
            states: Tensor = backbone.encode(source.to(self.device))
        found: Array = states.float().cpu().numpy()
        return found

    def logits(self, states: Tensor) -> Tensor:
        """Scores over the vocabulary in float32, (..., d_model) -> (..., vocab)."""
        with torch.no_grad(), autocast(self.device, self.dtype):
            logits: Tensor = self.model.token_head(states)
        return logits.float()
