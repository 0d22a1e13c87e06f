"""ELECTRA's generator and discriminator: two models in transformers, one here."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from foreword.cli.main import run as command
from foreword.errors import UserError
from foreword.interop import exporting, importing
from foreword.interop.hf.electra import ELECTRA
from foreword.interop.hf_config import HFConfig
from foreword.interop.importing import open_starting_model
from foreword.nn.masks import FullMask
from foreword.objectives._generator import generator_settings
from foreword.objectives.replaced_token import ReplacedToken
from foreword.runs.recipe import Recipe, load_recipe
from foreword.runs.run_folder import open_run
from foreword.runs.same_model import resolved
from foreword.settings import config, kinds
from foreword.text.tokenizers.wordpiece import WordPiece
from foreword.train import checkpoint
from foreword.types import Batch
from tests.evaluation.conftest import TEXTS, write_run

from . import theirs

transformers = pytest.importorskip("transformers")

SHARED = "electra.embeddings."


def assert_theirs(run: Path, judging: Path, writing: Path) -> None:
    """Our logits are those of their discriminator and of their generator."""
    model = open_run(run, "cpu").model
    ids = torch.arange(105, 129)[None]
    batch = Batch(ids, torch.arange(24)[None], FullMask())
    discriminator_head = transformers.ElectraForPreTraining.from_pretrained(judging).eval()
    writer = transformers.ElectraForMaskedLM.from_pretrained(writing).eval()
    with torch.no_grad():
        judged = model.heads["replaced"](model.backbone(batch).states).squeeze(-1)
        torch.testing.assert_close(judged, discriminator_head(ids).logits, atol=1e-4, rtol=1e-4)
        written = model.token_head(model.heads["generator"](batch).states)
        torch.testing.assert_close(written, writer(ids).logits, atol=1e-4, rtol=1e-4)


def test_generator_and_discriminator_are_exported_and_imported(tmp_path: Path) -> None:
    tokenizer = WordPiece(vocab=180).train(TEXTS * 4)
    settings = ["model.d_model=32", "model.heads=4", "model.init_std=0.3"]
    run = write_run(tmp_path / "run", load_recipe("electra_tiny", settings), tokenizer)
    folder, again = tmp_path / "hf", tmp_path / "again"
    assert command(["export", str(run), "--out", str(folder)]) == 0
    assert command(["import", str(folder), "--out", str(again)]) == 0
    for file in ("recipe.toml", "checkpoints/{}/weights.safetensors"):
        before, after = (
            (place / file.format(checkpoint.name_of(step))).read_bytes()
            for place, step in ((run, 1), (again, 0))
        )
        assert before == after
    assert_theirs(run, folder, folder / "generator")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Theirs as they are published: two folders of one training, here one within the other."""
    theirs.write("electra", tmp_path / "electra")
    theirs.write("electra-small-generator", tmp_path / "electra" / "generator")
    both = [tmp_path / "electra" / part / "model.safetensors" for part in ("", "generator")]
    judging, writing = map(load_file, both)
    shared = {name: t for name, t in judging.items() if name.startswith(SHARED)}
    save_file(writing | shared, both[1], metadata={"format": "pt"})
    return tmp_path / "electra"


def recipe_of(*settings: str) -> Recipe:
    return load_recipe("electra_tiny", ["packing.length=24", *settings])


def test_a_generator_in_a_subfolder_is_imported_with_its_discriminator(
    folder: Path, tmp_path: Path
) -> None:
    imported = importing.read(folder)
    assert imported.recipe.objective == ReplacedToken(generator=0.5)
    assert importing.check(imported)["logit_difference"] < 1e-4  # type: ignore[operator]
    assert {
        file.partition("/")[0] for file in importing.provenance(imported)["imported"]["files"]
    } > {"generator"}
    importing.save(imported, tmp_path / "run")
    assert_theirs(tmp_path / "run", folder, folder / "generator")
    exporting.export(open_run(tmp_path / "run", "cpu"), tmp_path / "out")
    for part in ("", "generator"):
        before, after = (
            load_file(place / part / "model.safetensors") for place in (folder, tmp_path / "out")
        )
        assert before.keys() == after.keys()
        assert all(torch.equal(tensor, before[name]) for name, tensor in after.items())


