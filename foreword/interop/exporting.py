"""Exporting a run as a Hugging Face folder that `transformers` reads without our code."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import torch
from safetensors.torch import save_file
from torch import nn

from foreword.disk import atomic, manifest, stored
from foreword.errors import UserError, nearest
from foreword.interop import check_logits, files, tensors, tokens
from foreword.interop.hf._contract import Design, Family, Table
from foreword.interop.hf_config import FILE as CONFIG
from foreword.interop.hf_config import HFConfig
from foreword.interop.importing import FAMILIES, GENERATION, RECIPE
from foreword.nn.model import Model
from foreword.nn.stack_settings import StackSettings
from foreword.objectives.masked import Masked
from foreword.runs.provenance import read_state
from foreword.runs.recipe import Recipe
from foreword.runs.same_model import differences, resolved
from foreword.runs.trained_model import TrainedModel
from foreword.settings import config, kinds
from foreword.text.special import ROLES
from foreword.text.tokenizer import CHAT_TEMPLATE, Tokenizer
from foreword.types import Vocab


@dataclass(frozen=True)
class Exported:
    """An exported folder.

    Attributes:
        family: the family in `transformers`.
        differences: distance of the logits from those of `transformers`, by name; None if it is
            not installed.
    """

    family: Family
    differences: Mapping[str, float | None]


def export(trained: TrainedModel, out: Path, family_name: str = "") -> Exported:
    """Write the model as the Hugging Face folder `out`, which exists only once it is checked.

    Args:
        trained: the run.
        out: the folder; it must be absent or empty.
        family_name: the family to export to; default: the one that fits.

    Raises:
        UserError: no family has such a model, the folder cannot be written, or `transformers` reads
            other logits or tokens from it.
    """
    atomic.require_new_folder(out)
    family = find_family(trained, family_name)
    with atomic.folder(out) as partial:
        for name, (model, design) in family.folders(trained.model, trained.recipe).items():
            (partial / name).mkdir(exist_ok=True)
            _export_submodel(family, model, design, trained.tokenizer, partial / name)
        (partial / RECIPE).write_text(trained.recipe.dumps(), encoding="utf-8")
        template = trained.run / "tokenizer" / CHAT_TEMPLATE
        if template.is_file():
            tokens.write_chat_template(template.read_text(encoding="utf-8"), partial)
        differences_by_name = _check(trained, partial, family)
        listed = [file for file in sorted(partial.rglob("*")) if file.suffix in files.DOWNLOADED]
        names = [file.relative_to(partial).as_posix() for file in listed]
        manifest.write(partial, *files.EXPORT, names)
    return Exported(family, differences_by_name)


def without_boundary_head(trained: TrainedModel) -> tuple[TrainedModel, tuple[str, ...]]:
    """Return the run without SpanBERT's span boundary head, and a note if it had one."""
    heads = dict(trained.model.heads.items())
    if heads.pop("boundary", None) is None:
        return trained, ()
    recipe = replace(trained.recipe, objective=Masked())
    model = Model(trained.model.backbone, nn.ModuleDict(heads))
    note = (
        "the span boundary head is not exported, since transformers has none; imported again, the "
        "model predicts masked tokens alone"
    )
    return replace(trained, recipe=recipe, model=model.eval()), (note,)


def _export_submodel(
    family: Family, model: Model, design: Design, tokenizer: Tokenizer, out: Path
) -> None:
    bos_and_eos = family.bos_and_eos(design)
    prompt_prefix = bos_and_eos[0] if family.names.layout == "decoder" else ""
    segments = design.model.segments
    use = tokens.TokenizerUse(bos_and_eos, prompt_prefix, segments, design.model.limit)
    weights = tensors.to_hf(model, design, tokenizer.vocab, family)
    save_file(weights, out / files.WEIGHTS, metadata={"format": "pt"})
    tokens.write(tokenizer, use, out)
    table = hf_config(design, tokenizer.vocab, family, prompt_prefix)
    write_json(out / CONFIG, table)
    if family.names.layout in ("decoder", "encoder_decoder"):
        ids = {key: i for key, i in table.items() if key.endswith("token_id")}
        write_json(out / GENERATION, ids)


def find_family(trained: TrainedModel, family_name: str = "") -> Family:
    """Return the family of a model: the named one, the one it came from, or one that fits.

    Raises:
        UserError: none fits; the message names what differs from the nearest.
    """
    return next(find_families(trained, family_name))


