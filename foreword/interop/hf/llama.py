"""Llama: `LlamaForCausalLM`, the decoder with rotary positions that most tools read."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor

from foreword.interop.hf import _contract as hf
from foreword.interop.hf import _decoder as decoder
from foreword.interop.hf_config import HFConfig
from foreword.types import Vocab

ATTENTION = {
    "attention.query attention.key_value": "self_attn.q_proj self_attn.k_proj self_attn.v_proj",
    "attention.output": "self_attn.o_proj",
}
FEEDFORWARD = {
    "feedforward.up": "mlp.gate_proj mlp.up_proj",
    "feedforward.down": "mlp.down_proj",
}
NORMS = {"attention_norm": "input_layernorm", "feedforward_norm": "post_attention_layernorm"}
BASE = 10_000.0


@dataclass(frozen=True)
class Llama(hf.Family):
    """Llama and Modern decoder (Touvron et al. 2023): RMSNorm before each part, SwiGLU, rotary.

    Each head has keys and values of its own; grouped-query attention is refused.
    """

    names = hf.FamilyNames(
        architecture="LlamaForCausalLM",
        layout="decoder",
        embedding="model.embed_tokens.weight",
        prefix="model.",
        buffers=("*.rotary_emb.inv_freq",),  # rotary frequencies, in old files
    )
    keys = hf.ConfigKeys(
        maps=(
            hf.SettingMap("d_model", "hidden_size", 4096),
            hf.SettingMap("layers", "num_hidden_layers", 32),
            hf.SettingMap("heads", "num_attention_heads", 32),
            hf.SettingMap("d_head", "head_dim", None),
            hf.SettingMap("d_ff", "intermediate_size", 11_008),
            hf.SettingMap("activation", "hidden_act", "silu", {"swiglu": "silu"}),
            hf.SettingMap("norm_eps", "rms_norm_eps", 1e-6),
            hf.SettingMap("init_std", "initializer_range", 0.02),
            hf.SettingMap("attention_dropout", "attention_dropout", 0.0),
        ),
        fixed={
            "norm": "rms",
            "norm_position": "pre",
            "bias": False,
            "dropout": 0.0,
            "assumes_causal_mask": True,
            "position.kind": "rotary",
            "init": "gpt2",
        },
        supported={"attention_bias": False, "mlp_bias": False},
        ignored=("pretraining_tp",),
    )
    rotary: ClassVar[Mapping[str, Any]] = {"rope_type": "default"}  # beside the base
    norm_offset: ClassVar[float] = 0.0

    def model(self, hf_config: HFConfig, weights: Mapping[str, Tensor]) -> hf.Table:
        """Return the model with its rotary base, and its output layer tied or not.

        Raises:
            UserError: heads share keys and values, or frequencies are scaled.
        """
        table = super().model(hf_config, weights)
        groups = hf_config.get("num_key_value_heads", None)
        if groups not in (None, table["heads"]):
            raise hf_config.refuse(
                "num_key_value_heads", f"{table['heads']}, one for each attention head"
            )
        table["position"]["base"] = _base(hf_config, self.rotary)
        hf_config.get("max_position_embeddings", 2048)
        is_tied = hf_config.get("tie_word_embeddings", False)
        output, embedding = weights.get("lm_head.weight"), weights.get(self.names.embedding)
        is_copy = output is None or embedding is None or torch.equal(output, embedding)
        return {**table, "tied": is_tied or is_copy}

    def describe(self, design: hf.Design, vocab: Vocab) -> hf.Table:
        """Return the config, with the rotary base in the form of releases before 5 and since."""
        model = design.model
        base = getattr(model.position, "base", BASE)
        return {
            **super().describe(design, vocab),
            "num_key_value_heads": model.heads,
            "max_position_embeddings": design.packing.length,
            "rope_theta": base,
            "rope_parameters": {"rope_theta": base, **self.rotary},
            "tie_word_embeddings": model.tied,
            **self.keys.supported,
        }

    def objective(self, weights: Mapping[str, Tensor], models: Mapping[str, hf.Table]) -> hf.Table:
        return {"kind": "causal"}

    def packing(self, table: hf.Table, weights: Mapping[str, Tensor]) -> hf.Table:
        """Return rows of texts between `<s>` and `</s>`, which do not see each other."""
        return {"length": 1024, "bos": "<s>", "eos": "</s>", "document_mask": True}

    def bos_and_eos(self, design: hf.Design) -> tuple[str, str]:
        return decoder.bos_and_eos(design)

    def tensors(self, design: hf.Design, vocab: Vocab) -> hf.TensorMaps:
        prefix, kind = self.names.prefix, ("weight",)
        maps = [hf.ParameterMap(("backbone.embedding.token.weight",), (self.names.embedding,))]
        offset = self.norm_offset
        for n in range(design.model.layers):
            ours, theirs = f"backbone.stack.blocks.{n}.", f"{prefix}layers.{n}."
            maps += self.mixer(design, n, ours, theirs)
            maps += hf.map_each(FEEDFORWARD, ours, theirs, kind)
            maps += hf.map_each(NORMS, ours, theirs, kind, offset=offset)
        maps += hf.map_each({"final_norm": "norm"}, "backbone.stack.", prefix, kind, offset=offset)
        if design.model.tied:
            return hf.TensorMaps(tuple(maps), tied={"lm_head.weight": self.names.embedding})
        return hf.TensorMaps((*maps, hf.ParameterMap(("heads.token.weight",), ("lm_head.weight",))))

    def mixer(
        self, design: hf.Design, layer: int, ours: str, theirs: str
    ) -> Iterator[hf.ParameterMap]:
        """Yield the maps of a layer's attention; the last two are the prefixes of its names."""
        yield from hf.map_each(ATTENTION, ours, theirs, ("weight",))

    def heads(self, design: hf.Design) -> Mapping[str, hf.PublishedHead]:
        """Return heads called `score`: of tokens, and of the last state without a bias."""
        classifier = hf.PublishedHead("score", pooling="last", output_bias=False)
        return {
            "SequenceClassification": classifier,
            "TokenClassification": hf.PublishedHead("score"),
        }


def _base(hf_config: HFConfig, rotary: Mapping[str, Any]) -> float:
    """Return the base of rotary positions, of which a family may say no more than `rotary`."""
    configured = hf_config.get("rope_theta", None, float)
    options = dict(hf_config.get("rope_parameters", None, dict) or {})
    scaling = hf_config.get("rope_scaling", None, dict)
    if scaling and scaling.get("rope_type", scaling.get("type", "default")) != "default":
        raise hf_config.refuse("rope_scaling", "none")
    base = options.pop("rope_theta", BASE if configured is None else configured)
    is_plain = {"rope_type": "default", **options} == rotary
    if not is_plain or type(base) not in (int, float) or configured not in (None, base):
        more = "".join(f", and {key} {rotary[key]}" for key in rotary if key != "rope_type")
        words = f"rope_theta alone, the same as rope_theta{more}"
        raise hf_config.refuse("rope_parameters", words)
    return float(base)
