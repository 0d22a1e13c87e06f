"""Longformer: `LongformerForMaskedLM`, RoBERTa that looks at its neighbours."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from types import MappingProxyType

from torch import Tensor

from foreword.errors import UserError
from foreword.interop.family import Design, Table
from foreword.interop.hf import _encoder as encoder
from foreword.interop.hf._roberta import LikeRoberta
from foreword.interop.hf_config import HFConfig
from foreword.types import Vocab

MAPS = [f"{map_}{{}}.{kind}" for map_ in ("query", "key", "value") for kind in ("weight", "bias")]


@dataclass(frozen=True)
class Longformer(LikeRoberta):
    """Longformer (Beltagy et al. 2020): an encoder for long texts, each place with its neighbours.

    Which places see all, theirs is told with each call and not in its files, and such places have
    maps of their own. Masked-token training has none and leaves these maps alone, so here there are
    none either: a file's own maps are not taken over, and they are written as copies of the others,
    as the released models have them after masked-token training.
    """

    architecture = "LongformerForMaskedLM"
    prefix = "longformer."
    embedding = "longformer.embeddings.word_embeddings.weight"
    neutral = MappingProxyType({**encoder.NEUTRAL, "attention_mode": "longformer"})
    idle = ("ignore_attention_mask", "onnx_export")

    def model(self, hf_config: HFConfig, weights: Mapping[str, Tensor]) -> Table:
        """With the window, which is one for all layers."""
        table = super().model(hf_config, weights)
        window = hf_config.take("attention_window", 512, int, list)
        widths = window if isinstance(window, list) else [window]
        if not widths or any(type(w) is not int or w % 2 or w != widths[0] for w in widths):
            raise hf_config.refuse("attention_window", "one even number for all layers")
        table["attention"] = {"kind": "window", "radius": widths[0] // 2, "global_tokens": 0}
        return table

    def describe(self, design: Design, vocab: Vocab) -> Table:
        """The window counts both sides there.

        Raises:
            UserError: the model has places that see all.
        """
        attention = design.model.attention
        if getattr(attention, "global_tokens", 0):
            raise UserError(
                "model.attention.global_tokens is more than 0, and transformers is told with each "
                "call which places see all, not by config.json"
            )
        window = 2 * getattr(attention, "radius", 1)
        found = super().describe(design, vocab)
        return {**found, "attention_window": [window] * design.model.layers}

    def twins(self, design: Design) -> Mapping[str, str]:
        """The maps of places that see all."""
        own = [
            f"{self.prefix}encoder.layer.{n}.attention.self." for n in range(design.model.layers)
        ]
        return {
            prefix + name.format("_global"): prefix + name.format("")
            for prefix in own
            for name in MAPS
        }

    def left(self, names: Iterable[str]) -> list[str]:
        """The pooler, and the maps of places that see all."""
        names = list(names)
        return super().left(names) + [name for name in names if "_global." in name]
