"""Sentence embeddings: vectors of texts whose cosine says how alike they are."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np
import pyarrow as pa
import torch
from sklearn.feature_extraction.text import HashingVectorizer
from torch import Tensor, nn
from torch.nn import functional as F

from foreword.errors import UserError
from foreword.evaluation.statistics import correlations
from foreword.settings.ranges import Positive
from foreword.tables.columns import PREDICTION, Columns
from foreword.tables.examples import Labelled, LabelledTexts, batched
from foreword.text.tokenizer import Tokenizer
from foreword.tuning.encoded import in_columns
from foreword.tuning.input_template import InputTemplate
from foreword.tuning.tasks._contract import (
    Answers,
    EncodedExample,
    ExampleOutputs,
    Exports,
    Inputs,
    Judge,
    Labels,
    Needs,
    RowReader,
    Targets,
    Task,
    shortest,
    texts_of,
)
from foreword.tuning.tasks._headed import pooled_inputs
from foreword.tuning.windows import Windows
from foreword.types import Array, Loss

WORDS = 1024  # counts of a bag of words, the baseline
AT_ONCE = 256  # texts whose neighbours are searched together


def _pairs(train: Sequence[Labelled], has_dropout: bool) -> Sequence[Labelled]:
    """Return pairs; a single text is paired with itself."""
    forms = {(example.pair is not None, bool(example.label)) for example in train}
    if len(forms) > 1:
        raise UserError(
            "the training examples are of several forms; expected pairs alone, pairs with "
            "scores alone, or texts alone"
        )
    if forms == {(True, True)} and len({example.label for example in train}) == 1:
        raise UserError(
            f'all scores are {train[0].label}; pairs that are simply alike need none (--label "")'
        )
    if forms != {(False, False)}:
        return train
    if not has_dropout:
        raise UserError(
            "training on texts without pairs requires dropout, which tells two readings of a "
            "text apart, and this model has none; add --set tune.dropout=0.1"
        )
    return LabelledTexts.of(example._replace(pair=example.text) for example in train)


class VectorJudge(Judge):
    """The correlations with the scores, or how well second texts are found."""

    scores_untuned: ClassVar[bool] = True
    names: ClassVar[tuple[str, ...]] = (
        "spearman", "pearson", "accuracy_at_1", "reciprocal_rank",
    )  # fmt: skip

    def scores(self, outputs: Array, targets: PairTargets) -> dict[str, float]:
        vectors = _normalised(outputs)
        first, second = vectors[0::2], vectors[1::2]
        scores = targets.arrays[0::2, 0]
        if np.isnan(scores).any():
            return _retrieval(first, second, targets.arrays[1::2, 1])
        pearson, spearman = correlations((first * second).sum(-1), scores)
        return {"spearman": spearman, "pearson": pearson}

    def baselines(
        self, train: PairTargets, dev: PairTargets, labels: Labels
    ) -> Mapping[str, Array]:
        """Return the counts of each text's words as its vector."""
        texts = [text for example in dev.examples for text in (example.text, example.pair or "")]
        counts = HashingVectorizer(
            n_features=WORDS, alternate_sign=False, norm=None, dtype=np.float32
        )
        return {"bag of words": counts.transform(texts).toarray()}


class VectorAnswers(Answers):
    """The cosine of each pair, or the vector of each text."""

    purpose: ClassVar[str] = "embed texts, not to label them"

    def types(self, labels: Labels, *, probabilities: bool, is_pair: bool) -> dict[str, Any]:
        if probabilities:
            raise UserError(f"--probabilities: this model was tuned to {self.purpose}")
        return {PREDICTION: pa.float32() if is_pair else pa.list_(pa.float32())}

    def row(self, result: ExampleOutputs, labels: Labels, *, probabilities: bool) -> dict[str, Any]:
        if len(result.outputs) == 1:
            return {PREDICTION: list(map(shortest, result.outputs[0]))}
        first, second = _normalised(result.outputs)
        return {PREDICTION: shortest(np.clip(first @ second, -1, 1))}  # rounded, it may exceed 1


