"""Prediction with a fine-tuned model, read from its folder."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import torch
from scipy.special import softmax

from foreword import kinds, manifest
from foreword.errors import UserError
from foreword.nn.model import neural
from foreword.runs.recipe import Recipe
from foreword.runs.trained_model import read_recipe
from foreword.text.tokenizer import Tokenizer
from foreword.train.checkpoint import load_weights
from foreword.train.device import choose_device, choose_precision
from foreword.tuning.examples import LabelledTexts
from foreword.tuning.fine_tuner import predict
from foreword.tuning.input_template import InputTemplate
from foreword.tuning.network import HeadNetwork, Network, scalar_mix
from foreword.tuning.predictor import (
    FILE,
    PREDICTION,
    PROBABILITY,
    Answers,
    TunedOn,
    TunedTask,
    is_tuned,
)
from foreword.tuning.result import KIND, VERSION
from foreword.tuning.rows import PooledExamples
from foreword.tuning.tasks._contract import EncodedExample, Task
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
        recipe: of the pretraining.
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
        labels = f"{len(self.labels):,} labels, " if self.predicts_labels else ""
        return f"<{kinds.name_of(self.task)}, {labels}{self.source}>"

    def predict(
        self, texts: Iterable[Any], pairs: Iterable[str] | None = None
    ) -> tuple[list[str | None], Array]:
        """Return the most probable label of each text or pair, and all probabilities.

        Texts of similar length are computed together, so the order of many does not matter.

        Args:
            texts: texts, or pairs of texts, in a list, Series or array; or a table, such as a
                DataFrame, with the columns it was tuned on. One longer than `max_tokens` is cut.
            pairs: the second text of each, if it was tuned on pairs and they are given apart.

        Returns:
            Labels, and probabilities (texts, labels) in the order of `labels`; for an empty text,
            None and nan.

        Raises:
            UserError: an item is not a text, the numbers of texts and second texts differ, or the
                task is regression.
        """
        self._require_labels()
        outputs = self.outputs(texts, pairs)
        best = [None if np.isnan(row).all() else self.labels[row.argmax()] for row in outputs]
        return best, softmax(outputs, axis=1)

    def outputs(self, texts: Iterable[Any], pairs: Iterable[str] | None = None) -> Array:
        """Return the head's outputs for each text or pair, (texts, outputs) float32.

        These are logits (`classify`), or the predicted number (`regress`); nan for an empty text.

        Raises:
            UserError: an item is not a text, or the numbers of texts and second texts differ.
        """
        given = self.tuned_on.examples(texts, pairs)
        outputs: Array = np.full((len(given.has_text), self._width), np.nan, np.float32)
        outputs[given.has_text] = self._outputs(self._encode(given.examples))
        return outputs

    @property
    def max_tokens(self) -> int:
        """The most tokens that it reads of an example, special ones included."""
        return self.template.length

    @property
    def predicts_labels(self) -> bool:
        """Whether its outputs are scores of labels, not a number."""
        return self._width == len(self.labels)

    def answer_types(self, *, probabilities: bool) -> dict[str, Any]:
        """See `Predictor`."""
        if probabilities and not self.predicts_labels:
            raise UserError("--probabilities: this model was tuned to predict numbers, not labels")
        if not self.predicts_labels:
            return {PREDICTION: pa.float32()}
        each = [f"{PROBABILITY}_{label}" for label in self.labels] if probabilities else []
        return {PREDICTION: pa.string(), **dict.fromkeys([PROBABILITY, *each], pa.float32())}

    def answer(
        self, examples: LabelledTexts, *, probabilities: bool, done: Callable[[int], None]
    ) -> Answers:
        """See `Predictor`."""
        encoded = self._encode(examples)
        outputs = self._outputs(encoded, done)
        cut = sum(example.was_cut for example in encoded)
        if not self.predicts_labels:
            return Answers([{PREDICTION: _shortest(row[0])} for row in outputs], cut)
        rows = []
        for shares in softmax(outputs, axis=1):
            best = int(shares.argmax())
            row = {PREDICTION: self.labels[best], PROBABILITY: _shortest(shares[best])}
            if probabilities:
                each = zip(self.labels, shares, strict=True)
                row |= {f"{PROBABILITY}_{label}": _shortest(share) for label, share in each}
            rows.append(row)
        return Answers(rows, cut)

    def _encode(self, examples: LabelledTexts) -> Sequence[EncodedExample]:
        return self.task.encode(examples, self.tokenizer, self.template) if examples else []

    def _outputs(
        self, encoded: Sequence[EncodedExample], done: Callable[[int], None] | None = None
    ) -> Array:
        if not encoded:
            return np.zeros((0, self._width), np.float32)
        unlabelled = PooledExamples(encoded, np.zeros(len(encoded), np.int64), self.template)
        return predict(self.network, unlabelled, self.device, self.dtype, done)

    @property
    def _width(self) -> int:
        """The number of outputs of the head."""
        with torch.no_grad():
            states = torch.zeros(1, self.network.backbone.settings.state_width, device=self.device)
            return int(self.network.head(states).shape[-1])

    def _require_labels(self) -> None:
        """Check that it predicts labels.

        Raises:
            UserError: it predicts numbers.
        """
        if not self.predicts_labels:
            raise UserError("this model was tuned to predict numbers, not labels; use `outputs`")


def _shortest(number: Any) -> float:
    """Return a float32 as the float64 of fewest digits that it rounds from."""
    return float(str(np.float32(number)))


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
    if not is_tuned(folder):
        is_run = (folder / "recipe.toml").is_file()
        hint = "; it is a run, which 'foreword tune' fine-tunes" if is_run else ""
        raise UserError(f"{folder}: not a fine-tuned model (no {FILE}){hint}")
    if (folder / "run.json").exists():
        raise UserError(f"{folder}: answers in text; use 'foreword generate {folder}'")
    # Verify the files and the plug-ins before anything is built.
    manifest.verify(folder, KIND, VERSION, FILES)
    tuned = TunedTask.read(folder)
    # Build the network, then load its weights.
    recipe = read_recipe(folder)
    tokenizer = Tokenizer.load(folder / "tokenizer")
    backbone = neural(recipe.build(tokenizer.vocab).backbone)
    head = tuned.task.head(backbone.settings.state_width, tuned.labels)
    assert head is not None
    network = HeadNetwork(backbone, head, scalar_mix=scalar_mix(tuned.task, backbone.settings))
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
