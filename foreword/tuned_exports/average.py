"""Exporting an average of candidates: networks as ONNX graphs, counts as plain files, and a loader.

parts.json               the parts: form, labels; of each its weight, temperature and files
predict.py               `foreword.tuned_exports.predict`, which reads the folder without Foreword
word_counts/, ...        counts.json and counts.npz; model.onnx with its tokenizer; linear.npz
states/                  model.onnx of the pretrained model, whose states several parts may read

ONNX has no words, n-grams or Unicode, so counting stays outside of the graphs.
"""

from __future__ import annotations

import copy
import shutil
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from scipy.special import expit, softmax
from torch import Tensor, nn

from foreword.disk import atomic, stored
from foreword.errors import UserError
from foreword.interop import exporting
from foreword.interop.check_logits import TOLERANCE
from foreword.interop.formats._contract import ExchangeResult
from foreword.nn.model import neural
from foreword.runs.trained_model import TrainedModel
from foreword.tables.examples import Labelled, LabelledTexts
from foreword.text.words import UNSPACED_LETTER, WORD
from foreword.tuned_exports import onnx, predict
from foreword.tuned_exports.folder import calibration_of, random_examples
from foreword.tuning.best.choosing import ChosenPart
from foreword.tuning.best.chosen_model import ChosenModel
from foreword.tuning.best.counts import FittedCounts
from foreword.tuning.best.linear import LinearMap
from foreword.tuning.candidates._contract import Fitted
from foreword.tuning.candidates.contrastive import FittedPairs
from foreword.tuning.candidates.features_and_counts import FittedBoth
from foreword.tuning.candidates.fine_tuned import FittedNetwork
from foreword.tuning.candidates.pooled_features import FittedFeatures
from foreword.tuning.network import HeadNetwork
from foreword.tuning.tasks._contract import Task
from foreword.tuning.tasks._headed import PooledTask
from foreword.tuning.tasks.multilabel import Multilabel
from foreword.tuning.tasks.regress import Regress
from foreword.tuning.tuned_model import TunedModel

PARTS, LOADER, STATES = "parts.json", "predict.py", "states"
FORMS = ("classes", "sets", "number")
CHECKED, GRAMS = (1, 5, 12), 20  # compared: tokens of texts, and n-grams of each part


class LayersNetwork(HeadNetwork):
    """A pretrained backbone, whose outputs are the states of all layers, side by side."""

    def outputs(self, features: Tensor, windows: Tensor | None = None) -> Tensor:
        """Return the states, (outputs, layers * width) float32."""
        return torch.cat(list(features), dim=-1)


def can_export(task: Task) -> bool:
    """Return whether averages of a task are exported: those with an output for each text."""
    return isinstance(task, PooledTask) and task.needs.outputs in FORMS


def export(chosen: ChosenModel, out: Path, *, int8: bool) -> ExchangeResult:
    """Write a chosen model as the folder `out`, which exists only once it is checked.

    Args:
        chosen: the model, on the CPU.
        out: the folder; it must be absent or empty.

    Raises:
        UserError: a package is missing, a part cannot be exported, or the loader computes other
            probabilities.
    """
    atomic.require_new_folder(out)
    facts: dict[str, Any] = {"folder": str(out), "loader": LOADER}
    notes: set[str] = set()
    with atomic.folder(out) as folder:
        for name, tuned in _networks(chosen).items():
            result = onnx.export(tuned, folder / name, int8=int8)
            facts[name] = {k: v for k, v in result.facts.items() if k != "folder"}
            notes |= set(result.notes)
        rows = [_write(part, folder) for part in chosen.parts]
        labels = chosen.labels if chosen.task.judge.has_classes else ()
        about: dict[str, Any] = {"form": chosen.material.form, "labels": labels, "parts": rows}
        about |= {"of_pairs": chosen.tuned_on.is_pair, "apart": [STATES]}
        if isinstance(chosen.task, Multilabel):
            shares = chosen.task.thresholds or (0.5,)
            about["thresholds"] = shares if len(shares) > 1 else shares * len(labels)
        exporting.write_json(folder / PARTS, about)
        shutil.copyfile(predict.__file__, folder / LOADER)
        facts |= _compared(chosen, folder, int8=int8)
    return ExchangeResult(
        facts, notes=(f"{LOADER} in it predicts without Foreword", *sorted(notes))
    )


def _networks(chosen: ChosenModel) -> dict[str, TunedModel]:
    """Return the networks of the parts, by the folder that each is written to."""
    found = {}
    for part in chosen.parts:
        if isinstance(part.fitted, FittedNetwork):
            found[part.name] = part.fitted.tuned
        elif isinstance(part.fitted, FittedPairs):
            found[part.name] = part.fitted.network.tuned
        elif not isinstance(part.fitted, FittedCounts) and STATES not in found:
            found[STATES] = _of_states(chosen)
    return found