@dataclass(frozen=True)
class Embed(Task):
    """Sentence embeddings: the mean of a text's states, trained so that like texts are near.

    The form of the training rows chooses the loss:

    text, pair           the other second texts of the batch are negatives (in-batch negatives)
    text                 the same, a text and itself, told apart by dropout (SimCSE); a model
                         without dropout requires `tune.dropout`
    text, pair, label    the labels are scores: pairs of a higher one get a higher cosine (CoSENT)

    More examples per batch (`--batch 64`) give more negatives; equal texts are none.

    Dev rows are pairs. With scores they are measured by Spearman's and Pearson's correlation of
    scores and cosines; else by how often the nearest of all second texts is the right one
    (accuracy at 1), and by its mean reciprocal rank. The model before tuning and a bag of words
    stand beside.

    `foreword predict` gives a vector for each text, or the cosine of each pair.

    Attributes:
        pooling: the state that stands for a text: the `mean` of all, special tokens too, the
            `first` or the `last`.
        temperature: divides cosines in the loss.
        windows: how a text that is longer than the model's input is read, as in `classify`: whole,
            in windows whose pooled states are reduced to their `mean`, their maximum (`max`) or a
            mean with learned weights (`attention`); or `cut`.

    Also called: sentence transformers, SBERT, contrastive learning.
    Reference: Gao et al. 2021, SimCSE, sections 3 and 4; Henderson et al. 2017, section 4, for
    in-batch negatives; Su 2022 for CoSENT.
    Differs from the paper: SimCSE trains with a layer with tanh on the pooled state.
    """

    reader: ClassVar[RowReader] = RowReader(
        columns=(
            Columns("text", "label", "pair"),
            Columns("sentence1", "score", "sentence2"),
            Columns("text", "", "pair"),
            Columns("sentence1", "", "sentence2"),
            Columns("anchor", "", "positive"),
            Columns("text", "", ""),
        ),
        compares_texts=True,
        to_train=_pairs,
        counted=lambda example, _: [Labelled(text) for text in texts_of(example)],
    )
    exports: ClassVar[Exports] = Exports(
        "TextEncoding",
        outputs=lambda result, row, encoded, before: (
            result.last_hidden_state[row]
            .numpy()[before + encoded.pooled_positions]
            .mean(axis=0, keepdims=True)
        ),
        outputs_named=("sentence_embedding",),
        pipeline_tag="sentence-similarity",
    )
    BEFORE: ClassVar[Mapping[str, Any]] = {"windows": "cut"}
    judge: ClassVar[Judge] = VectorJudge()
    answers: ClassVar[Answers] = VectorAnswers()

    pooling: Literal["first", "mean", "last"] = "mean"
    temperature: Positive = 0.05
    windows: Windows = "mean"

    @property
    def needs(self) -> Needs:
        return Needs(reads_tokens=True, loss_unit="batch", windows=self.windows, outputs="vectors")

    @in_columns
    def encode(
        self, examples: Sequence[Labelled], tokenizer: Tokenizer, template: InputTemplate
    ) -> Iterator[EncodedExample]:
        """Yield the windows of each text, so one input or more for each text of a pair."""
        for chunk in batched(examples):
            texts = [texts_of(example) for example in chunk]
            ids = iter(tokenizer.encode_batch([text for group in texts for text in group]))
            for group in texts:
                for number in range(len(group)):
                    windows = template.windows(next(ids), None, is_cut=self.windows == "cut")
                    is_further = number > 0
                    yield from pooled_inputs(windows, template, self.pooling, is_further=is_further)

    def targets(
        self, examples: Sequence[Labelled], labels: Labels, encoded: Inputs = ()
    ) -> PairTargets:
        """Return the score of each pair, and which texts are equal."""
        for example in examples:
            if example.pair is None:
                raise UserError(f"{example.source}: has no second text, and dev examples are pairs")
        if len({bool(example.label) for example in examples}) > 1:
            bare = next(example for example in examples if not example.label)
            raise UserError(f"{bare.source}: has no score, but other pairs have one")
        numbers: dict[str, int] = {}
        texts = [text for example in examples for text in (example.text, example.pair or "")]
        ids = [numbers.setdefault(text, len(numbers)) for text in texts]
        scores = np.repeat([_score(example) for example in examples], 2)
        return PairTargets(np.stack([scores, np.asarray(ids, np.float64)], axis=1), examples)

    def head(self, d_model: int, labels: Labels) -> nn.Module:
        """Return the identity: the pooled state is the vector."""
        return nn.Identity()

    def loss(self, outputs: Tensor, targets: Tensor, numbers: Tensor) -> Loss:
        """Return the contrastive loss of a batch of pairs, or the ranking loss of their scores.

        Args:
            outputs: the vectors of first and second texts in turn, (2 pairs, d_model).
            targets: their score, nan for none, and the number of their text, (2 pairs, 2).
            numbers: the pair of each vector.
        """
        vectors = F.normalize(outputs, dim=-1)
        first, second = vectors[0::2], vectors[1::2]
        scores, texts = targets[0::2, 0], targets[:, 1]
        count = len(first)
        if not scores.isnan().any():
            # Each pair of pairs in the wrong order costs: log(1 + sum of exp(cos_j - cos_i)).
            cosines = (first * second).sum(-1) / self.temperature
            is_above = scores[:, None] > scores[None, :]
            excess = (cosines[None, :] - cosines[:, None])[is_above]
            mean = torch.logsumexp(torch.cat([excess.new_zeros(1), excess]), dim=0)
            return Loss(mean * count, mean.new_tensor(float(count)))
        logits = first @ second.T / self.temperature
        anchors, candidates = texts[0::2], texts[1::2]
        is_equal = (candidates[None, :] == anchors[:, None]) | (
            candidates[None, :] == candidates[:, None]
        )
        is_equal.fill_diagonal_(False)
        logits = logits.masked_fill(is_equal, -torch.inf)
        right = torch.arange(count, device=logits.device)
        total = F.cross_entropy(logits, right, reduction="sum")
        return Loss(total, total.new_tensor(float(count)))


