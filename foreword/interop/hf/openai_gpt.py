"""GPT-1: `OpenAIGPTLMHeadModel`, normalised behind each sum."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType

from torch import Tensor

from foreword.interop.family import Design, Family, ParameterMap, SettingMap, Table, map_each
from foreword.interop.hf import _decoder as decoder
from foreword.types import Vocab


@dataclass(frozen=True)
class OpenAIGPT(Family):
    """GPT-1 (Radford et al. 2018): a decoder, normalised behind each sum."""

    architecture = "OpenAIGPTLMHeadModel"
    model_type = "openai-gpt"
    layout = "decoder"
    prefix = "transformer."
    embedding = "transformer.tokens_embed.weight"
    names = (
        *decoder.NAMES,
        SettingMap("position.length", "n_positions", 512),
        SettingMap("activation", "afn", "gelu", {"gelu_tanh": "gelu", "relu": "relu"}),
    )
    fixed = MappingProxyType({**decoder.FIXED, "norm_position": "post", "init": "bert"})
    idle = decoder.IDLE

    def objective(self, weights: Mapping[str, Tensor]) -> Table:
        """The next token."""
        return {"kind": "causal"}

    def packing(self, table: Table, weights: Mapping[str, Tensor]) -> Table:
        """Texts follow each other with nothing between: its tokenizer has no token for that."""
        return decoder.parted(table) | {"eos": ""}

    def around(self, design: Design) -> tuple[str, str]:
        """What a text begins with, and nothing after it."""
        return decoder.around(design)

    def has_memory(self, design: Design, vocab: Vocab) -> Iterator[ParameterMap]:
        """The table."""
        tables = {"embedding.token": "tokens_embed", "stack.position.table": "positions_embed"}
        yield from map_each(tables, "backbone.", self.prefix, ("weight",))
        yield from decoder.blocks(design, self.prefix)

    def copies(self, design: Design) -> Mapping[str, str]:
        """The output layer is the embedding."""
        return {"lm_head.weight": self.embedding}

    def is_buffer(self, name: str) -> bool:
        """The causal mask and the numbers 0, 1, 2, ..., in old files."""
        return name.endswith((".attn.bias", ".position_ids"))
