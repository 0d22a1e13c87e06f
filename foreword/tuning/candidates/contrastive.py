"""Fine-tuning on pairs of texts, alike where their labels are."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import ClassVar

import numpy as np
from safetensors.numpy import load_file, save_file

from foreword.nn.model import neural_settings
from foreword.runs.trained_model import TrainedModel
from foreword.settings.ranges import Count
from foreword.tables.examples import Labelled, LabelledTexts
from foreword.tuning.best.linear import LinearMap
from foreword.tuning.best.material import Material
from foreword.tuning.candidates._contract import Fitted, Learner
from foreword.tuning.candidates.fine_tuned import DUMMY, FittedNetwork, one_network
from foreword.tuning.job import Examples, TuneJob
from foreword.tuning.tasks.embed import Embed
from foreword.tuning.tune import tune
from foreword.types import Array

INVERSE_PENALTIES = (1e-3, 1e-2, 0.1)
MOST_EXAMPLES = 500  # with more labels, pairs of them gain nothing
FILE = "linear.safetensors"


@dataclass(frozen=True)
class FittedPairs(Fitted):
    """A network whose vectors of texts are near where labels are alike, and a linear model.

    Attributes:
        network: gives a vector of each text.
    """

    network: FittedNetwork
    linear: LinearMap

    def outputs(self, material: Material) -> Array:
        return self.linear(_vectors(self.network, material.examples))

    def save(self, folder: Path) -> None:
        self.network.save(folder)
        save_file(self.linear._asdict(), folder / FILE)


@dataclass(frozen=True)
class Contrastive(Learner):
    """Contrastive fine-tuning on pairs of texts, then logistic regression on their vectors.

    A hundred labelled texts are thousands of pairs, alike (of one label) or not.

    Attributes:
        pairs: pairs of each text, half of them alike.
        most_pairs: the most pairs of all texts together, but for two each.

    Also called: SetFit.
    Reference: Tunstall et al. 2022, "Efficient Few-Shot Learning Without Prompts", section 3.
    Differs from the paper: the ranking loss of `embed` (CoSENT) in place of the squared error of
    cosines.
    """

    title: ClassVar[str] = "contrastive fine-tuning"

    pairs: Count = 10
    most_pairs: Count = 1_000

    def misplaced(self, material: Material) -> str:
        """Pairs are of single texts with classes."""
        if material.form != "classes" or not material.task.reader.takes_texts:
            return "for texts with classes alone"
        return "for single texts alone" if material.is_of_pairs else ""

    def unsuited(self, material: Material) -> str:
        """Many labels teach fine-tuning without pairs as well."""
        too_many = f"more than {MOST_EXAMPLES} labels"
        return too_many if len(material) > MOST_EXAMPLES else ""

    def fit(self, material: Material, seed: int) -> FittedPairs:
        """Fine-tune on pairs, and fit the regression on the vectors of the texts."""
        of_each = min(self.pairs, self.most_pairs // len(material))
        examples = LabelledTexts.of(_pairs(material, of_each, seed))
        given = material.settings
        rate = given.strategy.peak_lr(neural_settings(material.trained.recipe.model))
        settings = replace(one_network(given, rate), epochs=1, metric="")
        few = LabelledTexts.of(examples[:DUMMY])
        result = tune(material.trained, TuneJob(Embed(), Examples(examples, few), [settings]))
        network = FittedNetwork.of(result, material.trained)
        vectors = _vectors(network, material.examples)
        return FittedPairs(network, material.fit_linear(vectors, INVERSE_PENALTIES))

    @classmethod
    def read(cls, folder: Path, trained: TrainedModel) -> FittedPairs:
        network = FittedNetwork.read(folder, trained)
        return FittedPairs(network, LinearMap(**load_file(folder / FILE)))


def _vectors(network: FittedNetwork, examples: LabelledTexts) -> Array:
    return np.concatenate([result.outputs for result in network.tuned.outputs_of(examples)])


def _pairs(material: Material, count: int, seed: int) -> Sequence[Labelled]:
    """Return pairs of training texts in random order, labelled 1 if alike, else 0."""
    random = np.random.default_rng(seed)
    texts, targets = [example.text for example in material.examples], material.targets
    pairs = []
    for n, text in enumerate(texts):
        for is_alike in (True, False):
            others = np.flatnonzero((targets == targets[n]) == is_alike)
            others = others[others != n]
            if len(others):
                drawn = random.choice(others, max(1, count // 2))
                pairs += [Labelled(text, str(int(is_alike)), texts[m]) for m in drawn]
    return [pairs[n] for n in random.permutation(len(pairs))]
