"""Exporting fine-tuned models: folders that the classes of `transformers` for a task read.

Sentence embeddings are folders that `sentence_transformers` reads.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

import torch
from torch import Tensor, nn

from foreword.disk import atomic
from foreword.errors import UserError
from foreword.interop import exporting, tensors
from foreword.interop.formats._contract import ExchangeResult
from foreword.interop.formats.hf import unchecked
from foreword.interop.hf._contract import Design, Family, PublishedHead, Table, published_head
from foreword.runs.trained_model import TrainedModel
from foreword.settings import kinds
from foreword.text.tokenizer import CONFIG as TOKENIZER_CONFIG
from foreword.tuned_exports.folder import calibration_of, check, exports_of, write
from foreword.tuning.published_head import head_settings
from foreword.tuning.tasks._contract import Task
from foreword.tuning.tasks._headed import hidden_layer_of
from foreword.tuning.tasks.regress import Scale
from foreword.tuning.tuned_model import TunedModel

SENTENCES = "sentence_transformers reads the folder: SentenceTransformer(FOLDER).encode(texts)"
POOLING = "1_Pooling"  # the folder, and its modes
MODES = {"mean": "mean_tokens", "first": "cls_token", "last": "lasttoken"}
OTHER_MODES = ("max_tokens", "mean_sqrt_len_tokens", "weightedmean_tokens")
WHOLE = "a text of more than {:,} tokens Foreword reads whole, in windows; there it is cut"


def export(tuned: TunedModel, out: Path, family_name: str = "") -> ExchangeResult:
    """Write a fine-tuned model as the Hugging Face folder `out`, which exists once it is checked.

    The facts have the class in `transformers`, how far its logits are from ours, None if it is not
    installed, and the greatest logit.

    Args:
        out: the folder; it must be absent or empty.
        family_name: the family to export to; default: the one that fits.

    Raises:
        UserError: no family has such a model with such a head, the folder cannot be written, or
            `transformers` computes other logits from it.
    """
    atomic.require_new_folder(out)
    # Find the family of the backbone, as if it still had the heads of pretraining.
    model = tuned.recipe.build(tuned.tokenizer.vocab).eval()
    model.backbone.load_state_dict(tuned.network.cpu().backbone.state_dict())
    trained = TrainedModel(model, tuned.recipe, tuned.tokenizer, source=tuned.source)
    trained, _ = exporting.without_boundary_head(trained)
    if tuned.task.reader.compares_texts:
        family = exporting.find_family(trained, family_name)
        architecture, distance = _write_sentences(tuned, trained, family, out)
        facts = {"folder": str(out), "architecture": architecture, **distance}
        return ExchangeResult(facts, (SENTENCES, *windows_note(tuned), *unchecked(distance)))
    exports = tuned.task.exports
    if exports is None:
        raise UserError(
            f"{tuned.source}: has the head of the task {kinds.name_of(tuned.task)}, which "
            "transformers lacks"
        )
    family = _family_with_head(tuned, trained, exports.auto_class, family_name)
    submodel, design = family.folders(trained.model, trained.recipe)[""]
    classifier = published_head(family, design, exports.auto_class)
    _require_same_head(tuned, kinds.name_of(family), classifier)
    assert classifier is not None
    longest = classifier.max_length
    if longest is not None and tuned.template.length > longest:
        raise UserError(
            f"{tuned.source}: {classifier.architecture} {classifier.problem}; up to {longest} "
            f"tokens both are the same: tune with --max-length {longest}"
        )

    # Write weights, tokenizer and config.
    vocab = tuned.tokenizer.vocab
    weights = tensors.to_hf(submodel, design, vocab, family, "backbone.")
    if classifier.backbone:
        weights = {
            new + name.removeprefix(old): tensor
            for name, tensor in weights.items()
            for old, new in classifier.backbone.items()
            if name.startswith(old)
        }
    weights |= _head_weights(tuned, classifier, weights)
    weights |= {name: torch.zeros(shape) for name, shape in classifier.unread.items()}
    with atomic.folder(out) as part:
        table = _config(tuned, classifier)
        write(tuned, trained, family, weights, table, part, classifier.padding_side)
        difference = check(tuned, part, family.differences(design).max_length)
    facts = {"folder": str(out), "architecture": classifier.architecture, **difference}
    return ExchangeResult(facts, (*_notes(tuned, family, design), *unchecked(difference)))


def _family_with_head(
    tuned: TunedModel, trained: TrainedModel, auto_class: str, family_name: str
) -> Family:
    """Return the first family of the backbone whose class has the tuned head, else the first."""
    families, task = list(exporting.find_families(trained, family_name)), tuned.task
    for family in families:
        _, design = family.folders(trained.model, trained.recipe)[""]
        classifier = published_head(family, design, auto_class)
        if classifier is not None and not task.needs.mix_layers:
            current = _current_settings(task, classifier, tuned.template.pooling)
            if current == head_settings(task, classifier):
                return family
    return families[0]


def _current_settings(
    task: Task, published: PublishedHead, default_pooling: str
) -> dict[str, str | bool]:
    """Return the current settings of a task's head; `default_pooling` is the template's."""
    defaults: dict[str, str | bool] = {
        "pooling": default_pooling,
        "hidden_layer": "none",
        "output_bias": True,
    }
    settings = {name: getattr(task, name) for name in head_settings(task, published)}
    return {name: defaults[name] if value is None else value for name, value in settings.items()}


def _require_same_head(tuned: TunedModel, family: str, classifier: PublishedHead | None) -> None:
    """Check that the class in `transformers` computes what the tuned head does."""
    if classifier is None and tuned.task.reader.takes_texts:
        raise UserError(
            f"{tuned.source}: transformers classifies with {family} from another state than "
            "Foreword; tune with --task text_to_text, whose models 'foreword export' writes"
        )
    if classifier is None:
        raise UserError(
            f"{tuned.source}: transformers has no {exports_of(tuned).auto_class} for {family} "
            f"that computes what the task {kinds.name_of(tuned.task)} does"
        )
    if tuned.task.needs.mix_layers:
        raise UserError(
            f"{tuned.source}: {classifier.architecture} reads the last layer alone; tune with "
            "--set task.mix_layers=false"
        )
    current = _current_settings(tuned.task, classifier, tuned.template.pooling)
    needed = head_settings(tuned.task, classifier)
    if current != needed:
        has = " and ".join(f"{key} {value}" for key, value in current.items())
        options = " ".join(f"--set task.{key}={value}" for key, value in needed.items())
        raise UserError(
            f"{tuned.source}: has {has}, and {classifier.architecture} computes something else; "
            f"tune with {options} to export it"
        )


def _head_weights(
    tuned: TunedModel, classifier: PublishedHead, backbone: Mapping[str, Tensor]
) -> dict[str, Tensor]:
    """Return the head's parameters by their names, and those of the backbone that change."""
    head = tuned.network.head
    linears = [module for module in head.modules() if isinstance(module, nn.Linear)]
    output = linears[-1]
    weight = output.weight.detach()
    bias = torch.zeros(len(weight)) if output.bias is None else output.bias.detach().cpu()
    weight = weight.cpu()
    for scale in (module for module in head.modules() if isinstance(module, Scale)):
        weight, bias = scale.reach * weight, scale.middle + scale.reach * bias
    calibration = calibration_of(tuned.task)
    weight, bias = weight / calibration, bias / calibration
    named = {f"{classifier.output}.weight": weight}
    if classifier.bias_before:
        # The last norm's bias b' with W b' = b stands for the bias b that their output lacks.
        name = classifier.bias_before
        solved = torch.linalg.pinv(weight.double()) @ bias.double()
        if not torch.allclose(weight.double() @ solved, bias.double(), rtol=1e-6, atol=1e-6):
            labels, width = weight.shape
            raise UserError(
                f"{tuned.source}: {classifier.architecture} has no bias of the outputs; the last "
                f"norm's can stand for it if there are at most as many labels as the model is wide "
                f"({width:,}) and no two have the same weights, but here are {labels:,}"
            )
        named[name] = (backbone[name].double() + solved).float()
    elif classifier.output_bias:
        named[f"{classifier.output}.bias"] = bias
    elif bias.any():
        raise UserError(
            f"{tuned.source}: {classifier.architecture} has no bias of the outputs, which stands "
            "for the mean of the numbers here; tune with --task text_to_text"
        )
    if hidden := hidden_layer_of(head):
        dense, norm = hidden
        named |= {f"{classifier.dense}.{k}": p.detach() for k, p in dense.named_parameters()}
        if norm is not None:
            named |= {f"{classifier.norm}.{k}": p.detach() for k, p in norm.named_parameters()}
    return named


