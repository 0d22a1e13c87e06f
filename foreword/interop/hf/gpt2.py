"""GPT-2: `GPT2LMHeadModel`, whose linear maps are stored transposed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from torch import Tensor

from foreword.interop.hf import _contract as hf
from foreword.interop.hf import _decoder as decoder
from foreword.types import Vocab


@dataclass(frozen=True)
class GPT2(hf.Family):
    """GPT-2 (Radford et al. 2019): a decoder with pre-norm blocks."""

    names = hf.FamilyNames(
        architecture="GPT2LMHeadModel",
        layout="decoder",
        embedding="transformer.wte.weight",
        prefix="transformer.",
        buffers=("*.attn.bias", "*.attn.masked_bias"),  # the causal mask, in old files
    )
    keys = hf.ConfigKeys(
        maps=(
            *decoder.SETTING_MAPS,
            hf.SettingMap("d_ff", "n_inner", None),
            hf.SettingMap("position.length", "n_positions", 1024),
            hf.SettingMap("activation", "activation_function", "gelu_new", decoder.ACTIVATIONS),
        ),
        fixed={**decoder.FIXED, "norm_position": "pre", "init": "gpt2"},
        supported={"scale_attn_weights": True, "scale_attn_by_inverse_layer_idx": False},
        ignored=(*decoder.IGNORED_KEYS, "reorder_and_upcast_attn"),
    )

    def objective(self, weights: Mapping[str, Tensor], models: Mapping[str, hf.Table]) -> hf.Table:
        return {"kind": "causal"}

    def packing(self, table: hf.Table, weights: Mapping[str, Tensor]) -> hf.Table:
        """Return rows of texts joined by the end-of-text token."""
        return decoder.joined_packing(table)

    def bos_and_eos(self, design: hf.Design) -> tuple[str, str]:
        """Return the token before a text; none follows it."""
        return decoder.bos_and_eos(design)

    def describe(self, design: hf.Design, vocab: Vocab) -> hf.Table:
        """Return the config, with the context length under both its keys."""
        return {**super().describe(design, vocab), "n_ctx": design.model.limit}

    def tensors(self, design: hf.Design, vocab: Vocab) -> hf.TensorMaps:
        tables, prefix = (
            {"embedding.token": "wte", "stack.position.table": "wpe"},
            self.names.prefix,
        )
        maps = (
            *hf.map_each(tables, "backbone.", prefix, ("weight",)),
            *decoder.blocks(design, prefix),
            *hf.map_each({"final_norm": "ln_f"}, "backbone.stack.", prefix),
        )
        return hf.TensorMaps(maps, tied={"lm_head.weight": self.names.embedding})

    def heads(self, design: hf.Design) -> Mapping[str, hf.PublishedHead]:
        """Return linear maps of tokens, and the text classifier, which reads the last state."""
        before = f"{self.names.prefix}ln_f.bias"
        classifier = hf.PublishedHead("score", pooling="last", bias_before=before)
        return {**hf.LINEAR_HEADS, "SequenceClassification": classifier}
