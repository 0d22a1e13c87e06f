"""The parts that BERT and its relatives share in `transformers`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import torch

from foreword.interop.hf import _contract as hf

# The activation of backbone and head in BERT and ALBERT; in other families the head has GELU.
ACTIVATIONS = {"gelu": "gelu", "gelu_tanh": "gelu_new"}
NOTHING = torch.zeros(0)

SETTING_MAPS = (
    hf.SettingMap("d_model", "hidden_size", 768),
    hf.SettingMap("layers", "num_hidden_layers", 12),
    hf.SettingMap("heads", "num_attention_heads", 12),
    hf.SettingMap("d_ff", "intermediate_size", 3072),
    hf.SettingMap("dropout", "hidden_dropout_prob", 0.1),
    hf.SettingMap("attention_dropout", "attention_probs_dropout_prob", 0.1),
    hf.SettingMap("norm_eps", "layer_norm_eps", 1e-12),
    hf.SettingMap("init_std", "initializer_range", 0.02),
)
ACTIVATION = hf.SettingMap("activation", "hidden_act", "gelu", {"gelu": "gelu"})
POSITIONS = hf.SettingMap("position.length", "max_position_embeddings", 512)
SEGMENTS = hf.SettingMap("segments", "type_vocab_size", 2)
FIXED: Mapping[str, Any] = {
    "norm_position": "post",
    "normalise_embedding": True,
    "position.kind": "learned",
    "init": "bert",
}
SUPPORTED_VALUES: Mapping[str, Any] = {
    "position_embedding_type": "absolute",
}

BLOCK = {
    "attention.query": "attention.self.query",
    "attention.key_value": "attention.self.key attention.self.value",
    "attention.output": "attention.output.dense",
    "attention_norm": "attention.output.LayerNorm",
    "feedforward.up": "intermediate.dense",
    "feedforward.down": "output.dense",
    "feedforward_norm": "output.LayerNorm",
}


def names(architecture: str, prefix: str, **others: Any) -> hf.FamilyNames:
    """Return the names of a family, given the prefix of its tensors; `others` override them."""
    common: dict[str, Any] = {
        "layout": "encoder",
        "embedding": f"{prefix}embeddings.word_embeddings.weight",
        "buffers": (f"{prefix}embeddings.position_ids",),
    }
    return hf.FamilyNames(architecture, prefix=prefix, **common | others)


def embeddings(prefix: str) -> Iterator[hf.ParameterMap]:
    """Yield the mapping of the token embedding and the norm of the embeddings."""
    ours, theirs = "backbone.embedding.", f"{prefix}embeddings."
    yield from hf.map_each({"token": "word_embeddings"}, ours, theirs, ("weight",))
    yield from hf.map_each({"norm": "LayerNorm"}, ours, theirs)


def backbone(design: hf.Design, prefix: str) -> Iterator[hf.ParameterMap]:
    """Yield the mapping of token embedding, norm and blocks, below `prefix` (`bert.`)."""
    yield from embeddings(prefix)
    for n in range(design.model.layers):
        yield from hf.map_each(BLOCK, f"backbone.stack.blocks.{n}.", f"{prefix}encoder.layer.{n}.")


def position(prefix: str, skipped: int = 0) -> hf.ParameterMap:
    """Return the mapping of the position table, skipping its first rows."""
    name = f"{prefix}embeddings.position_embeddings.weight"
    return hf.ParameterMap(("backbone.stack.position.table.weight",), (name,), skipped=skipped)


def segment(prefix: str) -> hf.ParameterMap:
    """Return the mapping of the segment table."""
    name = f"{prefix}embeddings.token_type_embeddings.weight"
    return hf.ParameterMap(("backbone.embedding.segment.weight",), (name,))


def head(dense: str, norm: str, bias: str) -> Iterator[hf.ParameterMap]:
    """Yield the mapping of the token head, given their names for its parts."""
    yield from hf.map_each({"transform.0": dense, "transform.2": norm}, "heads.token.", "")
    yield hf.ParameterMap(("heads.token.bias",), (bias,))


def bert_head() -> Iterator[hf.ParameterMap]:
    """Yield the mapping of the token head by BERT's names."""
    transform = "cls.predictions.transform"
    return head(f"{transform}.dense", f"{transform}.LayerNorm", "cls.predictions.bias")


def bert_copies(embedding: str) -> Mapping[str, str]:
    """Return the tied tensors of BERT's files."""
    return {
        "cls.predictions.decoder.weight": embedding,
        "cls.predictions.decoder.bias": "cls.predictions.bias",
    }


def has_pair_head(design: hf.Design) -> bool:
    """Return whether the objective also has a loss on pairs of texts."""
    return design.objective.predicts.tokens and design.objective.predicts.pairs


def pair_head(pooler: str, output: str) -> Iterator[hf.ParameterMap]:
    """Yield the mapping of the pair head, given their names for its parts."""
    yield from hf.map_each({"pooler": pooler, "output": output}, "heads.pair.", "")


def document_packing(table: hf.Table) -> hf.Table:
    """Return rows of one text between [CLS] and [SEP], of the model's full length."""
    length = table["position"]["length"]
    return {"length": length, "bos": "[CLS]", "eos": "[SEP]", "document_mask": True}


def pair_packing(table: hf.Table) -> hf.Table:
    """Return rows of two texts, [CLS] A [SEP] B [SEP], of the model's full length."""
    length = table["position"]["length"]
    return {"kind": "pairs", "length": length, "bos": "[CLS]", "eos": "[SEP]"}