def _config(tuned: TunedModel, classifier: PublishedHead) -> Table:
    problem = exports_of(tuned).problem_type
    is_regression = problem == "regression"
    names = ("LABEL_0",) if is_regression else tuned.labels[: tuned.width]
    table: Table = {"architectures": [classifier.architecture]}
    if names:
        table["id2label"] = {str(n): name for n, name in enumerate(names)}
        table["label2id"] = {name: n for n, name in enumerate(names)}
    if problem:
        table["problem_type"] = problem
    return {**table, **classifier.config}


def windows_note(tuned: TunedModel) -> list[str]:
    """Return a note if Foreword reads long texts whole, since no class of others does."""
    is_whole = tuned.task.needs.windows != "cut"
    return [WHOLE.format(tuned.template.length)] if is_whole else []


def _notes(tuned: TunedModel, family: Family, design: Design) -> list[str]:
    exports = exports_of(tuned)
    notes = [*family.differences(design).notes, *filter(None, [exports.note])]
    if exports.cuts_texts:
        notes.append(
            f"transformers cuts texts to the {tuned.template.length:,} tokens of tuning with "
            "truncation=True: pipeline(..., truncation=True)"
        )
    notes += windows_note(tuned)
    if tuned.template.is_causal and "[PAD]" not in tuned.tokenizer.vocab.special:
        notes.append("the tokenizer has no padding token: transformers reads one text at a time")
    if exports.problem_type == "regression":
        notes.append('the number is the output: pipeline(..., function_to_apply="none")')
    return notes


