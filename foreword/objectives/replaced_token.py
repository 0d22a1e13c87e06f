"""Say of each token whether it is the text's own or a generator's: ELECTRA."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Literal, cast

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from foreword.data.rng import RowRng
from foreword.nn.heads import TokenHead
from foreword.nn.model import Backbone, Model
from foreword.nn.precision import upcast
from foreword.objectives._contract import Objective, Prediction
from foreword.objectives._generator import build_generator
from foreword.objectives._masking import in_place, random_by_count, random_ordinary
from foreword.objectives.masked import Masked
from foreword.ranges import Positive, PositiveShare, Share
from foreword.types import Array, Batch, Example, Loss, Rows, Vocab

BELOW_ONE = np.float32(1 - 2**-24)


@dataclass(frozen=True)
class ReplacedToken(Objective):
    """A small generator fills the blanks of a cloze; the model says which tokens are replaced.

        ids      [ 7  8  9  4  2]          [MASK] is 3
        inputs   [ 7  3  9  4  2]
        targets  [ .  8  .  .  .]          . is not scored

    With layout `encoder`. This is what the generator reads and predicts, as with `masked`. What it
    draws for each chosen token stands in the row that the model (the discriminator) reads, say
    [7 6 9 4 2], and the model says of every token but padding whether it is a replacement: no, yes,
    no, no, no. Where the generator draws the text's own token, nothing is replaced. The generator
    learns from its own loss alone, and the embeddings, which both have, from both.

    The loss is the mean over the chosen tokens plus `weight` times the mean over all tokens, each
    over the whole step (`Batch.counts`). Fine-tuning goes on from the discriminator; what fills
    blanks is the generator.

    Attributes:
        rate: share of each row's ordinary tokens that is chosen.
        mask: share of these that becomes [MASK]; the rest stays as it is.
        generator: width, feed-forward width and heads of the generator, as a share of the model's.
        weight: of the discriminator's loss.
        replacements: what is put in place of the chosen tokens: draws from the `generator`; or
            without any generator, `unigram` (ordinary tokens as frequent as in the text) or
            `uniform` (any ordinary token).

    Reference: Clark et al. 2020, sections 2 and 3.2; `mask` as in their code.
    Differs from the paper: nothing that is known. The ablations `unigram` and `uniform` are not
    in it.
    """

    rate: PositiveShare = 0.15
    mask: Share = 0.85
    generator: PositiveShare = 0.25
    weight: Positive = 50.0
    replacements: Literal["generator", "unigram", "uniform"] = "generator"

    @property
    def wants_counts(self) -> bool:
        """Whether it draws tokens by their frequency in the text."""
        return self.replacements == "unigram"

    @property
    def predicts(self) -> Prediction:
        """Masked tokens, and of every token whether it was replaced."""
        return "in_place"

    @property
    def predicts_tokens(self) -> bool:
        """Whether there is a generator."""
        return self.replacements == "generator"

    def reader(self, model: Model) -> Backbone:
        """Return the generator, which fills blanks; without one the model itself."""
        return cast(Backbone, model.heads["generator"]) if self.predicts_tokens else model.backbone

    def corrupt(self, rows: Rows, rng: RowRng, vocab: Vocab) -> Example:
        """What the generator reads, or without one the row with its fakes.

        `uniform_draws` is what the generator's draws are made by, and -1 on padding.
        """
        length = rows.ids.shape[1]
        cloze = Masked(rate=self.rate, mask=self.mask, random=0.0).corrupt(rows, rng, vocab)
        uniform_draws = np.minimum(rng.uniform(length).astype(np.float32), BELOW_ONE)
        uniform_draws = np.where(rows.documents >= 0, uniform_draws, np.float32(-1))
        chosen = cloze.weights > 0
        assert cloze.source is not None
        inputs = cloze.source.ids
        if self.replacements == "uniform":
            inputs = np.where(chosen, random_ordinary(rng, length, vocab), rows.ids)
        elif self.replacements == "unigram":
            inputs = np.where(chosen, random_by_count(rng, length, vocab), rows.ids)
        return in_place(rows, inputs, chosen, uniform_draws)

    def count_terms(self, batch: Batch) -> Array:
        """Tokens that the generator predicts, and that the discriminator judges; (2,) float32."""
        return np.array([batch.weights.sum(), (batch.uniform_draws >= 0).sum()], dtype=np.float32)

    def heads(self, backbone: Backbone, vocab: Vocab) -> nn.ModuleDict:
        """The discriminator's head `replaced`; the `generator` and its output layer `token`."""
        d_model = backbone.settings.d_model
        discriminator_head = nn.Sequential(
            nn.Linear(d_model, d_model), nn.GELU(), nn.Linear(d_model, 1)
        )
        if self.replacements != "generator":
            return nn.ModuleDict({"replaced": discriminator_head})
        generator = build_generator(backbone, self.generator, vocab.size)
        token = TokenHead(generator.settings, generator.embedding, transform=True, bias=True)
        return nn.ModuleDict(
            {"generator": generator, "token": token, "replaced": discriminator_head}
        )

    def chance_loss(self, vocab: int) -> float:
        """The loss of one who guesses, in nats: a token, and of each whether it is replaced."""
        judging = math.log(2)
        return (
            judging if self.replacements != "generator" else math.log(vocab) + self.weight * judging
        )

    def loss(self, model: Model, batch: Batch) -> Loss:
        """The generator's nats, and the discriminator's weighed against them; see the class."""
        is_chosen = batch.weights > 0
        original = torch.where(is_chosen, batch.targets, batch.ids)
        if self.replacements != "generator":
            return _discriminate(model, batch, original)
        hidden = self.reader(model)(batch)
        generated = model.token_head.loss(hidden, batch)
        replacements = original.masked_scatter(is_chosen, model.token_head.sample(hidden, batch))
        judged = _discriminate(model, replace(batch, ids=replacements), original)
        counts = batch.counts
        if counts is None:  # the batch is the whole step
            counts = torch.stack([generated.weight, judged.weight])
        share = self.weight * counts[0] / counts[1].clamp(min=1)
        components = {"generator": (generated.total, generated.weight), **judged.components}
        total = generated.total + share * judged.total
        return Loss(total, generated.weight, components, judged.memory)


def _discriminate(model: Model, batch: Batch, original: Tensor) -> Loss:
    """What the discriminator makes of a row with fakes: nats over all tokens but padding."""
    hidden = model.backbone(batch)
    is_text, is_replaced = batch.uniform_draws >= 0, batch.ids != original
    logits = upcast(model.heads["replaced"](hidden.states).squeeze(-1))  # (batch, length)
    nats = F.binary_cross_entropy_with_logits(
        logits, is_replaced.to(logits.dtype), reduction="none"
    )
    total, count = (nats * is_text).sum(), is_text.sum()
    said = logits > 0
    components = {
        "discriminator": (total, count),
        "accuracy": (((said == is_replaced) & is_text).sum(), count),
        "recall": ((said & is_replaced).sum(), is_replaced.sum()),
    }
    return Loss(total, count, components, hidden.memory)
