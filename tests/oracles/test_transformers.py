"""With equal weights, each family has the logits of `transformers`."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from foreword.models.encoder_decoder import EncoderDecoder
from foreword.models.transformer import Transformer
from foreword.nn.masks import CausalMask, DocumentMask, FullMask, Mask
from foreword.nn.model import Model
from foreword.nn.positions.learned import Learned
from foreword.nn.positions.rotary import Rotary
from foreword.nn.positions.t5_bias import T5Bias
from foreword.nn.stack_settings import StackSettings
from foreword.types import Batch

from . import weights

transformers = pytest.importorskip("transformers")

VOCAB, LAYERS, D_MODEL, HEADS = 61, 2, 32, 4
# Lengths that fill a row, and lengths with padding behind.
LENGTHS = [(9, 9), (24, 24), (24, 11), (30, 1)]


def model(settings: StackSettings, **head: bool) -> Model:
    backbone = settings.build(VOCAB)
    heads = nn.ModuleDict({"token": backbone.build_softmax_head(**head)})
    return Model(backbone, heads).eval()


def tokens(lengths: tuple[int, ...], seed: int) -> tuple[Tensor, Tensor]:
    """Random ids and their attention mask, (batch, longest)."""
    random = torch.Generator().manual_seed(seed)
    ids = torch.randint(0, VOCAB, (len(lengths), max(lengths)), generator=random)
    return ids, (torch.arange(max(lengths)) < torch.tensor(lengths)[:, None]).long()


def within(queries: Tensor, keys: Tensor) -> Mask:
    """The mask of rows that hold one text each, and padding where the attention mask is 0."""
    return FullMask() if keys.all() and queries.all() else DocumentMask(queries - 1, keys - 1)


def position_ids(ids: Tensor) -> Tensor:
    return torch.arange(ids.shape[1]).expand_as(ids)


def assert_same(ours: Tensor, theirs: Tensor, counts: Tensor) -> None:
    assert theirs[counts > 0].std() > 0.1, "the logits say nothing"
    torch.testing.assert_close(ours[counts > 0], theirs[counts > 0], atol=1e-4, rtol=1e-4)


def config(kind: str, **settings: Any) -> Any:
    return getattr(transformers, kind)(
        vocab_size=VOCAB, attn_implementation="eager", pad_token_id=0, **settings
    )


@pytest.mark.parametrize("lengths", LENGTHS)
@pytest.mark.parametrize("has_segments", [False, True])
@torch.no_grad()
def test_bert_has_the_logits_of_transformers(lengths: tuple[int, int], has_segments: bool) -> None:
    theirs = transformers.BertForMaskedLM(
        config(
            "BertConfig",
            hidden_size=D_MODEL,
            num_hidden_layers=LAYERS,
            num_attention_heads=HEADS,
            intermediate_size=80,
            max_position_embeddings=32,
        )
    ).eval()
    weights.randomise(theirs, seed=1)
    ours = model(
        Transformer(
            d_model=D_MODEL,
            layers=LAYERS,
            heads=HEADS,
            d_ff=80,
            norm_position="post",
            norm_eps=1e-12,
            position=Learned(32),
            segments=2,
            normalise_embedding=True,
        ),
        transform=True,
        bias=True,
    )
    taken = weights.Theirs(theirs)
    weights.load(ours, weights.bert(taken, LAYERS), taken)
    ids, attention = tokens(lengths, seed=2)
    segments = (position_ids(ids) >= ids.shape[1] // 3).long() if has_segments else None
    expected = theirs(ids, attention_mask=attention, token_type_ids=segments).logits
    batch = Batch(ids, position_ids(ids), within(attention, attention), segments=segments)
    assert_same(ours.token_head(ours.backbone(batch).states), expected, attention)


def gpt2() -> tuple[nn.Module, Model]:
    theirs = transformers.GPT2LMHeadModel(
        config("GPT2Config", n_embd=D_MODEL, n_layer=LAYERS, n_head=HEADS, n_positions=32)
    ).eval()
    weights.randomise(theirs, seed=3)
    ours = model(
        Transformer(
            d_model=D_MODEL,
            layers=LAYERS,
            heads=HEADS,
            activation="gelu_tanh",
            position=Learned(32),
            assumes_causal_mask=True,
        )
    )
    taken = weights.Theirs(theirs)
    weights.load(ours, weights.gpt2(taken, LAYERS, D_MODEL), taken)
    return theirs, ours


@pytest.mark.parametrize("lengths", LENGTHS)
@torch.no_grad()
def test_gpt2_has_the_logits_of_transformers(lengths: tuple[int, int]) -> None:
    theirs, ours = gpt2()
    ids, attention = tokens(lengths, seed=4)
    expected = theirs(ids, attention_mask=attention).logits
    batch = Batch(ids, position_ids(ids), CausalMask() & within(attention, attention))
    assert_same(ours.token_head(ours.backbone(batch).states), expected, attention)


@torch.no_grad()
def test_gpt2_with_left_padding_has_the_logits_of_transformers() -> None:
    theirs, ours = gpt2()
    ids, attention = tokens((20, 13), seed=5)
    ids, attention = ids.flip(1), attention.flip(1)
    positions = (attention.cumsum(1) - 1).clamp(min=0)
    expected = theirs(ids, attention_mask=attention, position_ids=positions).logits
    batch = Batch(ids, positions, CausalMask() & within(attention, attention))
    assert_same(ours.token_head(ours.backbone(batch).states), expected, attention)


@pytest.mark.parametrize("lengths", [*LENGTHS, (200, 150)])
@pytest.mark.parametrize("version", ["1.0", "1.1"])
@torch.no_grad()
def test_t5_has_the_logits_of_transformers(lengths: tuple[int, int], version: str) -> None:
    is_gated, is_tied = version == "1.1", version == "1.0"
    theirs = transformers.T5ForConditionalGeneration(
        config(
            "T5Config",
            d_model=D_MODEL,
            d_kv=6,
            d_ff=48,
            num_layers=LAYERS,
            num_heads=HEADS,
            feed_forward_proj="gated-gelu" if is_gated else "relu",
            tie_word_embeddings=is_tied,
            decoder_start_token_id=0,
        )
    ).eval()
    if not is_tied:  # some releases tie on construction whatever the settings say
        theirs.lm_head.weight = nn.Parameter(torch.empty(VOCAB, D_MODEL))
    weights.randomise(theirs, seed=6)
    ours = model(
        EncoderDecoder(
            d_model=D_MODEL,
            layers=LAYERS,
            heads=HEADS,
            d_head=6,
            d_ff=48,
            activation="geglu_tanh" if is_gated else "relu",
            norm="rms",
            norm_eps=1e-6,
            bias=False,
            position=T5Bias(),
            scale_scores=False,
            tied=is_tied,
            scale_logits=is_tied,
        )
    )
    taken = weights.Theirs(theirs)
    weights.load(ours, weights.t5(taken, LAYERS, is_gated=is_gated, is_tied=is_tied), taken)
    source, attention = tokens(lengths, seed=7)
    target, counts = tokens((17, 17), seed=8)
    expected = theirs(source, attention_mask=attention, decoder_input_ids=target).logits
    read = Batch(source, position_ids(source), within(attention, attention))
    batch = Batch(
        target,
        position_ids(target),
        CausalMask(),
        source=read,
        cross_mask=within(counts, attention),
    )
    assert_same(ours.token_head(ours.backbone(batch).states), expected, counts)


@pytest.mark.parametrize("lengths", LENGTHS)
@torch.no_grad()
def test_llama_has_the_logits_of_transformers(lengths: tuple[int, int]) -> None:
    theirs = transformers.LlamaForCausalLM(
        config(
            "LlamaConfig",
            hidden_size=D_MODEL,
            num_hidden_layers=LAYERS,
            num_attention_heads=HEADS,
            intermediate_size=56,
            rms_norm_eps=1e-5,
            tie_word_embeddings=False,
        )
    ).eval()
    weights.randomise(theirs, seed=9)
    ours = model(
        Transformer(
            d_model=D_MODEL,
            layers=LAYERS,
            heads=HEADS,
            d_ff=56,
            activation="swiglu",
            norm="rms",
            bias=False,
            position=Rotary(),
            tied=False,
            assumes_causal_mask=True,
        )
    )
    taken = weights.Theirs(theirs)
    weights.load(ours, weights.llama(taken, LAYERS), taken)
    ids, attention = tokens(lengths, seed=10)
    expected = theirs(ids, attention_mask=attention).logits
    batch = Batch(ids, position_ids(ids), CausalMask() & within(attention, attention))
    assert_same(ours.token_head(ours.backbone(batch).states), expected, attention)
