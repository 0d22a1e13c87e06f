"""Qwen3.5's text model: `Qwen3_5ForCausalLM`, gated DeltaNet with full attention in some layers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar

from torch import Tensor

from foreword.interop.hf import _contract as hf
from foreword.interop.hf import llama, qwen3
from foreword.interop.hf_config import HFConfig
from foreword.nn.attentions._contract import RecurrenceKind
from foreword.types import Vocab

FULL, LINEAR = qwen3.FULL, "linear_attention"
DELTA = {
    "attention.query_key_value": "linear_attn.in_proj_qkv",
    "attention.convolution": "linear_attn.conv1d",
    "attention.decay_write": "linear_attn.in_proj_a linear_attn.in_proj_b",
    "attention.norm": "linear_attn.norm",
    "attention.gate": "linear_attn.in_proj_z",
    "attention.output": "linear_attn.out_proj",
}
RATES = {"attention.log_rate": "linear_attn.A_log", "attention.step_bias": "linear_attn.dt_bias"}
ATTENTION = {
    "attention.key_value": "self_attn.k_proj self_attn.v_proj",
    "attention.output": "self_attn.o_proj",
}
SIZES = {
    "heads": "linear_num_key_heads",
    "d_key": "linear_key_head_dim",
    "d_value": "linear_value_head_dim",
}


@dataclass(frozen=True)
class Qwen35Text(llama.Llama):
    """Hybrid decoder: gated DeltaNet, and gated full attention in every n-th layer.

    Positions are rotary in whole heads, and each head has keys and values of its own: models that
    rotate a part, share keys, or have more heads of values than of keys are refused.
    """

    names = replace(qwen3.Qwen3.names, architecture="Qwen3_5ForCausalLM")
    keys = replace(
        qwen3.Qwen3.keys,
        maps=(
            *qwen3.Qwen3.keys.maps,
            *(hf.SettingMap(f"attention.{ours}", theirs, 16) for ours, theirs in SIZES.items()),
            hf.SettingMap("attention.convolution", "linear_conv_kernel_dim", 4),
        ),
        fixed={
            **qwen3.Qwen3.keys.fixed,
            "attention_gate": True,
            "attention.kind": "gated_deltanet",
        },
        supported={"attention_bias": False},
        ignored=(),
    )
    rotary: ClassVar[Mapping[str, Any]] = {"rope_type": "default", "partial_rotary_factor": 1.0}
    norm_offset: ClassVar[float] = 1.0

    def model(self, hf_config: HFConfig, weights: Mapping[str, Tensor]) -> hf.Table:
        """Return the model, with the layers that have full attention.

        Raises:
            UserError: other layers than every n-th from one on have it, or heads share keys.
        """
        table = super().model(hf_config, weights)
        heads = table["attention"]["heads"]
        if hf_config.get("linear_num_value_heads", heads) != heads:
            raise hf_config.refuse("linear_num_value_heads", f"{heads}, one for each head of keys")
        layers, types = table["layers"], hf_config.get("layer_types", [], list)
        full = [n for n, kind in enumerate(types) if kind == FULL]
        every = full[1] - full[0] if len(full) > 1 else layers
        turns = range(full[0] if full else 0, layers, every)
        if types != [FULL if n in turns else LINEAR for n in range(layers)]:
            raise hf_config.refuse("layer_types", f"{FULL} in every n-th layer from one on")
        return {**table, "dense_every": every, "first_dense": turns[0]}

    def describe(self, design: hf.Design, vocab: Vocab) -> hf.Table:
        """Return the config, with the kind of each layer."""
        model, table = design.model, super().describe(design, vocab)
        table["linear_num_value_heads"] = table.get(SIZES["heads"])
        kinds = [model.attention_of(n) for n in range(model.layers)]
        types = [LINEAR if isinstance(kind, RecurrenceKind) else FULL for kind in kinds]
        return {**table, "layer_types": types}

    def mixer(
        self, design: hf.Design, layer: int, ours: str, theirs: str
    ) -> Iterator[hf.ParameterMap]:
        kind = ("weight",)
        if isinstance(design.model.attention_of(layer), RecurrenceKind):
            yield from hf.map_each(DELTA, ours, theirs, kind)
            for our, their in RATES.items():
                yield hf.ParameterMap((ours + our,), (theirs + their,))
            return
        queries = {"attention.query attention.gate": "self_attn.q_proj"}
        yield from hf.map_each(queries, ours, theirs, kind, heads=design.model.heads)
        yield from hf.map_each(ATTENTION, ours, theirs, kind)
        yield from hf.map_each(qwen3.NORMS, ours, theirs, kind, offset=self.norm_offset)

    def heads(self, design: hf.Design) -> Mapping[str, hf.PublishedHead]:
        """Return the heads, of which the classifier of texts has a name of its own."""
        heads = super().heads(design)
        name = "Qwen3_5TextForSequenceClassification"
        return {
            **heads,
            "SequenceClassification": replace(heads["SequenceClassification"], architecture=name),
        }
