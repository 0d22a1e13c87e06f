"""GPT-2: `GPT2LMHeadModel`, whose linear maps are stored transposed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType

from torch import Tensor

from foreword.interop.family import Design, Family, ParameterMap, SettingMap, Table, map_each
from foreword.interop.hf import _decoder as decoder
from foreword.types import Vocab


@dataclass(frozen=True)
class GPT2(Family):
    """GPT-2 (Radford et al. 2019): a decoder, normalised before each part."""

    architecture = "GPT2LMHeadModel"
    layout = "decoder"
    prefix = "transformer."
    embedding = "transformer.wte.weight"
    names = (
        *decoder.NAMES,
        SettingMap("d_ff", "n_inner", None),
        SettingMap("position.length", "n_positions", 1024),
        SettingMap("activation", "activation_function", "gelu_new", decoder.ACTIVATIONS),
    )
    fixed = MappingProxyType({**decoder.FIXED, "norm_position": "pre", "init": "gpt2"})
    neutral = MappingProxyType(
        {"scale_attn_weights": True, "scale_attn_by_inverse_layer_idx": False}
    )
    idle = (*decoder.IDLE, "reorder_and_upcast_attn")

    def objective(self, weights: Mapping[str, Tensor]) -> Table:
        """The next token."""
        return {"kind": "causal"}

    def packing(self, table: Table, weights: Mapping[str, Tensor]) -> Table:
        """Texts follow each other with the end of text between."""
        return decoder.parted(table)

    def around(self, design: Design) -> tuple[str, str]:
        """What a text begins with, and nothing after it."""
        return decoder.around(design)

    def describe(self, design: Design, vocab: Vocab) -> Table:
        """All widths are said."""
        return {**super().describe(design, vocab), "n_ctx": design.model.limit}

    def has_memory(self, design: Design, vocab: Vocab) -> Iterator[ParameterMap]:
        """The table."""
        yield from map_each(
            {"embedding.token": "wte", "stack.position.table": "wpe"},
            "backbone.",
            self.prefix,
            ("weight",),
        )
        yield from decoder.blocks(design, self.prefix)
        yield from map_each({"final_norm": "ln_f"}, "backbone.stack.", self.prefix)

    def copies(self, design: Design) -> Mapping[str, str]:
        """The output layer is the embedding."""
        return {"lm_head.weight": self.embedding}

    def is_buffer(self, name: str) -> bool:
        """The causal mask, in old files."""
        return name.endswith((".attn.bias", ".attn.masked_bias"))
