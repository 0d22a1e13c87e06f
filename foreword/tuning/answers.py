"""Examples whose answer is a text, arranged by the layout of pretraining: as source and target, or
in a decoder one after the other."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from foreword.data.rows import positions_within
from foreword.errors import UserError
from foreword.evaluation.decoding import decode, stops_of, text_of
from foreword.evaluation.sampling import GREEDY
from foreword.evaluation.starts import Start
from foreword.layouts.decoder import join
from foreword.nn.evaluation_mode import evaluation_mode
from foreword.nn.model import Model
from foreword.runs.trained_model import TrainedModel
from foreword.tuning.encoded import EncodedTexts
from foreword.tuning.input_template import InputTemplate
from foreword.tuning.network import Network
from foreword.tuning.rows import WIDTH, PackedExamples, PooledBatch
from foreword.tuning.tasks._contract import EncodedExample, LossUnit
from foreword.tuning.tasks._writing import AnswerForm
from foreword.types import Array, Example, Tokens

AT_ONCE = 1024  # positions whose logits are held together
WRITTEN_AT_ONCE = 256  # answers between two reports of progress
CUDA_WIDTH = 64  # on CUDA widths are multiples of this, since kernels are compiled per shape


class AnswerNetwork(Network):
    """A backbone with the output layer of pretraining, which writes the answer token by token.

    Its outputs are the likeliest tokens, one for each position of an answer, and the nats of the
    right ones: the logits of every dev example would not fit in memory.
    """

    def outputs(self, features: Tensor, windows: Tensor | None = None) -> Tensor:
        """Return the likeliest token at each position, (positions, 1) float32."""
        with torch.autocast(features.device.type, enabled=False):
            logits: Tensor = self.head(features[0])
        return logits.argmax(-1, keepdim=True).float()

    def scored_outputs(
        self, features: Tensor, targets: Tensor, windows: Tensor | None = None
    ) -> Tensor:
        """Return the likeliest token at each position and the target's nats, (positions, 2).

        Args:
            features: (1, positions, width).
            targets: the tokens, (positions,); or more of each position, of which the first number
                is the token, (positions, columns).
        """
        targets = targets if targets.ndim == 1 else targets[:, 0].long()
        parts = []
        with torch.autocast(features.device.type, enabled=False):
            for begin in range(0, len(targets), AT_ONCE):
                states, right = (x[begin : begin + AT_ONCE] for x in (features[0], targets))
                logits: Tensor = self.head(states)
                nats = F.cross_entropy(logits, right, reduction="none")
                parts.append(torch.stack([logits.argmax(-1).float(), nats], dim=1))
        return torch.cat(parts)

    def training_outputs(
        self, features: Tensor, targets: Tensor, windows: Tensor | None = None
    ) -> Tensor:
        """Return the cross-entropy of all targets, () in nats, without holding all logits.

        Of targets with more than a token it is that of each, as `scored_outputs` returns it.
        """
        if targets.ndim > 1:
            return self.scored_outputs(features, targets)
        with torch.autocast(features.device.type, enabled=False):
            weights = torch.ones(len(targets), device=features.device)
            nats: Tensor = self.head(features[0], targets, weights)
        return nats

    def initialise_head(self, seed: int) -> None:
        """Keep the weights of pretraining."""

    def as_model(self) -> Model:
        """Return the network as a pretrained model."""
        return Model(self.backbone, nn.ModuleDict({"token": self.head}))


@dataclass(frozen=True)
class AnswerExamples(PackedExamples):
    """Encoded examples, each a source and the target that answers it.

    Attributes:
        encoded: the sources with the special tokens of pretraining, and the answers with their end
            tokens.
        targets: what the answers are held against, a sequence of (tokens,) int64 or, with more of
            each token than itself, of (tokens, columns); for a task that `writes`,
            `WrittenTargets`.
        template: the input template, to whose length `AnswerForm` cuts.
    """

    encoded: Sequence[EncodedExample]
    targets: Any
    template: InputTemplate
    prompted: TrainedModel
    auxiliary: float = 0.0
    loss_unit: LossUnit = "input"

    @classmethod
    def of(
        cls,
        prompted: TrainedModel,
        encoded: Sequence[EncodedExample],
        template: InputTemplate,
        loss_unit: LossUnit = "input",
    ) -> AnswerExamples:
        """Put sources and answers into the form in which the model reads and writes them.

        Raises:
            UserError: the model writes no text, or an answer is too long.
        """
        form = AnswerForm.of(prompted, template)

        def with_ends(example: EncodedExample) -> EncodedExample:
            answer = np.concatenate([example.written, form.end]).astype(np.int64)
            room = form.source_room(len(answer))
            if room < 1:
                raise UserError(
                    f"an answer of {len(answer)} tokens leaves no room for its source in the "
                    f"{prompted.limit} positions of {prompted.name}; use shorter labels"
                )
            ids = form.source(example.ids[:room])
            left = answer[: form.answer_room(len(ids))]
            was_cut = example.was_cut or len(example.ids) > room or len(left) < len(answer)
            return replace(example, ids=ids, answer=left, was_cut=was_cut)

        pairs = EncodedTexts.of(map(with_ends, encoded))
        assert pairs.answer is not None
        return cls(
            pairs, pairs.answer, replace(template, fresh=form.fresh), prompted, loss_unit=loss_unit
        )

    def _length(self, number: int) -> int:
        """Return the number of tokens of a source and its answer."""
        example = self.encoded[number]
        return len(example.ids) + len(example.written)

    def batches(
        self, numbers: Array, device: str, epoch: int | None = None
    ) -> Iterator[PooledBatch]:
        """Yield the examples `numbers`, packed into rows, at most TOKENS_AT_ONCE tokens a batch."""
        multiple = CUDA_WIDTH if device == "cuda" else 1
        for (rows,) in self._rows(numbers, min(WIDTH, self.template.length), device, epoch):
            yield self._pack(rows, multiple)

    def _pack(self, rows: list[list[int]], multiple: int) -> PooledBatch:
        source = _tokens([[self.encoded[n].ids for n in row] for row in rows], multiple)
        target = _tokens([[self.encoded[n].written for n in row] for row in rows], multiple)
        weights = (target.documents >= 0).astype(np.float32)
        layout, vocab = self.prompted.recipe.layout, self.prompted.vocab
        example = Example(source, target, weights)
        if not self.prompted.answers:
            joined, weights, _ = join(example)
            example = Example(None, joined, weights)
        batch = layout.arrange(example, vocab)
        # The layout keeps the order of documents, and that of the target's tokens; the outputs
        # are in the order of the inputs.
        batch_rows, columns = np.nonzero(np.asarray(batch.weights))
        inputs = np.asarray([n for row in rows for n in row])
        of_tokens = np.repeat(inputs, [len(self.targets[n]) for n in inputs])
        order = np.argsort(of_tokens, kind="stable")
        return PooledBatch(
            batch,
            batch_rows[order],
            columns[order],
            self._examples_of(of_tokens[order]),
            np.concatenate([self.targets[n] for n in np.sort(inputs)]),
        )

    def write(
        self, network: Network, most: int, done: Callable[[Array], None] | None = None
    ) -> Array:
        """Return the likeliest answer to each example, a text each, (examples,) of objects.

        Args:
            network: a model of these examples, on its device.
            most: the most tokens of an answer.
            done: called with the numbers of examples as they are answered.
        """
        model = network.as_model()
        assert model is not None
        device = next(network.parameters()).device
        prompted = replace(self.prompted, model=model, device=device, dtype=torch.float32)
        form = AnswerForm(prompted, self.template)
        starts = [form.start(form.cut(example.ids, most)) for example in self.encoded]
        with evaluation_mode(network):
            texts = written_answers(prompted, starts, most, done or (lambda numbers: None))
        return np.asarray(texts, dtype=object)


def written_answers(
    prompted: TrainedModel, starts: Sequence[Start], most: int, done: Callable[[Array], None]
) -> list[str]:
    """Return the likeliest text after each start, of at most `most` tokens.

    Texts of similar length are written together, so the order of many does not matter.

    Args:
        done: called with the numbers of starts as they are answered.
    """
    sizes = [len(start.target if start.source is None else start.source) for start in starts]
    order = np.argsort(sizes, kind="stable")
    texts = [""] * len(starts)
    greedy, stops = replace(GREEDY, tokens=most), stops_of(prompted)
    for begin in range(0, len(order), WRITTEN_AT_ONCE):
        chunk = order[begin : begin + WRITTEN_AT_ONCE]
        outputs = decode(prompted, [starts[n] for n in chunk], greedy, stops)
        for n, new in zip(chunk, outputs, strict=True):
            texts[n] = text_of(prompted, starts[n], new.ids).strip()
        done(chunk)
    return texts


def _tokens(rows: list[list[Array]], multiple: int) -> Tokens:
    """Return rows of several texts each, end to end, right-padded to a multiple of `multiple`."""
    width = max(sum(map(len, row)) for row in rows)
    shape = (len(rows), -(-width // multiple) * multiple)
    ids, documents = np.zeros(shape, np.int64), np.full(shape, -1, np.int64)
    for r, row in enumerate(rows):
        joined: Any = np.concatenate(row)
        ids[r, : len(joined)] = joined
        documents[r, : len(joined)] = np.repeat(np.arange(len(row)), [len(text) for text in row])
    return Tokens(ids, documents, positions_within(documents))
