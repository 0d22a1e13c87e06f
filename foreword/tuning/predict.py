"""Prediction with a fine-tuned model, read from its folder."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from scipy.special import softmax

from foreword import config, kinds, manifest, plugins, stored
from foreword.errors import UserError
from foreword.nn.model import neural
from foreword.runs.trained_model import read_recipe
from foreword.text.tokenizer import Tokenizer
from foreword.train.checkpoint import load_weights
from foreword.train.device import choose_device, choose_precision
from foreword.tuning.fine_tuner import predict
from foreword.tuning.input_template import InputTemplate
from foreword.tuning.network import Network, scalar_mix
from foreword.tuning.result import KIND, VERSION
from foreword.tuning.rows import PooledExamples
from foreword.tuning.tasks._contract import Labelled, Task
from foreword.types import Array

FILES = ("labels.json", "recipe.toml", "weights.safetensors", "tokenizer/tokenizer.json")


@dataclass(frozen=True)
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
    """

    network: Network
    task: Task
    labels: tuple[str, ...]
    template: InputTemplate
    tokenizer: Tokenizer
    device: torch.device
    dtype: torch.dtype

    def predict(
        self, texts: Sequence[str], pairs: Sequence[str] | None = None
    ) -> tuple[list[str], Array]:
        """Return the most probable label of each text or pair, and all probabilities.

        Args:
            texts: the texts.
            pairs: the second text of each, if it was tuned on pairs.

        Returns:
            Labels, and probabilities (texts, labels) in the order of `labels`.

        Raises:
            UserError: the numbers of texts and second texts differ, or the task is regression.
        """
        outputs = self.outputs(texts, pairs)
        if outputs.shape[1] != len(self.labels):
            raise UserError("this model was tuned to predict numbers, not labels; use `outputs`")
        return [self.labels[n] for n in outputs.argmax(axis=1)], softmax(outputs, axis=1)

    def outputs(self, texts: Sequence[str], pairs: Sequence[str] | None = None) -> Array:
        """Return the head's outputs for each text or pair, (texts, outputs) float32.

        These are logits (`classify`), or the predicted number (`regress`).

        Raises:
            UserError: the numbers of texts and second texts differ.
        """
        if pairs is not None and len(pairs) != len(texts):
            raise UserError(f"{len(texts)} texts, but {len(pairs)} second texts")
        if not texts:
            return np.zeros((0, len(self.labels)), np.float32)
        examples = [
            Labelled(text, pair=pairs[n] if pairs is not None else None)
            for n, text in enumerate(texts)
        ]
        encoded = self.task.encode(examples, self.tokenizer, self.template)
        unlabelled = PooledExamples(encoded, np.zeros(len(encoded), np.int64), self.template)
        return predict(self.network, unlabelled, self.device, self.dtype)


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
    if not (folder / "labels.json").exists():
        raise UserError(f"{folder}: not a fine-tuned model (no labels.json)")
    if (folder / "run.json").exists():
        raise UserError(f"{folder}: answers in text; use 'foreword generate {folder}'")
    # Verify the files and the plug-ins before anything is built.
    manifest.verify(folder, KIND, VERSION, FILES)
    about = stored.read(folder / "labels.json")
    plugins.require_noted(about.get("plugins", []), folder)
    # Build the network, then load its weights.
    labels = tuple(about["labels"])
    task: Task = config.build_kind(kinds.Part("tuning/tasks"), about["task"], "task")
    recipe = read_recipe(folder)
    tokenizer = Tokenizer.load(folder / "tokenizer")
    backbone = neural(recipe.build(tokenizer.vocab).backbone)
    head = task.head(backbone.settings.state_width, labels)
    assert head is not None
    network = Network(backbone, head, scalar_mix=scalar_mix(task, backbone.settings))
    load_weights(folder, network)
    chosen_device = choose_device(device)
    return TunedModel(
        network=network.to(chosen_device).eval(),
        task=task,
        labels=labels,
        template=config.build(InputTemplate, dict(about["template"]), "template"),
        tokenizer=tokenizer,
        device=chosen_device,
        dtype=choose_precision(precision, chosen_device),
    )
