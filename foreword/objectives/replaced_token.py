"""Replaced-token detection: classify each token as original or replaced (ELECTRA)."""

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
from foreword.nn.model import Backbone, Model, neural
from foreword.nn.precision import upcast
from foreword.objectives._contract import Objective, Prediction, first_term
from foreword.objectives._generator import build_generator
from foreword.objectives._masking import (
    in_place,
    random_by_class,
    random_by_count,
    random_ordinary,
)
from foreword.objectives._parts_of_speech import parts_of_speech
from foreword.objectives.masked import Masked
from foreword.settings.ranges import NonNegative, Positive, PositiveShare, Share
from foreword.types import (
    Array,
    Batch,
    Example,
    Hidden,
    Loss,
    Rows,
    TermCounts,
    UniformDraws,
    Vocab,
)

BELOW_ONE = np.float32(1 - 2**-24)


@dataclass(frozen=True)
class ReplacedToken(Objective):
    """A small generator fills in masked tokens; the model detects which tokens were replaced.

        ids      [ 7  8  9  4  2]          [MASK] is 3
        inputs   [ 7  3  9  4  2]
        targets  [ .  8  .  .  .]          . is not scored

    With layout `encoder`. These are the generator's inputs and targets, as with `masked`. The
    tokens that it samples at the chosen positions replace the originals in the discriminator's
    input, say [7 6 9 4 2], and the model (the discriminator) classifies every token but padding as
    replaced or not: no, yes, no, no, no. A sampled token that equals the original is not a
    replacement. The generator learns from its own loss alone, the shared embeddings from both.

    The loss is the mean over the chosen tokens plus `weight` times the mean over all tokens, each
    over the whole step (`TermCounts`). With `correction` the discriminator also predicts the
    original tokens at the chosen positions. Fine-tuning starts from the discriminator; filling in
    [MASK] uses the generator.

    Besides the losses, `auc` is the share of pairs of a replaced and an original token of one row
    in which the replaced one has the higher score: 0.5 by chance, whatever the share of replaced
    tokens. The better the generator, the harder it is to reach.

    Attributes:
        rate: share of each row's ordinary tokens that is chosen.
        mask: share of these that becomes [MASK]; the rest stays unchanged.
        generator: width, feed-forward width and heads of the generator, as a share of the model's.
        weight: weight of the discriminator's loss.
        correction: weight of the discriminator's prediction of the original tokens (COCO-LM); 0 for
            none. It learns to read context sooner, since a token tells it more than a yes or no.
        replacements: the source of the replacements: samples of the `generator`; or, without any
            generator, of the `unigram` distribution of the text's ordinary tokens, of the `uniform`
            one, or of the unigram distribution of the tokens of the same `part_of_speech`.
        tags: with `part_of_speech`, a file in CoNLL-U such as a treebank of Universal Dependencies,
            perhaps compressed: a token that begins a word has the word's most frequent tag there
            (UPOS). Tokens that it lacks replace each other, those that begin words and those within
            them apart. It is read again wherever rows are made, and must not change.

    Also called: RTD, replaced token detection.
    Reference: Clark et al. 2020, sections 2 and 3.2; `mask` as in their code. `correction`: their
    "Replace MLM", section 3.4; with detection, Meng et al. 2021, "COCO-LM".
    Differs from the paper: the ablations without a generator are not in it. COCO-LM corrects
    all tokens, not the chosen ones alone.
    """

    rate: PositiveShare = 0.15
    mask: Share = 0.85
    generator: PositiveShare = 0.25
    weight: Positive = 50.0
    correction: NonNegative = 0.0
    replacements: Literal["generator", "unigram", "uniform", "part_of_speech"] = "generator"
    tags: str = ""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.correction and self.replacements != "generator":
            raise ValueError(
                f"correction: requires replacements='generator', got '{self.replacements}'"
            )
        if bool(self.tags) != (self.replacements == "part_of_speech"):
            raise ValueError("tags: a file is required for replacements='part_of_speech' alone")

    @property
    def needs_counts(self) -> bool:
        """Whether replacements are sampled by their frequency in the text."""
        return self.replacements in ("unigram", "part_of_speech")

    @property
    def predicts(self) -> Prediction:
        """Masked tokens if there is a generator, and for every token whether it was replaced."""
        has_generator = self.replacements == "generator"
        component = "generator" if has_generator else ""
        return Prediction("in_place", has_generator, replacements=True, component=component)

    def token_backbone(self, model: Model) -> Backbone:
        """Return the generator, which predicts masked tokens; without one the backbone."""
        return neural(model.heads["generator"]) if self.predicts.tokens else model.backbone

    def corrupt(self, rows: Rows, rng: RowRng, vocab: Vocab) -> Example:
        """Return the generator's input, or without a generator the row with its replacements.

        The generator samples by `UniformDraws`, which are -1 on padding.
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
        elif self.replacements == "part_of_speech":
            classes = parts_of_speech(self.tags, vocab)
            inputs = np.where(chosen, random_by_class(rng, rows.ids, classes, vocab), rows.ids)
        return in_place(rows, inputs, chosen, uniform_draws)

    def count_terms(self, batch: Batch) -> Array:
        """Return the numbers of the generator's and the discriminator's predictions; (2,)."""
        is_text = batch.require(UniformDraws).draws >= 0
        return np.array([batch.weights.sum(), is_text.sum()], dtype=np.float32)

    def heads(self, backbone: Backbone, vocab: Vocab) -> nn.ModuleDict:
        """Return the discriminator's heads, the `generator` and its head `token`.

        The discriminator has the head `replaced`, and `correction` if it corrects.
        """
        backbone = neural(backbone)
        d_model = backbone.settings.d_model
        discriminator_head = nn.Sequential(
            nn.Linear(d_model, d_model), nn.GELU(), nn.Linear(d_model, 1)
        )
        if self.replacements != "generator":
            return nn.ModuleDict({"replaced": discriminator_head})
        generator = build_generator(backbone, self.generator, vocab.size)
        token = generator.build_softmax_head(transform=True, bias=True)
        heads = {"generator": generator, "token": token, "replaced": discriminator_head}
        if self.correction:
            heads["correction"] = backbone.build_softmax_head(transform=True, bias=True)
        return nn.ModuleDict(heads)

    def chance_loss(self, vocab: int) -> float:
        """Return the loss of uniform predictions, in nats, of generator and discriminator."""
        detection = math.log(2)
        if self.replacements != "generator":
            return detection
        return (1 + self.correction) * math.log(vocab) + self.weight * detection

    def loss(self, model: Model, batch: Batch) -> Loss:
        """Return the weighted sum of the generator's and the discriminator's losses, in nats."""
        # The original row: the chosen positions hold their targets.
        is_chosen = batch.weights > 0
        original = torch.where(is_chosen, batch.targets, batch.ids)
        if self.replacements != "generator":
            return _detect(model, batch, model.backbone(batch), original)
        # The generator's loss, and its samples in place of the chosen tokens.
        hidden = self.token_backbone(model)(batch)
        generated = model.token_head.loss(hidden, batch)
        replacements = original.masked_scatter(is_chosen, model.token_head.sample(hidden, batch))
        shown = replace(batch, ids=replacements)
        read = model.backbone(shown)
        detected = _detect(model, shown, read, original)
        # Each mean is over the whole step, so the second sum is rescaled to the first's count,
        # unless the generator predicts nothing in this step.
        whole_step, local = batch.part(TermCounts), torch.stack([generated.count, detected.count])
        counts = local if whole_step is None else whole_step.counts
        first = first_term(counts)
        share = self.weight * counts.take(first) / counts[1].clamp(min=1)
        components = {"generator": (generated.total, generated.count), **detected.components}
        total = generated.total + share * detected.total
        if self.correction:
            head = cast(TokenHead, model.heads["correction"])
            corrected = head.loss(read, shown)
            total = total + self.correction * corrected.total
            components["correction"] = (corrected.total, corrected.count)
        return Loss(total, local.take(first), components, detected.memory)


def _detect(model: Model, batch: Batch, hidden: Hidden, original: Tensor) -> Loss:
    """Return the discriminator's loss on rows with replacements, over all tokens but padding."""
    is_text, is_replaced = batch.require(UniformDraws).draws >= 0, batch.ids != original
    logits = upcast(model.heads["replaced"](hidden.states).squeeze(-1))  # (batch, length)
    nats = F.binary_cross_entropy_with_logits(
        logits, is_replaced.to(logits.dtype), reduction="none"
    )
    total, count = (nats * is_text).sum(), is_text.sum()
    predicted = logits > 0
    components = {
        "discriminator": (total, count),
        "accuracy": (((predicted == is_replaced) & is_text).sum(), count),
        "recall": ((predicted & is_replaced).sum(), is_replaced.sum()),
        "auc": ordered_pairs(logits.detach(), is_replaced, is_text & ~is_replaced),
    }
    return Loss(total, count, components, hidden.memory)


def ordered_pairs(scores: Tensor, is_high: Tensor, is_low: Tensor) -> tuple[Tensor, Tensor]:
    """Return the pairs of a high and a low position of one row in order, and all; ties count half.

    Their ratio is the area under the ROC curve (AUC) of a row, and for several rows the mean of
    theirs, weighted by pairs, so that it does not depend on how rows are batched.

    Args:
        scores: (batch, length) float.
        is_high: positions whose scores should be higher, (batch, length) bool.
        is_low: positions whose scores should be lower, (batch, length) bool.
    """
    low = scores.masked_fill(~is_low, torch.inf).sort(1).values
    below = torch.searchsorted(low, scores) + torch.searchsorted(low, scores, right=True)
    pairs = is_high.sum(1) * is_low.sum(1)
    return (below * is_high).sum() / 2, pairs.sum()
