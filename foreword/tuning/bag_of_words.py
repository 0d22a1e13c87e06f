"""A bag-of-words baseline: what the same labelled examples reach without a network."""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np
from scipy.special import logit
from sklearn.exceptions import ConvergenceWarning
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV, KFold, cross_val_predict
from sklearn.multiclass import OneVsRestClassifier
from sklearn.pipeline import Pipeline

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
        correct: whether it answered each of `test` correctly, (examples,) float64; None unless the
            mean is the accuracy.
    """

    row: Scores
    correct: Array | None


def bags_of_words(
    task: Task,
    drawn: DrawnExamples,
    test: Sequence[Labelled],
    further: Mapping[str, Sequence[Labelled]] = MappingProxyType({}),
) -> list[BagOfWords]:
    """Return the baseline of each seed's examples or of each fold, or one if every seed uses all.

    None is returned if the texts have no words.

    Args:
        further: more examples to score, by the name that their scores begin with.
    """
    draws = drawn.numbers if len(drawn.numbers[0]) < drawn.total else drawn.numbers[:1]
    examples = list(drawn.examples)
    parts = [
        ([examples[n] for n in fold.numbers], [examples[n] for n in fold.held])
        for fold in drawn.folds
    ] or [([examples[n] for n in numbers], list(test)) for numbers in draws]
    scored = [bag_of_words(task, train, part, further) for train, part in parts]
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
        further: more examples to score, by the name that their scores begin with.
    """
    labels = task.labels(train)
    targets = task.targets(train, labels)
    are_sets = targets.ndim > 1  # of labels: each is a regression of its own
    right = targets.reshape(len(targets), -1).astype(np.int64) if are_sets else targets
    words = TfidfVectorizer(tokenizer=words_of, token_pattern=None, sublinear_tf=True)
    analyse = words.build_analyzer()
    if not any(analyse(_text(example)) for example in train):
        return None
    regression = LogisticRegression(max_iter=1000, C=PENALTY)
    classifier = OneVsRestClassifier(regression) if are_sets else regression
    model: Any = Pipeline([("words", words), ("classifier", classifier)])
    folds: Any = KFold(FOLDS, shuffle=True, random_state=1) if are_sets else FOLDS
    fewest = len(train) if are_sets else min(Counter(targets.tolist()).values())
    if fewest >= FOLDS and len(train) <= MOST_CHOSEN_ON:
        grid = {
            "words__ngram_range": [(1, 1), (1, 2)],
            f"classifier__{'estimator__' * are_sets}C": PENALTIES,
        }
        scoring = "f1_micro" if are_sets else None
        model = GridSearchCV(model, grid, cv=folds, scoring=scoring)
    texts = [_text(example) for example in train]
    as_outputs = logit if are_sets else np.log
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        warnings.filterwarnings("ignore", "Label not")  # in a fold
        model.fit(texts, right)
        if are_sets and fewest >= FOLDS:  # thresholds, as the network has them
            best = getattr(model, "best_estimator_", model)
            shares = cross_val_predict(best, texts, right, cv=folds, method="predict_proba")
            fitted = task.answers.fitted(as_outputs(_open(shares)), targets)
            task = replace(task, **fitted)
    scores: dict[str, float] = {}
    correct: list[Array | None] = []
    for name, part in {"": test, **{f"{name}_": part for name, part in further.items()}}.items():
        outputs = as_outputs(_open(model.predict_proba([_text(example) for example in part])))
        part_targets = task.targets(part, labels)
        part_scores = task.judge.scores(outputs, part_targets)
        correct.append(task.judge.correct(outputs, part_targets))
        scores |= {f"{name}{metric}": score for metric, score in part_scores.items()}
    return BagOfWords(single("no network", NAME, scores), correct[0])


def _open(shares: Array) -> Array:
    """Return probabilities that are not 0 nor 1."""
    return np.clip(shares, 1e-12, 1 - 1e-12)


def words_of(text: str) -> list[str]:
    """Return the words of a text, without those of one letter but in scripts without spaces."""
    return [word for word in split(text) if len(word) > 1 or is_unspaced(word)]


def _text(example: Labelled) -> str:
    return f"{example.text} {example.pair or ''}"