def find_families(trained: TrainedModel, family_name: str = "") -> Iterator[Family]:
    """Yield each family of a model, as `find_family` does the first.

    Raises:
        UserError: none fits; the message names what differs from the nearest.
    """
    model = trained.recipe.model
    if isinstance(model, StackSettings) and model.attention_prefix:
        raise UserError(
            f"{trained.run}: has a learned prefix of attention (model.attention_prefix), which no "
            "transformers class has; to export a model with few trained parameters, tune a run "
            "without a prefix with --strategy lora"
        )
    known = kinds.names(FAMILIES)
    if family_name and family_name not in known:
        raise UserError(f"--family: no family '{family_name}'{nearest(family_name, known)}")
    is_run = (trained.run / "run.json").is_file()  # a fine-tuned model is none
    state = read_state(trained.run) if is_run else {}
    came_from = (state.get("imported") or {}).get("family")
    names = [family_name] if family_name else sorted(known, key=lambda name: name != came_from)
    reasons: dict[str, list[str]] = {}
    for name in names:
        family: Family = kinds.load(FAMILIES, name)()
        reasons[name] = _mismatches(trained, family)
        if not reasons[name]:
            yield family
    if not all(reasons.values()):
        return
    nearest_name = min(reasons, key=lambda name: _distance(reasons[name]))
    raise UserError(
        f"{trained.run}: no transformers class matches this model; nearest is {nearest_name}, but "
        f"{'; '.join(reasons[nearest_name])}"
    )


def _distance(misfits: list[str]) -> tuple[int, int]:
    """Return the distance of a family as a sort key: layout and kind first, then settings."""
    return sum(text.startswith(("layout is", "model is")) for text in misfits), len(misfits)


def _mismatches(trained: TrainedModel, family: Family) -> list[str]:
    """Return why a model is not of a family, one phrase each.

    The model is described in the family's terms and read back; what then differs does not fit.
    """
    recipe = trained.recipe
    reasons = []
    layout = kinds.name_of(recipe.layout)
    if layout != family.names.layout:
        reasons.append(f"layout is {layout}, not {family.names.layout}")
    if kinds.name_of(recipe.model) != family.names.kind:
        return [*reasons, f"model is {kinds.name_of(recipe.model)}, not {family.names.kind}"]
    vocab = trained.vocab
    model, design = family.folders(trained.model, recipe)[""]
    unmatched = tensors.unmatched(model, design, vocab, family)
    weights = {} if unmatched else tensors.to_hf(model, design, vocab, family)
    try:
        hf_config = HFConfig(family.describe(design, vocab))
        table = family.model(hf_config, weights)
        again = config.build(Recipe, {**config.to_table(recipe), "model": table}).model
    except UserError as error:
        return [*reasons, str(error)]
    return reasons + (differences(resolved(again), resolved(recipe.model)) or unmatched)


def hf_config(design: Design, vocab: Vocab, family: Family, opening: str) -> Table:
    """Return the keys of `config.json` of a pretrained model.

    Args:
        design: its design.
        vocab: its vocabulary.
        family: its family.
        opening: the special token that generation begins with, "" for none.
    """
    special = dict(vocab.special)
    if opening:
        special["<s>"] = special[opening]
    ids = {f"{role}_id": special[name] for role, name in ROLES.items() if name in special}
    name = kinds.name_of(family)
    return {
        "architectures": [family.architecture_of(design)],
        "model_type": family.names.model_type or name,
        "dtype": str(torch.float32).removeprefix("torch."),
        "vocab_size": vocab.size,
        **{key: i for key, i in ids.items() if key not in ("mask_token_id", "unk_token_id")},
        **family.describe(design, vocab),
    }


def write_json(file: Path, table: Table | list[Table]) -> None:
    """Write a table, or a list of them, as an indented JSON file."""
    file.write_text(stored.to_json(table, indent=2) + "\n", encoding="utf-8")


def _check(trained: TrainedModel, out: Path, family: Family) -> dict[str, float | None]:
    """Return how far the logits are from those of `transformers`, None if it is not installed."""
    submodels = family.folders(trained.model, trained.recipe)
    differences_by_name = check_logits.check(submodels, trained.vocab, family, out)
    for name in submodels if check_logits.is_checkable() else ():
        if differing := tokens.compare(trained.tokenizer, out / name).differing:
            raise UserError(
                f"{out / name}: transformers tokenizes {differing[0]!r} differently from "
                "Foreword; this is a bug in Foreword"
            )
    return differences_by_name
