"""From a Hugging Face folder to a run folder that every command reads."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from foreword import atomic, config, kinds
from foreword.errors import UserError, nearest
from foreword.interop import agree, tensors, tokens
from foreword.interop.described import FILE as CONFIG
from foreword.interop.described import Described
from foreword.interop.family import Family, Table, differences, resolved
from foreword.nn.model import Model
from foreword.text.tokenizer import Tokenizer
from foreword.train import checkpoint
from foreword.train.loop import Progress
from foreword.train.origin import origin
from foreword.train.recipe import Recipe
from foreword.types import Vocab

FAMILIES = "interop/hf"
RECIPE = "foreword.toml"  # what an exported folder says of how it was trained


@dataclass(frozen=True)
class Imported:
    """A model made elsewhere, in our words.

    Attributes:
        folder: where it came from.
        family: which it is of.
        recipe: whose `build` gives this model.
        tokenizer: its own.
        model: filled.
        notes: what is worth knowing, a line each.
    """

    folder: Path
    family: Family
    recipe: Recipe
    tokenizer: Tokenizer
    model: Model
    notes: tuple[str, ...]

    @property
    def vocab(self) -> Vocab:
        """Of the tokenizer."""
        return self.tokenizer.vocab


def is_foreign(folder: Path) -> bool:
    """Whether this is a model folder of Hugging Face and no run."""
    return (folder / CONFIG).is_file() and not (folder / "recipe.toml").exists()


def read(folder: Path) -> Imported:
    """Reads a model folder of Hugging Face, strictly.

    Raises:
        UserError: something in it is broken, disagrees, or is not known here.
    """
    if not folder.is_dir():
        raise UserError(f"{folder}: no such folder")
    described = Described.load(folder)
    family = family_of(described)
    weights = tensors.read(folder, family)
    table = family.model(described, weights)
    described.require_all_known(family.neutral, family.idle)
    rows = family.rows(weights)
    if described.vocab is not None and described.vocab != rows:
        raise UserError(
            f"{folder}: the embedding has {rows:,} rows, and {CONFIG} says "
            f"vocab_size {described.vocab:,}"
        )
    tokenizer = tokens.read(folder, family, rows)
    recipe = _recipe(folder, family, table, weights, tokenizer)
    model = recipe.build(tokenizer.vocab)
    left = []
    for part, (held, design) in family.parts(model, recipe).items():
        own = tensors.read(folder / part, family) if part else weights
        left += tensors.fill(held, design, tokenizer.vocab, family, own)
    notes = [f"not taken over: {', '.join(_folded(left))}"] if left else []
    if others := sorted({str(t.dtype) for t in weights.values()} - {"torch.float32"}):
        notes.append(f"stored as {', '.join(others)}, kept as torch.float32 from here on")
    notes += family.notes(recipe)
    return Imported(folder, family, recipe, tokenizer, model, tuple(notes))


def _folded(names: list[str]) -> list[str]:
    """The names, those of all layers as one: `layer.*.key`."""
    return list(dict.fromkeys(re.sub(r"\.\d+\.", ".*.", name) for name in names))


def family_of(described: Described) -> Family:
    """The family that `config.json` names.

    Raises:
        UserError: there is no such family here.
    """
    name = described.model_type.replace("-", "_")
    known = kinds.names(FAMILIES)
    if name not in known:
        raise UserError(
            f"{described.file}: model_type is {described.model_type!r}, which cannot be imported"
            f"{nearest(name, known)}"
        )
    family: Family = kinds.load(FAMILIES, name)()
    return family


def _recipe(
    folder: Path, family: Family, model: Table, weights: dict[str, Any], tokenizer: Tokenizer
) -> Recipe:
    """The recipe whose `build` gives the model; an exported folder has its own beside."""
    recipe = config.build(
        Recipe,
        {
            "description": f"{kinds.name_of(family)}, imported",
            "model": model,
            "objective": family.objective(weights),
            "layout": {"kind": family.layout},
            "packing": {"kind": "documents", **family.packing(model, weights)},
            "tokenizer": _tokenizer_table(tokenizer),
        },
    )
    if not (folder / RECIPE).is_file():
        return recipe
    own = config.load(Recipe, folder / RECIPE)
    found = differences(resolved(recipe.model), resolved(own.model))
    if found:
        raise UserError(f"{folder}: {RECIPE} and {CONFIG} disagree: {'; '.join(found)}")
    return own


def _tokenizer_table(tokenizer: Tokenizer) -> Table:
    """The kind that the tokenizer would be if it were ours."""
    kind = {"WordPiece": "wordpiece", "BPE": "bpe", "Unigram": "unigram", "WordLevel": "word"}
    name = kind[tokenizer.model_name]
    least = {"vocab": tokenizer.vocab.size}
    try:
        config.build_kind(kinds.Part("text/tokenizers"), {"kind": name, **least}, "tokenizer")
    except UserError:  # smaller than any that is trained here
        return {"kind": name}
    return {"kind": name, **least}


def save(imported: Imported, run: Path) -> None:
    """Writes the run folder.

    Raises:
        UserError: the folder cannot be written.
    """
    write_run(run, imported.recipe, imported.tokenizer, imported.model, provenance(imported))


def write_run(run: Path, recipe: Recipe, tokenizer: Tokenizer, model: Model, found: Table) -> None:
    """Writes the run folder of a model that was made elsewhere: a run of no steps.

    Args:
        run: the folder.
        recipe: whose `build` gives the model.
        tokenizer: the model's.
        model: filled.
        found: where it came from, for `run.json`.

    Raises:
        UserError: the folder cannot be written.
    """
    tokenizer.save(run / "tokenizer")
    step = run / "checkpoints" / checkpoint.name_of(0)
    checkpoint.save(step, model, None, Progress().dump())
    parameters = {"parameters": model.count_parameters()}
    facts = {**origin(), "texts": [], "tokenizer": None, **found, **parameters}
    atomic.write_text(run / "run.json", json.dumps(facts, indent=1) + "\n")
    atomic.write_text(run / "recipe.toml", recipe.dumps())


def provenance(imported: Imported) -> Table:
    """What `run.json` says of where the model came from, with its files' checksums."""
    return {
        "imported": {
            "format": "hf",
            "family": kinds.name_of(imported.family),
            "folder": str(imported.folder.resolve()),
            "files": {
                file.name: atomic.checksum(file)
                for file in sorted(imported.folder.iterdir())
                if file.suffix in (".json", ".safetensors", ".toml")
            },
        }
    }


def check(imported: Imported) -> dict[str, float | None]:
    """How far the logits are from those of `transformers`; None where it is not installed.

    Raises:
        UserError: by more than rounding.
    """
    part, design = imported.family.parts(imported.model, imported.recipe)[""]
    return agree.check(part, design, imported.vocab, imported.family, imported.folder)
