"""Every shipped recipe loads, saves as it was, has the size of its paper; the tiny ones train."""

from __future__ import annotations

import copy
import tomllib
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from foreword.data.rng import RowRng
from foreword.errors import UserError
from foreword.nn.model import Model
from foreword.planning.estimate import chance_loss
from foreword.runs.recipe import Recipe, load_recipe
from foreword.settings import config, kinds
from foreword.settings.ranges import Curve
from foreword.text import special
from foreword.types import Rows

from .tiny import TRAINED, as_pairs, batch, build, vocab

RECIPES = config.RECIPES.names()
every_recipe = pytest.mark.parametrize("name", RECIPES)


def test_each_family_has_a_tiny_form() -> None:
    expected = {"bert", "spanbert", "electra", "gpt2", "t5", "modern_encoder", "modern_decoder"}
    expected |= {"elmo", "transformer_xl", "xlnet", "fixed_window", "rnn", "lstm", "gru"}
    assert expected <= {name.removesuffix("_tiny") for name in RECIPES if name.endswith("_tiny")}


@pytest.mark.product(few=40)
@every_recipe
def test_recipes_read_back_equal(name: str, tmp_path: Path) -> None:
    recipe = load_recipe(name)
    assert recipe.description
    assert config.build(Recipe, tomllib.loads(recipe.dumps())) == recipe
    saved = tmp_path / "recipe.toml"
    saved.write_text(recipe.dumps(), encoding="utf-8")
    assert load_recipe(str(saved)) == recipe


@pytest.mark.parametrize("name", [name for name in RECIPES if name.endswith("_ptb")])
def test_a_recipe_with_a_published_figure_trains_on_all_of_its_text(name: str) -> None:
    assert "perplexity" in load_recipe(name).description
    assert load_recipe(name).prepare.heldout == 0


@pytest.mark.product(few=40)
@every_recipe
def test_parts_of_recipes_are_compatible_and_special_tokens_exist(name: str) -> None:
    recipe, words = load_recipe(name), vocab(500)
    around = {getattr(recipe.packing, side, "") for side in ("bos", "eos")}
    assert around <= {"", *special.NAMES}
    length = recipe.packing.length
    ids = np.full((1, length), 300)
    position_ids = np.arange(length)[None]
    rows = as_pairs(Rows(ids, np.zeros_like(ids), position_ids, np.arange(1)))
    example = recipe.objective.corrupt(rows, RowRng(1, rows.numbers), words)
    batch = recipe.layout.arrange(example, words)
    assert batch.weights.sum() > 0
    # What the encoder reads is a round number, where it is not drawn for each row.
    is_drawn = kinds.name_of(recipe.objective) in ("prefix", "mixture", "translate")
    if batch.source is not None and not is_drawn:
        assert batch.source.ids.shape[1] in (64, 128, 512)


def test_a_hybrid_without_a_dense_layer_is_refused() -> None:
    few = ["model.layers=3"]
    with pytest.raises(UserError, match=r"model\.first_dense: none of 3 layers is dense"):
        load_recipe("hybrid_decoder_tiny", few)
    load_recipe("hybrid_decoder_tiny", [*few, "model.first_dense=2"])


