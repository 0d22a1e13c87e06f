"""Examples whose answer is a text, arranged by the layout of pretraining: as source and target, or
in a decoder one after the other; in masked diffusion so too, the answer masked in part."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from foreword.data.rng import RowRng
from foreword.errors import UserError
from foreword.evaluation.decoding import decode, stops_of, text_of
from foreword.evaluation.sampling import GREEDY
from foreword.evaluation.starts import GeneratedTokens, Start
from foreword.layouts.decoder import join
from foreword.nn.evaluation_mode import evaluation_mode
from foreword.nn.heads import TokenHead
from foreword.nn.model import Model, NeuralBackbone
from foreword.objectives._masking import choose, mask_share
from foreword.runs.trained_model import TrainedModel
from foreword.text.special import EOS
from foreword.tuning.encoded import EncodedTexts
from foreword.tuning.input_template import InputTemplate
from foreword.tuning.network import Network
from foreword.tuning.packed_examples import WIDTH, PackedExamples, PooledBatch, texts_in_rows
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

    Args:
        is_weighted: whether each target has the weight of its nats in a second column.
    """

    def __init__(
        self, backbone: NeuralBackbone, head: TokenHead, *, is_weighted: bool = False
    ) -> None:
        super().__init__(backbone, head)
        self.is_weighted = is_weighted

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
        tokens = targets if targets.ndim == 1 else targets[:, 0].long()
        parts = []
        with torch.autocast(features.device.type, enabled=False):
            for begin in range(0, len(tokens), AT_ONCE):
                states, right = (x[begin : begin + AT_ONCE] for x in (features[0], tokens))
                logits: Tensor = self.head(states)
                nats = F.cross_entropy(logits, right, reduction="none")
                parts.append(torch.stack([logits.argmax(-1).float(), nats], dim=1))
        outputs = torch.cat(parts)
        if self.is_weighted:
            outputs[:, 1] *= targets[:, 1].float()
        return outputs

    def training_outputs(
        self, features: Tensor, targets: Tensor, windows: Tensor | None = None
    ) -> Tensor:
        """Return the weighted cross-entropy of all targets, () in nats, without holding all logits.

        Of targets with more than a token and its weight it is that of each, as `scored_outputs`
        returns it.
        """
        weights = torch.ones(len(targets), device=features.device)
        if self.is_weighted:
            targets, weights = targets[:, 0].long(), targets[:, 1].float()
        if targets.ndim > 1:
            return self.scored_outputs(features, targets)
        with torch.autocast(features.device.type, enabled=False):
            nats: Tensor = self.head(features[0], targets, weights)
        return nats

    def initialise_head(self, seed: int) -> None:
        pass  # it has the weights of pretraining

    def as_model(self) -> Model:
        return Model(self.backbone, nn.ModuleDict({"token": self.head}))


