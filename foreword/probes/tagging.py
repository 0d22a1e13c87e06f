"""Whether a word's part of speech, and more, can be read from its vector in the sentence."""

from __future__ import annotations

import warnings
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Literal

import numpy as np
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from foreword.errors import UserError
from foreword.evaluation.states import text_states
from foreword.evaluation.statistics import DRAWS, LEVEL, bootstrap
from foreword.formatting import interval
from foreword.probes._contract import FilePath, Finding, ProbedModel, Row
from foreword.probes._files import evenly
from foreword.probes._layers import by_layer, layer_order, require_layer
from foreword.probes._marks import MAX_RUNS, run_style, title
from foreword.probes._word_tasks import (
    NAMES,
    ParsedSentences,
    Tags,
    WordTask,
    control_task,
    word_task,
)
from foreword.runs.trained_model import TrainedModel
from foreword.settings.ranges import CountOrZero, Ranged
from foreword.tables.conllu import TaggedSentence, WordProperty, read_conllu
from foreword.types import Array

EVERY = 10  # every tenth training sentence is held out to choose the layer on
STEPS = 200  # of the classifier's optimizer
ALL: tuple[WordProperty, ...] = ("upos", "word", "position", "depth")

Accuracy = tuple[float, float | None, float | None]  # with its interval, if it has one