# All parameters of the released weights, a tied output layer once.
RELEASED = {
    "gpt1": 116_534_784,  # `openai-gpt`
    "gpt2_small": 124_439_808,
    "gpt2_medium": 354_823_168,
    "gpt2_large": 774_030_080,
    "gpt2_xl": 1_557_611_200,
    "t5_small": 60_506_624,
    "t5_base": 222_903_552,
    "t5_large": 737_668_096,
    "t5_3b": 2_851_598_336,
    "t5_11b": 11_307_321_344,
    "t5_1.1_small": 76_961_152,
    "t5_1.1_base": 247_577_856,
    "t5_1.1_large": 783_150_080,
    "t5_1.1_xl": 2_849_757_184,
    "t5_1.1_xxl": 11_135_332_352,
}
# Millions of parameters as published, and to what they are rounded there. What is counted:
# everything, with all heads, a tied output layer once.
PUBLISHED = {
    "bert_base": (110, 1),  # Devlin et al. 2019, section 3
    "bert_large": (340, 10),  # the same; 334 M without heads in Lan et al. 2020, table 1
    "roberta_base": (125, 1),  # Liu et al. 2019, as released
    "roberta_large": (355, 1),  # table 9 there
    "albert_base": (12, 1),  # Lan et al. 2020, table 1
    "albert_large": (18, 1),
    "albert_xlarge": (60, 10),  # the released weights have 58.7 M, and 59.0 M with their heads
    "albert_xxlarge": (223, 1),  # as released; 235 M there, which its widths do not give
    "electra_small": (14, 1),  # Clark et al. 2020, tables 1 and 2: the discriminator with its head
    "electra_base": (110, 10),
    "electra_large": (335, 5),
    "modern_encoder": (149, 1),  # Warner et al. 2024, table 4: without heads
    "modernbert_base": (149, 1),
    "modernbert_large": (395, 1),
    "transformer_xl_base": (151, 1),  # Dai et al. 2019, table 1
    "xlnet_base": (117, 1),  # the released weights
    "xlnet_large": (360, 1),  # the same; "as BERT large" in Yang et al. 2019
    "lstm_medium_ptb": (20, 1),  # Merity et al. 2018, table 1
    "rnn_ptb": (6, 1),
    "ul2_20b": (20_000, 1000),  # Tay et al. 2022, section 5: "20B"
    "gpt3_125m": (125, 1),  # Brown et al. 2020, table 2.1
    "gpt3_350m": (360, 10),  # "350M", cut: 355.9 M
    "gpt3_760m": (760, 10),
    "gpt3_1.3b": (1300, 100),
    "gpt3_2.7b": (2700, 100),
    "gpt3_6.7b": (6700, 100),
    "gpt3_13b": (13_000, 1000),
    "gpt3_175b": (175_000, 1000),
}


def built(name: str) -> Model:
    recipe = load_recipe(name)
    with torch.device("meta"):
        return recipe.build(vocab(recipe.tokenizer.vocab))


@pytest.mark.product(few=8)
@pytest.mark.parametrize("name", RELEASED)
def test_recipes_have_the_parameters_of_the_released_weights(name: str) -> None:
    assert built(name).count_parameters() == RELEASED[name]


@pytest.mark.product(few=8)
@pytest.mark.parametrize("name", PUBLISHED)
def test_recipes_have_the_parameters_of_their_papers(name: str) -> None:
    model = built(name)
    counted: nn.Module = model
    if name.startswith("electra"):
        counted = nn.ModuleList([model.backbone, model.heads["replaced"]])
    elif name.startswith("modern"):
        counted = model.backbone
    millions, rounded_to = PUBLISHED[name]
    count = sum(p.numel() for p in counted.parameters()) / 1e6
    assert rounded_to * round(count / rounded_to) == millions


# Of our own making, or not published as such.
PARAMETERS = {
    "bert_small": 28.9e6,  # Turc et al. 2019, table 1: 29.1 M, with 512 positions
    "bert_mini": 11.2e6,  # the same: 11.3 M
    "roberta_mini": 11.1e6,
    "albert_mini": 4.8e6,
    "spanbert_base": 110.3e6,  # Joshi et al. 2020: as BERT's, cased; 1.9 M read the edges of spans
    "spanbert_large": 337e6,  # the same: 3.4 M of it
    "spanbert_mini": 11.4e6,
    "modern_decoder": 124e6,  # as GPT-2
    "gpt2_mini": 11e6,
    "t5_mini": 15.2e6,
    "elmo": 500.6e6,  # 93.6 M (see tests/models/test_elmo.py) and 407 M of the output layer
    "elmo_mini": 12.8e6,
    "elmo_mini_tokens": 20.4e6,
    "transformer_xl_large": 520e6,  # see below
    "transformer_xl_mini": 11.2e6,
    "xlnet_mini": 11.2e6,
    "modernbert_mini": 10.1e6,
    "bigbird_base": 127.5e6,  # the released configuration, 128.1 M, without its pooler
    "bigbird_mini": 11.2e6,
    "longformer_base": 127.4e6,  # the released 148.7 M less 21.3 M of global maps
    "longformer_mini": 11.2e6,
    "linformer_mini": 11.3e6,  # one matrix of 512 x 128 besides
    "seq2seq_mini": 3.23e6,
    "seq2seq_mini_no_attention": 2.97e6,
    "translator_mini": 3.57e6,  # about as many as seq2seq_mini
    # Vocabularies have the words of Penn Treebank and </s>, 10,000, and 106 tokens besides.
    "lstm_small_ptb": 4.69e6,
    "lstm_mini": 8.87e6,
    "gru_mini": 8.60e6,
    "rnn_mini": 8.08e6,
    "fixed_window_mini": 8.1e6,
    "fixed_window_mini_direct": 8.4e6,
}


