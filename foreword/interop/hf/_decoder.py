"""What GPT-1 and GPT-2 have in common in `transformers`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from foreword.interop.family import Carry, Design, Name, Table, carry_each

ACTIVATIONS = {"gelu_tanh": "gelu_new", "gelu": "gelu", "relu": "relu"}

NAMES = (
    Name("d_model", "n_embd", 768),
    Name("layers", "n_layer", 12),
    Name("heads", "n_head", 12),
    Name("dropout", "resid_pdrop", 0.1),
    Name("attention_dropout", "attn_pdrop", 0.1),
    Name("norm_eps", "layer_norm_epsilon", 1e-5),
    Name("init_std", "initializer_range", 0.02),
)
FIXED: Mapping[str, Any] = {"is_causal": True, "position.kind": "learned"}
IDLE = (
    "embd_pdrop",
    "n_ctx",
    "n_special",
    "predict_special_tokens",
    "summary_activation",
    "summary_first_dropout",
    "summary_proj_to_labels",
    "summary_type",
    "summary_use_proj",
)

BLOCK = {
    "attention.query attention.key_value": "attn.c_attn",
    "attention.output": "attn.c_proj",
    "attention_norm": "ln_1",
    "feedforward.wide": "mlp.c_fc",
    "feedforward.narrow": "mlp.c_proj",
    "feedforward_norm": "ln_2",
}


def blocks(design: Design, prefix: str) -> Iterator[Carry]:
    """The blocks, whose linear maps are stored (in, out)."""
    for n in range(design.model.layers):
        ours, theirs = f"backbone.stack.blocks.{n}.", f"{prefix}h.{n}."
        yield from carry_each(BLOCK, ours, theirs, is_transposed=True)


def parted(table: Table) -> Table:
    """Texts follow each other with the end of text between, rows as long as there are places."""
    length = table["position"]["length"]
    return {"length": length, "before": "", "after": "</s>", "separate": False}


def around(design: Design) -> tuple[str, str]:
    """What stands before a text; its end is for the model to find.

    Without a token of its own a text begins behind the one that ended the text before it, where
    training let texts see each other.
    """
    packing = design.packing
    return packing.before or ("" if packing.separate else packing.after), ""
