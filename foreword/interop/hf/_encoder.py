"""What BERT and its kin have in common in `transformers`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import torch

from foreword.interop.family import Carry, Design, Name, Table, carry_each
from foreword.objectives._pair import PairObjective

# Of body and head alike, in BERT and ALBERT; elsewhere the head has GELU whatever the body has.
ACTIVATIONS = {"gelu": "gelu", "gelu_tanh": "gelu_new"}
NOTHING = torch.zeros(0)

NAMES = (
    Name("d_model", "hidden_size", 768),
    Name("layers", "num_hidden_layers", 12),
    Name("heads", "num_attention_heads", 12),
    Name("d_ff", "intermediate_size", 3072),
    Name("dropout", "hidden_dropout_prob", 0.1),
    Name("attention_dropout", "attention_probs_dropout_prob", 0.1),
    Name("norm_eps", "layer_norm_eps", 1e-12),
    Name("init_std", "initializer_range", 0.02),
)
ACTIVATION = Name("activation", "hidden_act", "gelu", {"gelu": "gelu"})
PLACES = Name("position.length", "max_position_embeddings", 512)
SEGMENTS = Name("segments", "type_vocab_size", 2)
FIXED: Mapping[str, Any] = {
    "norm_order": "post",
    "normalise_embedding": True,
    "position.kind": "learned",
    "init": "bert",
}
NEUTRAL: Mapping[str, Any] = {
    "position_embedding_type": "absolute",
}

BLOCK = {
    "attention.query": "attention.self.query",
    "attention.key_value": "attention.self.key attention.self.value",
    "attention.output": "attention.output.dense",
    "attention_norm": "attention.output.LayerNorm",
    "feedforward.wide": "intermediate.dense",
    "feedforward.narrow": "output.dense",
    "feedforward_norm": "output.LayerNorm",
}


def embeddings(prefix: str) -> Iterator[Carry]:
    """The table of tokens and the norm of the sum."""
    ours, theirs = "backbone.embedding.", f"{prefix}embeddings."
    yield from carry_each({"token": "word_embeddings"}, ours, theirs, ("weight",))
    yield from carry_each({"norm": "LayerNorm"}, ours, theirs)


def body(design: Design, prefix: str) -> Iterator[Carry]:
    """Embeddings, but for positions and segments, and blocks, below `prefix` (`bert.`)."""
    yield from embeddings(prefix)
    for n in range(design.model.layers):
        yield from carry_each(BLOCK, f"backbone.stack.blocks.{n}.", f"{prefix}encoder.layer.{n}.")


def position(prefix: str, skipped: int = 0) -> Carry:
    """The table of positions, the first rows of theirs left out."""
    name = f"{prefix}embeddings.position_embeddings.weight"
    return Carry(("backbone.stack.position.table.weight",), (name,), skipped=skipped)


def segment(prefix: str) -> Carry:
    """The table of segments."""
    name = f"{prefix}embeddings.token_type_embeddings.weight"
    return Carry(("backbone.embedding.segment.weight",), (name,))


def head(dense: str, norm: str, bias: str) -> Iterator[Carry]:
    """The head that predicts tokens, by their names for its parts."""
    yield from carry_each({"transform.0": dense, "transform.2": norm}, "heads.token.", "")
    yield Carry(("heads.token.bias",), (bias,))


def bert_head() -> Iterator[Carry]:
    """The same by BERT's names."""
    transform = "cls.predictions.transform"
    return head(f"{transform}.dense", f"{transform}.LayerNorm", "cls.predictions.bias")


def bert_copies(embedding: str) -> Mapping[str, str]:
    """What BERT's files may hold twice."""
    return {
        "cls.predictions.decoder.weight": embedding,
        "cls.predictions.decoder.bias": "cls.predictions.bias",
    }


def has_pair_head(design: Design) -> bool:
    """Whether the objective asks about pairs of texts too."""
    return any(isinstance(term, PairObjective) for term in getattr(design.objective, "terms", ()))


def pair_head(pooler: str, output: str) -> Iterator[Carry]:
    """The head that tells pairs, by their names for its parts."""
    yield from carry_each({"pooler": pooler, "output": output}, "heads.pair.", "")


def wrapped(table: Table) -> Table:
    """A text between [CLS] and [SEP], rows as long as there are places."""
    length = table["position"]["length"]
    return {"length": length, "before": "[CLS]", "after": "[SEP]", "separate": True}


def in_pairs(table: Table) -> Table:
    """Two texts, [CLS] A [SEP] B [SEP], rows as long as there are places."""
    length = table["position"]["length"]
    return {"kind": "pairs", "length": length, "before": "[CLS]", "after": "[SEP]"}
