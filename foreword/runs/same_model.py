"""Comparison of two models' settings, except for those of training."""

from __future__ import annotations

from typing import Any

from foreword.models.encoder_decoder import EncoderDecoder
from foreword.nn.attentions.gated_deltanet import GatedDeltaNet
from foreword.nn.model import Architecture
from foreword.nn.stack_settings import StackSettings
from foreword.settings import config as recipes
from foreword.settings.config import Table

# Settings that say how a model is trained, not what it computes.
TRAINING = (
    "init",
    "init_std",
    "zero_init_residual",
    "dropout",
    "attention_dropout",
    "ff_and_output_dropout",
)


def resolved(model: Architecture) -> Table:
    """Return the settings that decide what a model computes, derived values filled in."""
    table = {key: value for key, value in recipes.to_table(model).items() if key not in TRAINING}
    if not isinstance(model, StackSettings):
        return table
    table |= {"d_ff": model.ff_width, "d_head": model.head_width}
    table.setdefault("attention_bias", model.bias)
    if isinstance(model, EncoderDecoder):
        table["decoder_layers"] = model.decoder_layers or model.layers
    if table["position"]["kind"] != "t5_bias":
        table.pop("assumes_causal_mask", None)
    if isinstance(delta := model.attention, GatedDeltaNet):
        sizes = model.heads, model.head_width, model.head_width
        filled = zip(("heads", "d_key", "d_value"), sizes, strict=True)
        table["attention"] = {
            **{key: value for key, value in filled if getattr(delta, key) is None},
            **{key: value for key, value in table["attention"].items() if key != "chunk"},
        }
    is_dense = table["attention"]["kind"] == "dense"  # then no layer is local
    if is_dense or table.get("local_position") == table["position"]:
        table.pop("local_position", None)
    every, first = (table.pop(key, 0) for key in ("dense_every", "first_dense"))
    if every and not is_dense:
        table["dense_layers"] = [*range(first, model.layers, every)]
    return table


def differences(one: Table, other: Table) -> list[str]:
    """Return where two resolved models differ, one phrase each, from the side of `other`."""
    return [
        f"model.{key} is {_word(other.get(key))}, not {_word(one.get(key))}"
        for key in sorted(one.keys() | other.keys())
        if one.get(key) != other.get(key)
    ]


def _word(value: Any) -> str:
    if isinstance(value, dict):
        inner = ", ".join(f"{k} {v}" for k, v in value.items() if k != "kind")
        return f"{value.get('kind')}" + (f" ({inner})" if inner else "")
    return "unset" if value is None else str(value)