@pytest.mark.product(few=8)
@pytest.mark.parametrize("name", PARAMETERS)
def test_recipes_have_the_parameters_of_their_descriptions(name: str) -> None:
    assert built(name).count_parameters() == pytest.approx(PARAMETERS[name], rel=0.01)


def test_transformer_xl_large_has_the_backbone_of_the_released_model() -> None:
    """By the released script (div_val 4, cutoffs 20,000, 40,000 and 200,000, untie_r)."""
    recipe, model = load_recipe("transformer_xl_large"), built("transformer_xl_large")
    d, words = recipe.model.d_model, recipe.tokenizer.vocab
    bounds = (0, 20_000, 40_000, 200_000, words)
    widths = [d // 4**n for n in range(4)]
    embedding = sum((b - a) * w for (a, b), w in zip(pairwise(bounds), widths, strict=True))
    maps = d * sum(widths) + d * d  # each cluster's to d_model, and one before the output
    output = words + 3 * (d + 1)  # biases and clusters
    body = sum(p.numel() for p in model.backbone.stack.parameters())
    untied = (recipe.model.layers - 1) * 2 * d  # theirs: two biases of positions in each layer
    assert round(embedding / 1e6, 1) == 36.9
    assert round(body / 1e6, 1) == 245.5
    assert body + untied + embedding + maps + output == 285_205_322  # not the paper's 257 M
    assert model.count_parameters() == body + words * d


@pytest.mark.product(few=9)
@pytest.mark.parametrize("name", TRAINED)
def test_tiny_recipes_train(name: str) -> None:
    recipe = load_recipe(name)
    model = build(recipe)
    optimizer = recipe.optimizer.build(model)
    means = []
    for step in range(2):
        loss = recipe.objective.loss(model, batch(recipe, step=step))
        mean = loss.total / loss.count
        optimizer.zero_grad()
        mean.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), recipe.train.clip)
        optimizer.step()
        means.append(mean.item())
    assert np.isfinite(means).all()
    assert all(p.isfinite().all() for p in model.parameters())
    assert means[0] == pytest.approx(chance_loss(recipe.objective, recipe.tokenizer.vocab), abs=1.0)


def test_rows_longer_than_the_positions_are_refused() -> None:
    with pytest.raises(UserError, match=r"set model\.position\.length=1024"):
        load_recipe("bert_base", ["packing.length=1024"])


def test_assignments_override_a_recipe() -> None:
    recipe = load_recipe("roberta_base", ["train.steps=7", "objective.rate=0.3"])
    assert recipe.train.steps == 7
    assert recipe.objective == load_recipe("roberta_base", ["objective.rate=0.3"]).objective


