"""Every task as text: the model reads the source and writes the label."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, ClassVar

import numpy as np

from foreword.errors import UserError
from foreword.evaluation.starts import Start
from foreword.evaluation.text_metrics import SCORES, Metric, require, share_known, text_scores
from foreword.runs.trained_model import TrainedModel
from foreword.settings.ranges import Count
from foreword.tables.columns import Columns, example_of, label_of, text_of
from foreword.tables.examples import Labelled, batched
from foreword.tables.squad import PASSAGE, read_answers
from foreword.text.sentences import split
from foreword.text.tokenizer import Tokenizer
from foreword.tuning.encoded import Ragged, in_columns
from foreword.tuning.input_template import InputTemplate
from foreword.tuning.tasks._contract import (
    EncodedExample,
    Inputs,
    Judge,
    Labels,
    Needs,
    RowReader,
    Targets,
)
from foreword.tuning.tasks._writing import DECODER_TOKENS, AnswerForm, WritingTask
from foreword.types import Array

BETWEEN = (
    "\x1e"  # the answers of an example that has several: a record separator, which no text has
)
READ_BACK = 1_000  # training answers that are decoded again, to see what is lost
LIST = (list, tuple, np.ndarray)
QUESTION = "question: {pair} context: {text}"  # Raffel et al. 2020, appendix D.15
UNANSWERABLE = "unanswerable"  # written where the passage holds no answer


def read_texts(row: Mapping[str, Any], columns: Columns, source: str) -> Labelled | None:
    """Return the example of a row, its sentences and its right answers joined."""
    text, label = row.get(columns.text), row.get(columns.label)
    joined = dict(row)
    if isinstance(text, LIST):
        joined[columns.text] = " ".join(text_of(sentence, source) for sentence in text)
    answers = _listed(label, source)
    if answers is not None:
        joined[columns.label] = BETWEEN.join(answers)
    example = example_of(joined, columns, source)
    has_none = answers == [] and (isinstance(label, Mapping) or _are_passages(columns))
    if example is None or not has_none:
        return example
    return example._replace(label=BETWEEN)  # "" would be no label


@dataclass(frozen=True)
class TextToText(WritingTask):
    """Labels written out as target texts, by the output layer of pretraining.

    source [sst2 sentence: a lovely film </s>]  target [positive </s>]

    For models pretrained with a source and a target (span_corruption, prefix, ...), in their
    layout, and for those that continue text (decoder, hybrid), which read the text before its
    answer; the loss is on the answer alone, and a text that is too long loses its end:

    [a lovely film [SEP] positive </s>]     scored: positive </s>

    A model of masked diffusion reads them so too. In training a random share of the answer's tokens
    is masked, and never the text; all answers are as long as the longest, or `max_tokens`, by end
    tokens. Since it writes in any order, `accuracy` is that of what it writes.

    Several tasks at once have a prefix each; see `foreword.tuning.example_reader`.

    The text may be a list of sentences, and the label a list of right answers: the first is
    trained on, the best counts.

        summaries                  task.metric=rouge
        questions by heart         task.metric=answer task.prefix="question: " (closed book)
        questions about passages   task.metric=answer
        translation                task.metric=bleu

    Questions about passages are those that `span` reads: files in SQuAD's layout (`.json`), or
    tables with `context`, `question` and `answers`. Their prefix is T5's unless another one has
    `{text}`, and a question without an answer has "unanswerable", for which "" is predicted:

    source [question: who? context: Ann sang. </s>]  target [Ann </s>]

    Attributes:
        prefix: put before each text; `{text}` and `{pair}` in it are replaced by the texts.
        words: the words written for labels, each as `label=word` ("1=positive"); of no label
            ("=none") where a passage holds no answer.
        metric: `accuracy`, of whole answers and of their tokens, each after the right ones; or a
            measure of what the model writes by its likeliest tokens: `answer`, exact match and F1
            of words by SQuAD's rules; `rouge`, ROUGE-1, -2 and -L (F); `bleu`, with chrF.
        max_tokens: the most tokens that are written; default: as the longest answer of training.

    Also called: seq2seq.
    Reference: Raffel et al. 2020, sections 2.4 and 3.5.2, and appendix D.
    Differs from the paper: every answer is decoded greedily; the paper's final models write
    summaries and translations with a beam of 4 (section 3.7).
    """

    reader: ClassVar[RowReader] = RowReader(read_texts, (Columns(), PASSAGE))
    needs: ClassVar[Needs] = Needs(continues=True, decoder_tokens=DECODER_TOKENS)

    prefix: str = ""
    words: tuple[str, ...] = ()
    metric: Metric = "accuracy"
    max_tokens: Count | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        for word in self.words:
            if not all(word.partition("=")[1:]):
                raise ValueError(f"words: must be label=word each, got {word!r}")

    @property
    def judge(self) -> Judge:
        return TextJudge(self)

    def for_examples(self, columns: Columns, train: Sequence[Labelled]) -> TextToText:
        """Return the task with T5's prefix for questions about passages, unless it has its own."""
        if not _are_passages(columns) or "{text}" in self.prefix:
            return self
        return replace(self, prefix=self.prefix + QUESTION)

    def labels(self, train: Sequence[Labelled]) -> Labels:
        """Return the labels of the training examples, sorted; "" is that of no answer.

        If the model may write any answer, "" alone is a label.
        """
        require(self.metric)
        if self.judge.writes:
            return ("",) if any(e.label == BETWEEN for e in train) else ()
        return tuple(sorted({answers_of(e)[0] for e in train}))

    @in_columns
    def encode(
        self, examples: Sequence[Labelled], tokenizer: Tokenizer, template: InputTemplate
    ) -> Iterator[EncodedExample]:
        """Yield each source and answer as plain ids; `AnswerExamples` adds special tokens."""
        for chunk in batched(examples):
            sources = tokenizer.encode_batch([e.with_prefix(self.prefix).text for e in chunk])
            answers = tokenizer.encode_batch(
                [self.word_of(answers_of(e)[0]) if e.label else "" for e in chunk]
            )
            for example, source, answer in zip(chunk, sources, answers, strict=True):
                if example.label and not len(answer):
                    raise UserError(f"{example.source}: the label '{example.label}' has no tokens")
                ids, words = np.asarray(source, np.int64), np.asarray(answer, np.int64)
                yield EncodedExample(ids, np.zeros_like(ids), words[:0], False, answer=words)

    def word_of(self, label: str) -> str:
        """Return the text that is written for a label."""
        return self._words.get(label, label or UNANSWERABLE)

    @cached_property
    def _words(self) -> dict[str, str]:
        return dict(word.split("=", 1) for word in self.words)

    def targets(self, examples: Sequence[Labelled], labels: Labels, encoded: Inputs = ()) -> Any:
        """Return the tokens of the answers, with their texts if the model is to write them."""
        ids = Ragged.of(example.written for example in encoded)
        if not self.judge.writes:
            return ids
        references = [[self.word_of(a) if a else "" for a in answers_of(e)] for e in examples]
        return WrittenTargets(ids, references, [e.text for e in examples])

    def writes_for(self, prompted: TrainedModel) -> bool:
        """Return whether answers are written to be scored: by models of any order, always."""
        return self.judge.writes or prompted.unmasks

    def prepared(self, targets: Any, labels: Labels) -> TextToText:
        """Return the task with the length of what it writes, if that is not set."""
        if not self.judge.writes or self.max_tokens is not None:
            return self
        return replace(self, max_tokens=max(map(len, targets)))

    def most_tokens(self, labels: Labels, prompted: TrainedModel) -> int:
        """Return the most tokens of an answer of training, unless more or fewer are set."""
        if self.max_tokens is not None:
            return self.max_tokens

        def lengths() -> Iterator[int]:
            for chunk in batched(map(self.word_of, labels)):
                yield from map(len, prompted.tokenizer.encode_batch(chunk))

        has_end = not prompted.answers or len(prompted.end_token)
        return max(lengths(), default=1) + int(has_end > 0)

    def starts(
        self, examples: Sequence[Labelled], form: AnswerForm, most: int
    ) -> tuple[list[Start], int]:
        """Return the sources, cut so that the longest answer still has a position."""
        room = max(form.source_room(most), 1)
        encoded = self.encode(examples, form.prompted.tokenizer, form.template)
        starts = [form.start(form.source(e.ids[:room])) for e in encoded]
        return starts, sum(len(e.ids) > room for e in encoded)

    def answer_of(self, text: str, labels: Labels) -> str:
        """Return the label that a written word stands for."""
        return {self.word_of(label): label for label in labels}.get(text, text)


