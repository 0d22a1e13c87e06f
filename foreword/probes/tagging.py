"""Whether a word's part of speech can be read from its vector in the sentence."""

from __future__ import annotations

import warnings
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Literal, NamedTuple

import numpy as np
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from foreword.errors import UserError
from foreword.evaluation.prompting import PromptedModel
from foreword.evaluation.states import text_states
from foreword.probes._contract import FilePath, Finding, ProbedModel, Row
from foreword.probes._files import evenly
from foreword.probes._intervals import DRAWS, LEVEL, bootstrap
from foreword.probes._layers import by_layer, layer_order, require_layer
from foreword.probes._marks import MAX_RUNS, run_style, title
from foreword.ranges import CountOrZero, Ranged
from foreword.tuning.conllu import Column, TaggedSentence, read_conllu
from foreword.types import Array

EVERY = 10  # one training sentence in so many is kept to choose the layer on
STEPS = 200  # of the classifier's optimizer


class _Sentences(NamedTuple):
    """The sentences of a probe: to fit the classifier, to choose the layer, and to score."""

    fit: Sequence[TaggedSentence]
    choose: Sequence[TaggedSentence]
    dev: Sequence[TaggedSentence]


@dataclass(frozen=True)
class Tagging(Ranged):
    """The accuracy of a linear classifier that reads a word's part of speech from its vector.

    The model is frozen: a logistic regression is fitted to the states of one layer at the words of
    `train` and scored on those of `dev`. The layer is the best one on a tenth of `train`, which is
    not fitted to. Beside it stands a baseline without a model: the most frequent tag of each word
    in `train`, and of all words for words not seen there. What the model adds is above the baseline
    and above random weights (`--untrained`).

    Layer `alone` is the embedding of the word's tokens; word2vec has no other. Layer 0 is the input
    of the first layer, layer n the output of the n-th. A causal model sees the words before alone.

    Attributes:
        train: sentences in CoNLL-U (Universal Dependencies) to fit the classifier to.
        dev: sentences in CoNLL-U to score.
        tag: the column of tags: universal (`upos`) or of the language (`xpos`).
        pieces: the vector of a word cut into pieces: the mean of theirs, or that of the first.
        layer: the layer of the states; default: the best.
        limit: number of sentences of each file, evenly spaced; 0 for all.

    Also called: part of speech, POS.
    Reference: Belinkov et al. 2017; Liu et al. 2019a; Hewitt & Liang 2019 on baselines.
    """

    reads_text: ClassVar[bool] = False

    train: FilePath
    dev: FilePath
    tag: Column = "upos"
    pieces: Literal["mean", "first"] = "mean"
    layer: CountOrZero | None = None
    limit: CountOrZero = 1000

    def measure(self, models: Sequence[ProbedModel]) -> Finding:
        """Measure the accuracy of each layer of each model.

        Raises:
            UserError: a file cannot be read, or a model has no states or no such layer.
        """
        sentences = self._read()
        for probed in models:
            require_layer(probed.trained, sentences.fit[0].text, self.layer)
        share, *interval = _accuracy(_most_frequent_tags(sentences), sentences.dev)
        rows: list[Row] = []
        details: list[Row] = []
        for probed in models:
            accuracies = self._accuracy_by_layer(probed.trained, sentences)
            details += [{"run": probed.label, **row} for row in accuracies]
            best = max(accuracies, key=lambda row: row["chosen_on"])
            own = {key: best[key] for key in ("layer", "accuracy", "low", "high")}
            words = sum(map(len, _gold(sentences.dev)))
            rows.append({"run": probed.label, **own, "baseline": share, "words": words})
        low, high = interval
        notes = [
            f"baseline: the most frequent tag of each word, {low:.3f} to {high:.3f}",
            f"low, high: {LEVEL:.0%} of {DRAWS:,} bootstrap draws over sentences",
            f"fitted to {sum(map(len, _gold(sentences.fit))):,} words of "
            f"{len(sentences.fit):,} sentences",
        ]
        return Finding(
            title=f"tagging: parts of speech ({self.tag}) read by a linear classifier",
            rows=rows,
            details=details,
            notes=notes,
            plot=lambda figure: _plot(figure, rows, details),
            measure="accuracy",
            scores={row["run"]: row["accuracy"] for row in rows},
        )

    def _read(self) -> _Sentences:
        """Return the sentences.

        Raises:
            UserError: a file cannot be read, or there are too few sentences or tags to fit.
        """
        train, dev = (
            evenly(read_conllu(Path(file).expanduser(), self.tag), self.limit)
            for file in (self.train, self.dev)
        )
        is_kept = [n % EVERY == EVERY - 1 or n == len(train) - 1 < EVERY for n in range(len(train))]
        fit = [sentence for sentence, kept in zip(train, is_kept, strict=True) if not kept]
        choose = [sentence for sentence, kept in zip(train, is_kept, strict=True) if kept]
        tags = {tag for one in _gold(fit) for tag in one}
        if len(tags) < 2 or not any(map(len, _gold(choose))) or not any(map(len, _gold(dev))):
            raise UserError(
                f"probe.train, probe.dev: {self.train}, {self.dev}: too few tagged sentences to "
                "fit and score a classifier"
            )
        return _Sentences(fit, choose, dev)

    def _accuracy_by_layer(
        self, prompted: PromptedModel, sentences: _Sentences
    ) -> list[dict[str, Any]]:
        """Return the accuracy of each layer on `dev`, and on the sentences it is chosen on."""
        fit, choose, dev = (self._vectors(prompted, some) for some in sentences)
        tags = np.array([tag for one in _gold(sentences.fit) for tag in one])
        accuracies = []
        for layer in fit:
            classifier = make_pipeline(StandardScaler(), LogisticRegression(max_iter=STEPS))
            with warnings.catch_warnings():  # the step limit is meant
                warnings.simplefilter("ignore", ConvergenceWarning)
                classifier.fit(fit[layer], tags)
            chosen_on = _accuracy(classifier.predict(choose[layer]), sentences.choose, draws=1)[0]
            share, low, high = _accuracy(classifier.predict(dev[layer]), sentences.dev)
            numbers = {"accuracy": share, "low": low, "high": high, "chosen_on": chosen_on}
            accuracies.append({"layer": layer, **numbers})
        return accuracies

    def _vectors(
        self, prompted: PromptedModel, sentences: Sequence[TaggedSentence]
    ) -> dict[str, Array]:
        """Return the vectors of the tagged words by layer, (words, width) float32 each."""
        vectors: dict[str, list[Array]] = defaultdict(list)
        states = text_states(prompted, (sentence.text for sentence in sentences), splits=True)
        for sentence, of_text in zip(sentences, states, strict=True):
            layers = by_layer(of_text)
            wanted = layers if self.layer is None else {str(self.layer)}
            for span, tag in zip(sentence.spans, sentence.tags, strict=True):
                if tag is None:
                    continue
                where = of_text.tokens_of(*span)[: 1 if self.pieces == "first" else None]
                for layer in wanted:  # a word without a token has a vector of zeros
                    states_of = layers[layer][where]
                    vectors[layer].append(states_of.sum(0) / max(1, len(where)))
        return {layer: np.stack(words) for layer, words in vectors.items()}


