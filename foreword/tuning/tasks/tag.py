"""One label per word of a sentence: parts of speech, named entities."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain, groupby, pairwise
from typing import Any, ClassVar, Literal

import numpy as np
import pyarrow as pa
from scipy.special import softmax
from torch import Tensor

from foreword.errors import UserError
from foreword.settings.ranges import OpenShare
from foreword.tables.columns import PREDICTION, Columns, label_of, text_of
from foreword.tables.conll import SPACE_AFTER
from foreword.tables.examples import Labelled, batched
from foreword.text import special
from foreword.text.tokenizer import Tokenizer
from foreword.tuning.encoded import in_columns
from foreword.tuning.entities import are_entity_labels, entities, entity_scores
from foreword.tuning.input_template import InputTemplate
from foreword.tuning.tasks._contract import (
    END,
    ENTITIES,
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
    probability_columns,
    shortest,
)
from foreword.tuning.tasks._headed import HeadedTask
from foreword.tuning.tasks._losses import (
    UNLABELLED,
    Weighted,
    require_known,
    weighted_cross_entropy,
    weights_of,
)
from foreword.types import Array, Loss

ENTITY_TYPE = pa.list_(
    pa.struct({"label": pa.string(), "text": pa.string(), START: pa.int64(), END: pa.int64()})
)
OUTSIDE = "O"
# Their odds grow by about 1.5 each.
THRESHOLDS = (0.02, 0.03, 0.05, 0.07, 0.1, 0.15, 0.2, 0.25, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9)
AFFIX = 4  # characters of a word's start and end that are counted
SPACED, GLUED = "\n", "\t"  # before a word of `Labelled.text`, after a space or without one


def read_sentence(row: Mapping[str, Any], columns: Columns, source: str) -> Labelled | None:
    """Return the sentence of a row, whose cells are lists, or texts split at spaces.

    A text stays beside its words, so that answers tell where in it they are.
    """
    words = _items(row.get(columns.text), source)
    if not words:
        return None
    for number, word in enumerate(words, 1):
        if not word:
            raise UserError(f"{source}: word {number} is empty")
    given = _items(row.get(columns.label), source) if columns.label else []
    tags = [tag.strip() for tag in given]
    if tags and len(tags) != len(words):
        counts = f"words: {len(words):,}, labels: {len(tags):,}"
        raise UserError(f"{source}: as many labels as words are needed; {counts}")
    has_space = row.get(SPACE_AFTER) or [True] * len(words)
    if len(has_space) != len(words):
        raise UserError(
            f"{source}: {len(words):,} words, but {len(has_space):,} values in {SPACE_AFTER}"
        )
    marks = ["", *(SPACED if spaced else GLUED for spaced in has_space[:-1])]
    text = "".join(
        mark + re.sub(r"[\t\n]", " ", word) for mark, word in zip(marks, words, strict=True)
    )
    cell = row.get(columns.text)
    whole = cell if isinstance(cell, str) else None
    return Labelled(text, SPACED.join(tags) if any(tags) else "", whole, source)


def _counted(example: Labelled, inputs: Inputs) -> Sequence[Labelled | list[str]]:
    """Return for each word what taggers without a network read: it, its affixes and neighbours."""
    words = [form.strip() or form for form in _forms(example.text)]
    around = ["", "", *(word.lower() for word in words), "", ""]
    return [
        [
            f"word={word}",
            f"lower={around[n + 2]}",
            f"shape={_shape(word)}",
            *(f"start={around[n + 2][:size]}" for size in range(1, AFFIX + 1)),
            *(f"end={around[n + 2][-size:]}" for size in range(1, AFFIX + 1)),
            *(f"at{at - 2:+}={around[n + at]}" for at in (0, 1, 3, 4)),
            f"before={around[n + 1]} {around[n + 2]}",
            f"after={around[n + 2]} {around[n + 3]}",
            f"ends before={around[n + 1][-3:]}",
            f"ends after={around[n + 3][-3:]}",
        ]
        for n, word in enumerate(words)
    ]


def _shape(word: str) -> str:
    """Return the sorts of a word's characters, runs as one: "Xx" for "Paris", "d-d" for "3-4"."""
    sort = {c: "X" if c.isupper() else "d" if c.isdigit() else "x" for c in word if c.isalnum()}
    return "".join(kind for kind, _ in groupby(sort.get(c, c) for c in word))