@dataclass(frozen=True)
class TextJudge(Judge):
    """The scores of `TextToText.metric`."""

    task: TextToText
    not_shares: ClassVar[tuple[str, ...]] = SCORES["bleu"]

    @property
    def writes(self) -> bool:
        return self.task.metric != "accuracy"

    @property
    def names(self) -> tuple[str, ...]:
        metric = self.task.metric
        return ("accuracy", "tokens") if metric == "accuracy" else SCORES[metric]

    def notes(
        self, train: Sequence[Labelled], dev: Sequence[Labelled], tokenizer: Tokenizer
    ) -> list[str]:
        """Return notes on answers that tokens do not give back, and on those known from training.

        The first is of the first `READ_BACK` training examples.
        """
        notes = []
        words = [self.task.word_of(answers_of(e)[0]) for e in train[:READ_BACK]]
        read = map(tokenizer.decode, tokenizer.encode_batch(words))
        lost = [pair for pair in zip(words, read, strict=True) if pair[0] != pair[1].strip()]
        if lost:
            word, back = lost[0]
            notes.append(
                f"{len(lost):,} of {len(words):,} training answers cannot be written as they are: "
                f"in tokens, {word!r:.60} is {back!r:.60}"
            )
        asked = [answers for e in dev if (answers := answers_of(e))[0]]
        if self.task.metric == "answer" and asked:
            share = share_known(asked, [a for e in train for a in answers_of(e) if a])
            notes.append(f"{share:.1%} of the dev answers are answers of training examples too")
        return notes

    def scores(self, outputs: Array, targets: Any) -> dict[str, float]:
        """Return the share of answers that are right to the last token, and of right tokens.

        Greedy decoding gives the right answer if each of its tokens is the likeliest after the
        right ones before it, so nothing has to be generated, but by a model that writes in any
        order. `tokens` counts each token after the right ones before it, which one answer for each
        example cannot be scored by, so such a model and a baseline have `accuracy` alone.

        Args:
            outputs: the likeliest token at each position of all answers, (tokens, 2); or one
                answer for each example, (examples,) of tokens, or of texts if the task writes.
            targets: the answers, a list of (tokens,) int64; if the task writes, with their texts.
        """
        if self.task.metric != "accuracy":
            none = tuple({"" for right in targets.references if not right[0]})
            answers = [self.task.answer_of(text, none) for text in outputs.tolist()]
            return text_scores(self.task.metric, answers, targets.references)
        if outputs.dtype == object:
            pairs = zip(outputs, targets, strict=True)
            return {"accuracy": float(np.mean([np.array_equal(a, b) for a, b in pairs]))}
        edges = np.cumsum([len(target) for target in targets])[:-1]
        is_right = outputs[:, 0].astype(np.int64) == np.concatenate(list(targets))
        return {
            "accuracy": float(np.mean([answer.all() for answer in np.split(is_right, edges)])),
            "tokens": float(np.mean(is_right)),
        }

    def baselines(self, train: Any, dev: Any, labels: Labels) -> Mapping[str, Array]:
        """Return the most frequent answer for every example, or what the text itself gives.

        For summaries that is its first sentence, for translations all of it.
        """
        if self.task.metric == "answer":
            common = Counter(answers[0] for answers in train.references).most_common(1)[0][0]
            return {"most frequent answer": np.asarray([common] * len(dev.texts), dtype=object)}
        if self.task.metric == "rouge":
            firsts = [split(text)[0].strip() for text in dev.texts]
            return {"first sentence": np.asarray(firsts, dtype=object)}
        if self.task.metric == "bleu":
            return {"the text itself": np.asarray(dev.texts, dtype=object)}
        counts = Counter(tuple(target.tolist()) for target in train)
        answer = np.asarray(counts.most_common(1)[0][0])
        return {"most frequent answer": np.fromiter([answer] * len(dev), object)}


@dataclass(frozen=True)
class WrittenTargets(Targets):
    """The right answers that written ones are compared with.

    Attributes:
        arrays: the answers with their end tokens, a sequence of (tokens,) int64.
        references: the right answers to each example, as texts.
        texts: the texts that are answered.
    """

    references: Sequence[Sequence[str]]
    texts: Sequence[str]


def answers_of(example: Labelled) -> list[str]:
    """Return the right answers to an example; "" if it has none."""
    return [""] if example.label == BETWEEN else example.label.split(BETWEEN)


def _listed(cell: Any, source: str) -> list[str] | None:
    """Return the answers that a cell lists, as texts or in SQuAD's layout; None if it is one."""
    if isinstance(cell, Mapping) or (
        isinstance(cell, LIST) and any(isinstance(answer, Mapping) for answer in cell)
    ):
        texts = (text.strip() for (text,) in read_answers(cell, {"text": str}, source))
        return [text for text in texts if text]
    if not isinstance(cell, LIST):
        return None
    return [label_of(answer, source).strip() for answer in cell]


def _are_passages(columns: Columns) -> bool:
    """Return whether the texts are passages with questions."""
    return (columns.text, columns.pair) == (PASSAGE.text, PASSAGE.pair)
