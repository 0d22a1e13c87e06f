"""GPT-2: `GPT2LMHeadModel`, whose linear maps are stored transposed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from torch import Tensor

from foreword.interop.hf import _decoder as decoder
from foreword.interop.hf._contract import (
    LINEAR_HEADS,
    ConfigKeys,
    Design,
    Family,
    FamilyNames,
    PublishedHead,
    SettingMap,
    Table,
    TensorMaps,
    map_each,
)
from foreword.types import Vocab


@dataclass(frozen=True)
class GPT2(Family):
    """GPT-2 (Radford et al. 2019): a decoder with pre-norm blocks."""

    names = FamilyNames(
        architecture="GPT2LMHeadModel",
        layout="decoder",
        embedding="transformer.wte.weight",
        prefix="transformer.",
        buffers=("*.attn.bias", "*.attn.masked_bias"),  # the causal mask, in old files
    )
    keys = ConfigKeys(
        maps=(
            *decoder.SETTING_MAPS,
            SettingMap("d_ff", "n_inner", None),
            SettingMap("position.length", "n_positions", 1024),
            SettingMap("activation", "activation_function", "gelu_new", decoder.ACTIVATIONS),
        ),
        fixed={**decoder.FIXED, "norm_position": "pre", "init": "gpt2"},
        supported={"scale_attn_weights": True, "scale_attn_by_inverse_layer_idx": False},
        ignored=(*decoder.IGNORED_KEYS, "reorder_and_upcast_attn"),
    )

    def objective(self, weights: Mapping[str, Tensor], models: Mapping[str, Table]) -> Table:
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

    def tensors(self, design: Design, vocab: Vocab) -> TensorMaps:
        tables, prefix = (
            {"embedding.token": "wte", "stack.position.table": "wpe"},
            self.names.prefix,
        )
        maps = (
            *map_each(tables, "backbone.", prefix, ("weight",)),
            *decoder.blocks(design, prefix),
            *map_each({"final_norm": "ln_f"}, "backbone.stack.", prefix),
        )
        return TensorMaps(maps, tied={"lm_head.weight": self.names.embedding})

    def heads(self, design: Design) -> Mapping[str, PublishedHead]:
        """Return linear maps of tokens, and the text classifier, which reads the last state."""
        before = f"{self.names.prefix}ln_f.bias"
        classifier = PublishedHead("score", pooling="last", bias_before=before)
        return {**LINEAR_HEADS, "SequenceClassification": classifier}
