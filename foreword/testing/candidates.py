"""The contract of candidates, as functions."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import is_dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

from foreword.settings import config, kinds
from foreword.tables.examples import LabelledTexts
from foreword.testing.models import tiny_model
from foreword.testing.tasks import BAD, GOOD, OTHER, reviews
from foreword.tuning.best.material import Material, material_of
from foreword.tuning.candidates._contract import Learner
from foreword.tuning.settings import TuneSettings
from foreword.tuning.strategies.best import Best
from foreword.tuning.tasks.classify import Classify

TRAINED, SCORED = 40, 11  # examples
TOLERANCE = 1e-4


def check_candidate(candidate: Learner) -> None:
    """Check all that a candidate promises, on a tiny encoder and texts of two classes.

    Raises:
        AssertionError: a promise is broken.
    """
    assert is_dataclass(type(candidate)), "a candidate is a frozen dataclass"
    for check in CANDIDATE_CHECKS:
        check(candidate)


def _material(examples: int, seed: int) -> Material:
    trained, task = tiny_model("encoder", [" ".join(GOOD + BAD + OTHER)]), Classify()
    texts = LabelledTexts.of(reviews(examples, seed))
    settings = TuneSettings(strategy=Best(lr=1e-2, epochs=4), batch=8)
    return material_of(trained, task, task.labels(texts), texts, settings)


def check_it_gives_an_output_for_each_label(candidate: Learner) -> None:
    """Check the shape of the outputs, and that they are finite."""
    material = _material(TRAINED, 1)
    outputs = candidate.fit(material, 1).outputs(_material(SCORED, 2))
    assert outputs.shape == (SCORED, len(material.labels)), f"outputs have shape {outputs.shape}"
    assert np.isfinite(outputs).all(), "an output is not finite"


def check_it_learns_telling_words(candidate: Learner) -> None:
    """Check that it answers the examples that it learned from better than chance."""
    material = _material(TRAINED, 1)
    answers = candidate.fit(material, 1).outputs(material).argmax(axis=1)
    right = (answers == material.targets).mean()
    assert right > 0.7, f"{right:.0%} of the examples it learned from are right"


def check_the_same_seed_learns_the_same(candidate: Learner) -> None:
    """Check that learning is reproducible."""
    scored = _material(SCORED, 2)
    first, second = (candidate.fit(_material(TRAINED, 1), 3).outputs(scored) for _ in range(2))
    assert np.array_equal(first, second), "two fits with one seed differ"


def check_an_output_is_of_its_example_alone(candidate: Learner) -> None:
    """Check that order and neighbours do not matter."""
    fitted, scored = candidate.fit(_material(TRAINED, 1), 1), _material(SCORED, 2)
    whole = fitted.outputs(scored)
    for numbers in (np.arange(SCORED)[::-1], np.array([3]), np.array([5, 0])):
        part = fitted.outputs(scored.part(numbers))
        alone = fitted.outputs(scored.of(LabelledTexts.of(scored.examples[n] for n in numbers)))
        assert np.allclose(part, whole[numbers], atol=TOLERANCE), "a part of examples differs"
        assert np.allclose(alone, whole[numbers], atol=TOLERANCE), "neighbours change an output"


def check_what_is_saved_reads_back_the_same(candidate: Learner) -> None:
    """Check that what it learned survives its files."""
    material, scored = _material(TRAINED, 1), _material(SCORED, 2)
    fitted = candidate.fit(material, 1)
    with TemporaryDirectory() as folder:
        fitted.save(Path(folder, "part"))
        read = candidate.read(Path(folder, "part"), material.trained)
        outputs = read.outputs(scored)
    assert np.allclose(outputs, fitted.outputs(scored), atol=TOLERANCE), "it reads back otherwise"


def check_its_settings_read_back_equal(candidate: Learner) -> None:
    """Check that the settings survive a table."""
    table = config.kind_table(candidate)
    built = config.build_kind(kinds.Part("tuning/candidates"), table, "candidate")
    assert built == candidate, "settings are lost"


CANDIDATE_CHECKS: tuple[Callable[[Learner], None], ...] = (
    check_it_gives_an_output_for_each_label,
    check_it_learns_telling_words,
    check_the_same_seed_learns_the_same,
    check_an_output_is_of_its_example_alone,
    check_what_is_saved_reads_back_the_same,
    check_its_settings_read_back_equal,
)