@dataclass(frozen=True)
class Tagging(Ranged):
    """The accuracy of a linear classifier that reads a property of a word from its vector.

    The model is frozen: a logistic regression is fitted to the states of one layer at the words of
    `train` and scored on those of `dev`. The layer is the best one on a tenth of `train`, which is
    not fitted to. Beside it stands a baseline without a model: the most frequent tag of each word
    in `train`, and of all words for words not seen there. What the model adds is above the baseline
    and above random weights (`--untrained`).

    With `control` the same classifier learns the control task, in which each word has one random
    tag, drawn in the proportions of the real ones. It can only be memorised, so the
    selectivity, accuracy - control, says how much of the accuracy is the model's and not the
    classifier's. The identity of a word is itself memorised: its selectivity is near 0.

    Layer `alone` is the embedding of the word's tokens; word2vec has no other. Layer 0 is the input
    of the first layer, layer n the output of the n-th. A causal model sees the words before alone.

    Attributes:
        train: sentences in CoNLL-U (Universal Dependencies) to fit the classifier to.
        dev: sentences in CoNLL-U to score.
        tag: what is read: the part of speech, universal (`upos`) or of the language (`xpos`); which
            `word` of the 50 most frequent it is, in lower case; its `position` in the sentence, up
            to 20; its `depth` in the syntax tree, the number of arcs to the root; or `all` of them,
            without `xpos`.
        control: also learn the control task.
        pieces: the vector of a word cut into pieces: the mean over the pieces, or the first one's.
        layer: the layer of the states; default: the best.
        limit: number of sentences of each file, evenly spaced; 0 for all.

    Also called: linear probe, diagnostic classifier, part of speech, POS.
    Reference: Belinkov et al. 2017; Conneau et al. 2018; Liu et al. 2019a; Hewitt & Liang 2019.
    """

    reads_text: ClassVar[bool] = False

    train: FilePath
    dev: FilePath
    tag: WordProperty | Literal["all"] = "upos"
    control: bool = False
    pieces: Literal["mean", "first"] = "mean"
    layer: CountOrZero | None = None
    limit: CountOrZero = 1000

    def measure(self, models: Sequence[ProbedModel]) -> Finding:
        """Measure the accuracy of each layer of each model.

        Raises:
            UserError: a file cannot be read, or a model has no states or no such layer.
        """
        sentences = self._read()
        tasks = [word_task(sentences, reads) for reads in self._properties]
        for task in tasks:
            if not task.is_enough:
                raise UserError(
                    f"probe.train, probe.dev: {self.train}, {self.dev}: too few tagged sentences "
                    f"to fit and score a classifier of {task.reads}"
                )
        for probed in models:
            require_layer(probed.trained, sentences.fit[0].text, self.layer)
        baselines = {task.reads: _accuracy(task.most_frequent, task.dev) for task in tasks}
        rows: list[Row] = []
        details: list[Row] = []
        for probed in models:
            vectors = [self._vectors(probed.trained, part) for part in sentences]
            for task in tasks:
                labels = {"run": probed.label, "tag": task.reads}
                accuracies = self._accuracy_by_layer(vectors, sentences, task)
                details += [labels | row for row in accuracies]
                best = max(accuracies, key=lambda row: row["chosen_on"])
                figures = {key: value for key, value in best.items() if key != "chosen_on"}
                also = {"baseline": baselines[task.reads][0], "words": len(task.dev.of_words)}
                rows.append(labels | figures | also)
        names = ", ".join(NAMES[task.reads] for task in tasks)
        return Finding(
            title=f"tagging: what a linear classifier reads from words ({names})",
            rows=rows,
            details=details,
            notes=self._notes(tasks, baselines),
            plot=lambda figure: _plot(figure, rows, details),
            measure="accuracy",
            scores={row["run"]: row["accuracy"] for row in reversed(rows)},  # of the first tag
        )

    @property
    def _properties(self) -> tuple[WordProperty, ...]:
        return ALL if self.tag == "all" else (self.tag,)

    def _read(self) -> ParsedSentences:
        """Return the sentences."""
        train, dev = (
            evenly(read_conllu(Path(file).expanduser(), *self._properties), self.limit)
            for file in (self.train, self.dev)
        )
        is_held_out = [
            n % EVERY == EVERY - 1 or n == len(train) - 1 < EVERY for n in range(len(train))
        ]
        fit = [s for s, held_out in zip(train, is_held_out, strict=True) if not held_out]
        choose = [s for s, held_out in zip(train, is_held_out, strict=True) if held_out]
        return ParsedSentences(fit, choose, dev)

    def _notes(
        self,
        tasks: Sequence[WordTask],
        baselines: dict[WordProperty, Accuracy],
    ) -> list[str]:
        intervals = ", ".join(
            (interval(low, high) or "no interval") + f" ({reads})" * (len(tasks) > 1)
            for reads, (_, low, high) in baselines.items()
        )
        words = ", ".join(f"{len(task.fit.of_words):,}" for task in tasks)
        notes = [
            f"baseline: the most frequent tag of each word, {intervals}",
            f"interval: {LEVEL:.0%} of {DRAWS:,} bootstrap draws over sentences",
            f"fitted to {words} words of {len(tasks[0].fit.counts):,} sentences",
        ]
        if self.control:
            notes.append(
                "control: the accuracy on a random tag for each word; selectivity: accuracy - "
                "control"
            )
        return notes

    def _accuracy_by_layer(
        self, vectors: Sequence[dict[str, Array]], sentences: ParsedSentences, task: WordTask
    ) -> list[dict[str, Any]]:
        """Return the accuracy of each layer on `dev`, and on the sentences it is chosen on."""
        fit, choose, dev = vectors
        accuracies = []
        for layer in fit:
            classifier = _fitted(fit[layer], task.fit)
            chosen_on = _accuracy(
                _predicted(classifier, choose[layer], task.choose), task.choose, 1
            )
            share, low, high = _accuracy(_predicted(classifier, dev[layer], task.dev), task.dev)
            row = {"layer": layer, "accuracy": share, "low": low, "high": high}
            if self.control:
                random = control_task(sentences, task)
                other = _fitted(fit[layer], random.fit)
                control, *_ = _accuracy(_predicted(other, dev[layer], random.dev), random.dev, 1)
                row |= {"control": control, "selectivity": share - control}
            accuracies.append(row | {"chosen_on": chosen_on[0]})
        return accuracies

    def _vectors(
        self, prompted: TrainedModel, sentences: Sequence[TaggedSentence]
    ) -> dict[str, Array]:
        """Return the vectors of the words by layer, (words, width) float32 each."""
        vectors: dict[str, list[Array]] = defaultdict(list)
        states = text_states(prompted, (sentence.text for sentence in sentences), splits=True)
        for sentence, of_text in zip(sentences, states, strict=True):
            layers = by_layer(of_text)
            names = layers if self.layer is None else {str(self.layer)}
            for span in sentence.spans:
                where = of_text.tokens_of(*span)[: 1 if self.pieces == "first" else None]
                for layer in names:  # a word without a token has a vector of zeros
                    states_of = layers[layer][where]
                    vectors[layer].append(states_of.sum(0) / max(1, len(where)))
        return {layer: np.stack(words) for layer, words in vectors.items()}


