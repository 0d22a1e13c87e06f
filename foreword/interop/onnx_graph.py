"""ONNX graphs: a network exported for onnxruntime, compared with itself there, and timed.

A graph reads `input_ids`, `attention_mask` (1 for tokens, 0 for padding behind them) and, where the
network tells the texts of a pair apart, `token_type_ids`; all (batch, length) int64, or (batch,
options, length). Positions follow from the mask, so a Transformer may have padding in front too.
"""

from __future__ import annotations

import io
import logging
import time
import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from foreword.errors import UserError
from foreword.interop.check_logits import TOLERANCE
from foreword.interop.formats._contract import ExchangeResult
from foreword.nn.masks import CausalMask, DocumentMask
from foreword.process.extras import require_packages
from foreword.types import Array, Batch

FILE, INT8_FILE = "model.onnx", "model_int8.onnx"
INPUTS = ("input_ids", "attention_mask", "token_type_ids")
EXPORTED = 4  # samples that an export traces, of at least two tokens together
REPEATS = 3  # readings of a text, of which the fastest counts

NOT_EXPORTED = (
    "ONNX has no graph of this model that reads texts of any length; Transformers (without "
    "'gated_deltanet') and the networks 'lstm', 'gru' and 'fixed_window' have one"
)

Answers = Callable[[Sequence[Array]], Sequence[Any]]


def require_onnx() -> None:
    """Check that the packages of the extra are installed.

    Raises:
        UserError: one is missing.
    """
    require_packages(["onnx", "onnxscript", "onnxruntime"], "--format onnx requires", "onnx")


class Graph(nn.Module, ABC):
    """A network as a function of the inputs of a graph.

    Args:
        outputs: the names of its outputs.
        length: the most tokens of a text; None if there is no limit.
        has_segments: whether it reads `token_type_ids`.
        is_causal: whether a token sees only those before it.
    """

    def __init__(
        self, outputs: Sequence[str], length: int | None, *, has_segments: bool, is_causal: bool
    ) -> None:
        super().__init__()
        self.outputs, self.length, self.is_causal = outputs, length, is_causal
        self.inputs = INPUTS if has_segments else INPUTS[:2]

    @abstractmethod
    def forward(
        self, input_ids: Tensor, attention_mask: Tensor, token_type_ids: Tensor | None = None
    ) -> Any:
        """Return the outputs, in the order of their names."""

    def batch(self, input_ids: Tensor, attention_mask: Tensor, segments: Tensor | None) -> Batch:
        """Return texts as the input of a backbone; padding is a document of its own."""
        documents = attention_mask - 1
        mask = DocumentMask(documents, documents)
        return Batch(
            input_ids,
            (attention_mask.cumsum(1) - 1).clamp(min=0) * attention_mask,
            CausalMask() & mask if self.is_causal else mask,
            segments=segments,
            documents=documents,
        )


@dataclass(frozen=True)
class GraphSample:
    """An input of a graph, and what the network computes of it.

    Attributes:
        ids: (length,) or (options, length) int64.
        mask: of the same shape: 1 for tokens and 0 for padding.
        segments: of the same shape.
        expected: (outputs, labels) or (labels,).
        at: the rows of the graph's outputs that `expected` has, (outputs,) int64; None for all.
    """

    ids: Array
    mask: Array
    segments: Array
    expected: Array
    at: Array | None = None

    def padded(self, shape: tuple[int, ...], inputs: int) -> list[Array]:
        """Return the first `inputs` of ids, mask and segments, with padding behind."""
        return [_pad(each, shape) for each in (self.ids, self.mask, self.segments)[:inputs]]


def _pad(array: Array, shape: tuple[int, ...]) -> Array:
    return np.pad(array, [(0, n - m) for n, m in zip(shape, array.shape, strict=True)])


def write(
    graph: Graph, samples: Sequence[GraphSample], answers: Answers | None, out: Path, *, int8: bool
) -> ExchangeResult:
    """Write a graph, and by `int8` one of 8 bits beside it, and compare both with the network.

    Args:
        graph: the network, in evaluation mode on the CPU.
        samples: compared one by one, and together in a padded batch.
        answers: returns the answer to each sample by its outputs; None if outputs are the answers.
        out: the folder.
        int8: whether to quantise the weights too, and activations as they are computed.

    Returns:
        The greatest difference of an output, the share of answers that 8 bits leave unchanged, and
        the milliseconds that a text takes.

    Raises:
        UserError: ONNX lacks an operation of the network, or outputs differ beyond rounding.
    """
    file = out / FILE
    with _quiet():
        _export(graph, samples, file)
    expected = [sample.expected for sample in samples]
    largest = float(max(np.abs(each).max() for each in expected))
    computed = _Session(graph, file)
    distance = max(_distance(got, expected) for got in computed.ways(samples))
    if not distance <= TOLERANCE * max(1.0, largest):
        raise UserError(
            f"{file}: onnxruntime's outputs differ from Foreword's by {distance:.3g}, where the "
            f"greatest is {largest:.3g}: the model computes long texts in another way (as "
            "'bigbird' does), or this is a bug in Foreword"
        )
    facts: dict[str, Any] = {"logit_difference": distance, "greatest_logit": largest}
    with torch.inference_mode():
        alone = [_together([sample], len(graph.inputs)) for sample in samples]
        speeds = {"torch": _time(alone, lambda inputs: graph(*map(torch.from_numpy, inputs)))}
    speeds["onnx"], sizes = _time(alone, computed.run), {"onnx": file.stat().st_size}
    if int8:
        with _quiet():
            _quantise(file, out / INT8_FILE)
        reduced = _Session(graph, out / INT8_FILE)
        got = next(iter(reduced.ways(samples)))
        facts["int8_difference"] = _distance(got, expected)
        if answers is not None:
            pairs = list(zip(answers(got), answers(expected), strict=True))
            facts["int8_same_answers"] = sum(a == b for a, b in pairs) / len(pairs)
        speeds["int8"] = _time(alone, reduced.run)
        sizes["int8"] = (out / INT8_FILE).stat().st_size
    facts |= {"ms_per_text": {name: round(speed, 3) for name, speed in speeds.items()}}
    return ExchangeResult({**facts, "bytes": sizes})