@pytest.mark.parametrize(
    ("name", "changes", "message"),
    [
        (
            "transformer_xl_tiny",
            ["packing.kind=documents"],
            "packing.kind: .* use packing 'stream'",
        ),
        ("transformer_xl_tiny", ["model.position=learned"], "model.memory: position 'learned'"),
        (
            "xlnet_tiny",
            ["model.two_streams=false"],
            "'two_streams' requires model.two_streams=true",
        ),
        ("bert_tiny", ["model.bigrams=9"], "model.bigrams: requires a decoder"),
        ("transformer_xl_tiny", ["model.bigrams=9"], "model.bigrams: requires a decoder"),
        ("bert_tiny", ["model.two_streams=true"], "'two_streams' requires model.two_streams=true"),
        ("linformer_tiny", ["packing.length=64"], r"exactly 128; set model\.attention\.length=64"),
        ("bert_tiny", ["layout.kind=two_streams"], "'two_streams' requires model.two_streams=true"),
        (
            "bert_tiny",
            ["model.assumes_causal_mask=true", "model.position=relative"],
            "model.assumes_causal_mask=true",
        ),
        ("t5_grid_decoder_lm", ["layout.kind=prefix"], "set it to false or use layout 'decoder'"),
        # Stages and curves.
        ("bert_tiny", ["optimizer.lr={from=1, to=0.1}"], "optimizer.lr: must be one number"),
        ("mask_decay_tiny", ["objective.rate.from=3"], "objective.rate: must be a number above 0"),
        (
            "mask_decay_tiny",
            ["objective.random={from=0.9, to=0}"],
            "objective.mask: mask and random",
        ),
        (
            "mask_decay_mini",
            ["stages[0].objective={raet=0.3}"],
            r"stages\[0\].objective.raet: kind 'masked' has no such setting; did you mean 'rate'",
        ),
        ("causal_first_tiny", ["stages[0].objectiv=causal"], "did you mean 'objective'"),
        ("causal_first_tiny", ["stages[0].model={layers=3}"], r"model.layers: a stage can change"),
        (
            "causal_first_tiny",
            ["stages[0].share=1"],
            r"stages\[0\].share: must be a number above 0",
        ),
        ("causal_first_tiny", ["stages=[{share=0.5}, {share=0.5}]"], "their shares leave nothing"),
        (
            "gpt2_small_pile",
            ["stages=[{share=0.5, data={sources={pile-c={weight=1}}}}]"],
            "data.sources.pile-c: no such source; did you mean 'pile-cc'",
        ),
        ("ngram_tiny", ["stages=[{share=0.5}]"], "stages: a model that is trained offline"),
    ],
)
def test_incompatible_parts_are_refused(name: str, changes: list[str], message: str) -> None:
    with pytest.raises(UserError, match=message):
        load_recipe(name, changes)


def test_the_recipe_is_the_last_stage_and_curves_take_theirs() -> None:
    recipe = load_recipe(
        "causal_first_tiny",
        ["objective.rate={from=0.4, to=0.02}", "stages[0].optimizer={decay={from=0, to=0.1}}"],
    )
    assert recipe.objective.rate == Curve(0.4, 0.02) and float(recipe.objective.rate) == 0.02
    segments = recipe.segments()
    assert [segment.stage for segment in segments] == [0] * 20 + [1] * 20
    assert np.allclose(
        [segment.begin for segment in segments[:2] + segments[20:22]], [0, 0.035, 0.7, 0.715]
    )
    decays = [segment.recipe.optimizer.decay for segment in segments]
    assert decays[0] == 0 and decays[19] == 0.1 and set(decays[20:]) == {recipe.optimizer.decay}
    assert kinds.name_of(segments[0].recipe.objective) == "causal"
    rates = [segment.recipe.objective.rate for segment in segments[20:]]
    assert (rates[0], rates[-1]) == (0.4, 0.02) and not segments[20].recipe.changes
    assert copy.deepcopy(recipe) == recipe


def test_heads_of_one_name_and_shape_are_one() -> None:
    settings = ["stages[0].objective=span_masked", "stages[0].layout=encoder"]
    recipe = load_recipe("causal_first_tiny", settings)
    model = recipe.build(vocab(recipe.tokenizer.vocab))
    assert model.of_stage(0).heads["token"] is model.of_stage(1).heads["token"]
    assert set(model.of_stage(0).heads) > set(model.of_stage(1).heads) == {"token"}
    own = [name for name, _ in model.named_parameters() if name.startswith("stage_heads.")]
    assert own and not any(".token." in name for name in own)
