"""Exporting an average of candidates: networks as ONNX graphs, counts as plain files, and a loader.

parts.json               the parts: form, labels; of each its weight, temperature and files
predict.py               `foreword.tuning.best.exported`, which reads the folder without Foreword
word_counts/, ...        counts.json and counts.npz; model.onnx with its tokenizer; linear.npz

ONNX has no words, n-grams or Unicode, so counting stays outside of the graphs.
"""

from __future__ import annotations

import copy
import shutil
from dataclasses import replace
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
from foreword.tuning import export_folder, onnx_export
from foreword.tuning.best import exported
from foreword.tuning.best.choosing import ChosenPart
from foreword.tuning.best.chosen_model import ChosenModel
from foreword.tuning.best.counts import FittedCounts
from foreword.tuning.best.linear import LinearMap
from foreword.tuning.candidates.contrastive import FittedPairs
from foreword.tuning.candidates.features_and_counts import FittedBoth
from foreword.tuning.candidates.fine_tuned import FittedNetwork
from foreword.tuning.candidates.pooled_features import FittedFeatures
from foreword.tuning.network import HeadNetwork
from foreword.tuning.tasks._contract import Task
from foreword.tuning.tasks._headed import PooledTask
from foreword.tuning.tasks.multilabel import Multilabel
from foreword.tuning.tuned_model import TunedModel
from foreword.types import Array

PARTS, LOADER = "parts.json", "predict.py"
FORMS = ("classes", "sets", "number")
CHECKED, GRAMS = (1, 5, 12), 20  # compared: tokens of texts, and n-grams of each part


class LayersNetwork(HeadNetwork):
    """A pretrained backbone with a linear map of the states of all layers, side by side."""

    def outputs(self, features: Tensor, windows: Tensor | None = None) -> Tensor:
        """Return the map's outputs, (outputs, labels) float32."""
        outputs: Tensor = self.head(torch.cat(list(features), dim=-1))
        return outputs


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
        rows = []
        for part in chosen.parts:
            fitted, divided = part.fitted, 1.0
            row, result = _write(chosen, part, folder / part.name, int8=int8)
            if isinstance(fitted, FittedNetwork):  # whose graph has its temperature
                divided = export_folder.calibration_of(fitted.tuned.task)
            row |= {"weight": part.weight, "temperature": part.temperature / divided}
            rows.append(row)
            if result is not None:
                facts[part.name] = {k: v for k, v in result.facts.items() if k != "folder"}
                notes |= set(result.notes)
        labels = chosen.labels if chosen.task.judge.has_classes else ()
        about: dict[str, Any] = {"form": chosen.material.form, "labels": labels, "parts": rows}
        if isinstance(chosen.task, Multilabel):
            shares = chosen.task.thresholds or (0.5,)
            about["thresholds"] = shares if len(shares) > 1 else shares * len(labels)
        exporting.write_json(folder / PARTS, about)
        shutil.copyfile(exported.__file__, folder / LOADER)
        facts["difference"] = _distance(chosen, folder)
    return ExchangeResult(
        facts, notes=(f"{LOADER} in it predicts without Foreword", *sorted(notes))
    )


def _write(
    chosen: ChosenModel, part: ChosenPart, out: Path, *, int8: bool
) -> tuple[dict[str, Any], ExchangeResult | None]:
    """Write the files of a part; return what names them, and what the export of its graph found."""
    tuned, linear, counts = _separated(chosen, part)
    result = None if tuned is None else onnx_export.export(tuned, out, int8=int8)
    out.mkdir(exist_ok=True)
    if linear is not None:
        np.savez(out / "linear.npz", **linear._asdict())
    if counts is not None:
        _write_counts(counts, out)
    row = {
        "kind": part.name,
        "counts": counts and part.name,
        "graph": tuned and part.name,
        "linear": linear and f"{part.name}/linear.npz",
    }
    return row, result


def _separated(
    chosen: ChosenModel, part: ChosenPart
) -> tuple[TunedModel | None, LinearMap | None, FittedCounts | None]:
    """Return the network of a part, a linear map of its outputs, and the counts beside it."""
    fitted = part.fitted
    if isinstance(fitted, FittedCounts):
        return None, None, fitted
    if isinstance(fitted, FittedNetwork):
        return fitted.tuned, None, None
    if isinstance(fitted, FittedPairs):
        return fitted.network.tuned, fitted.linear, None
    if chosen.tuned_on.is_pair:
        raise UserError(
            f"{chosen.source}: the part {part.name} reads the texts of a pair apart, which one "
            "graph cannot; name the network in it, or tune with --strategy full"
        )
    if isinstance(fitted, FittedFeatures):
        return _of_features(chosen, *fitted.linear), None, None
    assert isinstance(fitted, FittedBoth) and fitted.words.linear is not None
    (weights, bias), size = fitted.words.linear, len(fitted.words.counts.vocabulary)
    of_words = LinearMap(weights[:size], np.zeros_like(bias))
    weights = weights[size:] * fitted.scale[:, None]
    network = _of_features(chosen, weights, bias - fitted.mean @ weights)
    return network, None, replace(fitted.words, linear=of_words)


def _write_counts(fitted: FittedCounts, out: Path) -> None:
    counts, linear = fitted.counts, fitted.linear
    assert linear is not None
    about = {name: getattr(counts, name) for name in ("grams", "longest", "weighting")}
    about |= {"word": WORD, "unspaced": UNSPACED_LETTER, "vocabulary": list(counts.vocabulary)}
    (out / "counts.json").write_text(stored.to_json(about), encoding="utf-8")
    np.savez_compressed(out / "counts.npz", scale=counts.scale, **linear._asdict())


def _of_features(chosen: ChosenModel, weights: Array, bias: Array) -> TunedModel:
    """Return the pretrained model with a linear map of its features as a head."""
    task, trained = chosen.material.features_task, chosen.material.trained
    head = nn.Linear(*weights.shape)
    with torch.no_grad():
        head.weight.copy_(torch.from_numpy(np.ascontiguousarray(weights.T)))
        head.bias.copy_(torch.from_numpy(np.asarray(bias, np.float32)))
    backbone = neural(copy.deepcopy(trained.model).backbone)
    return _tuned(chosen, task, trained, LayersNetwork(backbone, head, needs=task.needs))


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


def _distance(chosen: ChosenModel, folder: Path) -> float:
    """Return how far the loader's probabilities, or numbers, are from Foreword's."""
    dummy = _tuned(chosen, chosen.task, chosen.material.trained, nn.Identity())
    examples = export_folder.examples(dummy, chosen.max_tokens, CHECKED)
    examples = LabelledTexts.of([*examples[: len(CHECKED)], *_counted(chosen, examples[0].pair)])
    outputs = np.concatenate([result.outputs for result in chosen.outputs_of(examples)])
    if chosen.material.form != "number":
        outputs = softmax(outputs, axis=1) if chosen.material.form == "classes" else expit(outputs)
    pairs = [example.pair or "" for example in examples] if chosen.tuned_on.is_pair else None
    got = exported.Average(folder)([example.text for example in examples], pairs)
    distance = float(np.abs(got - outputs).max())
    if not distance <= TOLERANCE * max(1.0, float(np.abs(outputs).max())):
        raise UserError(
            f"{folder}: {LOADER} computes what differs from Foreword's by {distance:.3g}; this is "
            "a fault of Foreword"
        )
    return distance
