"""From a Hugging Face folder to a run folder that every command reads."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor, nn

from foreword import atomic, config, kinds
from foreword.errors import UserError, nearest
from foreword.interop import check_logits, files, tensors, texts, tokens
from foreword.interop.family import Family, Table
from foreword.interop.hf_config import FILE as CONFIG
from foreword.interop.hf_config import HFConfig
from foreword.nn.model import Model
from foreword.runs.provenance import make_provenance, write_recipe, write_state
from foreword.runs.recipe import Recipe
from foreword.runs.same_model import differences, resolved
from foreword.runs.trained_model import TrainedModel
from foreword.text.tokenizer import Tokenizer
from foreword.train import checkpoint
from foreword.train.loop import TrainingState
from foreword.types import Vocab

FAMILIES = "interop/hf"
GENERATION = "generation_config.json"
RECIPE = "foreword.toml"  # what an exported folder says of how it was trained


@dataclass(frozen=True, kw_only=True)
class ImportedModel(TrainedModel):
    """A trained model read from a Hugging Face folder.

    Attributes:
        family: the family of `transformers` it belongs to.
    """

    family: Family


def is_foreign(folder: Path) -> bool:
    """Whether this is a model folder of Hugging Face and no run."""
    return (folder / CONFIG).is_file() and not (folder / "recipe.toml").exists()


def read(folder: Path) -> ImportedModel:
    """Reads a model folder of Hugging Face, strictly.

    Raises:
        UserError: something in it is broken, disagrees, or is not known here.
    """
    if not folder.is_dir():
        raise UserError(f"{folder}: no such folder")
    family = family_of(HFConfig.load(folder))
    names = ["", *(name for name in family.beside if (folder / name).is_dir())]
    parts = {name: _stored(folder / name, family) for name in names}
    tokenizer = _tokenizer(parts, family)
    recipe = _recipe(parts, family, tokenizer)
    model = recipe.build(tokenizer.vocab)
    left = _fill(model, recipe, tokenizer.vocab, family, parts)
    notes = [f"not taken over: {', '.join(_folded(left))}"] if left else []
    dtypes = {str(t.dtype) for stored in parts.values() for t in stored.weights.values()}
    if others := sorted(dtypes - {"torch.float32"}):
        notes.append(f"stored as {', '.join(others)}, kept as torch.float32 from here on")
    for name, stored in parts.items():
        if others := files.unread(stored.folder, [] if name else names):
            notes.append(f"not read in {stored.folder}: {', '.join(others)}")
    notes += family.notes(recipe)
    return ImportedModel(
        model=model,
        recipe=recipe,
        tokenizer=tokenizer,
        source=folder,
        notes=tuple(notes),
        family=family,
    )


@dataclass(frozen=True)
class _Stored:
    """What a folder holds, not yet a model: its weights, and the table `[model]` they ask for."""

    folder: Path
    hf_config: HFConfig
    model: Table
    weights: dict[str, Tensor]


def _stored(folder: Path, family: Family) -> _Stored:
    """Reads a folder of a family.

    Raises:
        UserError: something in it is broken, disagrees, or is not known here.
    """
    hf_config = HFConfig.load(folder)
    if family_of(hf_config) != family:
        raise UserError(
            f"{hf_config.file}: model_type is {hf_config.model_type!r}, and the folder lies in "
            f"one of {kinds.name_of(family)}"
        )
    weights = tensors.read(folder, family)
    table = family.model(hf_config, weights)
    hf_config.require_all_known(family.neutral, family.idle)
    rows = family.rows(weights)
    if hf_config.vocab is not None and hf_config.vocab != rows:
        raise UserError(
            f"{folder}: the embedding has {rows:,} rows, and {CONFIG} says "
            f"vocab_size {hf_config.vocab:,}"
        )
    return _Stored(folder, hf_config, table, weights)


def _tokenizer(parts: Mapping[str, _Stored], family: Family) -> Tokenizer:
    """The tokenizer of the model, which is that of all its parts."""
    whole = parts[""]
    found = tokens.read(whole.folder, family, family.rows(whole.weights))
    for name, stored in parts.items():
        if not name or not tokens.is_there(stored.folder):
            continue
        own = tokens.read(stored.folder, family, family.rows(stored.weights))
        if own.pieces != found.pieces:
            raise UserError(f"{stored.folder}: its tokens are not those of {whole.folder}")
    return found


def _fill(
    model: Model,
    recipe: Recipe,
    vocab: Vocab,
    family: Family,
    parts: Mapping[str, _Stored],
) -> list[str]:
    """Fills `model` from all its folders; returns the tensors that are not taken over.

    Raises:
        UserError: the folders are not those that `recipe` asks for, or not of one model.
    """
    folder, asked = parts[""].folder, family.parts(model, recipe)
    for name in parts.keys() ^ asked.keys():
        has, wants = ("a", "no") if name in parts else ("no", "a")
        raise UserError(
            f"{folder}: has {has} folder {name}/, and the model is one with {wants} {name} "
            f"(objective '{kinds.name_of(recipe.objective)}')"
        )
    left: list[str] = []
    filled: dict[nn.Parameter, Tensor] = {}  # what parts have in common
    for name, (held, design) in asked.items():
        stored = parts[name]
        built = config.build_kind(kinds.Part("models"), stored.model, "model")
        if found := differences(resolved(built), resolved(design.model)):
            raise UserError(f"{stored.folder / CONFIG}: does not fit {folder}: {'; '.join(found)}")
        try:
            left += tensors.fill(held, design, vocab, family, stored.weights)
        except UserError as error:
            raise UserError(f"{stored.folder}: {error}") from error
        if len(asked) > 1:
            _require_common(held, filled, f"{stored.folder}: was not trained with {folder}")
    return left


def _require_common(part: Model, filled: dict[nn.Parameter, Tensor], reason: str) -> None:
    """Makes sure that what parts have in common is the same in all; notes in `filled` what it is.

    Raises:
        UserError: another part had other numbers, for which there is a `reason`.
    """
    for name, parameter in part.named_parameters():
        before = filled.setdefault(parameter, parameter.detach().clone())
        if not torch.equal(parameter, before):
            own = name.removeprefix("backbone.")
            raise UserError(f"{reason}: {own}, which both have, is not the same")


def _folded(names: list[str]) -> list[str]:
    """The names, those of all layers as one: `layer.*.key`."""
    return list(dict.fromkeys(re.sub(r"\.\d+\.", ".*.", name) for name in names))


def family_of(hf_config: HFConfig) -> Family:
    """The family that `config.json` names.

    Raises:
        UserError: there is no such family here.
    """
    name = hf_config.model_type.replace("-", "_")
    known = kinds.names(FAMILIES)
    if name not in known:
        raise UserError(
            f"{hf_config.file}: model_type is {hf_config.model_type!r}, which cannot be imported"
            f"{nearest(name, known)}"
        )
    family: Family = kinds.load(FAMILIES, name)()
    return family


def _recipe(parts: Mapping[str, _Stored], family: Family, tokenizer: Tokenizer) -> Recipe:
    """The recipe whose `build` gives the model; an exported folder has its own beside."""
    folder, model, weights = parts[""].folder, parts[""].model, parts[""].weights
    models = {name: stored.model for name, stored in parts.items()}
    start = _start(parts[""], family, tokenizer.vocab)
    recipe = config.build(
        Recipe,
        {
            "description": f"{kinds.name_of(family)}, imported",
            "model": model,
            "objective": family.join(family.objective(weights), models),
            "layout": {"kind": family.layout, **({"start": start} if start else {})},
            "packing": {"kind": "documents", **family.packing(model, weights)},
            "tokenizer": _tokenizer_table(tokenizer),
        },
    )
    if not (folder / RECIPE).is_file():
        return recipe
    own = config.load(Recipe, folder / RECIPE)
    found = differences(resolved(recipe.model), resolved(own.model))
    special = tokenizer.vocab.special
    if special.get(own.layout.start) != special.get(start):
        found.append(f"layout.start is {own.layout.start!r}, not {start!r}")
    if found:
        raise UserError(f"{folder}: {RECIPE} and {CONFIG} disagree: {'; '.join(found)}")
    return own


def _start(stored: _Stored, family: Family, vocab: Vocab) -> str:
    """The special token that the decoder starts from, in training and in writing alike.

    Raises:
        UserError: it is not a special token, or the one for writing is another.
    """
    start, file = family.start(stored.hf_config, vocab), stored.folder / GENERATION
    if not start or not file.is_file():
        return start
    writing = HFConfig.load(stored.folder, GENERATION)
    own = writing.take("decoder_start_token_id")
    if own is not None and own != vocab.id(start):
        raise writing.refuse("decoder_start_token_id", f"{vocab.id(start)}, as {CONFIG} says")
    return start


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


def save(imported: ImportedModel, run: Path) -> None:
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
    checkpoint.save(step, model, None, TrainingState().dump())
    parameters = {"parameters": model.count_parameters()}
    facts = {**make_provenance(), "texts": [], "tokenizer": None, **found, **parameters}
    write_state(run, facts)
    write_recipe(run, recipe)


def provenance(imported: ImportedModel) -> Table:
    """What `run.json` says of where the model came from, with its files' checksums."""
    folder = imported.folder
    parts = imported.family.parts(imported.model, imported.recipe)
    return {
        "imported": {
            "format": "hf",
            "family": kinds.name_of(imported.family),
            "folder": str(folder.resolve()),
            "heads_apart": list(imported.family.beside),
            "files": {
                str(file.relative_to(folder)): atomic.checksum(file)
                for part in parts
                for file in sorted((folder / part).iterdir())
                if file.suffix in (".json", ".safetensors", ".toml")
            },
        }
    }


