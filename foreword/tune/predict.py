"""A fine-tuned classifier, read back and put to work."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from scipy.special import softmax

from foreword import config, kinds, manifest, plugins, stored
from foreword.errors import UserError
from foreword.runs.trained_model import read_recipe
from foreword.text.tokenizer import Tokenizer
from foreword.train.checkpoint import load_weights
from foreword.train.device import choose_device, choose_precision
from foreword.tune.fine_tuner import predict
from foreword.tune.input_template import InputTemplate
from foreword.tune.network import Network, scalar_mix
from foreword.tune.result import KIND, VERSION
from foreword.tune.rows import Examples
from foreword.tune.tasks._contract import Labelled, Task
from foreword.types import Array

FILES = ("labels.json", "recipe.toml", "weights.safetensors", "tokenizer/tokenizer.json")


@dataclass(frozen=True)
class TunedModel:
    """A fine-tuned network with what belongs to it.

    Attributes:
        network: on `device`, in evaluation mode.
        task: what it was tuned for.
        labels: in the order of its outputs.
        template: how texts are framed.
        tokenizer: text to ids.
        device: where it lies.
        dtype: what it computes in.
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
        """The most probable label of each text, or pair of texts, and all probabilities.

        Args:
            texts: the texts.
            pairs: the second text of each, if it was tuned on pairs.

        Returns:
            Labels, and probabilities (texts, labels) in the order of `labels`.

        Raises:
            UserError: there are not as many second texts as texts, or it was tuned to give numbers.
        """
        outputs = self.outputs(texts, pairs)
        if outputs.shape[1] != len(self.labels):
            raise UserError("this model was tuned to give numbers and no labels; ask for `outputs`")
        return [self.labels[n] for n in outputs.argmax(axis=1)], softmax(outputs, axis=1)

    def outputs(self, texts: Sequence[str], pairs: Sequence[str] | None = None) -> Array:
        """What the head says of each text, or pair of texts, (texts, outputs) float32.

        The logarithm of each label's probability but for a constant (`classify`), or the number
        (`regress`).

        Raises:
            UserError: there are not as many second texts as texts.
        """
        if pairs is not None and len(pairs) != len(texts):
            raise UserError(f"{len(texts)} texts and {len(pairs)} second texts: they do not pair")
        if not texts:
            return np.zeros((0, len(self.labels)), np.float32)
        examples = [
            Labelled(text, pair=pairs[n] if pairs is not None else None)
            for n, text in enumerate(texts)
        ]
        encoded = self.task.encode(examples, self.tokenizer, self.template)
        unknown = Examples(encoded, np.zeros(len(encoded), np.int64), self.template)
        return predict(self.network, unknown, self.device, self.dtype)


def load_tuned(folder: str | Path, device: str = "auto", precision: str = "fp32") -> TunedModel:
    """Reads what `foreword tune` wrote.

    Args:
        folder: its `--out`.
        device: auto, cpu, cuda or mps.
        precision: auto, bf16 or fp32; fine-tuning scored it in fp32.

    Raises:
        UserError: the folder is none of a fine-tuned model, or damaged.
    """
    folder = Path(folder)
    if not (folder / "labels.json").exists():
        raise UserError(f"{folder}: no fine-tuned model (it has no labels.json)")
    if (folder / "run.json").exists():
        raise UserError(f"{folder}: answers in text; use 'foreword generate {folder}'")
    manifest.verify(folder, KIND, VERSION, FILES)
    about = stored.read(folder / "labels.json")
    plugins.require_noted(about.get("plugins", []), folder)
    labels, framing = tuple(about["labels"]), dict(about["template"])
    task: Task = config.build_kind(kinds.Part("tune/tasks"), about["task"], "task")
    recipe = read_recipe(folder)
    tokenizer = Tokenizer.load(folder / "tokenizer")
    backbone = recipe.build(tokenizer.vocab).backbone
    head = task.head(backbone.settings.state_width, labels)
    assert head is not None
    network = Network(backbone, head, scalar_mix=scalar_mix(task, backbone.settings))
    load_weights(folder, network)
    where = choose_device(device)
    return TunedModel(
        network=network.to(where).eval(),
        task=task,
        labels=labels,
        template=config.build(InputTemplate, framing, "template"),
        tokenizer=tokenizer,
        device=where,
        dtype=choose_precision(precision, where),
    )
