"""A bag-of-words baseline: what the same labelled examples reach without a network."""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np
from sklearn.exceptions import ConvergenceWarning
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline

from foreword.tables.examples import Labelled
from foreword.text.words import is_unspaced, split
from foreword.tuning.drawing import DrawnExamples
from foreword.tuning.scores import Scores, single
from foreword.tuning.tasks._contract import Task
from foreword.types import Array

NAME = "bag of words (TF-IDF, logistic regression)"
PENALTIES = (1.0, 10.0, 100.0)
PENALTY = 10.0  # where none is chosen
FOLDS = 3
MOST_CHOSEN_ON = 20_000  # examples; with more, choosing takes minutes and gains little


class BagOfWords(NamedTuple):
    """The scores of the baseline.

    Attributes:
        row: its scores.
        correct: whether it answered each of `test` correctly, (examples,) float64.
    """

    row: Scores
    correct: Array


def bags_of_words(
    task: Task,
    drawn: DrawnExamples,
    test: Sequence[Labelled],
    further: Mapping[str, Sequence[Labelled]] = MappingProxyType({}),
) -> list[BagOfWords]:
    """Return the baseline of each seed's examples, or one if every seed uses all.

    None is returned if the texts have no words.

    Args:
        task: the task, whose labels are classes.
        drawn: examples to learn from.
        test: examples to score.
        further: more examples to score, by the name that their scores begin with.
    """
    draws = drawn.numbers if len(drawn.numbers[0]) < drawn.total else drawn.numbers[:1]
    examples = list(drawn.examples)
    scored = [
        bag_of_words(task, [examples[n] for n in numbers], test, further) for numbers in draws
    ]
    return [row for row in scored if row is not None]


def bag_of_words(
    task: Task,
    train: Sequence[Labelled],
    test: Sequence[Labelled],
    further: Mapping[str, Sequence[Labelled]] = MappingProxyType({}),
) -> BagOfWords | None:
    """Return the baseline; None if the texts have no words.

    The penalty, and whether pairs of words are features, are chosen on the training examples alone
    by cross-validation, unless they are very many, or a label has fewer examples than folds.

    Args:
        task: the task, whose labels are classes.
        train: examples to learn from.
        test: examples to score.
        further: more examples to score, by the name that their scores begin with.
    """
    labels = task.labels(train)
    targets = task.targets(train, labels)
    words = TfidfVectorizer(tokenizer=words_of, token_pattern=None, sublinear_tf=True)
    analyse = words.build_analyzer()
    if not any(analyse(_text(example)) for example in train):
        return None
    model: Any = make_pipeline(words, LogisticRegression(max_iter=1000, C=PENALTY))
    fewest = min(Counter(targets.tolist()).values())
    if fewest >= FOLDS and len(train) <= MOST_CHOSEN_ON:
        grid = {
            "tfidfvectorizer__ngram_range": [(1, 1), (1, 2)],
            "logisticregression__C": PENALTIES,
        }
        model = GridSearchCV(model, grid, cv=FOLDS)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        model.fit([_text(example) for example in train], targets)
    scores: dict[str, float] = {}
    correct: list[Array] = []
    for name, part in {"": test, **{f"{name}_": part for name, part in further.items()}}.items():
        outputs = model.predict_proba([_text(example) for example in part])
        part_targets = task.targets(part, labels)
        part_scores = task.judge.scores(outputs, part_targets)
        correct.append(np.asarray(outputs.argmax(axis=1) == part_targets, np.float64))
        scores |= {f"{name}{metric}": score for metric, score in part_scores.items()}
    return BagOfWords(single("no network", NAME, scores), correct[0])


def words_of(text: str) -> list[str]:
    """Return the words of a text, without those of one letter but in scripts without spaces."""
    return [word for word in split(text) if len(word) > 1 or is_unspaced(word)]


def _text(example: Labelled) -> str:
    return f"{example.text} {example.pair or ''}"
