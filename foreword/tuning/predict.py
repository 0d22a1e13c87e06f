"""Prediction with a fine-tuned model, read from its folder."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from scipy.special import softmax

from foreword.disk import manifest
from foreword.errors import UserError, quoted_command
from foreword.nn.model import neural
from foreword.runs.recipe import Recipe
from foreword.runs.trained_model import read_recipe
from foreword.settings import kinds
from foreword.tables.columns import PREDICTION
from foreword.tables.examples import LabelledTexts
from foreword.text.tokenizer import Tokenizer
from foreword.train.checkpoint import load_weights
from foreword.train.device import choose_device, choose_precision
from foreword.tuning.encoded import by_example, cut_count, output_counts
from foreword.tuning.fine_tuner import predict
from foreword.tuning.input_template import InputTemplate
from foreword.tuning.network import HeadNetwork, Network
from foreword.tuning.predictor import (
    FILE,
    Answers,
    TunedOn,
    TunedTask,
    is_tuned,
)
from foreword.tuning.result import KIND, VERSION
from foreword.tuning.rows import PooledExamples
from foreword.tuning.tasks._contract import PROBABILITY, EncodedExample, ExampleOutputs, Task
from foreword.types import Array

FILES = (FILE, "recipe.toml", "weights.safetensors", "tokenizer/tokenizer.json")


@dataclass(frozen=True, repr=False)
class TunedModel:
    """A fine-tuned network with what is needed to predict.

    Attributes:
        network: in evaluation mode, on `device`.
        task: the task it was tuned for.
        labels: the labels, in the order of its outputs.
        template: the input template.
        tokenizer: the one it was trained with.
        device: where the network's parameters are.
        dtype: the precision it computes in.
        recipe: the recipe of pretraining.
        source: the folder it was read from.
        tuned_on: the form of its training examples.
    """

    network: Network
    task: Task
    labels: tuple[str, ...]
    template: InputTemplate
    tokenizer: Tokenizer
    device: torch.device
    dtype: torch.dtype
    recipe: Recipe
    source: Path
    tuned_on: TunedOn = TunedOn()

    def __repr__(self) -> str:
        labels = f"{len(self.labels):,} labels, " if self.task.has_classes else ""
        return f"<{kinds.name_of(self.task)}, {labels}{self.source}>"

    def predict(
        self, texts: Iterable[Any], pairs: Iterable[str] | None = None
    ) -> tuple[list[Any], Any]:
        """Return the most probable label of each text or pair, and all probabilities.

        Texts of similar length are computed together, so the order of many does not matter.

        Args:
            texts: texts, or pairs of texts, in a list, Series or array; or a table, such as a
                DataFrame, with the columns it was tuned on. One longer than `max_tokens` is cut.
                For other tasks what `foreword.predict` takes.
            pairs: the second text of each, if it was tuned on pairs and they are given apart.

        Returns:
            Labels, and probabilities (texts, labels) in the order of `labels`; for an empty text,
            None and nan. Of other tasks the answers and their probabilities, as `foreword.predict`
            gives them.

        Raises:
            UserError: an item is not a text, the numbers of texts and second texts differ, or the
                task is regression or embedding, whose answers `outputs` returns.
        """
        inputs = self.tuned_on.examples(texts, pairs, self.task)
        if PROBABILITY not in self.task.answer_types(self.labels, probabilities=False):
            raise UserError(f"this model was tuned to {self.task.purpose}; use `outputs`")
        results = self.outputs_of(inputs.examples)
        if not self.task.has_classes:
            answers = iter(self.task.answers(results, self.labels, probabilities=False))
            rows = [next(answers) if has_text else {} for has_text in inputs.has_text]
            return [r.get(PREDICTION) for r in rows], [r.get(PROBABILITY) for r in rows]
        outputs = self._in_place(results, inputs.has_text)
        best = [None if np.isnan(row).all() else self.labels[row.argmax()] for row in outputs]
        return best, softmax(outputs, axis=1)

    def outputs(self, texts: Iterable[Any], pairs: Iterable[str] | None = None) -> Any:
        """Return the head's outputs for each text or pair, (texts, outputs) float32.

        These are logits (`classify`), the predicted number (`regress`) or a vector (`embed`); nan
        for an empty text. Where an example has several, such as the words of a sentence or the
        vectors of a pair: a list of (n, outputs) each.

        Raises:
            UserError: an item is not a text, or the numbers of texts and second texts differ.
        """
        inputs = self.tuned_on.examples(texts, pairs, self.task)
        results = self.outputs_of(inputs.examples)
        if self.task.reads_texts and all(len(result.outputs) == 1 for result in results):
            return self._in_place(results, inputs.has_text)
        arrays = iter(result.outputs for result in results)
        return [next(arrays) if has_text else None for has_text in inputs.has_text]

    def outputs_of(self, examples: LabelledTexts) -> list[ExampleOutputs]:
        """Return what the network computes for each example."""
        return self._compute(self._encode(examples), examples)

    def _in_place(self, results: Sequence[ExampleOutputs], has_text: Array) -> Array:
        """Return the output of each text, (texts, outputs) float32; nan where there is none."""
        outputs: Array = np.full((len(has_text), self.width), np.nan, np.float32)
        if results:
            outputs[has_text] = np.concatenate([result.outputs for result in results])
        return outputs

    @property
    def max_tokens(self) -> int:
        """The most tokens that it reads of an example, special ones included."""
        return self.template.length

    def answer_types(self, *, probabilities: bool, is_pair: bool = False) -> dict[str, Any]:
        """See `Predictor`."""
        return self.task.answer_types(self.labels, probabilities=probabilities, is_pair=is_pair)

    def answer(
        self, examples: LabelledTexts, *, probabilities: bool, done: Callable[[int], None]
    ) -> Answers:
        """See `Predictor`."""
        encoded = self._encode(examples)
        results = self._compute(encoded, examples, done)
        rows = self.task.answers(results, self.labels, probabilities=probabilities)
        return Answers(rows, cut_count(encoded))

    def _encode(self, examples: LabelledTexts) -> Sequence[EncodedExample]:
        return self.task.encode(examples, self.tokenizer, self.template) if examples else []

    def _compute(
        self,
        encoded: Sequence[EncodedExample],
        examples: LabelledTexts,
        done: Callable[[int], None] | None = None,
    ) -> list[ExampleOutputs]:
        """Return what the network computes for each example."""
        if not encoded:
            return []
        is_first = np.asarray([not example.is_further for example in encoded])

        def examples_done(inputs: Array) -> None:
            if done is not None:
                done(int(is_first[inputs].sum()))

        targets = [np.zeros(count, np.int64) for count in output_counts(encoded)]
        unlabelled = PooledExamples(encoded, targets, self.template)
        outputs = predict(self.network, unlabelled, self.device, self.dtype, examples_done)
        return by_example(examples, encoded, outputs)

    @property
    def width(self) -> int:
        """The number of outputs of the head."""
        with torch.no_grad():
            states = torch.zeros(1, self.network.backbone.settings.state_width, device=self.device)
            return int(self.network.head(states).shape[-1])


def load_tuned(folder: str | Path, device: str = "auto", precision: str = "fp32") -> TunedModel:
    """Load a model that `foreword tune` saved.

    Args:
        folder: the `--out` of `foreword tune`.
        device: auto, cpu, cuda or mps.
        precision: auto, bf16 or fp32; fine-tuning scored it in fp32.

    Raises:
        UserError: the folder holds no fine-tuned model, or a damaged one.
    """
    folder = Path(folder)
    if not folder.is_dir():
        raise UserError(f"{folder}: no such folder")
    if not is_tuned(folder):
        is_run = (folder / "recipe.toml").is_file()
        hint = "; it is a run, which 'foreword tune' fine-tunes" if is_run else ""
        raise UserError(f"{folder}: not a fine-tuned model (no {FILE}){hint}")
    if (folder / "run.json").exists():
        raise UserError(f"{folder}: answers in text; use {quoted_command('generate', folder)}")
    # Verify the files and the plug-ins before anything is built.
    manifest.verify(folder, KIND, VERSION, FILES)
    tuned = TunedTask.read(folder)
    # Build the network, then load its weights.
    recipe = read_recipe(folder)
    tokenizer = Tokenizer.load(folder / "tokenizer")
    backbone = neural(recipe.build(tokenizer.vocab).backbone)
    head = tuned.task.head(backbone.settings.state_width, tuned.labels)
    assert head is not None
    network = HeadNetwork.of(tuned.task, backbone, head)
    load_weights(folder, network)
    chosen_device = choose_device(device)
    return TunedModel(
        network=network.to(chosen_device).eval(),
        task=tuned.task,
        labels=tuned.labels,
        template=tuned.template,
        tokenizer=tokenizer,
        device=chosen_device,
        dtype=choose_precision(precision, chosen_device),
        recipe=recipe,
        source=folder,
        tuned_on=tuned.tuned_on,
    )
