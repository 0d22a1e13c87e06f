"""Families with sparse attention have the logits of `transformers`."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from foreword.models.transformer import Transformer
from foreword.nn.attentions.bigbird import BigBird, attended_blocks
from foreword.nn.attentions.window import Window
from foreword.nn.masks import DocumentMask, FullMask, Mask
from foreword.nn.model import Model
from foreword.nn.positions.learned import Learned
from foreword.nn.positions.rotary import Rotary
from foreword.types import Array, Batch

from . import weights
from .test_transformers import D_MODEL, HEADS, assert_same, config, model, position_ids, tokens

transformers = pytest.importorskip("transformers")
modeling_big_bird = pytest.importorskip("transformers.models.big_bird.modeling_big_bird")

LAYERS, D_FF, PLACES = 4, 48, 300
BERT = {
    "hidden_size": D_MODEL,
    "num_hidden_layers": LAYERS,
    "num_attention_heads": HEADS,
    "intermediate_size": D_FF,
    "hidden_act": "gelu",
    "hidden_dropout_prob": 0.0,
    "attention_probs_dropout_prob": 0.0,
    "max_position_embeddings": PLACES,
}


def build_bert(attention: Any, **settings: Any) -> Model:
    return model(
        Transformer(
            d_model=D_MODEL,
            layers=LAYERS,
            heads=HEADS,
            d_ff=D_FF,
            norm_position="post",
            norm_eps=1e-12,
            position=Learned(PLACES),
            segments=2,
            normalise_embedding=True,
            attention=attention,
            **settings,
        ),
        transform=True,
        bias=True,
    )


def within(attention: Tensor) -> Mask:
    return FullMask() if attention.all() else DocumentMask(attention - 1, attention - 1)


def logits(ours: Model, ids: Tensor, attention: Tensor) -> Tensor:
    scores: Tensor = ours.token_head(
        ours.backbone(Batch(ids, position_ids(ids), within(attention))).states
    )
    return scores


@pytest.mark.parametrize("lengths", [(9, 9), (150, 150), (230, 149)])
@torch.no_grad()
def test_modernbert_has_the_logits_of_transformers(lengths: tuple[int, int]) -> None:
    theirs = transformers.ModernBertForMaskedLM(
        config(
            "ModernBertConfig",
            hidden_size=D_MODEL,
            num_hidden_layers=LAYERS,
            num_attention_heads=HEADS,
            intermediate_size=D_FF,
            local_attention=24,
            global_attn_every_n_layers=3,
            cls_token_id=1,
            sep_token_id=2,
            bos_token_id=1,
            eos_token_id=2,
        )
    ).eval()
    weights.randomise(theirs, seed=11)
    ours = model(
        Transformer(
            d_model=D_MODEL,
            layers=LAYERS,
            heads=HEADS,
            d_ff=D_FF,
            activation="geglu",
            bias=False,
            normalise_embedding=True,
            normalise_first=False,
            position=Rotary(160_000.0),
            local_position=Rotary(10_000.0),
            attention=Window(radius=12),
            dense_every=3,
        ),
        transform=True,
        bias=True,
    )
    taken = weights.Theirs(theirs)
    weights.load(ours, modernbert(taken), taken)
    ids, attention = tokens(lengths, seed=12)
    expected = theirs(ids, attention_mask=attention).logits
    assert_same(logits(ours, ids, attention), expected, attention)


def modernbert(theirs: weights.Theirs) -> dict[str, Tensor]:
    """`ModernBertForMaskedLM`: no norm before the first attention, no biases but the decoder's."""
    table = {
        "backbone.embedding.token.weight": theirs("model.embeddings.tok_embeddings.weight"),
        "backbone.embedding.norm.weight": theirs("model.embeddings.norm.weight"),
        "backbone.stack.final_norm.weight": theirs("model.final_norm.weight"),
        "heads.token.transform.0.weight": theirs("head.dense.weight"),
        "heads.token.transform.2.weight": theirs("head.norm.weight"),
        "heads.token.bias": theirs("decoder.bias"),
    }
    for n in range(LAYERS):
        our, their = f"backbone.stack.blocks.{n}", f"model.layers.{n}"
        together = theirs(f"{their}.attn.Wqkv.weight")
        table |= {
            f"{our}.attention.query.weight": together[:D_MODEL],
            f"{our}.attention.key_value.weight": together[D_MODEL:],
            f"{our}.attention.output.weight": theirs(f"{their}.attn.Wo.weight"),
            f"{our}.feedforward.up.weight": theirs(f"{their}.mlp.Wi.weight"),
            f"{our}.feedforward.down.weight": theirs(f"{their}.mlp.Wo.weight"),
            f"{our}.feedforward_norm.weight": theirs(f"{their}.mlp_norm.weight"),
        }
        if n:
            table[f"{our}.attention_norm.weight"] = theirs(f"{their}.attn_norm.weight")
    return table