def test_pretraining_continues_from_generator_and_discriminator(folder: Path) -> None:
    starting_model = open_starting_model(str(folder))
    laid = starting_model.with_recipe(recipe_of("objective.generator=0.5"))
    for name, value in laid.model.state_dict().items():
        assert torch.equal(value, starting_model.model.state_dict()[name])
    with pytest.raises(UserError, match=r"use --set objective\.generator=0\.5$"):
        starting_model.with_recipe(recipe_of())  # a quarter: not to be begun anew in silence


def test_a_discriminator_alone_is_imported_with_unigram_replacements(
    folder: Path, tmp_path: Path
) -> None:
    shutil.move(folder / "generator", tmp_path / "apart")
    imported = importing.read(folder)
    assert any("without its generator" in note for note in imported.notes)
    importing.save(imported, tmp_path / "run")
    for path, way in (
        (folder, "generator/, and start from that"),
        (tmp_path / "run", "import it again"),
    ):
        with pytest.raises(UserError) as caught:
            open_starting_model(str(path)).with_recipe(recipe_of())
        error = str(caught.value)
        assert f"needs a generator, which {path}" in error
        assert f"into {folder}, as generator/" in error
        assert way in error
        assert error.endswith("or use --set objective.replacements=unigram")
    laid = open_starting_model(str(folder)).with_recipe(recipe_of("objective.replacements=unigram"))
    assert set(laid.model.heads) == {"replaced"}


def test_submodels_of_different_models_are_refused(folder: Path, tmp_path: Path) -> None:
    def error() -> str:
        with pytest.raises(UserError) as caught:
            importing.read(folder)
        assert "\n" not in str(caught.value)
        return str(caught.value)

    own, config = folder / "generator", folder / "generator" / "config.json"
    whole = json.loads(config.read_text())
    config.write_text(json.dumps(whole | {"num_attention_heads": 1}))
    assert "generator/config.json: does not fit" in error()
    assert "model.heads is 2, not 1" in error()
    config.write_text(json.dumps(whole | {"model_type": "bert"}))
    assert "model_type is 'bert', but the folder above it is of electra" in error()
    config.write_text(json.dumps(whole))
    weights = load_file(own / "model.safetensors")
    weights[f"{SHARED}word_embeddings.weight"] *= 2  # another training's
    save_file(weights, own / "model.safetensors")
    assert "was not trained with" in error()
    assert "embedding.token.weight, which both have, is not the same" in error()
    theirs.write("electra-generator", folder)
    assert "has a folder generator/, but the model has no generator" in error()
    tokenizer = own / "tokenizer.json"
    tokenizer.write_text(tokenizer.read_text().replace('"w7"', '"x7"'))
    assert "its tokens are not those of" in error()


@pytest.mark.parametrize(
    ("discriminator_head", "writer", "recipe"),
    [
        # hidden_size, intermediate_size, num_attention_heads, embedding_size, as published
        ((256, 1024, 4, 128), (256, 1024, 4, 128), "electra_small"),
        ((768, 3072, 12, 768), (256, 1024, 4, 768), "electra_base"),
        ((1024, 4096, 16, 1024), (256, 1024, 4, 1024), "electra_large"),
    ],
)
def test_published_generators_fit_their_discriminators(
    discriminator_head: tuple[int, ...], writer: tuple[int, ...], recipe: str
) -> None:
    keys = ("hidden_size", "intermediate_size", "num_attention_heads", "embedding_size")
    layers = load_recipe(recipe).model.layers
    family = ELECTRA()
    tables = {
        part: family.model(
            HFConfig({**dict(zip(keys, sizes, strict=True)), "num_hidden_layers": layers}), {}
        )
        for part, sizes in (("", discriminator_head), ("generator", writer))
    }
    weights = {"discriminator_predictions.dense.weight": torch.zeros(0)}
    objective = family.objective(weights, tables)
    own = {"model": tables[""], "objective": objective}
    joined: Any = config.build(Recipe, config.to_table(load_recipe(recipe)) | own)
    asked = generator_settings(joined.model, joined.objective.generator)
    built = config.build_kind(kinds.Part("models"), tables["generator"], "model")
    assert resolved(asked) == resolved(built)
