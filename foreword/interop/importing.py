"""Importing a Hugging Face folder as a run folder that every command can read."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor, nn

from foreword.disk import atomic, manifest
from foreword.errors import DamagedError, UserError, nearest
from foreword.interop import check_logits, files, tensors, tokens
from foreword.interop.hf._contract import Family, Table
from foreword.interop.hf_config import FILE as CONFIG
from foreword.interop.hf_config import HFConfig
from foreword.nn.model import Model
from foreword.runs.continued import StartingModel
from foreword.runs.provenance import make_provenance, read_state, write_files
from foreword.runs.recipe import Recipe
from foreword.runs.run_folder import open_run
from foreword.runs.same_model import differences, resolved
from foreword.runs.trained_model import TrainedModel
from foreword.settings import config, kinds
from foreword.text.tokenizer import Tokenizer
from foreword.train import checkpoint
from foreword.train.loop import TrainingState
from foreword.types import Vocab

FAMILIES = "interop/hf"
GENERATION = "generation_config.json"
RECIPE = "foreword.toml"  # the training recipe, written beside an exported model


def is_hf_folder(folder: Path) -> bool:
    """Return whether this is a Hugging Face model folder rather than a run folder."""
    return (folder / CONFIG).is_file() and not (folder / "recipe.toml").exists()


def read(folder: Path) -> TrainedModel:
    """Read a Hugging Face model folder strictly.

    Raises:
        UserError: a file is broken, two files disagree, or a setting is not supported.
    """
    if not folder.is_dir():
        raise UserError(f"{folder}: no such folder")
    if manifest.is_of(folder, files.EXPORT[0]):
        try:
            manifest.verify(folder, *files.EXPORT, ())
        except DamagedError as error:
            raise UserError(
                f"{error}; export it again, or delete {manifest.FILE} if it was changed on purpose"
            ) from error
    family = family_in(folder)
    # Read the folder and its subfolders (ELECTRA's generator), then build and fill the model.
    names = ["", *(name for name in family.names.subfolders if (folder / name).is_dir())]
    hf_folders = {name: _read_hf_folder(folder / name, family) for name in names}
    tokenizer = _tokenizer(hf_folders, family)
    recipe = _recipe(hf_folders, family, tokenizer)
    model = recipe.build(tokenizer.vocab)
    dropped = _fill(model, recipe, tokenizer.vocab, family, hf_folders)
    # Tell the user what was dropped, converted or not read.
    notes = [f"not imported: {', '.join(_merge_layers(dropped))}"] if dropped else []
    dtypes = {str(t.dtype) for part in hf_folders.values() for t in part.weights.values()}
    if others := sorted(dtypes - {"torch.float32"}):
        notes.append(f"stored as {', '.join(others)}, converted to torch.float32")
    for name, part in hf_folders.items():
        if others := files.unread(part.folder, [] if name else names):
            notes.append(f"not read in {part.folder}: {', '.join(others)}")
    notes += family.differences(recipe).notes
    return TrainedModel(model, recipe, tokenizer, source=folder, notes=tuple(notes))


@dataclass(frozen=True)
class _HFFolder:
    """The config and weights of one folder, and the recipe's table `[model]` that they imply."""

    folder: Path
    hf_config: HFConfig
    model: Table
    weights: dict[str, Tensor]


def _read_hf_folder(folder: Path, family: Family) -> _HFFolder:
    """Read the config and weights of a folder of `family`."""
    hf_config = HFConfig.load(folder)
    if family_of(hf_config) != family:
        raise UserError(
            f"{hf_config.file}: model_type is {hf_config.model_type!r}, but the folder above it "
            f"is of {kinds.name_of(family)}"
        )
    weights = tensors.read(folder, family)
    table = family.model(hf_config, weights)
    hf_config.require_all_known(family.keys.supported, family.keys.ignored)
    rows = _vocab_rows(weights, family)
    if hf_config.vocab is not None and hf_config.vocab != rows:
        raise UserError(
            f"{folder}: the embedding has {rows:,} rows, but {CONFIG} gives "
            f"vocab_size {hf_config.vocab:,}"
        )
    return _HFFolder(folder, hf_config, table, weights)


def _vocab_rows(weights: Mapping[str, Tensor], family: Family) -> int:
    """Return the number of rows of the token embedding."""
    if family.names.embedding not in weights:
        raise UserError(f"model.safetensors: has no tensor {family.names.embedding}")
    return len(weights[family.names.embedding])


def _tokenizer(hf_folders: Mapping[str, _HFFolder], family: Family) -> Tokenizer:
    """Return the tokenizer that all folders of the model share."""
    main = hf_folders[""]
    tokenizer = tokens.read(main.folder, family, _vocab_rows(main.weights, family))
    for name, part in hf_folders.items():
        if not name or not tokens.has_tokenizer(part.folder):
            continue
        other = tokens.read(part.folder, family, _vocab_rows(part.weights, family))
        if other.pieces != tokenizer.pieces:
            raise UserError(f"{part.folder}: its tokens are not those of {main.folder}")
    return tokenizer