def _fitted(vectors: Array, tags: Tags) -> Any:
    """Return a classifier fitted to the tagged words."""
    classifier = make_pipeline(StandardScaler(), LogisticRegression(max_iter=STEPS))
    with warnings.catch_warnings():  # the step limit is meant
        warnings.simplefilter("ignore", ConvergenceWarning)
        classifier.fit(vectors[tags.is_tagged], tags.of_words)
    return classifier


def _predicted(classifier: Any, vectors: Array, tags: Tags) -> Array:
    predicted: Array = classifier.predict(vectors[tags.is_tagged])
    return predicted


def _accuracy(predicted: Array, tags: Tags, draws: int | None = None) -> Accuracy:
    """Return the share of words that are right, and its interval over sentences."""
    is_right = predicted == tags.of_words
    right = np.array([part.sum() for part in np.split(is_right, np.cumsum(tags.counts)[:-1])])

    def share(indices: Array) -> float:
        return float(right[indices].sum() / max(1, tags.counts[indices].sum()))

    return (float(is_right.mean()), *bootstrap(share, len(right), draws))


def _plot(figure: Any, rows: Sequence[Row], details: Sequence[Row]) -> None:
    """Plot the accuracy of each layer, a panel for each property and a line for each run."""
    properties = list(dict.fromkeys(row["tag"] for row in rows))
    runs = list(dict.fromkeys(row["run"] for row in rows))
    columns = min(2, len(properties))
    figure.set_size_inches(*((7.6, 4.8) if columns == 1 else (10, 1 + 1.7 * len(properties))))
    panels = figure.subplots(-(-len(properties) // columns), columns, squeeze=False).ravel()
    ticks = layer_order(str(row["layer"]) for row in details)
    explained = "dashed: the most frequent tag of each word"
    if "control" in rows[0]:
        explained += "; dotted: control"
    for reads, axes in zip(properties, panels, strict=True):
        of_property = [row for row in rows if row["tag"] == reads]
        for number, row in enumerate(of_property[:MAX_RUNS]):
            of_run = [d for d in details if d["run"] == row["run"] and d["tag"] == reads]
            label = f"{row['run']}: {row['accuracy']:.3f} (layer {row['layer']})"
            _plot_run(axes, ticks, of_run, number, label if columns == 1 else row["run"])
        axes.axhline(of_property[0]["baseline"], color="gray", linestyle="--", linewidth=1)
        axes.set_xticks(range(len(ticks)), ticks)
        axes.set_xlabel("layer" if columns > 1 else f"layer; {explained}")
        axes.set_ylabel("accuracy on words")
        axes.set_title(NAMES[reads][0].upper() + NAMES[reads][1:])
        axes.grid(alpha=0.3)
    heading = "Read from frozen states by a linear classifier" + f"\n{explained}" * (columns > 1)
    if columns > 1:
        figure.suptitle(title(heading, len(runs)))
    else:
        panels[0].set_title(title(f"{panels[0].get_title()}, read from frozen states", len(runs)))
    figure.legend(
        *panels[0].get_legend_handles_labels(), loc="outside lower center", ncols=2, frameon=False
    )


def _plot_run(
    axes: Any, ticks: Sequence[str], details: Sequence[Row], number: int, label: str
) -> None:
    """Plot the accuracy of a run by layer with its intervals, and its control."""
    at = [ticks.index(str(detail["layer"])) for detail in details]
    low, accuracies, high = (
        np.array([detail[key] for detail in details], float) for key in ("low", "accuracy", "high")
    )
    errors = np.clip([accuracies - low, high - accuracies], 0, None)
    style = run_style(number)
    axes.errorbar(at, accuracies, yerr=errors, label=label, capsize=2, **style)
    if "control" in details[0]:
        controls = [detail["control"] for detail in details]
        axes.plot(at, controls, linestyle=":", **style | {"marker": "."})
