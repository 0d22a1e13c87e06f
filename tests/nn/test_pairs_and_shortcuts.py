"""Embeddings of pairs of tokens, and shortcuts from the embedding to each block."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from foreword.errors import UserError
from foreword.interop.exporting import find_family
from foreword.nn.block import EmbeddingShortcut
from foreword.nn.embedding import Bigrams
from foreword.nn.init import initialise
from foreword.nn.model import Model
from foreword.runs.recipe import load_recipe
from foreword.runs.trained_model import TrainedModel
from foreword.testing.cases import SIZE, Case, rows, select_rows, vocab
from tests import tiny
from tests.tiny import build


def states(case: Case, documents: list[list[int]], **settings: Any) -> tuple[Model, Any]:
    """Return a model with these settings, all of its weights drawn, and a batch."""
    backbone = replace(case.model_settings("rotary"), **settings).build(SIZE)
    model = Model(backbone, case.instance.heads(backbone, vocab()))
    initialise(model, 1)
    for module in model.modules():
        if isinstance(module, Bigrams | EmbeddingShortcut):
            nn.init.normal_(module.weight, 0.0, 1.0, torch.Generator().manual_seed(1))
    return model.eval(), rows(documents)


DECODER = Case("causal", "decoder", "transformer")
SETTINGS = {"bigrams": 5, "assumes_causal_mask": True}


def test_pairs_are_of_one_document_and_of_nothing_later() -> None:
    model, many = states(DECODER, [[12, 8], [20]], **SETTINGS)
    backbone, batch = model.backbone, DECODER.batch(many)
    together = backbone(batch).states
    alone = replace(batch, ids=batch.ids[:1, 12:], positions=batch.positions[:1, 12:])
    second = replace(alone, mask=DECODER.batch(select_rows(rows([[8], [8]]), [0])).mask)
    torch.testing.assert_close(backbone(second).states[0], together[0, 12:])
    # The first token of both documents has the same row, and no token sees the next.
    changed = batch.ids.clone()
    changed[:, 6:] = changed[:, 6:].flip(1)
    later = backbone(replace(batch, ids=changed)).states
    torch.testing.assert_close(later[:, :6], together[:, :6], rtol=0, atol=0)
    assert not torch.allclose(later[:, 6:], together[:, 6:])


def test_a_pair_has_the_row_of_its_two_tokens() -> None:
    pairs = Bigrams(1000, 1)
    pairs.weight.data = torch.arange(1001.0)[:, None]
    ids = torch.tensor([[3, 4, 3, 4, 5, 4]])
    positions = torch.tensor([[0, 1, 2, 3, 0, 1]])
    found = pairs(ids, positions)[0, :, 0].tolist()
    assert found[0] == found[4] == 1000 and found[1] == found[3]
    assert len({*found}) == 4 and found[1] == (4 * 36_313 ^ 3 * 27_191) % 1000
    assert pairs(ids[:, 3:4], positions[:, 3:4], ids[:, 2])[0, 0, 0] == found[3]


@pytest.mark.parametrize("case", [DECODER, Case("masked", "encoder", "transformer")], ids=str)
def test_a_block_reads_a_mix_of_the_states_and_the_embedding(case: Case) -> None:
    model, many = states(case, [[20]], embedding_shortcut=True, layers=3)
    seen: list[tuple[Tensor, Tensor]] = []
    for block in model.backbone.stack.blocks:  # type: ignore[union-attr]
        block.register_forward_hook(lambda _, given, out: seen.append((given[0], out[0])))
    by_layer = model.backbone.by_layer(case.batch(many)).layers  # type: ignore[operator]
    embedded = seen[0][0]
    for n, shortcut in enumerate(model.backbone.stack.shortcuts):  # type: ignore[union-attr, arg-type]
        a, b = shortcut.weight.tolist()
        torch.testing.assert_close(seen[n + 1][0], a * seen[n][1] + b * embedded)
    assert all(torch.equal(one, given[0]) for one, given in zip(by_layer, seen, strict=False))


def test_both_begin_without_effect() -> None:
    sets = [["model.bigrams=0", "model.embedding_shortcut=false"], []]
    plain, other = (build(load_recipe("steps_decoder_tiny", one)) for one in sets)
    weights = dict(other.named_parameters())
    assert all(torch.equal(p, weights[name]) for name, p in plain.named_parameters())
    batch = DECODER.batch(rows([[12, 8]]))
    assert torch.equal(plain.backbone(batch).states, other.backbone(batch).states)


@pytest.mark.parametrize("case", [DECODER, Case("masked", "encoder", "transformer")], ids=str)
@pytest.mark.parametrize("without", ["feedforward", "residuals", "norms", "half"])
def test_a_block_is_the_sum_of_its_parts(case: Case, without: str) -> None:
    settings = {"norms": {"norm_position": "none"}, "half": {"residual_scale": 0.5}}
    settings = settings.get(without, {without: False})
    model, many = states(case, [[20]], **settings)
    block, seen = model.backbone.stack.blocks[0], []  # type: ignore[union-attr, index, var-annotated]
    block.register_forward_hook(lambda _, given, out: seen.extend((given[0], out[0])))
    block.attention.register_forward_hook(lambda *_: seen.append(_[-1]))
    model.backbone(case.batch(many))
    attended, x, expected = seen[-3:] if len(seen) == 3 else (seen[0], *seen[1:3])
    scale = 0.5 if without == "half" else 1.0
    y = attended if without == "residuals" else x + scale * attended
    if without != "feedforward":
        z = block.feedforward(block.feedforward_norm(y))
        y = z if without == "residuals" else y + scale * z
    torch.testing.assert_close(y, expected)
    norms = [name for name, _ in model.backbone.named_parameters() if "norm" in name]
    assert bool(norms) == (without != "norms")


@pytest.mark.parametrize(
    "setting",
    ["bigrams=50", "embedding_shortcut=true", "feedforward=false", "residuals=false",
     "residual_scale=0.5", "norm_position=none"],
)  # fmt: skip
def test_transformers_has_no_such_model(setting: str) -> None:
    recipe = load_recipe("gpt2_tiny", [f"model.{setting}"])

    class Tokens:
        vocab = tiny.vocab(recipe.tokenizer.vocab)

    name = setting.partition("=")[0]
    trained = TrainedModel(build(recipe), recipe, Tokens())  # type: ignore[arg-type]
    with pytest.raises(UserError, match=f"no transformers class matches.*model.{name} is"):
        find_family(replace(trained, source=Path("run")))