@dataclass(frozen=True)
class PairTargets(Targets):
    """The scores of pairs, and which of their texts are equal.

    Attributes:
        arrays: for each first and second text in turn the pair's score, nan for none, and the
            number of the text, (2 pairs, 2) float64.
    """

    examples: Sequence[Labelled]

    def __getitem__(self, which: Any) -> Any:
        return self.arrays[which][None]


def _score(example: Labelled) -> float:
    """Return the score of a pair, nan for none."""
    try:
        score = float(example.label or "nan")
    except ValueError:
        score = np.inf
    if np.isinf(score) or (example.label and np.isnan(score)):
        raise UserError(
            f"{example.source}: the score '{example.label}' is not a number; pairs without scores "
            "have no such column"
        )
    return score


def _normalised(vectors: Array) -> Array:
    """Return the vectors scaled to length 1; a zero vector stays zero."""
    lengths = np.linalg.norm(vectors, axis=-1, keepdims=True)
    normalised: Array = vectors / np.maximum(lengths, 1e-12)
    return normalised


def _retrieval(first: Array, second: Array, numbers: Array) -> dict[str, float]:
    """Return how often the nearest second text is the right one, and its mean reciprocal rank."""
    _, unique_rows, which = np.unique(numbers, return_index=True, return_inverse=True)
    texts = second[unique_rows]
    hits, reciprocals = [], []
    for begin in range(0, len(first), AT_ONCE):
        rows = slice(begin, begin + AT_ONCE)
        cosines = first[rows] @ texts.T
        right = np.take_along_axis(cosines, which[rows, None], axis=1)
        above, ties = (cosines > right).sum(1), (cosines == right).sum(1)
        hits.append((above == 0) / ties)
        reciprocals.append(1 / (above + (ties + 1) / 2))
    return {
        "accuracy_at_1": float(np.concatenate(hits).mean()),
        "reciprocal_rank": float(np.concatenate(reciprocals).mean()),
    }