@dataclass(frozen=True)
class TagJudge(Judge):
    """Accuracy over words; before it, for entities, F1, precision and recall."""

    answers: TagAnswers
    names: ClassVar[tuple[str, ...]] = (
        "entity_f1", "entity_precision", "entity_recall", "accuracy",
    )  # fmt: skip

    def scores(self, outputs: Array, targets: TagTargets) -> dict[str, float]:
        predicted = self.answers.numbers(outputs, targets.labels)
        right = np.concatenate(targets.arrays)
        is_scored = right != UNLABELLED
        scores = {
            "accuracy": float((predicted == right)[is_scored].mean()) if is_scored.any() else 0
        }
        if not are_entity_labels(targets.labels):
            return scores
        sizes = [len(_forms(sentence.text)) for sentence in targets.sentences]
        edges = np.cumsum([0, *sizes])
        # A word without a label is outside of entities.
        names = np.asarray([*targets.labels, OUTSIDE])
        both = ([names[n[a:b]].tolist() for a, b in pairwise(edges)] for n in (right, predicted))
        return {**entity_scores(*both), **scores}

    def baselines(self, train: TagTargets, dev: TagTargets, labels: Labels) -> Mapping[str, Array]:
        """Return each word's most frequent label, and for unseen words that of all words."""
        by_word: dict[str, Counter[int]] = defaultdict(Counter)
        tags = chain.from_iterable(train.arrays)
        words = chain.from_iterable(_forms(sentence.text) for sentence in train.sentences)
        for word, tag in zip(words, tags, strict=True):
            if tag != UNLABELLED:
                by_word[word.strip()][int(tag)] += 1
        overall: Counter[int] = sum(by_word.values(), Counter())
        usual = overall.most_common(1)[0][0]
        best = {word: counts.most_common(1)[0][0] for word, counts in by_word.items()}
        predicted = [
            best.get(form.strip(), usual)
            for sentence in dev.sentences
            for form in _forms(sentence.text)
        ]
        # As logits of certainty, so that no threshold changes them.
        return {"most frequent label of each word": 1e3 * np.eye(len(labels))[predicted]}


