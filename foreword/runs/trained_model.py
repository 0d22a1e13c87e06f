"""A trained model: the inputs it expects, what it predicts, and how to run it."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from foreword.errors import TooLongError, UserError
from foreword.nn.model import Backbone, Model, SourceBackbone
from foreword.objectives._contract import mode_id
from foreword.runs.recipe import Recipe
from foreword.settings import kinds
from foreword.text.tokenizer import Tokenizer
from foreword.train.device import autocast
from foreword.types import (
    Array,
    Batch,
    CausalRows,
    Example,
    Hidden,
    MaxLengths,
    PredictionOrder,
    Queries,
    Tokens,
    Vocab,
)

CPU = torch.device("cpu")
# Models as messages name them; a recurrent one is causal.
PREDICTORS = "causal, masked, permuted, encoder-decoder, n-gram"
NEURAL = "all but n-gram models"


@dataclass(frozen=True)
class PromptForm:
    """A form of source that training used.

    Attributes:
        mode: the token that names the denoiser (UL2), none or one.
        has_sentinels: whether spans are replaced by sentinels.
    """

    mode: tuple[int, ...]
    has_sentinels: bool


@dataclass(frozen=True)
class TrainedModel:
    """A trained model, the form of its inputs and the kind of its predictions.

    Attributes:
        model: the model in evaluation mode, on `device`.
        recipe: the resolved recipe, whose `build` builds the model.
        tokenizer: the tokenizer that it was trained with.
        device: device of the model's parameters.
        dtype: precision of the computation.
        source: the folder its weights were read from: a run's `checkpoints/step-*`, or a Hugging
            Face folder. None if it was built in memory.
        notes: messages for the user, such as skipped damaged checkpoints; one line each.
        tuned_head: the head of a task that it was fine-tuned on, in place of the heads of
            pretraining, which are then random; None if it was pretrained alone.
    """

    model: Model
    recipe: Recipe
    tokenizer: Tokenizer
    device: torch.device = CPU
    dtype: torch.dtype = torch.float32
    source: Path | None = None
    notes: tuple[str, ...] = ()
    tuned_head: nn.Module | None = None

    @property
    def vocab(self) -> Vocab:
        """The tokenizer's vocabulary."""
        return self.tokenizer.vocab

    @property
    def folder(self) -> Path:
        """The folder its weights were read from.

        Raises:
            ValueError: the model was built in memory.
        """
        if self.source is None:
            raise ValueError("a model built in memory has no folder")
        return self.source

    @property
    def run(self) -> Path:
        """The run folder whose checkpoint was read; otherwise the same as `folder`.

        Raises:
            ValueError: the model was built in memory.
        """
        folder = self.folder
        return folder.parent.parent if is_checkpoint(folder) else folder

    @property
    def name(self) -> str:
        """What messages call the model: its run, or its folder."""
        return "this model" if self.source is None else str(self.run)

    def require_gradients(self) -> None:
        """Check that the model can be trained further.

        Raises:
            UserError: it is count-based.
        """
        if self.recipe.model.is_count_based:
            raise UserError(
                f"{self.name}: a count-based model has no weights to train further; "
                "choose another run"
            )

    # -- what it predicts --------------------------------------------------------------------------

    @property
    def fills_in_place(self) -> bool:
        """Whether it is a masked language model, which predicts the tokens behind [MASK]."""
        return self.recipe.objective.predicts.form in ("in_place", "next_and_in_place")

    @property
    def unmasks(self) -> bool:
        """Whether it writes text by filling masks in any order (masked diffusion)."""
        return self.recipe.objective.predicts.any_order

    @property
    def continues(self) -> bool:
        """Whether it is a causal language model."""
        return self.recipe.objective.predicts.form in ("next", "next_and_in_place")

    @property
    def answers(self) -> bool:
        """Whether it reads a source and predicts a target."""
        return self.recipe.objective.predicts.form == "target"

    @cached_property
    def source_forms(self) -> tuple[PromptForm, ...]:
        """The forms of source it was trained on, that of prompts first; empty without sources."""
        return tuple(
            PromptForm(() if mode is None else (mode,), form.has_sentinels)
            for form in self.recipe.objective.source_forms
            for mode in [mode_id(form.mode, self.vocab)]
        )

    @property
    def uses_sentinels(self) -> bool:
        """Whether sources may have sentinels for missing text, which targets supply."""
        return any(form.has_sentinels for form in self.source_forms)

    @property
    def reads_plain(self) -> bool:
        """Whether sources may be text without sentinels, which targets continue or correct."""
        return any(not form.has_sentinels for form in self.source_forms)

    def modes(self, ids: Array) -> int:
        """Return the number of mode tokens (0 or 1) that `ids` begins with."""
        return int(
            any(ids[:1].tolist() == list(form.mode) for form in self.source_forms if form.mode)
        )

    def source_of(self, ids: Array) -> Array:
        """Return `ids` as a source of training has it: mode token, bos, text, end token.

        A mode token that `ids` begins with is kept.
        """
        mode = ids[: self.modes(ids)]
        text = ids[len(mode) :]
        if not len(mode):
            has_sentinels = bool(np.isin(text, self.vocab.sentinels).any())
            matching = [form for form in self.source_forms if form.has_sentinels == has_sentinels]
            mode = np.asarray([*matching, *self.source_forms][0].mode, dtype=np.int64)
        return np.concatenate([mode, self.bos, text, self.end_token])

    @property
    def is_count_based(self) -> bool:
        """Whether it is a table of counts, without hidden states or gradients."""
        return self.recipe.model.is_count_based

    @property
    def description(self) -> str:
        """A short description of the model for messages."""
        if family := self.recipe.model.family:
            return family
        layout = kinds.name_of(self.recipe.layout).replace("_", "-")
        return f"{layout} model (objective {kinds.name_of(self.recipe.objective)})"

    def in_place_example(self, source: Tokens, target: Tokens, weights: Array) -> Example:
        """Return the example of a model that predicts in place: all weighted tokens at once.

        Args:
            source: the tokens it reads, some of them masked.
            target: the correct tokens, of the same shape.
            weights: 1 where a token is predicted, (batch, length) float32.
        """
        example = Example(source, target, weights, is_aligned=True)
        if self.recipe.objective.predicts.in_order:  # the context first, then all predicted tokens
            return example.with_part(PredictionOrder(np.where(weights > 0, 0, -1)))
        if self.continues:
            return example.with_part(CausalRows(np.zeros(len(weights), dtype=bool)))
        return example

    @property
    def detects_replacements(self) -> bool:
        """Whether it tells replaced tokens from genuine ones (ELECTRA)."""
        return self.recipe.objective.predicts.replacements

    def log_probs_original(self, batch: Batch) -> Array:
        """Return the log-probability that each token of a batch was not replaced.

        Returns:
            (batch, length) float64 nats.
        """
        states = self._forward(self.model.backbone, batch).states
        with torch.no_grad(), autocast(self.device, self.dtype):
            logits = self.model.heads["replaced"](states).squeeze(-1)
        genuine: Array = F.logsigmoid(-logits.float()).cpu().double().numpy()
        return genuine

    def unable(self, does: str, able: str) -> UserError:
        """Return the error of a model that is asked for what others do.

        Args:
            does: what it does instead, or lacks: "fills no blanks".
            able: the models that can.
        """
        return UserError(f"{self.name}: this {self.description} {does}; models that can: {able}")

    def require_token_head(self, able: str = PREDICTORS) -> None:
        """Check that the model predicts tokens.

        Args:
            able: the models that can do what a caller needs it for.

        Raises:
            UserError: it has no head that predicts tokens.
        """
        if not self.recipe.objective.predicts.tokens:
            raise self.unable("has no head that predicts tokens", able)

    def require_token_ranks(self) -> None:
        """Check that the model compares a token with all others.

        Raises:
            UserError: it tells replaced tokens, and says nothing of others.
        """
        if self.detects_replacements:
            raise self.unable("tells replaced tokens and predicts none", PREDICTORS)

    # -- the special tokens around texts -----------------------------------------------------------

    @property
    def limit(self) -> int | None:
        """The number of positions it has, or None if it is unlimited."""
        return self.recipe.model.limit

    @property
    def max_context(self) -> int:
        """The longest context it was trained on: a row and its memory.

        Unlimited in a count-based model, which reads whole texts.
        """
        if self.is_count_based:
            return 1 << 62
        return self.recipe.packing.length + self.recipe.model.memory

    @cached_property
    def bos(self) -> Array:
        """The packing's token before a document, (0 or 1,) int64."""
        return self._special(self.recipe.packing.bos)

    @cached_property
    def eos(self) -> Array:
        """The packing's token after a document, (0 or 1,) int64."""
        return self._special(self.recipe.packing.eos)

    @cached_property
    def prompt_prefix(self) -> Array:
        """The token before a text that a causal model continues or scores, (0 or 1,) int64.

        bos, if there is one; else the eos of the previous document, if training let a document see
        it (no document mask).
        """
        return self.bos if len(self.bos) or self.recipe.packing.document_mask else self.eos

    @cached_property
    def end_token(self) -> Array:
        """The token that ends sources and targets, (0 or 1,) int64."""
        return self._special(self.recipe.objective.end)

    def _special(self, name: str) -> Array:
        return np.array([self.vocab.id(name)] if name else [], dtype=np.int64)

    def with_bos_and_eos(self, ids: Array) -> Array:
        """Return `ids` as a whole document in a row of its own, between bos and eos.

        Raises:
            UserError: it is longer than the model can read.
        """
        whole = np.concatenate([self.bos, ids, self.eos])
        self.check_length(len(whole))
        return whole

    @property
    def prefix(self) -> Array:
        """The token before a text to encode, (0 or 1,) int64."""
        return self.prompt_prefix if self.continues else self.bos

    def with_special_tokens(self, ids: Array) -> Array:
        """Return `ids` as a text to encode, with prefix and end.

        Raises:
            UserError: it is longer than the model can read.
        """
        suffix = self.eos if self.fills_in_place else self.end_token
        whole = np.concatenate([self.prefix, ids, suffix])
        self.check_length(len(whole))
        return whole

    def check_length(self, length: int) -> None:
        """Check that the model has `length` positions.

        Raises:
            UserError: it has fewer.
        """
        if self.limit is not None and length > self.limit:
            raise TooLongError(
                f"the text has {length} tokens, and {self.name} has {self.limit} positions; "
                "give a shorter one"
            )

    def check_pair(self, source: int, target: int) -> None:
        """Check that the model has positions for a source and its target.

        Args:
            source: the number of tokens of the source, special ones included.
            target: the number of tokens of the target.

        Raises:
            UserError: it has fewer.
        """
        self.check_length(self.pair_length(source, target))

    def pair_length(self, source: int, target: int) -> int:
        """Return the positions that a source and its target take: both in one row, or the longer.

        Args:
            source: the number of tokens of the source, special ones included.
            target: the number of tokens of the target.
        """
        return self.recipe.layout.max_length(MaxLengths(source, target, source + target))

    # -- the forward pass --------------------------------------------------------------------------

    def run_backbone(self, batch: Batch, cache: Any = None) -> Hidden:
        """Return the states that the token head reads, computed without gradients in `dtype`.

        Args:
            batch: a batch of numpy arrays or tensors.
            cache: the key-value cache that an earlier call returned.
        """
        return self._forward(self.recipe.objective.token_backbone(self.model), batch, cache)

    def _forward(self, backbone: Backbone, batch: Batch, cache: Any = None) -> Hidden:
        with torch.no_grad(), autocast(self.device, self.dtype):
            hidden: Hidden = backbone(batch.to(self.device), cache)
        return hidden

    def encode(self, texts: Tokens) -> Array:
        """Return the last hidden states of texts, from the encoder if there is one.

        Args:
            texts: the texts, (batch, length), padded on the right.

        Returns:
            (batch, length, d_model) float32.

        Raises:
            UserError: a text is empty, or the model has no states.
        """
        if self.is_count_based:
            raise self.unable("has no hidden states", NEURAL)
        batch = self.encoding_batch(texts)
        if batch.source is not None:
            return self._encode_source(batch.source)
        # A decoder with a source arranges source and target in one row; the source comes first.
        states = self._forward(self.model.backbone, batch).states
        encoded: Array = states[:, : texts.ids.shape[1]].float().cpu().numpy()
        return encoded

    def encoding_batch(self, texts: Tokens) -> Batch:
        """Return a batch that encodes texts with nothing masked.

        Raises:
            UserError: a text is empty.
        """
        if not (texts.documents[:, :1] == 0).all():
            raise UserError("a text is empty; there is nothing to encode")
        if self.fills_in_place:  # with nothing masked, so no query stream
            example = self.in_place_example(
                texts, texts, np.zeros(texts.ids.shape, dtype=np.float32)
            )
        else:
            ones = np.ones(texts.ids.shape, dtype=np.float32)
            example = Example(None if self.continues else texts, texts, ones)
        return self.recipe.layout.arrange(example, self.vocab).without(Queries)

    def _encode_source(self, source: Batch) -> Array:
        backbone = self.model.backbone
        assert isinstance(backbone, SourceBackbone)
        with torch.no_grad(), autocast(self.device, self.dtype):
            states = backbone.encode(source.to(self.device))
        encoded: Array = states.float().cpu().numpy()
        return encoded

    def logits(self, states: Tensor) -> Tensor:
        """Return float32 logits over the vocabulary, (..., d_model) -> (..., vocab)."""
        with torch.no_grad(), autocast(self.device, self.dtype):
            logits: Tensor = self.model.token_head(states)
        return logits.float()


def is_checkpoint(folder: Path) -> bool:
    """Return whether a path names one of a run's checkpoints: `checkpoints/step-*`."""
    return folder.parent.name == "checkpoints"