def check(imported: ImportedModel) -> dict[str, float | None]:
    """How far the logits are from those of `transformers`; None where it is not installed.

    Raises:
        UserError: by more than rounding.
    """
    parts = imported.family.parts(imported.model, imported.recipe)
    return check_logits.check(parts, imported.vocab, imported.family, imported.folder)


def reading_notes(imported: ImportedModel) -> tuple[str, ...]:
    """Where `transformers` reads a text otherwise with the folder's tokenizer, a line each."""
    if not check_logits.is_checkable():
        return ()
    tokenizer, special = imported.tokenizer, imported.vocab.special
    try:
        found = texts.compare(tokenizer, imported.folder)
    except UserError as error:
        return (str(error),)
    notes = []
    if found.apart:
        notes.append(f"transformers cuts {found.apart[0]!r} into other tokens than Foreword")
    around = imported.family.around(imported.recipe)
    ours = tuple((special[name],) if name in special else () for name in around)
    if ours != (theirs := (found.bos, found.eos)):
        notes.append(
            f"transformers reads a text as {_in_words(tokenizer, *theirs)}, Foreword, as its "
            f"family was trained, as {_in_words(tokenizer, *ours)}"
        )
    return tuple(notes)


def _in_words(tokenizer: Tokenizer, before: tuple[int, ...], after: tuple[int, ...]) -> str:
    """A text and what stands around it: `[CLS] text [SEP]`."""
    pieces = tokenizer.pieces
    return " ".join([*(pieces[i] for i in before), "text", *(pieces[i] for i in after)])