def _gold(sentences: Sequence[TaggedSentence]) -> list[list[str]]:
    """Return the tags of each sentence, of the words that have one."""
    return [[tag for tag in sentence.tags if tag is not None] for sentence in sentences]


def _most_frequent_tags(sentences: _Sentences) -> list[str]:
    """Return the baseline's tag for each tagged word of `dev`."""
    by_word: dict[str, Counter[str]] = defaultdict(Counter)
    for sentence in sentences.fit:
        for word, tag in zip(sentence.words, sentence.tags, strict=True):
            if tag is not None:
                by_word[word][tag] += 1
    overall = sum(by_word.values(), Counter[str]())
    return [
        by_word.get(word, overall).most_common(1)[0][0]
        for sentence in sentences.dev
        for word, tag in zip(sentence.words, sentence.tags, strict=True)
        if tag is not None
    ]


def _accuracy(
    predicted: Sequence[str], sentences: Sequence[TaggedSentence], draws: int = DRAWS
) -> tuple[float, float, float]:
    """Return the share of words that are right, and its interval over sentences."""
    gold = _gold(sentences)
    counts = np.array([len(tags) for tags in gold])
    is_right = np.array(predicted) == np.array([tag for tags in gold for tag in tags])
    right = np.array([part.sum() for part in np.split(is_right, np.cumsum(counts)[:-1])])

    def share(indices: Array) -> float:
        return float(right[indices].sum() / max(1, counts[indices].sum()))

    return (float(is_right.mean()), *bootstrap(share, len(gold), draws))


def _plot(figure: Any, rows: Sequence[Row], details: Sequence[Row]) -> None:
    """Plot the accuracy of each layer, the runs as lines, and the baseline."""
    figure.set_size_inches(7.6, 4.8)
    axes = figure.subplots()
    ticks = layer_order(str(row["layer"]) for row in details)
    for number, row in enumerate(rows[:MAX_RUNS]):
        own = [detail for detail in details if detail["run"] == row["run"]]
        axes.errorbar(
            [ticks.index(str(detail["layer"])) for detail in own],
            [detail["accuracy"] for detail in own],
            yerr=np.clip(
                [
                    [d["accuracy"] - d["low"] for d in own],
                    [d["high"] - d["accuracy"] for d in own],
                ],
                0,
                None,
            ),
            label=f"{row['run']}: {row['accuracy']:.3f} (layer {row['layer']})",
            capsize=2,
            **run_style(number),
        )
    axes.axhline(rows[0]["baseline"], color="gray", linestyle="--", linewidth=1)
    axes.set_xticks(range(len(ticks)), ticks)
    axes.set_xlabel("layer; dashed: the most frequent tag of each word")
    axes.set_ylabel("accuracy on words")
    axes.set_title(title("Parts of speech read from frozen states", len(rows)))
    axes.grid(alpha=0.3)
    figure.legend(loc="outside lower center", ncols=2, frameon=False)
