"""Every task as text: the model reads the source and writes the label."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from torch import Tensor

from foreword.errors import UserError
from foreword.text.tokenizer import Tokenizer
from foreword.tuning.examples import EncodedTexts, batched
from foreword.tuning.input_template import InputTemplate
from foreword.tuning.labelled import Labelled
from foreword.tuning.task_mixture import with_prefix
from foreword.tuning.tasks._contract import EncodedExample, Task
from foreword.types import Array, Loss


@dataclass(frozen=True)
class TextToText(Task):
    """Labels written out as target texts, by the output layer of pretraining.

    source [sst2 sentence: a lovely film </s>]  target [positive </s>]

    For models pretrained with a source and a target (span_corruption, prefix, ...), in their
    layout. Several tasks at once have a prefix each; see `foreword.tuning.task_mixture`.

    Attributes:
        prefix: put before each text; `{text}` and `{pair}` in it are replaced by the texts.
        words: the words written for labels, each as `label=word` ("1=positive").

    Also called: seq2seq.
    Reference: Raffel et al. 2020, sections 2.4 and 3.5.2.
    """

    prefix: str = ""
    words: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        super().__post_init__()
        for word in self.words:
            if not all(word.partition("=")):
                raise ValueError(f"words: must be label=word each, got {word!r}")

    def labels(self, train: Sequence[Labelled]) -> tuple[str, ...]:
        """Return the labels of the training examples, sorted; the model may write others."""
        return tuple(sorted({example.label for example in train}))

    def encode(
        self, examples: Sequence[Labelled], tokenizer: Tokenizer, template: InputTemplate
    ) -> Sequence[EncodedExample]:
        """Return each source and answer as plain ids; `AnswerExamples` adds special tokens.

        Raises:
            UserError: an answer has no token.
        """

        def encoded() -> Iterator[EncodedExample]:
            for some in batched(examples):
                sources = tokenizer.encode_batch([with_prefix(e, self.prefix).text for e in some])
                answers = tokenizer.encode_batch([self.word_of(e.label) for e in some])
                for example, source, answer in zip(some, sources, answers, strict=True):
                    if example.label and not len(answer):
                        raise UserError(
                            f"{example.source}: the label '{example.label}' has no tokens"
                        )
                    ids, words = np.asarray(source, np.int64), np.asarray(answer, np.int64)
                    yield EncodedExample(ids, np.zeros_like(ids), words[:0], False, answer=words)

        return EncodedTexts.of(encoded())

    def word_of(self, label: str) -> str:
        """Return the text that is written for a label."""
        return self._words.get(label, label)

    @cached_property
    def _words(self) -> dict[str, str]:
        return dict(word.split("=", 1) for word in self.words)

    def targets(self, examples: Sequence[Labelled], labels: tuple[str, ...]) -> Array:
        """Return zeros: the targets are the answers of `encode`."""
        return np.zeros(len(examples), dtype=np.int64)

    def head(self, d_model: int, labels: tuple[str, ...]) -> None:
        """Return None: the head is the output layer of pretraining."""

    def loss(self, outputs: Tensor, targets: Tensor, numbers: Tensor) -> Loss:
        """Return the cross-entropy of the answers' tokens, which the output layer computed.

        Args:
            outputs: nats, of all tokens or of each.
            targets: (tokens,).
            numbers: of the examples.
        """
        total = outputs.sum()
        return Loss(total, total.new_tensor(float(len(targets))))

    def scores(self, outputs: Array, targets: Any) -> dict[str, float]:
        """Return the share of answers that are right to the last token, and of right tokens.

        Greedy decoding gives the right answer if each of its tokens is the likeliest after the
        right ones before it, so nothing has to be generated. `tokens` counts each token after the
        right ones before it, which one answer for all examples cannot be scored by, so a baseline
        has `accuracy` alone.

        Args:
            outputs: the likeliest token at each position of all answers, (tokens, 1); or one
                answer for each example, (examples, length), right-padded with -1.
            targets: the answers, a list of (tokens,) int64.
        """
        if outputs.shape[1] > 1:
            answers = [row[row >= 0] for row in outputs.astype(np.int64)]
            pairs = zip(answers, targets, strict=True)
            return {"accuracy": float(np.mean([np.array_equal(a, b) for a, b in pairs]))}
        edges = np.cumsum([len(target) for target in targets])[:-1]
        is_right = outputs[:, 0].astype(np.int64) == np.concatenate(list(targets))
        return {
            "accuracy": float(np.mean([one.all() for one in np.split(is_right, edges)])),
            "tokens": float(np.mean(is_right)),
        }

    def baselines(self, train: Any, dev: Any, labels: tuple[str, ...]) -> Mapping[str, Array]:
        """Return the most frequent answer, followed by -1, for every example."""
        counts = Counter(tuple(target.tolist()) for target in train)
        answer = np.asarray([*counts.most_common(1)[0][0], -1])
        return {"most frequent answer": np.repeat(answer[None], len(dev), axis=0)}