def _fill(
    model: Model,
    recipe: Recipe,
    vocab: Vocab,
    family: Family,
    hf_folders: Mapping[str, _HFFolder],
) -> list[str]:
    """Fill `model` from all its folders and return the tensors that are dropped."""
    folder, submodels = hf_folders[""].folder, family.folders(model, recipe)
    for name in hf_folders.keys() ^ submodels.keys():
        has, needs = ("a", "no") if name in hf_folders else ("no", "a")
        raise UserError(
            f"{folder}: has {has} folder {name}/, but the model has {needs} {name} "
            f"(objective '{kinds.name_of(recipe.objective)}')"
        )
    dropped: list[str] = []
    filled: dict[nn.Parameter, Tensor] = {}  # the parameters that the submodels share
    for name, (submodel, design) in submodels.items():
        part = hf_folders[name]
        built = config.build_kind(kinds.Part("models"), part.model, "model")
        if misfits := differences(resolved(built), resolved(design.model)):
            raise UserError(f"{part.folder / CONFIG}: does not fit {folder}: {'; '.join(misfits)}")
        try:
            dropped += tensors.fill(submodel, design, vocab, family, part.weights)
        except UserError as error:
            raise UserError(f"{part.folder}: {error}") from error
        if len(submodels) > 1:
            _require_shared(submodel, filled, f"{part.folder}: was not trained with {folder}")
    return dropped


def _require_shared(submodel: Model, filled: dict[nn.Parameter, Tensor], reason: str) -> None:
    """Require shared parameters to be equal in all submodels; record their values in `filled`."""
    for name, parameter in submodel.named_parameters():
        first = filled.setdefault(parameter, parameter.detach().clone())
        if not torch.equal(parameter, first):
            shared = name.removeprefix("backbone.")
            raise UserError(f"{reason}: {shared}, which both have, is not the same")


def _merge_layers(names: list[str]) -> list[str]:
    """Return the names with those of all layers merged into one: `layer.*.key`."""
    return list(dict.fromkeys(re.sub(r"\.\d+\.", ".*.", name) for name in names))


def family_in(folder: Path) -> Family:
    """Return the family of a Hugging Face folder; see `family_of`."""
    return family_of(HFConfig.load(folder))