def _write_sentences(
    tuned: TunedModel, trained: TrainedModel, family: Family, out: Path
) -> tuple[str, dict[str, float | None]]:
    """Write the backbone as `transformers` has it, and how states are pooled.

    Return the class in `transformers`, and how far the vectors are from its.
    """
    submodel, design = family.folders(trained.model, trained.recipe)[""]
    vocab, template = tuned.tokenizer.vocab, tuned.template
    is_encoder = family.names.layout == "encoder_decoder"  # alone, of both
    architecture = f"{family.names.stem}{'Encoder' if is_encoder else ''}Model"
    weights = tensors.to_hf(submodel, design, vocab, family, "backbone.")
    weights = {k: w for k, w in weights.items() if not (is_encoder and k.startswith("decoder."))}
    with atomic.folder(out) as part:
        write(tuned, trained, family, weights, {"architectures": [architecture]}, part)
        _require_padding(part)
        # What sentence_transformers does with it.
        parts = ("", "Transformer"), (POOLING, "Pooling")
        modules: list[Table] = [
            {"idx": n, "name": str(n), "path": path, "type": f"sentence_transformers.models.{kind}"}
            for n, (path, kind) in enumerate(parts)
        ]
        exporting.write_json(part / "modules.json", modules)
        exporting.write_json(
            part / "sentence_bert_config.json",
            {"max_seq_length": template.length, "do_lower_case": False},
        )
        exporting.write_json(
            part / "config_sentence_transformers.json",
            {"prompts": {}, "default_prompt_name": None, "similarity_fn_name": "cosine"},
        )
        (part / POOLING).mkdir()
        chosen = MODES[getattr(tuned.task, "pooling")]  # noqa: B009
        pooling = {  # by the names that every version reads
            "word_embedding_dimension": tuned.width,
            **{f"pooling_mode_{mode}": mode == chosen for mode in (*MODES.values(), *OTHER_MODES)},
            "include_prompt": True,
        }
        exporting.write_json(part / POOLING / "config.json", pooling)
        difference = check(tuned, part, family.differences(design).max_length)
    return architecture, difference


def _require_padding(folder: Path) -> None:
    """Let a tokenizer without a padding token pad with the end token; padding is never read."""
    file = folder / TOKENIZER_CONFIG
    config = json.loads(file.read_text(encoding="utf-8"))
    if not config.get("pad_token"):
        config["pad_token"] = next(
            config[role] for role in ("eos_token", "sep_token", "unk_token") if config.get(role)
        )
        exporting.write_json(file, config)
