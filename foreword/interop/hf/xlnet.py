"""XLNet: `XLNetLMHeadModel`, whose maps are stored by head."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType

from torch import Tensor

from foreword.interop.described import Described
from foreword.interop.family import Carry, Design, Family, Name, Table, carry_each
from foreword.types import Vocab

BLOCK = {
    "attention_norm": "rel_attn.layer_norm",
    "feedforward.wide": "ff.layer_1",
    "feedforward.narrow": "ff.layer_2",
    "feedforward_norm": "ff.layer_norm",
}


@dataclass(frozen=True)
class Xlnet(Family):
    """XLNet (Yang et al. 2019): an encoder with relative positions and a second stream."""

    architecture = "XLNetLMHeadModel"
    layout = "two_streams"
    prefix = "transformer."
    embedding = "transformer.word_embedding.weight"
    names = (
        Name("d_model", "d_model", 1024),
        Name("layers", "n_layer", 24),
        Name("heads", "n_head", 16),
        Name("d_ff", "d_inner", 4096),
        Name("activation", "ff_activation", "gelu", {"gelu": "gelu", "relu": "relu"}),
        Name("norm_eps", "layer_norm_eps", 1e-12),
        Name("dropout", "dropout", 0.1),
        Name("attention_dropout", "dropout", 0.1),
        Name("init_std", "initializer_range", 0.02),
        Name("memory", "mem_len", None),
    )
    fixed = MappingProxyType(
        {
            "norm_order": "post",
            "attention_bias": False,
            "position.kind": "relative",
            "position.shared": False,
            "position.segments": True,
            "two_streams": True,
            "inner_dropout": True,
        }
    )
    neutral = MappingProxyType(
        {"attn_type": "bi", "bi_data": False, "same_length": False, "untie_r": True}
    )
    idle = (
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
    )

    def model(self, described: Described, weights: Mapping[str, Tensor]) -> Table:
        """Distances that count.

        Raises:
            UserError: a head is not as wide as theirs works it out to be.
        """
        table = super().model(described, weights)
        width, heads, own = table["d_model"], table["heads"], described.take("d_head")
        if own is not None and own * heads != width:
            raise described.refuse("d_head", f"d_model / n_head, which is {width} / {heads}")
        table["position"]["clamp"] = max(0, described.take("clamp_len", -1))
        return table

    def describe(self, design: Design, vocab: Vocab) -> Table:
        """No greatest distance is -1 there."""
        model = design.model
        clamp = getattr(model.position, "clamp", 0) or -1
        return {**super().describe(design, vocab), "clamp_len": clamp, "d_head": model.head_width}

    def objective(self, weights: Mapping[str, Tensor]) -> Table:
        """A random order."""
        return {"kind": "permutation"}

    def packing(self, table: Table, weights: Mapping[str, Tensor]) -> Table:
        """Rows that follow one another."""
        return {"kind": "stream", "length": 512, "after": "</s>"}

    def carries(self, design: Design, vocab: Vocab) -> Iterator[Carry]:
        """The table."""
        model = design.model
        d_model, d_head, layers = model.d_model, model.head_width, range(model.layers)
        inner, of_layer = (model.heads, d_head), f"{self.prefix}layer."
        yield Carry(("backbone.embedding.token.weight",), (self.embedding,))
        unread = Carry(("backbone.unread.weight",), (f"{self.prefix}mask_emb",))
        yield replace(unread, shape=(1, 1, d_model))
        yield Carry(("heads.token.bias",), ("lm_loss.bias",))
        tables = {
            "u": ("r_w_bias", inner),
            "v": ("r_r_bias", inner),
            "s": ("r_s_bias", inner),
            "segment": ("seg_embed", (2, *inner)),
        }
        for our, (their, shape) in tables.items():
            names = tuple(f"{of_layer}{n}.rel_attn.{their}" for n in layers)
            yield Carry((f"backbone.stack.position.{our}.weight",), names, shape=shape)
        for n in layers:
            block, own = f"backbone.stack.blocks.{n}.", f"{of_layer}{n}.rel_attn."
            maps = {
                f"backbone.stack.position.maps.{n}": ("r",),
                f"{block}attention.query": ("q",),
                f"{block}attention.key_value": ("k", "v"),
                f"{block}attention.output": ("o",),
            }
            for our, theirs in maps.items():
                yield Carry(
                    (f"{our}.weight",),
                    tuple(f"{own}{name}" for name in theirs),
                    is_transposed=theirs != ("o",),
                    shape=(d_model, *inner),
                )
            yield from carry_each(BLOCK, block, f"{of_layer}{n}.")

    def copies(self, design: Design) -> Mapping[str, str]:
        """The output layer is the embedding."""
        return {"lm_loss.weight": self.embedding}
