"""With equal weights, BERT's two losses are those of `transformers`."""

from __future__ import annotations

import pytest
import torch

from foreword.models.transformer import Transformer
from foreword.nn.masks import DocumentMask
from foreword.nn.model import Model
from foreword.nn.positions.learned import Learned
from foreword.objectives.sum import Sum
from foreword.types import Batch, PairLabels
from tests.contracts.cases import vocab

from . import weights

transformers = pytest.importorskip("transformers")


@torch.no_grad()
def test_bert_has_both_losses_of_transformers() -> None:
    config = transformers.BertConfig(
        vocab_size=61,
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=4,
        intermediate_size=80,
        max_position_embeddings=32,
        attn_implementation="eager",
    )
    theirs = transformers.BertForPreTraining(config).eval()
    weights.randomise(theirs, seed=1)
    settings = Transformer(
        d_model=32,
        layers=2,
        heads=4,
        d_ff=80,
        norm_position="post",
        norm_eps=1e-12,
        position=Learned(32),
        segments=2,
        normalise_embedding=True,
    )
    backbone = settings.build(61)
    ours = Model(backbone, Sum().heads(backbone, vocab())).eval()
    taken = weights.Theirs(theirs)
    table = weights.bert(taken, 2)
    for kind in ("weight", "bias"):
        table[f"heads.pair.pooler.{kind}"] = taken(f"bert.pooler.dense.{kind}")
        table[f"heads.pair.output.{kind}"] = taken(f"cls.seq_relationship.{kind}")
    weights.load(ours, table, taken)

    random = torch.Generator().manual_seed(2)
    ids, targets = torch.randint(0, 61, (2, 3, 24), generator=random)
    position_ids = torch.arange(24).expand(3, -1)
    lengths = torch.tensor([24, 17, 9])[:, None]
    documents = torch.where(position_ids < lengths, 0, -1)
    segments = ((position_ids >= lengths // 2) & (documents == 0)).long()
    counts = (torch.rand(3, 24, generator=random) < 0.3) & (documents == 0)
    classes = torch.tensor([1, 0, 1])  # 1 is a random second text
    expected = theirs(
        ids,
        attention_mask=documents + 1,
        token_type_ids=segments,
        labels=torch.where(counts, targets, -100),
        next_sentence_label=classes,
    ).loss
    batch = Batch(
        ids,
        position_ids,
        DocumentMask(documents, documents),
        targets,
        counts.float(),
        segments=segments,
        parts=(PairLabels(torch.where(position_ids == 0, classes[:, None], -1)),),
    )
    loss = Sum().loss(ours, batch)
    torch.testing.assert_close(loss.total / loss.count, expected, atol=1e-5, rtol=1e-5)
