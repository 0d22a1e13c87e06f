"""The answer to a question as a span of a passage, or none: SQuAD 1.1 and 2.0."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, NamedTuple

import numpy as np
import pyarrow as pa
from scipy.special import softmax
from torch import Tensor, nn

from foreword.disk import stored
from foreword.errors import UserError
from foreword.evaluation.text_metrics import best_threshold, exact_match, f1, right_answers
from foreword.settings.ranges import Count, Signed
from foreword.tables.columns import PREDICTION, Columns, text_of
from foreword.tables.examples import Labelled, Repaired, batched
from foreword.tables.squad import NEAR, PASSAGE, located, read_answers
from foreword.text.tokenizer import Tokenizer
from foreword.text.words import split
from foreword.tuning.encoded import by_example, in_columns
from foreword.tuning.input_template import InputTemplate
from foreword.tuning.tasks._contract import (
    END,
    PROBABILITY,
    START,
    Answers,
    EncodedExample,
    ExampleOutputs,
    Exports,
    Inputs,
    Judge,
    Labels,
    Needs,
    OutputForm,
    RowReader,
    Targets,
    shortest,
)
from foreword.tuning.tasks._headed import HeadedTask
from foreword.tuning.tasks._losses import cross_entropy_over_groups
from foreword.tuning.windows import window_begins
from foreword.types import Array, Loss

WORD = re.compile(r"\w+|[^\w\s]")
ASKING = ("who", "whom", "whose", "when", "where", "which", "why", "how", "what")
FUNCTION_WORDS = {
    *ASKING,
    *split(
        "a an the of in on at to for from by with as is are was were be been did do does and or"
    ),
    *split("that this it its he she they his her their have has had"),
}
FAR = 8  # words from one of the question's, at which it is no longer near
ALWAYS_ANSWER = 1e6  # a threshold beyond all scores
NO_ANSWER = "no answer"  # the label of unanswerable questions
BEST = "best"  # a column of answers
PLACE = {START: pa.int64(), END: pa.int64()}
BEST_TYPE = pa.list_(pa.struct({"text": pa.string(), **PLACE, PROBABILITY: pa.float32()}))


def read_question(row: Mapping[str, Any], columns: Columns, source: str) -> Labelled | None:
    """Return the question of a row.

    An answer that is a few characters beside its offset, or differs in its white space, is put
    right; one that is elsewhere is scored but not trained on.
    """
    context = text_of(row.get(columns.text), source)
    question = text_of(row.get(columns.pair), source).strip()
    if not context.strip():
        return None
    if not question:
        raise UserError(f"{source}: the question is empty")
    label = ""
    if columns.label and row.get(columns.label) is not None:
        fields = {"text": str, "answer_start": int}
        given = read_answers(row[columns.label], fields, source)
        answers = [located(context, text, start) or (text, -1) for text, start in given]
        answers.sort(key=lambda answer: answer[1] < 0)  # the first is trained on
        if answers and answers[0][1] < 0:
            (text, start), name = given[0], row.get("id")
            raise UserError(
                f"{source}{f' ({name})' if name else ''}: the answer '{text}' is not in the "
                f"passage at character {start:,}, nor within {NEAR} of it"
            )
        label = stored.to_json(answers)
        if sorted(answers) != sorted(given):
            return Repaired(context, label, question, source)
    return Labelled(context, label, question, source)


def _counted(example: Labelled, inputs: Inputs) -> list[Labelled | list[str]]:
    """Return for each position what readers without a network read (Rajpurkar et al. 2016).

    The kind of question with the word's shape, how near words of the question are, how many its
    sentence has, and which words of the passage are around.
    """
    asked = [word for word in split(example.pair or "") if word not in FUNCTION_WORDS]
    kind = " ".join([word for word in split(example.pair or "") if word in ASKING][:1])
    words = [(m.start(), m.end(), m.group()) for m in WORD.finditer(example.text)]
    lower = [word.lower() for *_, word in words]
    is_asked = np.asarray([word in asked for word in lower], bool)
    sentences = np.cumsum([0, *(word in ".?!" for word in lower[:-1])])[: len(words)]
    shared = np.bincount(sentences, is_asked) if len(words) else np.zeros(1)
    ranks = shared.max() - shared
    around = ["", *lower, ""]
    last = len(words) - 1
    of_words = []
    for n, (*_, word) in enumerate(words):
        near = [min(FAR, abs(int(at) - n)) for at in np.flatnonzero(is_asked) if abs(at - n) <= FAR]
        shape = "d" if word[0].isdigit() else "X" if word[0].isupper() else "x"
        shape = shape if word[0].isalnum() else word
        rank = f"rank={min(2, int(ranks[sentences[n]]))}"
        of_words.append([
            f"asked={is_asked[n]}", f"near={min(near, default=FAR)}", rank, f"{kind} {shape}",
            f"{kind} {shape} {rank}", f"before={around[n]}", f"after={around[n + 2]}",
            f"{kind} before={around[n]}", f"starts={n == 0 or sentences[n] > sentences[n - 1]}",
            f"ends={n == last or sentences[n] < sentences[min(n + 1, last)]}",
        ])  # fmt: skip
    starts = np.asarray([start for start, *_ in words])
    rows: list[Labelled | list[str]] = []
    for window in inputs:
        assert window.spans is not None
        rows.append([f"none {kind}", f"none {min(3, int(shared.max()))}"])
        for start, end in window.spans[1:]:
            # A token begins after spaces in some tokenizers: its last character is in its word.
            n = max(int(np.searchsorted(starts, end - 1, side="right")) - 1, 0)
            first, stop, _ = words[n] if words else (0, 0, "")
            place = [f"first={start <= first}", f"last={end >= stop}"]
            rows.append([*(of_words[n] if words else []), *place])
    return rows


@dataclass(frozen=True)
class Span(HeadedTask):
    """Extractive question answering: a linear layer gives each token a start and an end score.

    The input is (question, passage). A long passage is read in windows that overlap; in training
    the answer of a window that does not hold it is none, and that of an unanswerable question too:
    the first special token ([CLS]), in a decoder the last one, which has seen all. The best span
    over all windows answers, unless none scores more by the threshold.

    Rows are questions of files in SQuAD's layout (`.json`) or of tables with `context`, `question`
    and `answers` (as in SQuAD, or {"text": [...], "answer_start": [...]}); no answer is an empty
    list. Scores are those of the official script: F1 of words and exact match after normalisation.
    `foreword predict --out FILE.json` writes the predictions that the script reads.

    Attributes:
        stride: tokens from the beginning of a window to that of the next; default: half a window.
        max_answer: the most tokens of an answer.
        threshold: how much the score of no answer must exceed that of the best answer; default:
            chosen on the dev examples by F1, if training has unanswerable questions.

    Also called: extractive question answering, reading comprehension.
    Reference: Devlin et al. 2019, sections 4.2 and 4.3; Rajpurkar et al. 2016 and 2018.
    Differs from the paper: tokens in two windows count in both.
    """

    reader: ClassVar[RowReader] = RowReader(
        read_question, (PASSAGE,), takes_texts=False, counted=_counted
    )
    exports: ClassVar[Exports] = Exports(
        "QuestionAnswering",
        cuts_texts=False,
        texts=lambda example: [(example.pair or "", example.text)],
        outputs=lambda result, row, encoded, before: np.stack(
            [result.start_logits[row].numpy(), result.end_logits[row].numpy()], axis=1
        )[before + encoded.pooled_positions],
        outputs_named=("start_logits", "end_logits"),
        pipeline_tag="question-answering",
    )
    output_form: ClassVar[OutputForm | None] = "options"

    stride: Count | None = None
    max_answer: Count = 30
    threshold: Signed | None = None

    @property
    def needs(self) -> Needs:
        return replace(super().needs, reads_tokens=True)

    @property
    def judge(self) -> Judge:
        return SpanJudge(self.max_answer, self.threshold)

    @property
    def answers(self) -> Answers:
        return SpanAnswers(self.max_answer, self.threshold)

    def labels(self, train: Sequence[Labelled]) -> Labels:
        """Return the names of both outputs, and NO_ANSWER if a question has no answer."""
        if all(example.label == "[]" for example in train):
            raise UserError("the training examples need answers; no question has one")
        has_none = any(example.label == "[]" for example in train)
        return ("start", "end", NO_ANSWER) if has_none else ("start", "end")

    def targets(
        self, examples: Sequence[Labelled], labels: Labels, encoded: Inputs = ()
    ) -> SpanTargets:
        """Return for each position of each window whether the answer begins and ends there."""
        arrays = []
        remaining = iter(examples)
        answer: tuple[int, int] | None = None
        for window in encoded:
            if not window.is_further:
                answers = json.loads(next(remaining).label)
                answer = (answers[0][1], answers[0][1] + len(answers[0][0])) if answers else None
            arrays.append(_ends(window, answer))
        return SpanTargets(arrays, examples, encoded, labels)

    @in_columns
    def encode(
        self, examples: Sequence[Labelled], tokenizer: Tokenizer, template: InputTemplate
    ) -> Iterator[EncodedExample]:
        """Yield each question with its passage, in windows if it is long."""
        for chunk in batched(examples):
            questions = tokenizer.encode_batch([example.pair or "" for example in chunk])
            for example, question in zip(chunk, questions, strict=True):
                ids, offsets = tokenizer.encode_with_offsets(example.text)
                if not len(ids):
                    raise UserError(f"{example.source}: the passage has no tokens")
                yield from self._windows(question, ids, offsets, template)

    def _windows(
        self, question: Sequence[int], ids: Array, offsets: Array, template: InputTemplate
    ) -> Iterator[EncodedExample]:
        """Yield a question with each window of its passage; a long question is cut."""
        cut_question = list(question[: template.room // 2])
        room = template.room - len(cut_question)
        step = min(self.stride or max(room // 2, 1), room)
        for begin in window_begins(len(ids), room, step):
            part = slice(begin, begin + room)
            inputs = template.apply(cut_question, ids[part].tolist())
            first = len(template.prefix) + len(cut_question) + len(template.separator)
            count = len(ids[part])
            spans = np.concatenate([[[0, 0]], offsets[part]])
            if template.prefix and not template.is_causal:
                none = 0
            else:
                none = len(inputs.ids) - 1 if template.suffix else max(first - 1, 0)
            positions = np.append(none, first + np.arange(count))
            yield EncodedExample(
                inputs.ids,
                inputs.segments,
                positions,
                len(cut_question) < len(question),
                is_further=begin > 0,
                spans=spans,
            )

    def head(self, d_model: int, labels: Labels) -> nn.Module:
        return self.linear_head(d_model, 2)

    def loss(self, outputs: Tensor, targets: Tensor, numbers: Tensor) -> Loss:
        """Return the mean of the start's and the end's cross-entropy in each window, in nats.

        Args:
            outputs: (positions, 2).
            targets: whether the answer begins and ends there, (positions, 2) float32.
            numbers: the window of each position.
        """
        return cross_entropy_over_groups(outputs, targets, numbers)


@dataclass(frozen=True)
class SpanJudge(Judge):
    """F1 and exact match; with unanswerable questions at the threshold. See `Span`."""

    max_answer: int
    threshold: float | None
    names: ClassVar[tuple[str, ...]] = ("answer_f1", "exact_match")

    def scores(self, outputs: Array, targets: SpanTargets) -> dict[str, float]:
        threshold, best, right = self._answered(outputs, targets)
        texts = [each.candidates[0].text if each.margin <= threshold else "" for each in best]
        pairs = list(zip(texts, right, strict=True))
        return {
            "answer_f1": float(np.mean([f1(answer, right) for answer, right in pairs])),
            "exact_match": float(np.mean([exact_match(answer, right) for answer, right in pairs])),
        }

    def chosen(self, outputs: Array, targets: SpanTargets) -> Mapping[str, Any]:
        """Return the threshold that is best on these outputs."""
        return {"threshold": self._answered(outputs, targets)[0]}

    def _answered(
        self, outputs: Array, targets: SpanTargets
    ) -> tuple[float, list[BestSpans], list[list[str]]]:
        """Return the threshold, the best span of each question, and its right answers."""
        results = by_example(targets.examples, targets.windows, outputs)
        best = [_best_spans(result, self.max_answer, 1) for result in results]
        right = [
            right_answers([text for text, _ in json.loads(example.label)])
            for example in targets.examples
        ]
        if self.threshold is not None:
            return self.threshold, best, right
        if NO_ANSWER not in targets.labels:
            return ALWAYS_ANSWER, best, right
        pairs = zip(best, right, strict=True)
        scored = [f1(each.candidates[0].text, expected) for each, expected in pairs]
        margins, has_answer = [each.margin for each in best], [each != [""] for each in right]
        return best_threshold(scored, margins, has_answer), best, right

    def baselines(
        self, train: SpanTargets, dev: SpanTargets, labels: Labels
    ) -> Mapping[str, Array]:
        """Return no answer, or the first word where every question has one."""
        size = sum(len(window.pooled_positions) for window in dev.windows)
        outputs = np.zeros((size, 2))
        offset = 0
        for window in dev.windows:
            outputs[offset if NO_ANSWER in labels else offset + 1] = 1.0
            offset += len(window.pooled_positions)
        return {"no answer" if NO_ANSWER in labels else "first word": outputs}


@dataclass(frozen=True)
class SpanAnswers(Answers):
    """The answer, "" for none, where it is in the passage, and its probability. See `Span`."""

    max_answer: int
    threshold: float | None

    def types(self, labels: Labels, *, probabilities: bool, is_pair: bool) -> dict[str, Any]:
        types = {PREDICTION: pa.string(), **PLACE, PROBABILITY: pa.float32()}
        return {**types, BEST: BEST_TYPE} if probabilities else types

    def row(self, result: ExampleOutputs, labels: Labels, *, probabilities: bool) -> dict[str, Any]:
        """Return the answer to a question; with `probabilities` the best ones too."""
        best = _best_spans(result, self.max_answer, 20)
        scores = np.array([best.none, *(each.score for each in best.candidates)])
        shares = softmax(scores) if NO_ANSWER in labels else [0.0, *softmax(scores[1:])]
        assert self.threshold is not None
        first = best.candidates[0]
        row: dict[str, Any] = {
            PREDICTION: first.text, START: first.start, END: first.end,
            PROBABILITY: shortest(shares[1]),
        }  # fmt: skip
        if best.margin > self.threshold:
            row = {PREDICTION: "", START: None, END: None, PROBABILITY: shortest(shares[0])}
        if probabilities:
            row[BEST] = [
                {"text": e.text, START: e.start, END: e.end, PROBABILITY: shortest(share)}
                for e, share in zip(best.candidates, shares[1:], strict=True)
            ]
        return row


class SpanCandidate(NamedTuple):
    """A span of the passage: its text, first character and score."""

    text: str
    start: int
    score: float

    @property
    def end(self) -> int:
        """The character after its last."""
        return self.start + len(self.text)


class BestSpans(NamedTuple):
    """The best spans, and the score of no answer."""

    candidates: list[SpanCandidate]
    none: float

    @property
    def margin(self) -> float:
        """How much the score of no answer exceeds that of the best one."""
        return self.none - self.candidates[0].score


@dataclass(frozen=True)
class SpanTargets(Targets):
    """The answers to questions, and where they are.

    Attributes:
        arrays: for each position of each window whether the answer begins and ends there,
            (positions, 2) float32 each.
    """

    examples: Sequence[Labelled]
    windows: Sequence[EncodedExample]
    labels: Labels


def _best_spans(result: ExampleOutputs, max_answer: int, count: int) -> BestSpans:
    """Return the best spans of all windows of a question, each text once."""
    scores: dict[tuple[int, int], float] = {}
    none, offset = np.inf, 0
    for window in result.inputs:
        size = len(window.pooled_positions)
        starts, ends = result.outputs[offset : offset + size].astype(np.float64).T
        offset += size
        none = min(none, starts[0] + ends[0])
        spans = window.spans
        assert spans is not None
        longest = min(max_answer, size - 1)
        table = np.full((longest, size - 1), -np.inf)
        for extra in range(longest):
            table[extra, : size - 1 - extra] = starts[1 : size - extra] + ends[1 + extra :]
        flat = table.ravel()
        best = np.argsort(-flat, kind="stable")[:count]
        for extra, start in zip(*np.unravel_index(best, table.shape), strict=True):
            if np.isfinite(table[extra, start]):
                key = int(spans[1 + start, 0]), int(spans[1 + start + extra, 1])
                score = float(table[extra, start])
                scores[key] = max(scores.get(key, -np.inf), score)
    ranked = sorted(scores.items(), key=lambda item: (-item[1], item[0]))[:count]
    candidates = []
    for (start, stop), score in ranked:
        part = result.example.text[start:stop]
        begin = start + len(part) - len(part.lstrip())
        candidates.append(SpanCandidate(part.strip(), begin, score))
    return BestSpans(candidates, float(none))


def _ends(window: EncodedExample, answer: tuple[int, int] | None) -> Array:
    """Return where an answer begins and ends in a window; at "no answer" if it does not hold it."""
    spans = window.spans
    assert spans is not None
    targets = np.zeros((len(spans), 2), np.float32)
    begin = end = 0
    if answer is not None and spans[1, 0] <= answer[0] and answer[1] <= spans[-1, 1]:
        inside = 1 + np.flatnonzero((spans[1:, 1] > answer[0]) & (spans[1:, 0] < answer[1]))
        if len(inside):
            begin, end = int(inside[0]), int(inside[-1])
    targets[begin, 0] = targets[end, 1] = 1.0
    return targets
