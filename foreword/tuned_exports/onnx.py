"""Exporting fine-tuned models as ONNX graphs, with the tokenizer and the labels."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from foreword.disk import atomic
from foreword.errors import UserError
from foreword.interop import exporting, onnx_graph
from foreword.interop.formats._contract import ExchangeResult
from foreword.interop.hf_config import FILE as CONFIG
from foreword.interop.onnx_graph import Answers, Graph, GraphSample
from foreword.nn.masks import CausalMask, DocumentMask
from foreword.settings import config, kinds
from foreword.tables.columns import PREDICTION
from foreword.tuned_exports.folder import (
    calibration_of,
    cutting,
    exports_of,
    random_examples,
    write_tokenizer,
)
from foreword.tuned_exports.hf import windows_note
from foreword.tuning.encoded import output_counts
from foreword.tuning.network import require_layers
from foreword.tuning.tasks._contract import PROBABILITY, ExampleOutputs
from foreword.tuning.tuned_model import TunedModel
from foreword.types import Array, Batch

TEXTS = 16  # compared, of lengths from one token to the most


class TunedGraph(Graph):
    """A tuned network, on the CPU: texts to the outputs of its head."""

    def __init__(self, tuned: TunedModel) -> None:
        template = tuned.template
        super().__init__(
            exports_of(tuned).outputs_named,
            template.length,
            has_segments=template.has_segments,
            is_causal=template.is_causal,
        )
        self.network, self.start = tuned.network, template.start
        self.pooling = _pooling(tuned)
        self.calibration = calibration_of(tuned.task)

    def forward(
        self, input_ids: Tensor, attention_mask: Tensor, token_type_ids: Tensor | None = None
    ) -> Any:
        """Return what the head computes, named as classes of `transformers` name it.

        Args:
            input_ids: (batch, length), or (batch, options, length); so are the other two.
            token_type_ids: None if the network does not read them.
        """
        options = input_ids.shape[1] if input_ids.ndim == 3 else None
        if options is not None:
            input_ids, attention_mask = input_ids.flatten(0, 1), attention_mask.flatten(0, 1)
            token_type_ids = None if token_type_ids is None else token_type_ids.flatten(0, 1)
        batch = self.batch(input_ids, attention_mask, token_type_ids)
        positions = batch.positions
        if self.start is not None:
            first = torch.zeros_like(batch.ids[:, :1])  # the start token, which sees all
            sees_all = DocumentMask(first, batch.documents)
            start = first + self.start
            batch = Batch(start, first, CausalMask(), source=batch, cross_mask=sees_all)
        hidden, mixes = self.network.run_backbone(batch), self.network.scalar_mix is not None
        layers = require_layers(hidden.layers) if mixes else (hidden.states,)
        read = [self._read(states, positions, attention_mask) for states in layers]
        outputs = self.network.outputs(torch.stack(read)) / self.calibration
        if not self.pooling:
            outputs = outputs.view(input_ids.shape[0], input_ids.shape[1], -1)
        if options is not None:
            return outputs.view(-1, options)
        return outputs.unbind(-1) if len(self.outputs) > 1 else outputs

    def _read(self, states: Tensor, positions: Tensor, mask: Tensor) -> Tensor:
        """Return the states that the head reads, (batch or batch * length, width)."""
        if not self.pooling:
            return states.flatten(0, 1)
        if self.start is not None:
            return states[:, 0]
        is_text = mask[..., None]
        if self.pooling == "max":
            return states.masked_fill(is_text == 0, -torch.inf).amax(1)
        if self.pooling == "mean":
            return (states * is_text).sum(1) / is_text.sum(1).clamp(min=1)
        at = (mask if self.pooling == "first" else positions * mask).argmax(1)
        return states[torch.arange(states.shape[0]), at]


def export(tuned: TunedModel, out: Path, *, int8: bool) -> ExchangeResult:
    """Write a tuned model as the folder `out`, which exists only once it is checked.

    Args:
        out: the folder; it must be absent or empty.
        int8: see `onnx_graph.write`.

    Raises:
        UserError: a package is missing, ONNX lacks an operation, the folder cannot be written, or
            onnxruntime computes other outputs.
    """
    onnx_graph.require_onnx()
    if tuned.task.exports is None:
        kind = kinds.name_of(tuned.task)
        raise UserError(f"{tuned.source}: the task {kind} does not say its `exports`, see `Task`")
    atomic.require_new_folder(out)
    notes = tuple(windows_note(tuned))
    tuned = replace(tuned, network=tuned.network.cpu(), task=cutting(tuned.task))
    graph = TunedGraph(tuned).eval()
    length = tuned.template.length
    lengths = np.linspace(1, length, TEXTS).astype(int).tolist()
    results = [
        result._replace(outputs=result.outputs / graph.calibration)
        for result in tuned.outputs_of(random_examples(tuned, length, lengths))
    ]
    with atomic.folder(out) as part:
        write_tokenizer(tuned, part)
        names = tuned.labels[: tuned.width] if tuned.task.judge.has_classes else ()
        about: dict[str, Any] = {
            "task": kinds.name_of(tuned.task),
            "settings": config.to_table(tuned.task),
            "problem_type": exports_of(tuned).problem_type,
            **({"id2label": dict(enumerate(names))} if names else {}),
            "max_length": length,
        }
        exporting.write_json(part / CONFIG, about)
        written = onnx_graph.write(
            graph, _samples(tuned, results), _answers(tuned, results), part, int8=int8
        )
    return replace(written, facts={"folder": str(out), **written.facts}, notes=notes)


def _pooling(tuned: TunedModel) -> str:
    """Return how the states of a text are pooled; "" for a head that reads every token."""
    is_pooled = hasattr(tuned.task, "pooling")
    return str(getattr(tuned.task, "pooling", None) or tuned.template.pooling) if is_pooled else ""


def _samples(tuned: TunedModel, results: Sequence[ExampleOutputs]) -> list[GraphSample]:
    """Return each input of the examples, or the options of each question, with its outputs."""
    samples = []
    for result in results:
        outputs = np.split(result.outputs, np.cumsum(output_counts(result.inputs))[:-1])
        if tuned.task.needs.loss_unit == "example":
            samples.append(_options(result))
            continue
        for one, expected in zip(result.inputs, outputs, strict=True):
            ones = np.ones_like(one.ids)
            if _pooling(tuned):
                samples.append(GraphSample(one.ids, ones, one.segments, expected[0]))
            else:
                at = one.pooled_positions
                samples.append(GraphSample(one.ids, ones, one.segments, expected, at))
    return samples


def _options(result: ExampleOutputs) -> GraphSample:
    """Return the options of a question, padded to one length."""
    width = max(len(one.ids) for one in result.inputs)
    ids, mask, segments = (
        np.stack([np.pad(array, (0, width - len(array))) for array in arrays])
        for arrays in zip(
            *((one.ids, np.ones_like(one.ids), one.segments) for one in result.inputs), strict=True
        )
    )
    return GraphSample(ids, mask, segments, result.outputs[:, 0], np.arange(len(ids)))


def _answers(tuned: TunedModel, results: Sequence[ExampleOutputs]) -> Answers | None:
    """Return what makes answers of outputs; None for numbers and vectors, which are the answers."""
    answers, labels = tuned.task.answers, tuned.labels
    if PROBABILITY not in answers.types(labels, probabilities=False, is_pair=False):
        return None
    counts = np.cumsum([len(result.outputs) for result in results])[:-1]
    width = results[0].outputs.shape[1]
    calibration = calibration_of(tuned.task)  # of the graph's outputs alone

    def answer(outputs: Sequence[Array]) -> list[Any]:
        parts = np.split(np.concatenate([each.reshape(-1, width) for each in outputs]), counts)
        given = [
            result._replace(outputs=part * calibration)
            for result, part in zip(results, parts, strict=True)
        ]
        rows = answers.rows(given, labels, probabilities=False)
        return [row[PREDICTION] for row in rows]

    return answer
