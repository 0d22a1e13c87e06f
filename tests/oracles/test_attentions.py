"""BigBird's random blocks are those of the released code, and Longformer's global tokens see all.

That every family has the logits of `transformers` is tested in `tests/interop/test_families.py`.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from foreword.models.transformer import Transformer
from foreword.nn.attentions.bigbird import BigBird, attended_blocks
from foreword.nn.attentions.window import Window
from foreword.nn.masks import DocumentMask
from foreword.nn.model import Model
from foreword.nn.positions.learned import Learned
from foreword.types import Array, Batch

from . import weights

transformers = pytest.importorskip("transformers")
modeling_big_bird = pytest.importorskip("transformers.models.big_bird.modeling_big_bird")

VOCAB, LAYERS, D_MODEL, HEADS, D_FF, PLACES = 61, 4, 32, 4, 48, 300


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
@pytest.mark.parametrize("lengths", [(40, 40), (230, 149)])
@pytest.mark.parametrize("global_tokens", [1, 5])
@torch.no_grad()
def test_longformer_has_the_logits_of_transformers(
    lengths: tuple[int, int], global_tokens: int
) -> None:
    theirs = transformers.LongformerForMaskedLM(
        transformers.LongformerConfig(
            vocab_size=VOCAB,
            hidden_size=D_MODEL,
            num_hidden_layers=LAYERS,
            num_attention_heads=HEADS,
            intermediate_size=D_FF,
            max_position_embeddings=PLACES,
            pad_token_id=0,
            sep_token_id=2,
            attention_window=24,
        )
    ).eval()
    weights.randomise(theirs, seed=15)
    for layer in theirs.longformer.encoder.layer:
        own = layer.attention.self
        for name in ("query", "key", "value"):
            setattr(own, f"{name}_global", getattr(own, name))
    settings = Transformer(
        d_model=D_MODEL,
        layers=LAYERS,
        heads=HEADS,
        d_ff=D_FF,
        norm_position="post",
        norm_eps=1e-12,
        position=Learned(PLACES),
        segments=2,
        normalise_embedding=True,
        attention=Window(radius=12, global_tokens=global_tokens),
    )
    backbone = settings.build(VOCAB)
    head = backbone.build_softmax_head(transform=True, bias=True)
    ours = Model(backbone, nn.ModuleDict({"token": head})).eval()
    taken = weights.Theirs(theirs)
    weights.load(ours, longformer(taken), taken)
    random = torch.Generator().manual_seed(16)
    ids = torch.randint(0, VOCAB, (2, max(lengths)), generator=random)
    positions = torch.arange(max(lengths)).expand_as(ids)
    attention = (positions < torch.tensor(lengths)[:, None]).long()
    expected = theirs(
        ids,
        attention_mask=attention,
        global_attention_mask=(positions < global_tokens).long(),
        position_ids=positions,
        token_type_ids=torch.zeros_like(ids),
    ).logits[attention > 0]
    batch = Batch(ids, positions, DocumentMask(attention - 1, attention - 1))
    actual = ours.token_head(ours.backbone(batch).states)[attention > 0]
    assert expected.std() > 0.1, "the logits say nothing"
    torch.testing.assert_close(actual, expected, atol=1e-4, rtol=1e-4)


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
