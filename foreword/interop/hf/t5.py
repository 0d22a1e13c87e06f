"""T5: `T5ForConditionalGeneration`, version 1.0 and version 1.1."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from foreword.interop.hf import _contract as hf
from foreword.interop.hf_config import HFConfig
from foreword.types import Vocab

ACTIVATIONS = {
    "relu": "relu",
    "gelu": "gelu",
    "geglu_tanh": "gated-gelu",
    "swiglu": "gated-silu",
}
ATTENTION = {"query": "q", "key_value": "k v", "output": "o"}


@dataclass(frozen=True)
class T5(hf.Family):
    """T5 and UL2 (Raffel et al. 2020; Tay et al. 2022): an encoder-decoder for span corruption.

    Version 1.0 has one matrix for embedding and output, and divides the states before it by
    sqrt(d_model); version 1.1 does neither, and its feed-forward layers are gated.
    """

    names = hf.FamilyNames(
        architecture="T5ForConditionalGeneration",
        layout="encoder_decoder",
        embedding="shared.weight",
        kind="encoder_decoder",
        # A table of version 1.0 that its code does not read.
        buffers=("*EncDecAttention.relative_attention_bias.weight",),
    )
    keys = hf.ConfigKeys(
        maps=(
            hf.SettingMap("d_model", "d_model", 512),
            hf.SettingMap("layers", "num_layers", 6),
            hf.SettingMap("decoder_layers", "num_decoder_layers", None),
            hf.SettingMap("heads", "num_heads", 8),
            hf.SettingMap("d_head", "d_kv", 64),
            hf.SettingMap("d_ff", "d_ff", 2048),
            hf.SettingMap("activation", "feed_forward_proj", "relu", ACTIVATIONS),
            hf.SettingMap("position.buckets", "relative_attention_num_buckets", 32),
            hf.SettingMap("position.max_distance", "relative_attention_max_distance", 128),
            hf.SettingMap("norm_eps", "layer_norm_epsilon", 1e-6),
            hf.SettingMap("dropout", "dropout_rate", 0.1),
            hf.SettingMap("attention_dropout", "dropout_rate", 0.1),
        ),
        fixed={
            "norm": "rms",
            "norm_position": "pre",
            "bias": False,
            "position.kind": "t5_bias",
            "scale_scores": False,
            "init": "t5",
            "ff_and_output_dropout": True,
        },
        supported={"is_encoder_decoder": True},
        ignored=("dense_act_fn", "is_gated_act", "n_positions"),
    )

    def model(self, hf_config: HFConfig, weights: Mapping[str, Tensor]) -> hf.Table:
        """Return the model with its output layer tied or not, as in the weights."""
        is_version_1_0 = hf_config.get("tie_word_embeddings", True)
        output = weights.get("lm_head.weight")
        embedding = weights.get(self.names.embedding)
        is_tied = output is None or embedding is None or torch.equal(output, embedding)
        return {
            **super().model(hf_config, weights),
            "tied": is_tied,
            "scale_logits": hf_config.get("scale_decoder_outputs", is_version_1_0),
        }

    def describe(self, design: hf.Design, vocab: Vocab) -> hf.Table:
        """Return the config in the form of releases before 5 and since."""
        model = design.model
        return {
            **super().describe(design, vocab),
            "is_encoder_decoder": True,
            "decoder_start_token_id": vocab.id(design.layout.start),
            "tie_word_embeddings": model.scale_logits,
            "scale_decoder_outputs": model.scale_logits,
        }

    def objective(self, weights: Mapping[str, Tensor], models: Mapping[str, hf.Table]) -> hf.Table:
        """Return span corruption."""
        return {"kind": "span_corruption"}

    def packing(self, table: hf.Table, weights: Mapping[str, Tensor]) -> hf.Table:
        """Return rows that are 512 tokens long once sentinels replace their spans."""
        return {"length": 568, "bos": "", "eos": "</s>", "document_mask": False}

    def bos_and_eos(self, design: hf.Design) -> tuple[str, str]:
        """Return the special tokens before and after a source."""
        return design.packing.bos, design.objective.end

    def tensors(self, design: hf.Design, vocab: Vocab) -> hf.TensorMaps:
        """Return the tensors; encoder and decoder share the embedding, which files hold again."""
        again = ["encoder.embed_tokens.weight", "decoder.embed_tokens.weight"]
        again += ["lm_head.weight"] if design.model.tied else []
        tied = dict.fromkeys(again, self.names.embedding)
        return hf.TensorMaps(tuple(self._parameter_maps(design)), tied=tied)

    def _parameter_maps(self, design: hf.Design) -> Iterator[hf.ParameterMap]:
        yield hf.ParameterMap(("backbone.embedding.token.weight",), (self.names.embedding,))
        if not design.model.tied:
            yield hf.ParameterMap(("heads.token.weight",), ("lm_head.weight",))
        layers = {
            "encoder": design.model.layers,
            "decoder": design.model.decoder_layers or design.model.layers,
        }
        is_gated = design.model.activation in ("geglu_tanh", "swiglu")
        for side, number in layers.items():
            ours = f"backbone.{side}."
            bias = f"{side}.block.0.layer.0.SelfAttention.relative_attention_bias.weight"
            yield hf.ParameterMap((f"{ours}position.table.weight",), (bias,))
            yield from _each({"final_norm": "final_layer_norm"}, ours, f"{side}.")
            for n in range(number):
                yield from _block(f"{ours}blocks.{n}.", f"{side}.block.{n}.layer.", is_gated)

    def heads(self, design: hf.Design) -> Mapping[str, hf.PublishedHead]:
        """Return the head that reads the encoder's states of tokens."""
        parts = {part: f"transformer.{part}" for part in ("shared.", "encoder.")}
        return {"TokenClassification": hf.PublishedHead("classifier", backbone=parts)}


def _block(ours: str, theirs: str, is_gated: bool) -> Iterator[hf.ParameterMap]:
    parts = [("attention", "SelfAttention")]
    parts += [("cross", "EncDecAttention")] if ".decoder." in ours else []
    for number, (our, their) in enumerate(parts):
        names = {
            f"{our}.{name}": " ".join(f"{their}.{part}" for part in parts_of.split())
            for name, parts_of in ATTENTION.items()
        }
        yield from _each({**names, f"{our}_norm": "layer_norm"}, ours, f"{theirs}{number}.")
    up = ("wi_0", "wi_1") if is_gated else ("wi",)
    names = {
        "feedforward.up": " ".join(f"DenseReluDense.{name}" for name in up),
        "feedforward.down": "DenseReluDense.wo",
        "feedforward_norm": "layer_norm",
    }
    yield from _each(names, ours, f"{theirs}{len(parts)}.")


def _each(names: Mapping[str, str], ours: str, theirs: str) -> Iterator[hf.ParameterMap]:
    return hf.map_each(names, ours, theirs, ("weight",))