def family_of(hf_config: HFConfig) -> Family:
    """Return the family that `config.json` names.

    Raises:
        UserError: the family is not supported.
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


def _recipe(hf_folders: Mapping[str, _HFFolder], family: Family, tokenizer: Tokenizer) -> Recipe:
    """Return the recipe whose `build` gives the model.

    A folder that Foreword exported brings its training recipe, which must agree.
    """
    main = hf_folders[""]
    folder, model, weights = main.folder, main.model, main.weights
    models = {name: part.model for name, part in hf_folders.items()}
    start = _decoder_start(main, family, tokenizer.vocab)
    recipe = config.build(
        Recipe,
        {
            "description": f"{kinds.name_of(family)}, imported",
            "model": model,
            "objective": family.objective(weights, models),
            "layout": {"kind": family.names.layout, **({"start": start} if start else {})},
            "packing": {"kind": "documents", **family.packing(model, weights)},
            "tokenizer": _tokenizer_table(tokenizer),
        },
    )
    if not (folder / RECIPE).is_file():
        return recipe
    exported = config.load(Recipe, folder / RECIPE, is_stored=True)
    misfits = differences(resolved(recipe.model), resolved(exported.model))
    special = tokenizer.vocab.special
    if special.get(exported.layout.start) != special.get(start):
        misfits.append(f"layout.start is {exported.layout.start!r}, not {start!r}")
    if misfits:
        raise UserError(f"{folder}: {RECIPE} and {CONFIG} disagree: {'; '.join(misfits)}")
    return exported


def _decoder_start(hf_folder: _HFFolder, family: Family, vocab: Vocab) -> str:
    """Return the special token that the decoder starts from, "" without a separate decoder."""
    if family.names.layout != "encoder_decoder":
        return ""
    key, hf_config = "decoder_start_token_id", hf_folder.hf_config
    start_id = hf_config.get(key)
    names: dict[int | None, str] = {}
    for name, i in vocab.special.items():
        names.setdefault(i, name)
    if start_id not in names:
        known = ", ".join(f"{i} ({name})" for i, name in names.items())
        raise hf_config.refuse(key, f"a special token: {known}")
    if (hf_folder.folder / GENERATION).is_file():
        generation = HFConfig.load(hf_folder.folder, GENERATION)
        if generation.get(key) not in (None, start_id):
            raise generation.refuse(key, f"{start_id}, as in {CONFIG}")
    return names[start_id]


def _tokenizer_table(tokenizer: Tokenizer) -> Table:
    """Return the table `[tokenizer]` of the kind of tokenizer that comes closest."""
    kind = {"WordPiece": "wordpiece", "BPE": "bpe", "Unigram": "unigram", "WordLevel": "word"}
    name = kind[tokenizer.model_name]
    table = {"kind": name, "vocab": tokenizer.vocab.size}
    try:
        config.build_kind(kinds.Part("text/tokenizers"), table, "tokenizer")
    except UserError:  # smaller than the kind allows
        return {"kind": name}
    return table


def save(imported: TrainedModel, run: Path) -> None:
    """Write the imported model as a run folder.

    Raises:
        UserError: the folder cannot be written.
    """
    write_run(run, imported.recipe, imported.tokenizer, imported.model, provenance(imported))


def write_run(
    run: Path, recipe: Recipe, tokenizer: Tokenizer, model: Model, imported_from: Table
) -> None:
    """Write the run folder of an imported model: a run of 0 steps.

    Args:
        run: the run folder to write.
        recipe: the recipe whose `build` gives the model.
        tokenizer: the model's tokenizer.
        model: the model, with its weights.
        imported_from: where the model came from, for `run.json`.

    Raises:
        UserError: the folder cannot be written.
    """
    parameters = {"parameters": model.count_parameters()}
    state = {**make_provenance(), "texts": [], "tokenizer": None, **imported_from, **parameters}
    with atomic.folder(run) as part:
        tokenizer.save(part / "tokenizer")
        step = part / "checkpoints" / checkpoint.name_of(0)
        checkpoint.save(step, model, None, TrainingState().dump())
        write_files(part, state, recipe)


def provenance(imported: TrainedModel) -> Table:
    """Return the record of where the model came from, with its files' checksums."""
    folder, family = imported.folder, family_in(imported.folder)
    parts = family.folders(imported.model, imported.recipe)
    return {
        "imported": {
            "format": "hf",
            "family": kinds.name_of(family),
            "folder": str(folder.resolve()),
            "heads_apart": list(family.names.subfolders),
            "files": {
                str(file.relative_to(folder)): atomic.checksum(file)
                for part in parts
                for file in sorted((folder / part).iterdir())
                if file.suffix in (".json", ".safetensors", ".toml")
            },
        }
    }


def check(imported: TrainedModel) -> dict[str, float | None]:
    """Return how far the logits are from those of `transformers`, None if it is not installed.

    Raises:
        UserError: they differ by more than rounding.
    """
    family = family_in(imported.folder)
    parts = family.folders(imported.model, imported.recipe)
    return check_logits.check(parts, imported.vocab, family, imported.folder)


def reading_notes(imported: TrainedModel) -> tuple[str, ...]:
    """Return notes on where `transformers` tokenizes text differently, one line each."""
    if not check_logits.is_checkable():
        return ()
    tokenizer, special = imported.tokenizer, imported.vocab.special
    try:
        comparison = tokens.compare(tokenizer, imported.folder)
    except UserError as error:
        return (str(error),)
    notes = []
    if comparison.differing:
        notes.append(
            f"transformers tokenizes {comparison.differing[0]!r} differently from Foreword"
        )
    bos_and_eos = family_in(imported.folder).bos_and_eos(imported.recipe)
    ours = tuple((special[name],) if name in special else () for name in bos_and_eos)
    if ours != (theirs := (comparison.bos, comparison.eos)):
        notes.append(
            f"transformers reads a text as {_show_wrapped(tokenizer, *theirs)}, Foreword, as its "
            f"family was trained, as {_show_wrapped(tokenizer, *ours)}"
        )
    return tuple(notes)


def _show_wrapped(tokenizer: Tokenizer, bos: tuple[int, ...], eos: tuple[int, ...]) -> str:
    """Return a text with its special tokens: `[CLS] text [SEP]`."""
    pieces = tokenizer.pieces
    return " ".join([*(pieces[i] for i in bos), "text", *(pieces[i] for i in eos)])


def open_starting_model(path: str) -> StartingModel:
    """Open a run, one of its checkpoints, or a Hugging Face folder, to continue from it.

    Raises:
        UserError: it is none of these, is broken, or has nothing to train further.
    """
    folder = Path(path)
    if is_hf_folder(folder):
        imported = read(folder)
        facts = {"from": str(folder.resolve()), **provenance(imported)}
        return StartingModel.of(imported, provenance=facts, is_foreign=True)
    trained = open_run(folder, "cpu")
    trained.require_gradients()
    facts = {"from": str(trained.folder.resolve())}
    if (imported_from := read_state(trained.run).get("imported")) is not None:
        facts |= {"imported": imported_from}
    return StartingModel.of(trained, provenance=facts)
