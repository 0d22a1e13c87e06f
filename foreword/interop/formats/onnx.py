"""ONNX graphs, which onnxruntime computes without torch and without our code."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from torch import Tensor

from foreword.data.rows import positions_within
from foreword.disk import atomic
from foreword.errors import UserError
from foreword.interop import onnx_graph, tokens
from foreword.interop.formats._contract import ExchangeResult
from foreword.interop.onnx_graph import Graph, GraphSample
from foreword.nn.model import neural_settings
from foreword.runs.trained_model import TrainedModel
from foreword.types import Array, Tokens

LENGTHS = (2, 3, 5, 15, 50, 150)  # of the texts that are compared


@dataclass(frozen=True)
class ONNX:
    """A folder with model.onnx, for onnxruntime, and the tokenizer.

    Of a fine-tuned model the outputs are its head's; of an encoder or a decoder they are the logits
    of every token: the tokens behind [MASK], or those that come next.

    Attributes:
        int8: write model_int8.onnx beside it, whose weights have 8 bits.
    """

    int8: bool = False

    def write(self, trained: TrainedModel, out: Path) -> ExchangeResult:
        onnx_graph.require_onnx()
        atomic.require_new_folder(out)
        if (
            not (trained.continues or trained.fills_in_place)
            or trained.recipe.objective.predicts.in_order
        ):
            raise trained.unable("has no logits of every token at once", "encoders, decoders")
        graph = TokenGraph(trained).eval()
        samples = [_sample(trained, min(length, graph.length or length)) for length in LENGTHS]
        with atomic.folder(out) as part:
            suffix = trained.eos.tolist() if trained.fills_in_place else []
            segments = len(graph.inputs) - 1
            use = tokens.TokenizerUse(("", ""), "", segments, graph.length)
            tokens.write(trained.tokenizer, use, part)
            tokens.write_template(trained.tokenizer, trained.prefix.tolist(), suffix, suffix, part)
            written = onnx_graph.write(graph, samples, _likeliest, part, int8=self.int8)
        return replace(written, facts={"folder": str(out), **written.facts})

    def read(self, source: str, run: Path) -> ExchangeResult:
        raise UserError("--format onnx is for export; import the folder that it was exported from")


class TokenGraph(Graph):
    """A pretrained network: texts to the logits of every token, (batch, length, vocab).

    Args:
        trained: the model, on the CPU.
    """

    def __init__(self, trained: TrainedModel) -> None:
        super().__init__(
            ("logits",),
            trained.limit,
            has_segments=neural_settings(trained.recipe.model).has_segments,
            is_causal=not trained.fills_in_place,
        )
        self.backbone = trained.recipe.objective.token_backbone(trained.model)
        self.head = trained.model.token_head

    def forward(
        self, input_ids: Tensor, attention_mask: Tensor, token_type_ids: Tensor | None = None
    ) -> Any:
        """Return the logits; arguments are (batch, length)."""
        batch = self.batch(input_ids, attention_mask, token_type_ids)
        return self.head(self.backbone(batch).states)


def _sample(trained: TrainedModel, length: int) -> GraphSample:
    """Return a text of random tokens with the logits of each."""
    ordinary = np.flatnonzero(~trained.vocab.is_special)
    ids = np.random.default_rng(length).choice(ordinary, length).astype(np.int64)
    zeros = np.zeros_like(ids)
    rows = Tokens(ids[None], zeros[None], positions_within(zeros[None]))
    states = trained.run_backbone(trained.encoding_batch(rows)).states
    logits = trained.model.token_head(states)[0].detach().numpy()
    return GraphSample(ids, np.ones_like(ids), zeros, logits, np.arange(length))


def _likeliest(outputs: Sequence[Array]) -> list[int]:
    """Return the likeliest token at every position."""
    best: list[int] = np.concatenate([each.argmax(-1) for each in outputs]).tolist()
    return best
