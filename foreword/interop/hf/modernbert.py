"""ModernBERT: `ModernBertForMaskedLM`, with windowed attention in some layers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from torch import Tensor

from foreword.interop.hf import _contract as hf
from foreword.interop.hf import _encoder as encoder
from foreword.interop.hf_config import HFConfig
from foreword.nn.attentions.window import Window
from foreword.nn.positions._contract import PositionKind
from foreword.nn.positions.rotary import Rotary
from foreword.types import Vocab

BLOCK = {
    "attention.query attention.key_value": "attn.Wqkv",
    "attention.output": "attn.Wo",
    "feedforward.up": "mlp.Wi",
    "feedforward.down": "mlp.Wo",
    "feedforward_norm": "mlp_norm",
}
FULL, LOCAL = "full_attention", "sliding_attention"


@dataclass(frozen=True)
class ModernBERT(hf.Family):
    """ModernBERT (Warner et al. 2024): rotary positions, local and global attention in turn."""

    names = hf.FamilyNames(
        architecture="ModernBertForMaskedLM",
        layout="encoder",
        embedding="model.embeddings.tok_embeddings.weight",
        prefix="model.",
    )
    keys = hf.ConfigKeys(
        maps=(
            hf.SettingMap("d_model", "hidden_size", 768),
            hf.SettingMap("layers", "num_hidden_layers", 22),
            hf.SettingMap("heads", "num_attention_heads", 12),
            hf.SettingMap("d_ff", "intermediate_size", 1152),
            hf.SettingMap("activation", "hidden_activation", "gelu", {"geglu": "gelu"}),
            hf.SettingMap("norm_eps", "norm_eps", 1e-5),
            hf.SettingMap("init_std", "initializer_range", 0.02),
            hf.SettingMap("dropout", "embedding_dropout", 0.0),
            hf.SettingMap("dropout", "mlp_dropout", 0.0),
            hf.SettingMap("attention_dropout", "attention_dropout", 0.0),
        ),
        fixed={
            "norm_position": "pre",
            "normalise_embedding": True,
            "normalise_first": False,
            "bias": False,
            "position.kind": "rotary",
            "init": "gpt2",
        },
        supported={
            "attention_bias": False,
            "classifier_activation": "gelu",
            "classifier_bias": False,
            "decoder_bias": True,
            "mlp_bias": False,
            "norm_bias": False,
            "position_embedding_type": "absolute",
        },
        ignored=(
            "classifier_pooling",
            "deterministic_flash_attn",
            "initializer_cutoff_factor",
            "layer_norm_eps",
            "max_position_embeddings",
            "reference_compile",
            "repad_logits_with_grad",
            "sparse_pred_ignore_index",
            "sparse_prediction",
        ),
    )

    def model(self, hf_config: HFConfig, weights: Mapping[str, Tensor]) -> hf.Table:
        """Return the model with its local layers and the two rotary bases."""
        table = super().model(hf_config, weights)
        every = _dense_every(hf_config, table["layers"])
        near, far = _bases(hf_config)
        window = hf_config.get("local_attention", 128)
        table["position"]["base"] = far if every else near
        if every != 1:
            table["attention"] = {"kind": "window", "radius": window // 2, "global_tokens": 0}
            table["dense_every"] = every
        if every > 1 and near != far:
            table["local_position"] = {"kind": "rotary", "base": near}
        return table

    def describe(self, design: hf.Design, vocab: Vocab) -> hf.Table:
        """Return the config in the form of releases before 5 and since."""
        model = design.model
        radius = model.attention.radius if isinstance(model.attention, Window) else None
        every = model.dense_every if radius else 1
        far = _base(model.position)
        near = _base(model.local_position or model.position)
        bases = {FULL: far, LOCAL: near}
        return {
            **super().describe(design, vocab),
            "layer_types": _types(every, model.layers),
            "rope_parameters": {
                kind: {"rope_theta": base, "rope_type": "default"} for kind, base in bases.items()
            },
            **({"global_attn_every_n_layers": every} if every else {}),
            "global_rope_theta": far,
            "local_rope_theta": near,
            **({"local_attention": 2 * radius} if radius else {}),
            "max_position_embeddings": design.packing.length,
            **{key: self.keys.supported[key] for key in ("decoder_bias", "norm_bias", "mlp_bias")},
        }

    def objective(self, weights: Mapping[str, Tensor], models: Mapping[str, hf.Table]) -> hf.Table:
        return {"kind": "masked"}

    def packing(self, table: hf.Table, weights: Mapping[str, Tensor]) -> hf.Table:
        """Return rows of one text, as long as in the first phase of its training."""
        return encoder.document_packing({"position": {"length": 1024}})

    def tensors(self, design: hf.Design, vocab: Vocab) -> hf.TensorMaps:
        kind = ("weight",)
        embeddings = {"token": "tok_embeddings", "norm": "norm"}
        maps = [*hf.map_each(embeddings, "backbone.embedding.", "model.embeddings.", kind)]
        for n in range(design.model.layers):
            block = {**BLOCK, **({"attention_norm": "attn_norm"} if n else {})}
            maps += hf.map_each(block, f"backbone.stack.blocks.{n}.", f"model.layers.{n}.", kind)
        maps += hf.map_each({"final_norm": "final_norm"}, "backbone.stack.", "model.", kind)
        head = {"transform.0": "head.dense", "transform.2": "head.norm"}
        maps += hf.map_each(head, "heads.token.", "", kind)
        bias = hf.ParameterMap(("heads.token.bias",), ("decoder.bias",))
        return hf.TensorMaps((*maps, bias), tied={"decoder.weight": self.names.embedding})

    def heads(self, design: hf.Design) -> Mapping[str, hf.PublishedHead]:
        """Return the heads, which all read the mean of the states through one layer."""
        head = hf.PublishedHead(
            "classifier",
            pooling="mean",
            hidden_layer="gelu_norm",
            dense="head.dense",
            norm="head.norm",
            config={"classifier_pooling": "mean", "classifier_activation": "gelu"},
        )
        return dict.fromkeys(("SequenceClassification", "MultipleChoice", *hf.LINEAR_HEADS), head)


def _types(every: int, layers: int) -> list[str]:
    """Return the attention of each layer; every n-th is full, none if `every` is 0."""
    return [FULL if every and n % every == 0 else LOCAL for n in range(layers)]


def _dense_every(hf_config: HFConfig, layers: int) -> int:
    """Return n if every n-th layer has full attention, 0 if none has."""
    types = hf_config.get("layer_types", None, list)
    every_n = hf_config.get("global_attn_every_n_layers")
    if types is None:
        return int(every_n or 3)
    full = [n for n, kind in enumerate(types) if kind == FULL]
    every = every_n or (0 if not full else full[1] if len(full) > 1 else layers)
    if types != _types(every, layers):
        raise hf_config.refuse("layer_types", "the first layer full, and each n-th after it")
    return int(every)


def _bases(hf_config: HFConfig) -> tuple[float, float]:
    """Return the rotary bases of local and of full layers."""
    bases = []
    frequencies = hf_config.get("rope_parameters", None, dict) or {}
    if frequencies.keys() - {LOCAL, FULL} or not all(
        isinstance(options, dict) for options in frequencies.values()
    ):
        raise hf_config.refuse("rope_parameters", f"a table each for {LOCAL} and {FULL}")
    for kind, key, default in (
        (LOCAL, "local_rope_theta", 10_000.0),
        (FULL, "global_rope_theta", 160_000.0),
    ):
        configured = hf_config.get(key, None, float)
        options = dict(frequencies.get(kind, {}))
        base = options.pop("rope_theta", default if configured is None else configured)
        is_plain = not options or options == {"rope_type": "default"}
        if not is_plain or type(base) not in (int, float) or configured not in (None, base):
            raise hf_config.refuse("rope_parameters", f"rope_theta alone, the same as {key}")
        bases.append(float(base))
    return bases[0], bases[1]


def _base(position: PositionKind) -> float:
    """Return the base of rotary positions, 10,000 for others."""
    return position.base if isinstance(position, Rotary) else 10_000.0
