"""Copy weights of `transformers` models into ours, by tables independent of `interop`.

Each table must fill every parameter of ours and use every parameter of theirs, so that nothing is
equal by being left out.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from foreword.nn.model import Model


class Theirs:
    """The parameters of a model, noting which are taken."""

    def __init__(self, model: nn.Module) -> None:
        self.weights = dict(model.named_parameters())
        self.left = set(self.weights)

    def __call__(self, *names: str) -> Tensor:
        """The parameters `names`, one below the other."""
        self.left -= set(names)
        return torch.cat([self.weights[name].detach() for name in names])


def randomise(model: nn.Module, seed: int) -> None:
    """Draws every parameter, norms and biases too, so that none has a neutral value."""
    random = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            drawn = torch.randn(parameter.shape, generator=random)
            is_norm = "norm" in name.lower() or ".ln_" in name
            parameter.copy_(1 + 0.3 * drawn if is_norm and "bias" not in name else 0.25 * drawn)


def load(ours: Model, table: dict[str, Tensor], theirs: Theirs) -> None:
    """Fills `ours`; parameters that are shared need one name only."""
    assert not theirs.left, f"not carried over: {sorted(theirs.left)}"
    left = dict(ours.named_parameters())
    with torch.no_grad():
        for name, value in table.items():
            parameter = left.pop(name)
            assert parameter.shape == value.shape, name
            parameter.copy_(value)
    assert not left, f"not filled: {sorted(left)}"


def bert(theirs: Theirs, layers: int) -> dict[str, Tensor]:
    """`BertForMaskedLM`: norms stand behind the sums."""
    table = {
        "backbone.embedding.token.weight": theirs("bert.embeddings.word_embeddings.weight"),
        "backbone.embedding.segment.weight": theirs("bert.embeddings.token_type_embeddings.weight"),
        "backbone.stack.position.table.weight": theirs(
            "bert.embeddings.position_embeddings.weight"
        ),
        "heads.token.bias": theirs("cls.predictions.bias"),
    }
    for kind in ("weight", "bias"):
        table |= {
            f"backbone.embedding.norm.{kind}": theirs(f"bert.embeddings.LayerNorm.{kind}"),
            f"heads.token.transform.0.{kind}": theirs(f"cls.predictions.transform.dense.{kind}"),
            f"heads.token.transform.2.{kind}": theirs(
                f"cls.predictions.transform.LayerNorm.{kind}"
            ),
        }
        for n in range(layers):
            our, their = f"backbone.stack.blocks.{n}", f"bert.encoder.layer.{n}"
            own = f"{their}.attention.self"
            table |= {
                f"{our}.attention.query.{kind}": theirs(f"{own}.query.{kind}"),
                f"{our}.attention.key_value.{kind}": theirs(
                    f"{own}.key.{kind}", f"{own}.value.{kind}"
                ),
                f"{our}.attention.output.{kind}": theirs(f"{their}.attention.output.dense.{kind}"),
                f"{our}.attention_norm.{kind}": theirs(
                    f"{their}.attention.output.LayerNorm.{kind}"
                ),
                f"{our}.feedforward.up.{kind}": theirs(f"{their}.intermediate.dense.{kind}"),
                f"{our}.feedforward.down.{kind}": theirs(f"{their}.output.dense.{kind}"),
                f"{our}.feedforward_norm.{kind}": theirs(f"{their}.output.LayerNorm.{kind}"),
            }
    return table


def t5(theirs: Theirs, layers: int, *, is_gated: bool, is_tied: bool) -> dict[str, Tensor]:
    """`T5ForConditionalGeneration`: version 1.0, or 1.1 with a gate and an output layer."""
    table = {"backbone.embedding.token.weight": theirs("shared.weight")}
    if not is_tied:
        table["heads.token.weight"] = theirs("lm_head.weight")
    wide = ("wi_0", "wi_1") if is_gated else ("wi",)
    for side in ("encoder", "decoder"):
        our = f"backbone.{side}"
        bias = f"{side}.block.0.layer.0.SelfAttention.relative_attention_bias.weight"
        table[f"{our}.position.table.weight"] = theirs(bias)
        table[f"{our}.final_norm.weight"] = theirs(f"{side}.final_layer_norm.weight")
        parts = [("SelfAttention", "attention")]
        parts += [("EncDecAttention", "cross")] if side == "decoder" else []
        for n in range(layers):
            block, their = f"{our}.blocks.{n}", f"{side}.block.{n}.layer"
            for number, (name, part) in enumerate(parts):
                own = f"{their}.{number}.{name}"
                norm = f"{part}_norm.weight"
                table |= {
                    f"{block}.{part}.query.weight": theirs(f"{own}.q.weight"),
                    f"{block}.{part}.key_value.weight": theirs(
                        f"{own}.k.weight", f"{own}.v.weight"
                    ),
                    f"{block}.{part}.output.weight": theirs(f"{own}.o.weight"),
                    f"{block}.{norm}": theirs(f"{their}.{number}.layer_norm.weight"),
                }
            last = f"{their}.{len(parts)}"
            table |= {
                f"{block}.feedforward.up.weight": theirs(
                    *(f"{last}.DenseReluDense.{name}.weight" for name in wide)
                ),
                f"{block}.feedforward.down.weight": theirs(f"{last}.DenseReluDense.wo.weight"),
                f"{block}.feedforward_norm.weight": theirs(f"{last}.layer_norm.weight"),
            }
    return table


def xlnet(theirs: Theirs, layers: int, heads: int) -> dict[str, Tensor]:
    """`XLNetLMHeadModel`: maps are (d_model, heads, d_head), the output's too."""

    def flat(name: str) -> Tensor:
        return theirs(name).flatten(1)  # (d_model, heads * d_head)

    def rows(name: str) -> Tensor:
        whole = [theirs(f"transformer.layer.{n}.rel_attn.{name}") for n in range(layers)]
        return torch.cat(whole).view(-1, whole[0].shape[-1] * heads)

    position = "backbone.stack.position"
    table = {
        "backbone.embedding.token.weight": theirs("transformer.word_embedding.weight"),
        "backbone.unread.weight": theirs("transformer.mask_emb")[0],
        "heads.token.bias": theirs("lm_loss.bias"),
        f"{position}.u.weight": rows("r_w_bias"),
        f"{position}.v.weight": rows("r_r_bias"),
        f"{position}.s.weight": rows("r_s_bias"),
        f"{position}.segment.weight": rows("seg_embed"),
    }
    for n in range(layers):
        our, their = f"backbone.stack.blocks.{n}", f"transformer.layer.{n}"
        own = f"{their}.rel_attn"
        table |= {
            f"{position}.maps.{n}.weight": flat(f"{own}.r").t(),
            f"{our}.attention.query.weight": flat(f"{own}.q").t(),
            f"{our}.attention.key_value.weight": torch.cat(
                [flat(f"{own}.k").t(), flat(f"{own}.v").t()]
            ),
            f"{our}.attention.output.weight": flat(f"{own}.o"),
        }
        for kind in ("weight", "bias"):
            table |= {
                f"{our}.attention_norm.{kind}": theirs(f"{own}.layer_norm.{kind}"),
                f"{our}.feedforward.up.{kind}": theirs(f"{their}.ff.layer_1.{kind}"),
                f"{our}.feedforward.down.{kind}": theirs(f"{their}.ff.layer_2.{kind}"),
                f"{our}.feedforward_norm.{kind}": theirs(f"{their}.ff.layer_norm.{kind}"),
            }
    return table
