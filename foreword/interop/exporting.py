"""From a run folder to a Hugging Face folder, which `transformers` reads without code of ours."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import torch
from safetensors.torch import save_file
from torch import nn

from foreword import atomic, config, kinds
from foreword.errors import UserError, nearest
from foreword.interop import check_logits, files, tensors, texts, tokens
from foreword.interop.family import Design, Family, Table
from foreword.interop.hf_config import FILE as CONFIG
from foreword.interop.hf_config import HFConfig
from foreword.interop.importing import FAMILIES, GENERATION, RECIPE
from foreword.nn.model import Model
from foreword.objectives.masked import Masked
from foreword.runs.provenance import read_state
from foreword.runs.recipe import Recipe
from foreword.runs.same_model import differences, resolved
from foreword.runs.trained_model import TrainedModel
from foreword.text.special import ROLES
from foreword.text.tokenizer import Tokenizer
from foreword.types import Vocab


def export(trained: TrainedModel, out: Path, wanted: str = "") -> Family:
    """Writes the folder `out`.

    Args:
        trained: the run.
        out: must not be there yet.
        wanted: the family to be of; the one that fits if unsaid.

    Returns:
        The family that it is of.

    Raises:
        UserError: no family has such a model, or the folder cannot be written.
    """
    atomic.require_no_device(out)
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise UserError(f"{out}: is not empty; choose another --out")
    family = find_family(trained, wanted)
    with atomic.folder(out) as made:
        for name, (model, design) in family.parts(trained.model, trained.recipe).items():
            (made / name).mkdir(exist_ok=True)
            _export_part(family, model, design, trained.tokenizer, made / name)
        (made / RECIPE).write_text(trained.recipe.dumps(), encoding="utf-8")
    return family


def plain(trained: TrainedModel) -> tuple[TrainedModel, tuple[str, ...]]:
    """The run without the head that serves SpanBERT's training alone, and what there is to say."""
    heads = dict(trained.model.heads.items())
    if heads.pop("boundary", None) is None:
        return trained, ()
    recipe = replace(trained.recipe, objective=Masked())
    model = Model(trained.model.backbone, nn.ModuleDict(heads))
    note = (
        "the head that tells a span from its edges is not written: transformers has no place for "
        "it; import the folder again and it is a model of masked tokens alone"
    )
    return replace(trained, recipe=recipe, model=model.eval()), (note,)


def _export_part(
    family: Family, model: Model, design: Design, tokenizer: Tokenizer, out: Path
) -> None:
    around = family.around(design)
    opening = around[0] if family.layout == "decoder" else ""
    segments = getattr(design.model, "segments", 0)
    use = tokens.Use(around, opening, segments, design.model.limit)
    weights = tensors.take_out(model, design, tokenizer.vocab, family)
    save_file(weights, out / files.WEIGHTS, metadata={"format": "pt"})
    tokens.write(tokenizer, use, out)
    hf_config = _described(design, tokenizer.vocab, family, opening)
    _write(out / CONFIG, hf_config)
    if family.layout in ("decoder", "encoder_decoder"):
        ids = {key: i for key, i in hf_config.items() if key.endswith("token_id")}
        _write(out / GENERATION, ids)


def find_family(trained: TrainedModel, wanted: str = "") -> Family:
    """The family that a model is of: the one asked for, the one it came from, or one that fits.

    Raises:
        UserError: none fits; what stands in the way of the nearest is said.
    """
    known = kinds.names(FAMILIES)
    if wanted and wanted not in known:
        raise UserError(f"--family: no family '{wanted}'{nearest(wanted, known)}")
    came_from = (read_state(trained.run).get("imported") or {}).get("family")
    names = [wanted] if wanted else sorted(known, key=lambda name: name != came_from)
    reasons: dict[str, list[str]] = {}
    for name in names:
        family: Family = kinds.load(FAMILIES, name)()
        reasons[name] = _misfits(trained, family)
        if not reasons[name]:
            return family
    nearest_name = min(reasons, key=lambda name: _distance(reasons[name]))
    raise UserError(
        f"{trained.run}: no model of transformers is like this one; nearest is {nearest_name}, but "
        f"{'; '.join(reasons[nearest_name])}"
    )


def _distance(misfits: list[str]) -> tuple[int, int]:
    """How far a family is: first by what it reads, then by settings."""
    return sum(text.startswith(("layout is", "model is")) for text in misfits), len(misfits)


def _misfits(trained: TrainedModel, family: Family) -> list[str]:
    """Why a model is not of a family, a phrase each: what it would be, read back, tells."""
    recipe = trained.recipe
    found = []
    layout = kinds.name_of(recipe.layout)
    if layout != family.layout:
        found.append(f"layout is {layout}, not {family.layout}")
    if kinds.name_of(recipe.model) != family.kind:
        return [*found, f"model is {kinds.name_of(recipe.model)}, not {family.kind}"]
    vocab = trained.vocab
    model, design = family.parts(trained.model, recipe)[""]
    lacking = tensors.unplaced(model, design, vocab, family)
    weights = {} if lacking else tensors.take_out(model, design, vocab, family)
    try:
        hf_config = HFConfig(family.describe(design, vocab))
        table = family.model(hf_config, weights)
        again = config.build(Recipe, {**config.to_table(recipe), "model": table}).model
    except UserError as error:
        return [*found, str(error)]
    return found + (differences(resolved(again), resolved(recipe.model)) or lacking)


def _described(design: Design, vocab: Vocab, family: Family, opening: str) -> Table:
    special = dict(vocab.special)
    if opening:
        special["<s>"] = special[opening]
    ids = {f"{role}_id": special[name] for role, name in ROLES.items() if name in special}
    name = kinds.name_of(family)
    return {
        "architectures": [family.architecture_of(design)],
        "model_type": family.model_type or name,
        "dtype": str(torch.float32).removeprefix("torch."),
        "vocab_size": vocab.size,
        **{key: i for key, i in ids.items() if key not in ("mask_token_id", "unk_token_id")},
        **family.describe(design, vocab),
    }


def _write(file: Path, table: Table) -> None:
    file.write_text(json.dumps(table, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")


def check(trained: TrainedModel, out: Path, family: Family) -> dict[str, float | None]:
    """How far the logits are from those of `transformers`; None where it is not installed.

    Raises:
        UserError: by more than rounding; or its tokenizer cuts a text into other tokens.
    """
    parts = family.parts(trained.model, trained.recipe)
    found = check_logits.check(parts, trained.vocab, family, out)
    for name in parts if check_logits.is_checkable() else ():
        if apart := texts.compare(trained.tokenizer, out / name).apart:
            raise UserError(
                f"{out / name}: transformers cuts {apart[0]!r} into other tokens than Foreword; "
                "this is a fault of Foreword"
            )
    return found