@dataclass(frozen=True)
class AnswerExamples(PackedExamples):
    """Encoded examples, each a source and the target that answers it.

    The sources have the special tokens of pretraining, the answers their end tokens. The targets
    are what the answers are held against, a sequence of (tokens,) int64 or, with more of each token
    than itself, of (tokens, columns); for a task that `writes`, `WrittenTargets`.

    Attributes:
        prompted: the model that they were pretrained with.
        most: of masked diffusion, the positions of an answer, unless it has more tokens; 0 without.
        seed: seed of the masks in training.
    """

    prompted: TrainedModel = field(kw_only=True)
    most: int = 0
    seed: int = 0

    @classmethod
    def of(
        cls,
        prompted: TrainedModel,
        encoded: Sequence[EncodedExample],
        template: InputTemplate,
        loss_unit: LossUnit = "input",
        most: int | None = None,
    ) -> AnswerExamples:
        """Put sources and answers into the form in which the model reads and writes them.

        Args:
            most: the most tokens of an answer to write; None for those of the longest one here.

        Raises:
            UserError: the model writes no text, or an answer is too long.
        """
        form = AnswerForm.of(prompted, template)
        if not prompted.unmasks:
            most = 0
        elif most is None:
            most = max(len(example.written) for example in encoded) + len(form.end)
        places = most

        def with_ends(example: EncodedExample) -> EncodedExample:
            answer = np.concatenate([example.written, form.end]).astype(np.int64)
            room = form.source_room(max(len(answer), places))
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
        fresh = replace(template, fresh=form.fresh)
        return cls(pairs, pairs.answer, fresh, loss_unit=loss_unit, prompted=prompted, most=most)

    def _length(self, number: int) -> int:
        example = self.encoded[number]
        return len(example.ids) + self._answer_places(example)

    def seeded(self, seed: int) -> AnswerExamples:
        """Return the examples whose masks are drawn by this seed, if they are masked."""
        return replace(self, seed=seed) if self.prompted.unmasks else self

    def _answer_places(self, example: EncodedExample) -> int:
        """Return the positions of an answer, of which those after its end are end tokens."""
        most = min(self.most, self.template.length - len(example.ids))
        return max(len(example.written), most)

    def batches(
        self, numbers: Array, device: str, epoch: int | None = None
    ) -> Iterator[PooledBatch]:
        multiple = CUDA_WIDTH if device == "cuda" else 1
        for (rows,) in self._rows(numbers, min(WIDTH, self.template.length), device, epoch):
            if self.prompted.unmasks:
                yield self._pack_masked(rows, multiple, epoch)
            else:
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

    def _pack_masked(self, rows: list[list[int]], multiple: int, epoch: int | None) -> PooledBatch:
        """Return rows of texts and answers, each answer masked by itself, in several readings."""
        inputs = np.asarray([n for row in rows for n in row])
        examples = [self.encoded[n] for n in inputs]
        places = np.asarray(list(map(self._answer_places, examples)))
        counts = np.asarray([len(example.written) for example in examples])
        readings = self._masks(inputs, places, counts, epoch)
        mask, end = self.prompted.vocab.id("[MASK]"), self.prompted.vocab.id(EOS)
        # Each reading of each input: what is read, what is right, and the weight of each token.
        read, right, weigh = [list[Array](), list[Array](), list[Array]()]
        for is_hidden, weights in readings:
            for n, example in enumerate(examples):
                answer = np.full(places[n], end)
                answer[: counts[n]] = example.written
                hidden = np.where(is_hidden[n, : places[n]], mask, answer)
                read.append(np.concatenate([example.ids, hidden]))
                right.append(np.concatenate([example.ids, answer]))
                weigh.append(np.concatenate([0.0 * example.ids, weights[n, : places[n]]]))
        # Lay them out, every reading in rows of its own.
        own = np.split(np.arange(len(inputs)), np.cumsum(list(map(len, rows)))[:-1])
        at = [row + k * len(inputs) for k in range(len(readings)) for row in own]
        source = _tokens([[read[n] for n in row] for row in at], multiple)
        target = _tokens([[right[n] for n in row] for row in at], multiple)
        is_token, order = source.documents >= 0, np.concatenate(at)
        all_weights = np.zeros(source.ids.shape, np.float32)
        all_weights[is_token] = np.concatenate([weigh[n] for n in order])
        owner = np.zeros_like(source.ids)
        owner[is_token] = np.repeat(np.tile(inputs, len(readings)), [len(read[n]) for n in order])
        example = self.prompted.in_place_example(source, target, all_weights)
        batch = self.prompted.recipe.layout.arrange(example, self.prompted.vocab)
        # The tokens of each input in order, whichever reading predicts them.
        found_rows, columns = np.nonzero(np.asarray(batch.weights))
        of_tokens = owner[found_rows, columns]
        order = np.lexsort((columns, of_tokens))
        found_rows, columns = found_rows[order], columns[order]
        pairs = [x[found_rows, columns].astype(np.float32) for x in (target.ids, all_weights)]
        return PooledBatch(
            batch,
            found_rows,
            columns,
            self._examples_of(of_tokens[order]),
            np.stack(pairs, axis=1),
        )

    def _masks(
        self, inputs: Array, places: Array, counts: Array, epoch: int | None
    ) -> list[tuple[Array, Array]]:
        """Return which tokens of each answer are masked, and the weights of those to predict.

        In training a random share is, of the answer and the end tokens after it (`mask_share`). To
        score, an answer is read twice, and each of its n tokens predicted once: s of them are
        masked in one reading and the others in the other, s = 0, 1, ... or n, all equally likely.
        With the weight (n + 1)/(2 s) the expectation is the same bound, since each number of masked
        tokens comes twice in n + 1 cases. What follows the answer is masked, as if not yet written.

        Args:
            places: the positions of each answer.
            counts: the tokens of each, its end included.
            epoch: of training; None to score.

        Returns:
            For each reading (inputs, places) bool and float64.
        """
        column, length = np.arange(places.max()), len(self.encoded)
        rng = RowRng(self.seed, inputs + length * (0 if epoch is None else epoch))
        if epoch is not None:
            return [mask_share(column < places[:, None], rng)]
        is_answer = column < counts[:, None]
        number = (rng.evenly() * (counts + 1)).astype(np.int64)
        one = choose(is_answer, rng.uniform(len(column)), number)
        half = (counts + 1)[:, None] / 2
        return [
            (chosen | ~is_answer, chosen * half / chosen.sum(1).clip(1)[:, None])
            for chosen in (one, is_answer & ~one)
        ]

    def write(
        self, network: Network, most: int, done: Callable[[Array], None] | None = None
    ) -> list[tuple[str, Array]]:
        """Return the likeliest answer to each example, as text and as tokens, its end included.

        Args:
            done: called with the numbers of examples as they are answered.
        """
        model = network.as_model()
        assert model is not None
        device = next(network.parameters()).device
        recipe = AnswerForm(self.prompted, self.template).tuned_recipe
        prompted = replace(
            self.prompted, model=model, recipe=recipe, device=device, dtype=torch.float32
        )
        form = AnswerForm(prompted, self.template)
        starts = [form.start(form.cut(example.ids, most)) for example in self.encoded]
        with evaluation_mode(network):
            found = written_answers(prompted, starts, most, done or (lambda numbers: None))
        return [
            (text, np.concatenate([new.ids, form.end[: new.stopped == "end"]]))
            for text, new in found
        ]


