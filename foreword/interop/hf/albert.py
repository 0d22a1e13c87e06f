"""ALBERT: `AlbertForMaskedLM`, and of `AlbertForPreTraining` all but the second head."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType

from torch import Tensor

from foreword.interop.family import Carry, Design, Family, Name, Table, carry_each
from foreword.interop.hf import _encoder as encoder
from foreword.types import Vocab

BLOCK = {
    "attention.query": "attention.query",
    "attention.key_value": "attention.key attention.value",
    "attention.output": "attention.dense",
    "attention_norm": "attention.LayerNorm",
    "feedforward.wide": "ffn",
    "feedforward.narrow": "ffn_output",
    "feedforward_norm": "full_layer_layer_norm",
}


@dataclass(frozen=True)
class Albert(Family):
    """ALBERT (Lan et al. 2020): one block for all layers, narrow embeddings.

    The pooler and the head for the order of sentences are not taken over.
    """

    architecture = "AlbertForMaskedLM"
    layout = "encoder"
    prefix = "albert."
    embedding = "albert.embeddings.word_embeddings.weight"
    names = (
        *encoder.NAMES,
        Name("activation", "hidden_act", "gelu_new", encoder.ACTIVATIONS),
        Name("d_embedding", "embedding_size", 128),
        encoder.PLACES,
        encoder.SEGMENTS,
    )
    fixed = MappingProxyType({**encoder.FIXED, "share": "all"})
    neutral = MappingProxyType(
        {
            **encoder.NEUTRAL,
            "inner_group_num": 1,
            "num_hidden_groups": 1,
            "num_memory_blocks": 0,
            "gap_size": 0,
            "net_structure_type": 0,
            "down_scale_factor": 1,
        }
    )
    idle = ("classifier_dropout_prob",)

    def objective(self, weights: Mapping[str, Tensor]) -> Table:
        """Masked tokens."""
        return {"kind": "masked"}

    def packing(self, table: Table) -> Table:
        """A text between [CLS] and [SEP]."""
        return encoder.wrapped(table)

    def carries(self, design: Design, vocab: Vocab) -> Iterator[Carry]:
        """The table."""
        yield from encoder.embeddings(self.prefix)
        yield encoder.position(self.prefix)
        yield encoder.segment(self.prefix)
        stack = f"{self.prefix}encoder."
        widen = {"widen": "embedding_hidden_mapping_in"}
        yield from carry_each(widen, "backbone.embedding.", stack)
        only = f"{stack}albert_layer_groups.0.albert_layers.0."
        yield from carry_each(BLOCK, "backbone.stack.blocks.0.", only)
        yield from encoder.head("predictions.dense", "predictions.LayerNorm", "predictions.bias")

    def copies(self, design: Design) -> Mapping[str, str]:
        """The output layer is the embedding."""
        return {
            "predictions.decoder.weight": self.embedding,
            "predictions.decoder.bias": "predictions.bias",
        }

    def is_buffer(self, name: str) -> bool:
        """The numbers 0, 1, 2, ..."""
        return name == "albert.embeddings.position_ids"

    def left(self, names: Iterable[str]) -> list[str]:
        """The pooler and the second head."""
        return [n for n in names if n.startswith(("albert.pooler.", "sop_classifier."))]