def _write(part: ChosenPart, folder: Path) -> dict[str, Any]:
    """Write the counts of a part and its linear map of a graph's outputs; return what names them.

    A network's graph has its temperature.
    """
    fitted, out, temperature = part.fitted, folder / part.name, part.temperature
    linear, counts, graph = None, None, part.name
    if isinstance(fitted, FittedCounts):
        counts, graph = fitted, ""
    elif isinstance(fitted, FittedNetwork):
        temperature /= calibration_of(fitted.tuned.task)
    elif isinstance(fitted, FittedPairs):
        linear = fitted.linear
    elif isinstance(fitted, FittedFeatures):
        linear, graph = fitted.linear, STATES
    else:
        (linear, counts), graph = _separated(fitted), STATES
    out.mkdir(exist_ok=True)
    if linear is not None:
        np.savez(out / "linear.npz", **linear._asdict())
    if counts is not None:
        _write_counts(counts, out)
    return {
        "kind": part.name,
        "counts": counts and part.name,
        "graph": graph,
        "linear": linear and f"{part.name}/linear.npz",
        "weight": part.weight,
        "temperature": temperature,
    }


def _separated(fitted: Fitted) -> tuple[LinearMap, FittedCounts]:
    """Return a linear map of the features, as they are, and the counts without the features."""
    assert isinstance(fitted, FittedBoth) and fitted.words.linear is not None
    (weights, bias), size = fitted.words.linear, len(fitted.words.counts.vocabulary)
    of_words = LinearMap(weights[:size], np.zeros_like(bias))
    weights = weights[size:] * fitted.scale[:, None]
    return LinearMap(weights, bias - fitted.mean @ weights), replace(fitted.words, linear=of_words)


def _write_counts(fitted: FittedCounts, out: Path) -> None:
    counts, linear = fitted.counts, fitted.linear
    assert linear is not None
    about = {name: getattr(counts, name) for name in ("grams", "longest", "weighting")}
    about |= {"word": WORD, "unspaced": UNSPACED_LETTER, "vocabulary": list(counts.vocabulary)}
    (out / "counts.json").write_text(stored.to_json(about), encoding="utf-8")
    np.savez_compressed(out / "counts.npz", scale=counts.scale, **linear._asdict())


def _of_states(chosen: ChosenModel) -> TunedModel:
    """Return the pretrained model, whose outputs are the states that features are made of."""
    read, trained = chosen.material.features_task, chosen.material.trained
    task = Regress(**{field.name: getattr(read, field.name) for field in fields(PooledTask)})
    backbone = neural(copy.deepcopy(trained.model).backbone)
    network = LayersNetwork(backbone, nn.Identity(), needs=task.needs)
    return _tuned(chosen, task, trained, network)


def _tuned(chosen: ChosenModel, task: Task, trained: TrainedModel, network: Any) -> TunedModel:
    return TunedModel(
        network=network.eval(),
        task=task,
        labels=chosen.labels,
        template=chosen.material.template,
        tokenizer=trained.tokenizer,
        device=torch.device("cpu"),
        dtype=torch.float32,
        recipe=trained.recipe,
        source=chosen.source,
        tuned_on=chosen.tuned_on,
    )


def _counted(chosen: ChosenModel, pair: str | None) -> list[Labelled]:
    """Return short texts of n-grams that the parts count."""
    found = []
    for part in chosen.parts:
        fitted = getattr(part.fitted, "words", part.fitted)
        if isinstance(fitted, FittedCounts):
            grams = fitted.counts.vocabulary
            every = max(1, len(grams) // GRAMS)
            found += [Labelled(f"{gram} {gram}", pair=pair) for gram in grams[::every]]
    return found


def _compared(chosen: ChosenModel, folder: Path, *, int8: bool) -> dict[str, float]:
    """Return how far the loader's probabilities, or numbers, are from Foreword's."""
    dummy = _tuned(chosen, chosen.task, chosen.material.trained, nn.Identity())
    examples = random_examples(dummy, chosen.max_tokens, CHECKED)
    examples = LabelledTexts.of([*examples[: len(CHECKED)], *_counted(chosen, examples[0].pair)])
    outputs = np.concatenate([result.outputs for result in chosen.outputs_of(examples)])
    if chosen.material.form != "number":
        outputs = softmax(outputs, axis=1) if chosen.material.form == "classes" else expit(outputs)
    pairs = [example.pair or "" for example in examples] if chosen.tuned_on.is_pair else None

    def distance(*, bits: int) -> float:
        average = predict.Average(folder, int8=bits == 8)
        return float(np.abs(average([e.text for e in examples], pairs) - outputs).max())

    exact = distance(bits=32)
    if not exact <= TOLERANCE * max(1.0, float(np.abs(outputs).max())):
        raise UserError(
            f"{folder}: {LOADER} computes what differs from Foreword's by {exact:.3g}; this is "
            "a fault of Foreword"
        )
    return {"difference": exact} | ({"int8_difference": distance(bits=8)} if int8 else {})