class _Session:
    """A graph that onnxruntime has read."""

    def __init__(self, graph: Graph, file: Path) -> None:
        import onnxruntime

        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = torch.get_num_threads()
        options.log_severity_level = 4  # they are raised too
        self.names = graph.inputs
        self.session = onnxruntime.InferenceSession(file, options, ["CPUExecutionProvider"])

    def run(self, inputs: Sequence[Array]) -> Array:
        """Return the outputs, those of several names side by side in the last dimension."""
        outputs = self.session.run(None, dict(zip(self.names, inputs, strict=True)))
        stacked: Array = outputs[0] if len(outputs) == 1 else np.stack(outputs, -1)
        return stacked

    def ways(self, samples: Sequence[GraphSample]) -> Iterator[list[Array]]:
        """Yield the outputs of each sample alone, then those in one padded batch."""
        alone = [self.run(_together([sample], len(self.names)))[0] for sample in samples]
        together = self.run(_together(samples, len(self.names)))
        for rows in (alone, list(together)):
            yield [
                row if sample.at is None else row[sample.at]
                for row, sample in zip(rows, samples, strict=True)
            ]


def _together(samples: Sequence[GraphSample], inputs: int) -> list[Array]:
    """Return the inputs of a batch; those of short samples are padded."""
    sizes = np.stack([sample.ids.shape for sample in samples]).max(0)
    padded = [sample.padded(tuple(sizes), inputs) for sample in samples]
    return [np.stack(each) for each in zip(*padded, strict=True)]


def _distance(got: Sequence[Array], expected: Sequence[Array]) -> float:
    return float(max(np.abs(a - b).max() for a, b in zip(got, expected, strict=True)))


def _time(inputs: Sequence[list[Array]], run: Callable[[list[Array]], Any]) -> float:
    """Return the milliseconds of an input, the mean over the fastest reading of each."""

    def once(each: list[Array]) -> float:
        begin = time.perf_counter()
        run(each)
        return time.perf_counter() - begin

    return 1000 * sum(min(once(each) for _ in range(REPEATS)) for each in inputs) / len(inputs)


@contextmanager
def _quiet() -> Iterator[None]:
    """Keep remarks of the packages, which a user cannot act on, off the terminal."""
    logging.disable(logging.WARNING)
    try:
        printed = io.StringIO()
        with warnings.catch_warnings(), redirect_stdout(printed), redirect_stderr(printed):
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(logging.NOTSET)


def _export(graph: Graph, samples: Sequence[GraphSample], file: Path) -> None:
    """Write the graph, with any number of texts of any length up to the most."""
    Dim = torch.export.Dim  # noqa: N806
    # Of less than the most tokens: a length that equals a size of the network would be fixed.
    few = _together(samples[:EXPORTED], len(graph.inputs))
    inputs = tuple(map(torch.from_numpy, few))
    between = {1: Dim("options")} if inputs[0].ndim == 3 else {}
    dims = {0: Dim("batch"), **between, inputs[0].ndim - 1: Dim("length", max=graph.length)}
    try:
        program = torch.onnx.export(
            graph,
            inputs,
            dynamo=True,
            input_names=graph.inputs,
            output_names=graph.outputs,
            dynamic_shapes=dict.fromkeys(graph.inputs, dims),
            verbose=False,
        )
    except torch.onnx.OnnxExporterError as error:
        raise UserError(NOT_EXPORTED) from error
    assert program is not None
    sizes = [size for each in program.model.graph.inputs for size in each.shape or ()]
    if any(isinstance(size, int) for size in sizes):  # torch could only unroll it
        raise UserError(NOT_EXPORTED)
    for node in program.model.graph.all_nodes():
        node.metadata_props.clear()  # where in the code it was, by paths of this machine
    program.save(file)


def _quantise(source: Path, out: Path) -> None:
    """Write a graph with 8-bit weights; by unsigned ones, no processor saturates their products."""
    from onnxruntime.quantization import QuantType, quantize_dynamic

    quantize_dynamic(source, out, weight_type=QuantType.QUInt8)