@dataclass(frozen=True)
class TagAnswers(Answers):
    """Lists with a label and a probability for each word; of a text also where it is, and entities.

    See `read_sentence`.

    Attributes:
        threshold: the probability from which a word is part of an entity, of the likeliest one;
            None for the likeliest label.
    """

    threshold: float | None = None

    def numbers(self, outputs: Array, labels: Labels) -> Array:
        """Return the number of each word's label, (words,) int64."""
        if self.threshold is None or OUTSIDE not in labels:
            return np.asarray(outputs.argmax(axis=1))
        outside = labels.index(OUTSIDE)
        is_inside = 1 - softmax(outputs, axis=1)[:, outside] >= self.threshold
        of_entities = outputs.copy()
        of_entities[:, outside] = -np.inf
        return np.asarray(np.where(is_inside, of_entities.argmax(axis=1), outside))

    def fitted(self, outputs: Array, targets: TagTargets) -> Mapping[str, Any]:
        """Return the threshold of the highest F1 of entities, if there is none yet.

        Most words are outside of entities, so the likeliest labels find too few of them. Of several
        that are best it is the middle one: the least would find too many in other texts.
        """
        labels = targets.labels
        if self.threshold is not None or not (are_entity_labels(labels) and OUTSIDE in labels):
            return {}
        judges = [TagJudge(TagAnswers(threshold)) for threshold in THRESHOLDS]
        scores = [judge.scores(outputs, targets)["entity_f1"] for judge in judges]
        best = np.flatnonzero(np.array(scores) == max(scores))
        return {"threshold": THRESHOLDS[best[len(best) // 2]]} if max(scores) > 0 else {}

    def at_threshold(self, threshold: float, labels: Labels) -> Mapping[str, Any]:
        if are_entity_labels(labels) and OUTSIDE in labels:
            return {"threshold": threshold}
        return super().at_threshold(threshold, labels)

    def decided(self, labels: Labels) -> str:
        return "an entity"

    def types(self, labels: Labels, *, probabilities: bool, is_pair: bool) -> dict[str, Any]:
        columns = probability_columns(labels) if probabilities else []
        numbers = dict.fromkeys([PROBABILITY, *columns], pa.list_(pa.float32()))
        places: dict[str, Any] = dict.fromkeys([START, END], pa.list_(pa.int64()))
        places |= {ENTITIES: ENTITY_TYPE} if are_entity_labels(labels) else {}
        return {PREDICTION: pa.list_(pa.string()), **numbers, **places}

    def row(self, result: ExampleOutputs, labels: Labels, *, probabilities: bool) -> dict[str, Any]:
        numbers, shares = self.numbers(result.outputs, labels), softmax(result.outputs, axis=1)
        row = {
            PREDICTION: [labels[n] for n in numbers],
            PROBABILITY: list(map(shortest, shares[np.arange(len(shares)), numbers])),
        }
        if probabilities:
            columns = zip(probability_columns(labels), shares.T, strict=True)
            row |= {name: list(map(shortest, column)) for name, column in columns}
        text = result.example.pair
        return row if text is None else row | _places(text, row[PREDICTION], labels)


def _places(text: str, tags: Sequence[str], labels: Labels) -> dict[str, list[Any]]:
    """Return where the words of a text are, and its entities if labels are those of entities."""
    words = [word.span() for word in re.finditer(r"\S+", text)]
    places: dict[str, list[Any]] = {START: [a for a, _ in words], END: [b for _, b in words]}
    if are_entity_labels(labels):
        spans = [(kind, words[first][0], words[last][1]) for kind, first, last in entities(tags)]
        places[ENTITIES] = [
            {"label": kind, "text": text[a:b], START: a, END: b} for kind, a, b in spans
        ]
    return places


@dataclass(frozen=True)
class Tag(Weighted, HeadedTask):
    """Tagging: dropout and a linear layer on the state of each word's first piece.

    A row is a sentence: `.conllu` (the words are `form`, the labels `upos`; `--label xpos` is
    another column), CoNLL columns (`.conll`, `.txt`, `.tsv`: a word per line, a blank line between
    sentences; the word is the first column and the label the last), or a table with lists of words
    and labels. A sentence that is too long is read in windows of whole words that overlap by half;
    a word is labelled in the one where it has most context.

    Labels of entities (B-person, I-person, O) are scored by F1 over whole entities, as seqeval and
    CoNLL-2003's conlleval do, others by accuracy over words.

    Attributes:
        weights: weight of each label in the loss: `balanced` for weights in inverse proportion to
            how frequent they are, or `label=weight` each ("NOUN=5"), 1 for the others.
        threshold: the probability from which a word is part of an entity, of the likeliest one;
            default: strategy `best` takes that of the highest F1 out of fold, others the likeliest
            label.
        windows: those of a long sentence: `overlapping`, or `adjacent`, whose first and last words
            have context on one side alone.

    Also called: token classification, sequence labelling, part-of-speech tagging, NER.
    Reference: Devlin et al. 2019, section 5.3; Ramshaw & Marcus 1995 for B, I and O.
    Differs from the paper: no context of the document around the sentence.
    """

    reader: ClassVar[RowReader] = RowReader(
        read_sentence,
        (
            Columns("words", "labels"),
            Columns("tokens", "tags"),
            Columns("tokens", "ner_tags"),
            Columns("tokens", "pos_tags"),
        ),
        {".conllu": ".conllu", ".conll": ".conll", ".txt": ".conll", ".tsv": ".conll"},
        takes_texts=False,
        counted=_counted,
    )
    exports: ClassVar[Exports] = Exports(
        "TokenClassification",
        "the label of a word is that of its first token: pipeline(..., "
        'aggregation_strategy="first"), and the likeliest one, without a threshold',
        cuts_texts=False,
        example=lambda text, pair: Labelled(SPACED.join(text.split())),
        texts=lambda example: [("".join(_forms(example.text)),)],
        outputs=lambda result, row, encoded, before: result.logits[row].numpy()[
            before + encoded.pooled_positions
        ],
        pipeline_tag="token-classification",
    )
    output_form: ClassVar[OutputForm | None] = "classes"

    BEFORE: ClassVar[Mapping[str, Any]] = {"windows": "adjacent"}

    windows: Literal["overlapping", "adjacent"] = "overlapping"
    threshold: OpenShare | None = None

    @property
    def judge(self) -> Judge:
        return TagJudge(self.answers)

    @property
    def answers(self) -> TagAnswers:
        return TagAnswers(self.threshold)

    @property
    def needs(self) -> Needs:
        return replace(super().needs, reads_tokens=True)

    def labels(self, train: Sequence[Labelled]) -> Labels:
        """Return the labels of the training examples, sorted."""
        labels = tuple(sorted({tag for example in train for tag in _tags(example) if tag}))
        if len(labels) < 2:
            what = f"every word has '{labels[0]}'" if labels else "no word has one"
            raise UserError(f"the training examples need at least two labels; {what}")
        return labels

    def targets(
        self, examples: Sequence[Labelled], labels: Labels, encoded: Inputs = ()
    ) -> TagTargets:
        """Return the targets of each window."""
        number = {label: n for n, label in enumerate(labels)} | {"": UNLABELLED}
        require_known(examples, labels, lambda label: list(filter(None, label.split(SPACED))))
        flat = [number[tag] for example in examples for tag in _tags(example)]
        counts = [len(window.pooled_positions) for window in encoded]
        arrays = np.split(np.asarray(flat, np.int64), np.cumsum(counts)[:-1])
        return TagTargets(arrays, examples, labels)

    @in_columns
    def encode(
        self, examples: Sequence[Labelled], tokenizer: Tokenizer, template: InputTemplate
    ) -> Iterator[EncodedExample]:
        """Yield each sentence, pooled at the first piece of each word, in windows if it is long."""
        for chunk in batched(examples):
            forms = list(dict.fromkeys(form for example in chunk for form in _forms(example.text)))
            pieces = dict(zip(forms, tokenizer.encode_words(forms), strict=True))
            for example in chunk:
                words = [
                    _known(pieces[form], form, tokenizer, example.source)
                    for form in _forms(example.text)
                ]
                is_overlapping = self.windows == "overlapping"
                yield from _windows(words, template, is_overlapping=is_overlapping)

    def prepared(self, targets: TagTargets, labels: Labels) -> Tag:
        """Return the task with the weight of each class."""
        classes = np.concatenate(targets.arrays)
        return replace(self, weights=weights_of(self.weights, classes, labels))

    def loss(self, outputs: Tensor, targets: Tensor, numbers: Tensor) -> Loss:
        """Return the cross-entropy of the words that have a label, weighted by class, in nats."""
        return weighted_cross_entropy(outputs, targets, self.weights)


@dataclass(frozen=True)
class TagTargets(Targets):
    """The labels of words, by number.

    Attributes:
        arrays: the labels of each window, (words,) int64 each; UNLABELLED for a word without one.
    """

    sentences: Sequence[Labelled]
    labels: Labels


def _items(cell: Any, source: str) -> list[str]:
    """Return the items of a list, or of a text split at spaces; "" for one that is missing."""
    if isinstance(cell, list | tuple | np.ndarray):
        items = [label_of(item, source) for item in cell]
        return [item.strip() or item for item in items]  # a word may be a space
    return text_of(cell, source).split()


def _forms(text: str) -> list[str]:
    """Return the words of a sentence, each with the space before it, if there is one."""
    return [form.replace(SPACED, " ") for form in re.split(f"(?={SPACED})|{GLUED}", text)]


def _tags(example: Labelled) -> list[str]:
    return example.label.split(SPACED)


def _known(
    pieces: tuple[list[int], int], form: str, tokenizer: Tokenizer, source: str
) -> tuple[list[int], int]:
    """Return the pieces of a word, the unknown token if it has none."""
    if pieces[0]:
        return pieces
    unknown = tokenizer.vocab.special.get(special.UNK)
    if unknown is None:
        raise UserError(
            f"{source}: the word {form.strip()!r} has no token; replace it, or leave it out"
        )
    return [unknown], 0


def _windows(
    words: Sequence[tuple[list[int], int]], template: InputTemplate, *, is_overlapping: bool
) -> Iterator[EncodedExample]:
    """Yield a sentence in windows of whole words; a word longer than a window is cut.

    Each has the positions of the words that have most context in it.
    """
    before = len(template.prefix)
    room = template.length - before - len(template.suffix)
    pieces = [word[:room] for word, _ in words]
    edges = np.cumsum([0, *map(len, pieces)])  # where each word begins, and where the last one ends
    own = begin = 0  # the first word that has no window yet, and the first one of this window
    while own < len(words):
        end = max(begin + 1, int(np.searchsorted(edges, edges[begin] + room, side="right")) - 1)
        # The next window begins with the first word in the second half of this one; of the words
        # that both have, this one labels those with as much context on the right or more.
        middle = int(np.searchsorted(edges, edges[begin] + room // 2))
        following = min(max(middle, begin + 1), end) if is_overlapping else end
        shared = np.arange(following, end)
        has_more = edges[shared] - edges[following] <= edges[end] - edges[shared + 1]
        last = end if end == len(words) else following + int(has_more.sum())
        if last > own:
            ids = [piece for word in pieces[begin:end] for piece in word]
            all_ids = np.asarray([*template.prefix, *ids, *template.suffix], np.int64)
            firsts = [min(first, room - 1) for _, first in words[own:last]]
            yield EncodedExample(
                all_ids,
                np.zeros_like(all_ids),
                before + edges[own:last] - edges[begin] + np.asarray(firsts),
                any(len(word) > room for word, _ in words[own:last]),
                is_further=own > 0,
            )
        own, begin = last, following