def written_answers(
    prompted: TrainedModel, starts: Sequence[Start], most: int, done: Callable[[Array], None]
) -> list[tuple[str, GeneratedTokens]]:
    """Return the likeliest answer to each start, as text and tokens, of at most `most` tokens.

    Texts of similar length are written together, so the order of many does not matter.

    Args:
        done: called with the numbers of starts as they are answered.
    """
    sizes = [len(start.target if start.source is None else start.source) for start in starts]
    order = np.argsort(sizes, kind="stable")
    answers: dict[int, tuple[str, GeneratedTokens]] = {}
    greedy, stops = replace(GREEDY, tokens=most), stops_of(prompted)
    for begin in range(0, len(order), WRITTEN_AT_ONCE):
        chunk = order[begin : begin + WRITTEN_AT_ONCE]
        outputs = decode(prompted, [starts[n] for n in chunk], greedy, stops)
        for n, new in zip(chunk, outputs, strict=True):
            answers[n] = text_of(prompted, starts[n], new.ids).strip(), new
        done(chunk)
    return [answers[n] for n in range(len(starts))]


def _tokens(rows: list[list[Array]], multiple: int) -> Tokens:
    """Return rows of several texts each, right-padded to a multiple of `multiple`."""
    width = max(sum(map(len, row)) for row in rows)
    return texts_in_rows(rows, -(-width // multiple) * multiple)
