"""GPT-2: `GPT2LMHeadModel`, whose linear maps are stored transposed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType

from torch import Tensor

from foreword.interop.hf import _decoder as decoder
from foreword.interop.hf._contract import (
    LINEAR_HEADS,
    Design,
    Family,
    ParameterMap,
    PublishedHead,
    SettingMap,
    Table,
    map_each,
)
from foreword.types import Vocab


@dataclass(frozen=True)
class GPT2(Family):
    """GPT-2 (Radford et al. 2019): a decoder with pre-norm blocks."""

    architecture = "GPT2LMHeadModel"
    layout = "decoder"
    prefix = "transformer."
    embedding = "transformer.wte.weight"
    linear_heads = LINEAR_HEADS
    setting_maps = (
        *decoder.SETTING_MAPS,
        SettingMap("d_ff", "n_inner", None),
        SettingMap("position.length", "n_positions", 1024),
        SettingMap("activation", "activation_function", "gelu_new", decoder.ACTIVATIONS),
    )
    fixed = MappingProxyType({**decoder.FIXED, "norm_position": "pre", "init": "gpt2"})
    supported_values = MappingProxyType(
        {"scale_attn_weights": True, "scale_attn_by_inverse_layer_idx": False}
    )
    ignored_keys = (*decoder.IGNORED_KEYS, "reorder_and_upcast_attn")

    def objective(self, weights: Mapping[str, Tensor]) -> Table:
        return {"kind": "causal"}

    def packing(self, table: Table, weights: Mapping[str, Tensor]) -> Table:
        """Return rows of texts joined by the end-of-text token."""
        return decoder.joined_packing(table)

    def bos_and_eos(self, design: Design) -> tuple[str, str]:
        """Return the token before a text; none follows it."""
        return decoder.bos_and_eos(design)

    def describe(self, design: Design, vocab: Vocab) -> Table:
        """Return the config, with the context length under both its keys."""
        return {**super().describe(design, vocab), "n_ctx": design.model.limit}

    def parameter_maps(self, design: Design, vocab: Vocab) -> Iterator[ParameterMap]:
        yield from map_each(
            {"embedding.token": "wte", "stack.position.table": "wpe"},
            "backbone.",
            self.prefix,
            ("weight",),
        )
        yield from decoder.blocks(design, self.prefix)
        yield from map_each({"final_norm": "ln_f"}, "backbone.stack.", self.prefix)

    def classifier(self, design: Design) -> PublishedHead:
        """Return the class whose head reads the last state."""
        return PublishedHead(
            "GPT2ForSequenceClassification",
            "score",
            pooling="last",
            bias_before=f"{self.prefix}ln_f.bias",
        )

    def tied_tensors(self, design: Design) -> Mapping[str, str]:
        """Return the output layer, which is tied to the embedding."""
        return {"lm_head.weight": self.embedding}

    def is_buffer(self, name: str) -> bool:
        """Return whether it is the causal mask, which old files hold."""
        return name.endswith((".attn.bias", ".attn.masked_bias"))
