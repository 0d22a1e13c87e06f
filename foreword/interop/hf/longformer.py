"""Longformer: `LongformerForMaskedLM`, RoBERTa with windowed attention."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from torch import Tensor

from foreword.errors import UserError
from foreword.interop.hf import _contract as hf
from foreword.interop.hf import _encoder as encoder
from foreword.interop.hf._roberta import LikeRoberta, names
from foreword.interop.hf_config import HFConfig
from foreword.nn.attentions.window import Window
from foreword.types import Vocab

MAPS = [f"{map_}{{}}.{kind}" for map_ in ("query", "key", "value") for kind in ("weight", "bias")]


@dataclass(frozen=True)
class Longformer(LikeRoberta):
    """Longformer (Beltagy et al. 2020): an encoder for long texts with windowed attention.

    In `transformers` each call names the positions with global attention, which have projections
    of their own; its files do not. Masked-token training has no such positions and does not train
    these projections, so our model has none: they are not imported, and are exported as copies of
    the local ones, which they equal in the released models after masked-token training.
    """

    names = names("Longformer", "longformer.", "*_global.*")
    keys = replace(
        LikeRoberta.keys,
        supported={**encoder.SUPPORTED_VALUES, "attention_mode": "longformer"},
        ignored=("ignore_attention_mask", "onnx_export"),
    )

    def model(self, hf_config: HFConfig, weights: Mapping[str, Tensor]) -> hf.Table:
        """Return the model with its window, which must be the same in all layers."""
        table = super().model(hf_config, weights)
        window = hf_config.get("attention_window", 512, int, list)
        widths = window if isinstance(window, list) else [window]
        if not widths or any(type(w) is not int or w % 2 or w != widths[0] for w in widths):
            raise hf_config.refuse("attention_window", "one even number for all layers")
        table["attention"] = {"kind": "window", "radius": widths[0] // 2, "global_tokens": 0}
        return table

    def describe(self, design: hf.Design, vocab: Vocab) -> hf.Table:
        """Return the config; its window counts both sides.

        Raises:
            UserError: the model has global tokens.
        """
        attention = design.model.attention
        is_local = isinstance(attention, Window)
        if is_local and attention.global_tokens:
            raise UserError(
                "model.attention.global_tokens is more than 0, which config.json cannot express: "
                "in transformers each call names the positions with global attention"
            )
        window = 2 * attention.radius if is_local else 2
        table = super().describe(design, vocab)
        return {**table, "attention_window": [window] * design.model.layers}

    def tensors(self, design: hf.Design, vocab: Vocab) -> hf.TensorMaps:
        """Return the tensors; the projections of global attention are copies of the local ones."""
        layers = [
            f"{self.names.prefix}encoder.layer.{n}.attention.self."
            for n in range(design.model.layers)
        ]
        copies = {
            prefix + name.format("_global"): prefix + name.format("")
            for prefix in layers
            for name in MAPS
        }
        return replace(super().tensors(design, vocab), copies=copies)

    def heads(self, design: hf.Design) -> Mapping[str, hf.PublishedHead]:
        """Return the heads; those of texts attend globally from the first token."""
        heads = super().heads(design)
        longest = getattr(design.model.attention, "radius", 0) + 1
        problem = "gives the first token global attention, which this model lacks"
        by_class = {
            name: replace(heads[name], max_length=longest, problem=problem)
            for name in ("SequenceClassification", "MultipleChoice")
        }
        return {**hf.TOKEN_HEADS, **by_class}
