"""XLNet: `XLNetLMHeadModel`, whose projections are stored by head."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from torch import Tensor

from foreword.interop.hf import _contract as hf
from foreword.interop.hf_config import HFConfig
from foreword.nn.positions.relative import Relative
from foreword.types import Vocab

BLOCK = {
    "attention_norm": "rel_attn.layer_norm",
    "feedforward.up": "ff.layer_1",
    "feedforward.down": "ff.layer_2",
    "feedforward_norm": "ff.layer_norm",
}


@dataclass(frozen=True)
class XLNet(hf.Family):
    """XLNet (Yang et al. 2019): an encoder with relative positions and a query stream."""

    names = hf.FamilyNames(
        architecture="XLNetLMHeadModel",
        layout="two_streams",
        embedding="transformer.word_embedding.weight",
        prefix="transformer.",
    )
    keys = hf.ConfigKeys(
        maps=(
            hf.SettingMap("d_model", "d_model", 1024),
            hf.SettingMap("layers", "n_layer", 24),
            hf.SettingMap("heads", "n_head", 16),
            hf.SettingMap("d_ff", "d_inner", 4096),
            hf.SettingMap("activation", "ff_activation", "gelu", {"gelu": "gelu", "relu": "relu"}),
            hf.SettingMap("norm_eps", "layer_norm_eps", 1e-12),
            hf.SettingMap("dropout", "dropout", 0.1),
            hf.SettingMap("attention_dropout", "dropout", 0.1),
            hf.SettingMap("init_std", "initializer_range", 0.02),
            hf.SettingMap("memory", "mem_len", None),
        ),
        fixed={
            "norm_position": "post",
            "attention_bias": False,
            "position.kind": "relative",
            "position.shared": False,
            "position.segments": True,
            "two_streams": True,
            "ff_and_output_dropout": True,
        },
        supported={"attn_type": "bi", "bi_data": False, "same_length": False, "untie_r": True},
        ignored=(
            "end_n_top",
            "mems_mask",
            "reuse_len",
            "start_n_top",
            "summary_activation",
            "summary_last_dropout",
            "summary_type",
            "summary_use_proj",
            "use_mems_eval",
            "use_mems_train",
        ),
    )

    def model(self, hf_config: HFConfig, weights: Mapping[str, Tensor]) -> hf.Table:
        """Return the model with its clamped distances.

        Raises:
            UserError: d_head is not d_model / n_head.
        """
        table = super().model(hf_config, weights)
        width, heads, d_head = table["d_model"], table["heads"], hf_config.get("d_head")
        if d_head is not None and d_head * heads != width:
            raise hf_config.refuse("d_head", f"d_model / n_head, which is {width} / {heads}")
        table["position"]["clamp"] = max(0, hf_config.get("clamp_len", -1))
        return table

    def describe(self, design: hf.Design, vocab: Vocab) -> hf.Table:
        """Return the config; -1 stands for unclamped distances."""
        model = design.model
        position = model.position
        clamp = (isinstance(position, Relative) and position.clamp) or -1
        return {**super().describe(design, vocab), "clamp_len": clamp, "d_head": model.head_width}

    def objective(self, weights: Mapping[str, Tensor], models: Mapping[str, hf.Table]) -> hf.Table:
        """Return permutation language modelling."""
        return {"kind": "permutation"}

    def packing(self, table: hf.Table, weights: Mapping[str, Tensor]) -> hf.Table:
        """Return rows that continue one another."""
        return {"kind": "stream", "length": 512, "eos": "</s>"}

    def tensors(self, design: hf.Design, vocab: Vocab) -> hf.TensorMaps:
        maps = tuple(self._parameter_maps(design))
        return hf.TensorMaps(maps, tied={"lm_loss.weight": self.names.embedding})

    def _parameter_maps(self, design: hf.Design) -> Iterator[hf.ParameterMap]:
        model = design.model
        d_model, d_head, layers = model.d_model, model.head_width, range(model.layers)
        by_head, layer = (model.heads, d_head), f"{self.names.prefix}layer."
        # Embeddings and output bias.
        yield hf.ParameterMap(("backbone.embedding.token.weight",), (self.names.embedding,))
        unread = hf.ParameterMap(("backbone.unread.weight",), (f"{self.names.prefix}mask_emb",))
        yield replace(unread, shape=(1, 1, d_model))
        yield hf.ParameterMap(("heads.token.bias",), ("lm_loss.bias",))
        # Terms of relative positions and segments: ours hold all layers in one tensor.
        tables = {
            "u": ("r_w_bias", by_head),
            "v": ("r_r_bias", by_head),
            "s": ("r_s_bias", by_head),
            "segment": ("seg_embed", (2, *by_head)),
        }
        for our, (their, shape) in tables.items():
            names = tuple(f"{layer}{n}.rel_attn.{their}" for n in layers)
            yield hf.ParameterMap((f"backbone.stack.position.{our}.weight",), names, shape=shape)
        # The layers: projections of attention by head, then norms and feed-forward layers.
        for n in layers:
            block, attention = f"backbone.stack.blocks.{n}.", f"{layer}{n}.rel_attn."
            projections = {
                f"backbone.stack.position.maps.{n}": ("r",),
                f"{block}attention.query": ("q",),
                f"{block}attention.key_value": ("k", "v"),
                f"{block}attention.output": ("o",),
            }
            for our, theirs in projections.items():
                yield hf.ParameterMap(
                    (f"{our}.weight",),
                    tuple(f"{attention}{name}" for name in theirs),
                    is_transposed=theirs != ("o",),
                    shape=(d_model, *by_head),
                )
            yield from hf.map_each(BLOCK, block, f"{layer}{n}.")

    def heads(self, design: hf.Design) -> Mapping[str, hf.PublishedHead]:
        """Return heads that read the last state of texts padded on the left, and of tokens."""
        head = hf.PublishedHead(
            "logits_proj",
            pooling="last",
            config={
                "summary_type": "last",
                "summary_use_proj": False,
                "summary_activation": "linear",
                "use_mems_eval": False,
            },
            padding_side="left",
        )
        return {**hf.TOKEN_HEADS, "SequenceClassification": head, "MultipleChoice": head}
