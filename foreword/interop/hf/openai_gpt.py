"""GPT-1: `OpenAIGPTLMHeadModel`, normalised after each residual sum (post-norm)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType

from torch import Tensor

from foreword.interop.hf import _decoder as decoder
from foreword.interop.hf._contract import (
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
class OpenAIGPT(Family):
    """GPT-1 (Radford et al. 2018): a decoder, normalised after each residual sum (post-norm)."""

    architecture = "OpenAIGPTLMHeadModel"
    model_type = "openai-gpt"
    layout = "decoder"
    prefix = "transformer."
    embedding = "transformer.tokens_embed.weight"
    setting_maps = (
        *decoder.SETTING_MAPS,
        SettingMap("position.length", "n_positions", 512),
        SettingMap("activation", "afn", "gelu", {"gelu_tanh": "gelu", "relu": "relu"}),
    )
    fixed = MappingProxyType({**decoder.FIXED, "norm_position": "post", "init": "bert"})
    ignored_keys = decoder.IGNORED_KEYS

    def objective(self, weights: Mapping[str, Tensor]) -> Table:
        return {"kind": "causal"}

    def packing(self, table: Table, weights: Mapping[str, Tensor]) -> Table:
        """Return rows of texts joined directly: its tokenizer has no end-of-text token."""
        return decoder.joined_packing(table) | {"eos": ""}

    def bos_and_eos(self, design: Design) -> tuple[str, str]:
        """Return the token before a text; none follows it."""
        return decoder.bos_and_eos(design)

    def parameter_maps(self, design: Design, vocab: Vocab) -> Iterator[ParameterMap]:
        tables = {"embedding.token": "tokens_embed", "stack.position.table": "positions_embed"}
        yield from map_each(tables, "backbone.", self.prefix, ("weight",))
        yield from decoder.blocks(design, self.prefix)

    def classifier(self, design: Design) -> PublishedHead:
        """Return the class whose head reads the last state."""
        last = design.model.layers - 1
        return PublishedHead(
            "OpenAIGPTForSequenceClassification",
            "score",
            pooling="last",
            bias_before=f"{self.prefix}h.{last}.ln_2.bias",
        )

    def tied_tensors(self, design: Design) -> Mapping[str, str]:
        """Return the output layer, which is tied to the embedding."""
        return {"lm_head.weight": self.embedding}

    def is_buffer(self, name: str) -> bool:
        """Return whether it is the causal mask or the position ids, which old files hold."""
        return name.endswith((".attn.bias", ".position_ids"))
