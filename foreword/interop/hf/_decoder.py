"""The parts that GPT-1 and GPT-2 share in `transformers`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from foreword.interop.hf import _contract as hf

ACTIVATIONS = {"gelu_tanh": "gelu_new", "gelu": "gelu", "relu": "relu"}

SETTING_MAPS = (
    hf.SettingMap("d_model", "n_embd", 768),
    hf.SettingMap("layers", "n_layer", 12),
    hf.SettingMap("heads", "n_head", 12),
    hf.SettingMap("dropout", "resid_pdrop", 0.1),
    hf.SettingMap("attention_dropout", "attn_pdrop", 0.1),
    hf.SettingMap("norm_eps", "layer_norm_epsilon", 1e-5),
    hf.SettingMap("init_std", "initializer_range", 0.02),
)
FIXED: Mapping[str, Any] = {"assumes_causal_mask": True, "position.kind": "learned"}
IGNORED_KEYS = (
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
    "feedforward.up": "mlp.c_fc",
    "feedforward.down": "mlp.c_proj",
    "feedforward_norm": "ln_2",
}


def blocks(design: hf.Design, prefix: str) -> Iterator[hf.ParameterMap]:
    """Yield the mapping of the blocks, whose linear maps are stored as (in, out)."""
    for n in range(design.model.layers):
        ours, theirs = f"backbone.stack.blocks.{n}.", f"{prefix}h.{n}."
        yield from hf.map_each(BLOCK, ours, theirs, is_transposed=True)


def joined_packing(table: hf.Table) -> hf.Table:
    """Return rows of texts joined by the end-of-text token, of the model's full length."""
    length = table["position"]["length"]
    return {"length": length, "bos": "", "eos": "</s>", "document_mask": False}


def bos_and_eos(design: hf.Design) -> tuple[str, str]:
    """Return the token before a text; the model finds the end itself.

    Without a start token, a text begins after the one that ended the previous text, if
    training let texts attend to each other.
    """
    packing = design.packing
    return packing.bos or ("" if packing.document_mask else packing.eos), ""
