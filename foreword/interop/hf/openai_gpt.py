"""GPT-1: `OpenAIGPTLMHeadModel`, normalised after each residual sum (post-norm)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from torch import Tensor

from foreword.interop.hf import _contract as hf
from foreword.interop.hf import _decoder as decoder
from foreword.types import Vocab


@dataclass(frozen=True)
class OpenAIGPT(hf.Family):
    """GPT-1 (Radford et al. 2018): a decoder, normalised after each residual sum (post-norm)."""

    names = hf.FamilyNames(
        architecture="OpenAIGPTLMHeadModel",
        layout="decoder",
        embedding="transformer.tokens_embed.weight",
        prefix="transformer.",
        model_type="openai-gpt",
        buffers=("*.attn.bias", "*.position_ids"),  # in old files
    )
    keys = hf.ConfigKeys(
        maps=(
            *decoder.SETTING_MAPS,
            hf.SettingMap("position.length", "n_positions", 512),
            hf.SettingMap("activation", "afn", "gelu", {"gelu_tanh": "gelu", "relu": "relu"}),
        ),
        fixed={**decoder.FIXED, "norm_position": "post", "init": "bert"},
        ignored=decoder.IGNORED_KEYS,
    )

    def objective(self, weights: Mapping[str, Tensor], models: Mapping[str, hf.Table]) -> hf.Table:
        return {"kind": "causal"}

    def packing(self, table: hf.Table, weights: Mapping[str, Tensor]) -> hf.Table:
        """Return rows of texts joined directly: its tokenizer has no end-of-text token."""
        return decoder.joined_packing(table) | {"eos": ""}

    def bos_and_eos(self, design: hf.Design) -> tuple[str, str]:
        """Return the token before a text; none follows it."""
        return decoder.bos_and_eos(design)

    def tensors(self, design: hf.Design, vocab: Vocab) -> hf.TensorMaps:
        tables = {"embedding.token": "tokens_embed", "stack.position.table": "positions_embed"}
        maps = (
            *hf.map_each(tables, "backbone.", self.names.prefix, ("weight",)),
            *decoder.blocks(design, self.names.prefix),
        )
        return hf.TensorMaps(maps, tied={"lm_head.weight": self.names.embedding})

    def heads(self, design: hf.Design) -> Mapping[str, hf.PublishedHead]:
        """Return the text classifier, which reads the last state."""
        before = f"{self.names.prefix}h.{design.model.layers - 1}.ln_2.bias"
        return {
            "SequenceClassification": hf.PublishedHead("score", pooling="last", bias_before=before)
        }
