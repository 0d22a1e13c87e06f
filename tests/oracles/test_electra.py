"""ELECTRA's two models against `transformers`, which keeps them apart, and the sizes of both."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from foreword.models.transformer import Transformer
from foreword.nn.masks import DocumentMask
from foreword.nn.model import Model
from foreword.nn.positions.learned import Learned
from foreword.objectives.replaced_token import ReplacedToken
from foreword.runs.recipe import load_recipe
from foreword.settings import kinds
from foreword.types import Batch

from ..contracts.cases import vocab
from .weights import Theirs, load, randomise

transformers = pytest.importorskip("transformers")

LAYERS, POSITIONS = 2, 12
VOCAB = vocab().size


def theirs(kind: str, d_model: int, heads: int, embedding: int, **more: int) -> nn.Module:
    config = transformers.ElectraConfig(
        vocab_size=VOCAB,
        embedding_size=embedding,
        hidden_size=d_model,
        num_hidden_layers=LAYERS,
        num_attention_heads=heads,
        intermediate_size=4 * d_model,
        max_position_embeddings=POSITIONS,
        layer_norm_eps=1e-5,
        **more,
    )
    model: nn.Module = getattr(transformers, f"ElectraFor{kind}")(config).eval()
    return model


def stack(theirs: Theirs, ours: str) -> dict[str, Tensor]:
    """The map to the model's width and the layers, below `ours`."""
    table = {}
    for kind in ("weight", "bias"):
        project = theirs(f"electra.embeddings_project.{kind}")
        table[f"{ours}.embedding.projection.{kind}"] = project
        for n in range(LAYERS):
            our, their = f"{ours}.stack.blocks.{n}", f"electra.encoder.layer.{n}"
            own, out = f"{their}.attention.self", f"{their}.attention.output"
            table |= {
                f"{our}.attention.query.{kind}": theirs(f"{own}.query.{kind}"),
                f"{our}.attention.key_value.{kind}": theirs(
                    f"{own}.key.{kind}", f"{own}.value.{kind}"
                ),
                f"{our}.attention.output.{kind}": theirs(f"{out}.dense.{kind}"),
                f"{our}.attention_norm.{kind}": theirs(f"{out}.LayerNorm.{kind}"),
                f"{our}.feedforward.up.{kind}": theirs(f"{their}.intermediate.dense.{kind}"),
                f"{our}.feedforward.down.{kind}": theirs(f"{their}.output.dense.{kind}"),
                f"{our}.feedforward_norm.{kind}": theirs(f"{their}.output.LayerNorm.{kind}"),
            }
    return table


def embeddings(theirs: Theirs) -> dict[str, Tensor]:
    name = "electra.embeddings"
    return {
        "backbone.embedding.token.weight": theirs(f"{name}.word_embeddings.weight"),
        "backbone.embedding.segment.weight": theirs(f"{name}.token_type_embeddings.weight"),
        "backbone.stack.position.table.weight": theirs(f"{name}.position_embeddings.weight"),
        "backbone.embedding.norm.weight": theirs(f"{name}.LayerNorm.weight"),
        "backbone.embedding.norm.bias": theirs(f"{name}.LayerNorm.bias"),
    }


def test_generator_and_discriminator_equal_those_of_transformers() -> None:
    discriminator_head, generator = theirs("PreTraining", 32, 4, 16), theirs("MaskedLM", 8, 1, 16)
    randomise(discriminator_head, 1)
    randomise(generator, 2)
    generator.electra.embeddings.load_state_dict(discriminator_head.electra.embeddings.state_dict())
    first, second = Theirs(discriminator_head), Theirs(generator)
    table = embeddings(first) | stack(first, "backbone") | stack(second, "heads.generator")
    assert embeddings(second).keys() <= table.keys()  # the same, and taken already
    for kind in ("weight", "bias"):
        head, token = "discriminator_predictions", "generator_predictions"
        table |= {
            f"heads.replaced.0.{kind}": first(f"{head}.dense.{kind}"),
            f"heads.replaced.2.{kind}": first(f"{head}.dense_prediction.{kind}"),
            f"heads.token.transform.0.{kind}": second(f"{token}.dense.{kind}"),
            f"heads.token.transform.2.{kind}": second(f"{token}.LayerNorm.{kind}"),
        }
    table["heads.token.bias"] = second("generator_lm_head.bias")
    assert not second.left
    settings = Transformer(
        d_model=32,
        layers=LAYERS,
        heads=4,
        d_embedding=16,
        norm_position="post",
        position=Learned(POSITIONS),
        segments=2,
        normalise_embedding=True,
    )
    backbone = settings.build(VOCAB)
    ours = Model(backbone, ReplacedToken(generator=0.25).heads(backbone, vocab())).eval()
    load(ours, table, first)

    random = np.random.default_rng(3)
    ids = torch.from_numpy(random.integers(0, VOCAB, (3, POSITIONS)))
    segments = torch.from_numpy(np.sort(random.integers(0, 2, (3, POSITIONS)), axis=1))
    attended = torch.ones_like(ids)
    attended[1, 8:] = 0
    documents = attended - 1
    position_ids = torch.arange(POSITIONS).expand(3, -1)
    batch = Batch(ids, position_ids, DocumentMask(documents, documents), segments=segments)
    given = {"input_ids": ids, "attention_mask": attended, "token_type_ids": segments}
    with torch.no_grad():
        replaced_logits = ours.heads["replaced"](ours.backbone(batch).states)[..., 0]
        filled = ours.token_head(ours.heads["generator"](batch).states)
        expected = discriminator_head(**given).logits, generator(**given).logits
    is_text = attended > 0
    torch.testing.assert_close(replaced_logits[is_text], expected[0][is_text], atol=1e-4, rtol=1e-4)
    torch.testing.assert_close(filled[is_text], expected[1][is_text], atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("name", ["small", "base"])
def test_the_discriminator_has_the_size_of_the_released_one(name: str) -> None:
    recipe = load_recipe(f"electra_{name}")
    s = recipe.model
    with torch.device("meta"):
        model = s.build(recipe.tokenizer.vocab)
        heads = kinds.load("objectives", "replaced_token")(replacements="uniform").heads(
            model, vocab()
        )
        config = transformers.ElectraConfig(
            vocab_size=recipe.tokenizer.vocab,
            embedding_size=s.embedding_width,
            hidden_size=s.d_model,
            num_hidden_layers=s.layers,
            num_attention_heads=s.heads,
            intermediate_size=s.ff_width,
        )
        discriminator_head = transformers.ElectraForPreTraining(config)
    assert Model(model, heads).count_parameters() == discriminator_head.num_parameters()