# Up to (5 + 2 random) * block = 72 positions attention is dense; longer rows are whole blocks or
# not. In evaluation `transformers` replaces every random block by the first one, which then counts
# several times, so ours is compared with its training mode; there is no dropout.
@pytest.mark.parametrize("lengths", [(72, 60), (73, 73), (136, 90), (250, 250)])
@torch.no_grad()
def test_bigbird_has_the_logits_of_transformers(lengths: tuple[int, int]) -> None:
    theirs = transformers.BigBirdForMaskedLM(
        transformers.BigBirdConfig(
            vocab_size=61, pad_token_id=0, sep_token_id=2, block_size=8, num_random_blocks=2, **BERT
        )
    ).train()
    weights.randomise(theirs, seed=13)
    ours = build_bert(BigBird(block=8, random=2, random_from="start"))
    taken = weights.Theirs(theirs)
    taken.left -= {"bert.pooler.weight", "bert.pooler.bias"}  # for classification alone
    weights.load(ours, weights.bert(taken, LAYERS), taken)
    ids, attention = tokens(lengths, seed=14)
    expected = theirs(ids, attention_mask=attention).logits
    assert theirs.bert.attention_type == ("block_sparse" if lengths[0] > 72 else "original_full")
    assert_same(logits(ours, ids, attention), expected, attention)


def drawn(length: int, layer: int, monkeypatch: pytest.MonkeyPatch) -> Array:
    """Return the random blocks of their layer: (heads, blocks without the ends, random)."""
    settings = transformers.BigBirdConfig(
        hidden_size=HEADS, num_attention_heads=HEADS, max_position_embeddings=4096
    )
    theirs = modeling_big_bird.BigBirdBlockSparseAttention(settings, seed=layer).train()
    masks = transformers.BigBirdModel.create_masks_for_block_sparse_attn
    blocks: list[Tensor] = []

    def look(from_mask: Tensor, to_mask: Tensor, drawn: Tensor, *rest: Any) -> Tensor:
        blocks.append(drawn)
        raise StopIteration

    monkeypatch.setattr(theirs, "_create_rand_mask_from_inputs", look)
    blocked, band, one, other = masks(torch.ones(1, length), settings.block_size)
    with pytest.raises(StopIteration):
        theirs(torch.zeros(1, length, HEADS), band, one, other, blocked, blocked)
    return blocks[0][0].numpy()


@pytest.mark.parametrize("length", [768, 1024, 2048, 3072, 4096])
@pytest.mark.parametrize("layer", [0, 11])
def test_bigbird_draws_the_random_blocks_of_the_released_code(
    length: int, layer: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings, count = BigBird(random_from="start"), length // 64
    expected = drawn(length, layer, monkeypatch)
    actual = attended_blocks(settings, count, layer, HEADS)[:, 1:-1, settings.window :]
    if length == 1024:  # the last block may be drawn, which all see anyway
        assert (expected == count - 1).any()
        expected = np.where(expected == count - 1, -1, expected)
    assert np.array_equal(np.sort(actual, axis=2), np.sort(expected, axis=2))


# Longformer's global attention has projections of its own; where they are equal to the others it is
# ours.
@pytest.mark.parametrize("lengths", [(40, 40), (230, 149), (300, 300)])
@pytest.mark.parametrize("global_tokens", [0, 1, 5])
@torch.no_grad()
def test_longformer_has_the_logits_of_transformers(
    lengths: tuple[int, int], global_tokens: int
) -> None:
    theirs = transformers.LongformerForMaskedLM(
        transformers.LongformerConfig(
            vocab_size=61, pad_token_id=0, sep_token_id=2, attention_window=24, **BERT
        )
    ).eval()
    weights.randomise(theirs, seed=15)
    for layer in theirs.longformer.encoder.layer:
        own = layer.attention.self
        for name in ("query", "key", "value"):
            setattr(own, f"{name}_global", getattr(own, name))
    ours = build_bert(Window(radius=12, global_tokens=global_tokens))
    taken = weights.Theirs(theirs)
    weights.load(ours, longformer(taken), taken)
    ids, attention = tokens(lengths, seed=16)
    seen_by_all = (position_ids(ids) < global_tokens).long()
    expected = theirs(
        ids,
        attention_mask=attention,
        global_attention_mask=seen_by_all,
        position_ids=position_ids(ids),
        token_type_ids=torch.zeros_like(ids),
    ).logits
    assert_same(logits(ours, ids, attention), expected, attention)


def longformer(theirs: weights.Theirs) -> dict[str, Tensor]:
    """`LongformerForMaskedLM`: BERT's backbone under other names, RoBERTa's head."""
    renamed = nn.Module()
    taken = weights.Theirs(renamed)
    for name in list(theirs.weights):
        their = name.replace("longformer.", "bert.", 1)
        for ours, other in (
            ("cls.predictions.transform.dense", "lm_head.dense"),
            ("cls.predictions.transform.LayerNorm", "lm_head.layer_norm"),
            ("cls.predictions.bias", "lm_head.bias"),
        ):
            their = their.replace(other, ours)
        taken.weights[their] = nn.Parameter(theirs(name))
    taken.left = set(taken.weights)
    table = weights.bert(taken, LAYERS)
    assert not taken.left, f"not carried over: {sorted(taken.left)}"
    return table
