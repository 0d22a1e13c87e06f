"""Labelled examples as candidates read them: words, targets, and features of the pretrained model.

All is computed once, when it is first asked for, and shared by the parts of cross-validation.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property
from itertools import pairwise
from typing import Any

import numpy as np
import torch

from foreword.nn.model import neural_settings
from foreword.runs.continued import with_special
from foreword.runs.trained_model import TrainedModel
from foreword.tables.examples import Labelled, LabelledTexts
from foreword.tuning.best.linear import LinearMap, fit_linear
from foreword.tuning.encoded import first_inputs, output_counts
from foreword.tuning.features import Features, fits_in_memory
from foreword.tuning.input_template import InputTemplate
from foreword.tuning.packed_examples import PooledExamples
from foreword.tuning.settings import TuneSettings
from foreword.tuning.starting_network import build_network
from foreword.tuning.tasks._contract import EncodedExample, OutputForm, Task, texts_of
from foreword.tuning.tasks.classify import Classify
from foreword.tuning.tune_data import added_tokens, template_for
from foreword.types import Array


@dataclass(frozen=True, eq=False)
class Material:
    """Labelled examples, with what candidates read of them.

    Attributes:
        trained: the pretrained model, with the tokens that the task adds.
        labels: its labels, in the order of the outputs.
        tick: called now and then while features are computed.
        whole: the examples of which these are a part, and which of them; None if they are all.
    """

    trained: TrainedModel
    task: Task
    labels: tuple[str, ...]
    template: InputTemplate
    examples: LabelledTexts
    settings: TuneSettings
    tick: Callable[[], None] = lambda: None
    whole: tuple[Material, Array] | None = None

    def __len__(self) -> int:
        return len(self.examples)

    @property
    def form(self) -> OutputForm:
        """The form of the outputs."""
        form = self.task.needs.outputs
        assert form is not None  # `foreword.tuning.best.choosing` takes no other tasks
        return form

    def part(self, numbers: Array) -> Material:
        """Return some of the examples, in the order of `numbers`."""
        examples = LabelledTexts.of(self.examples[int(n)] for n in numbers)
        return replace(self, examples=examples, whole=(self, numbers))

    def of(self, examples: LabelledTexts) -> Material:
        """Return other examples of the same task."""
        return replace(self, examples=examples, whole=None)

    @cached_property
    def encoded(self) -> Sequence[EncodedExample]:
        """The inputs of all examples."""
        return self.task.encode(self.examples, self.trained.tokenizer, self.template)

    @cached_property
    def begins(self) -> Array:
        """Where the outputs of each example begin, and where the last ones end, (examples + 1,)."""
        if self.whole is not None:
            counts = np.diff(self.whole[0].begins)[self.whole[1]]
            return np.concatenate([[0], counts.cumsum()])
        ends = np.concatenate([[0], output_counts(self.encoded).cumsum()])
        return np.asarray(ends[first_inputs(self.encoded)])

    def outputs_of(self, numbers: Array) -> Array:
        """Return the outputs of some examples, as indices."""
        pieces = [np.arange(self.begins[n], self.begins[n + 1]) for n in numbers]
        return np.concatenate(pieces) if pieces else np.zeros(0, np.int64)

    @cached_property
    def judged(self) -> Any:
        """The targets, as the task's judge takes them; raises UserError for unknown labels."""
        return self.task.targets(self.examples, self.labels, self.encoded)

    def fit_linear(self, x: Any, inverse_penalties: Sequence[float]) -> LinearMap:
        """Return the linear map of features to the targets; see `linear.fit_linear`."""
        return fit_linear(x, self.targets, self.form, len(self.labels), inverse_penalties)

    @cached_property
    def targets(self) -> Array:
        """The target of each output, (outputs,) or (outputs, columns).

        A class (below 0 for none), a number, 0 or 1; of a text to compare what `embed` has.
        """
        targets = self.judged
        arrays = getattr(targets, "arrays", targets)
        if isinstance(arrays, list):
            return np.concatenate(arrays)
        return np.asarray(arrays).reshape(len(arrays), -1) if self.form == "sets" else arrays

    @property
    def groups(self) -> Array:
        """Where the outputs of which one is right begin, and the last end, (groups + 1,)."""
        if self.task.needs.loss_unit == "example":
            return self.begins
        return np.concatenate([[0], output_counts(self.encoded).cumsum()])

    @cached_property
    def counted(self) -> list[Labelled | list[str]]:
        """What is counted for each output: a text, a pair, or a list of named features."""
        counted, inputs = self.task.reader.counted, pairwise(first_inputs(self.encoded))
        of_each = zip(self.examples, inputs, strict=True)
        return [one for e, (a, b) in of_each for one in counted(e, self.encoded[a:b])]

    @property
    def has_features(self) -> bool:
        """Whether the features of the model fit in memory."""
        whole = self if self.whole is None else self.whole[0]
        settings = neural_settings(self.trained.recipe.model)
        return fits_in_memory(settings, whole.features_task, whole._packed)

    @cached_property
    def features(self) -> Array:
        """The model's states of each output, of all layers side by side, (outputs, width) float32.

        They are pooled by the mean. Of pairs, the difference and the product of both texts' states
        stand beside.
        """
        if self.whole is not None:
            return self.whole[0].features[self.whole[0].outputs_of(self.whole[1])]
        parts = [self._states(self._packed)]
        if self.is_of_pairs:
            both = zip(*map(texts_of, self.examples), strict=True)
            first, second = (self._states(self._pack(map(Labelled, texts))) for texts in both)
            parts += [np.abs(first - second), first * second]
        return np.concatenate(parts, axis=1)

    @property
    def is_of_pairs(self) -> bool:
        """Whether each example is a pair of texts."""
        reader = self.task.reader
        is_one_text = reader.takes_texts and not reader.compares_texts
        return is_one_text and self.examples[0].pair is not None

    @property
    def features_task(self) -> Task:
        """The task as it reads features: the mean of the states of all layers."""
        known = {field.name for field in fields(self.task)}
        wanted: dict[str, Any] = {"mix_layers": True, "hidden_layer": None}
        if self.template.start is not None:
            wanted = {"hidden_layer": None}  # the decoder's first token has one layer's state
        elif "pooling" in known:
            wanted["pooling"] = "mean"
        if self.task.reader.compares_texts:
            return Classify(pooling="mean", mix_layers=self.template.start is None)
        return replace(self.task, **{n: v for n, v in wanted.items() if n in known})

    @cached_property
    def _packed(self) -> PooledExamples:
        """The examples as features are read of them: each of their texts where two are compared."""
        if not self.task.reader.compares_texts:
            return self._pack(self.examples)
        return self._pack(Labelled(text) for e in self.examples for text in texts_of(e))

    def _pack(self, examples: Iterable[Labelled]) -> PooledExamples:
        texts = LabelledTexts.of(examples)
        encoded = self.features_task.encode(texts, self.trained.tokenizer, self.template)
        return PooledExamples.unlabelled(encoded, self.template)

    def _states(self, packed: PooledExamples) -> Array:
        trained = self.trained
        network = build_network(trained, self.features_task, self.labels, None).to(trained.device)
        # In float32: with fewer bits a text's features depend on its batch.
        features = Features.compute(network, packed, trained.device, torch.float32, self.tick)
        # A text's windows are averaged, as its words are.
        sums = np.add.reduceat(features.features.numpy(), features.edges[:-1], axis=1)
        return np.concatenate(list(sums / np.diff(features.edges)[:, None]), axis=1)


def material_of(
    trained: TrainedModel,
    task: Task,
    labels: tuple[str, ...],
    examples: LabelledTexts,
    settings: TuneSettings,
) -> Material:
    """Return examples for a model, to which the tokens that the task needs are added."""
    extended = with_special(trained, added_tokens(trained, task))
    template = template_for(extended, task, settings.max_length)
    return Material(extended, task, labels, template, examples, settings)
