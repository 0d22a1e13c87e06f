"""Exporting fine-tuned models: folders that `AutoModelForSequenceClassification` reads."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch
from safetensors.torch import save_file
from torch import Tensor, nn

from foreword import atomic, kinds
from foreword.errors import UserError
from foreword.interop import check_logits, exporting, files, tensors, tokens
from foreword.interop.hf._contract import Design, Family, SequenceClassifier, Table
from foreword.interop.hf_config import FILE as CONFIG
from foreword.interop.importing import RECIPE
from foreword.runs.trained_model import TrainedModel
from foreword.tuning.pooled import hidden_layer_of
from foreword.tuning.predict import TunedModel
from foreword.tuning.published_head import has_head
from foreword.tuning.tasks.classify import Classify
from foreword.tuning.tasks.regress import Regress, Scale
from foreword.types import Array

SHORT = (1, 7)  # tokens of texts whose logits are compared, besides one that is cut


@dataclass(frozen=True)
class ExportedClassifier:
    """What was written.

    Attributes:
        architecture: the class in `transformers`.
        difference: how far the logits are from those of `transformers`, None if it is not
            installed; and the greatest logit.
        notes: remarks for the user, a line each.
    """

    architecture: str
    difference: Mapping[str, float | None]
    notes: tuple[str, ...]


def export(tuned: TunedModel, out: Path, family_name: str = "") -> ExportedClassifier:
    """Write a fine-tuned model as the Hugging Face folder `out`, which exists once it is checked.

    Args:
        tuned: the model.
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
    family = _family_with_head(tuned, trained, family_name)
    submodel, design = family.folders(trained.model, trained.recipe)[""]
    classifier = family.classifier(design)
    _require_same_head(tuned, kinds.name_of(family), classifier)
    assert classifier is not None
    if problem := family.classifier_problem(design, tuned.template.length):
        raise UserError(f"{tuned.source}: {problem}")

    # Write weights, tokenizer and config.
    vocab = tuned.tokenizer.vocab
    weights = tensors.to_hf(submodel, design, vocab, family, "backbone.")
    weights |= _head_weights(tuned, classifier, weights)
    weights |= {name: torch.zeros(shape) for name, shape in classifier.unread.items()}
    template = tuned.template
    segments = 2 if template.has_segments else 1
    use = tokens.TokenizerUse(("", ""), "", segments, template.length, classifier.padding_side)
    with atomic.folder(out) as part:
        save_file(
            {name: tensor.contiguous() for name, tensor in weights.items()},
            part / files.WEIGHTS,
            metadata={"format": "pt"},
        )
        tokens.write(tuned.tokenizer, use, part)
        tokens.write_template(
            tuned.tokenizer, template.prefix, template.separator, template.suffix, part
        )
        table = exporting.hf_config(design, vocab, family, "") | _config(tuned, classifier)
        exporting.write_json(part / CONFIG, table)
        (part / RECIPE).write_text(trained.recipe.dumps(), encoding="utf-8")
        difference = _check(tuned, part, family.checked_length(design, template.length))
    return ExportedClassifier(classifier.architecture, difference, _notes(tuned, family, design))


def _family_with_head(tuned: TunedModel, trained: TrainedModel, family_name: str) -> Family:
    """Return the first family of the backbone whose class has the tuned head, else the first."""
    families = list(exporting.find_families(trained, family_name))
    for family in families:
        _, design = family.folders(trained.model, trained.recipe)[""]
        classifier = family.classifier(design)
        if classifier is not None and _has_head(tuned, classifier):
            return family
    return families[0]


def _has_head(tuned: TunedModel, classifier: SequenceClassifier) -> bool:
    task = tuned.task
    return (
        isinstance(task, Classify | Regress)
        and not task.mix_layers
        and has_head(task, tuned.template.pooling, classifier)
    )


def _require_same_head(
    tuned: TunedModel, family: str, classifier: SequenceClassifier | None
) -> None:
    """Check that the class in `transformers` computes what the tuned head does.

    Raises:
        UserError: it does not; the message says how to tune for it.
    """
    if classifier is None:
        raise UserError(
            f"{tuned.source}: transformers classifies with {family} from another state than "
            "Foreword; tune with --task text_to_text, whose models 'foreword export' writes"
        )
    if not isinstance(tuned.task, Classify | Regress):
        kind = kinds.name_of(tuned.task)
        raise UserError(
            f"{tuned.source}: has the head of the task {kind}, which transformers lacks"
        )
    if tuned.task.mix_layers:
        raise UserError(
            f"{tuned.source}: {classifier.architecture} reads the last layer alone; tune with "
            "--set task.mix_layers=false"
        )
    if not has_head(tuned.task, tuned.template.pooling, classifier):
        found = {
            "pooling": tuned.task.pooling or tuned.template.pooling,
            "hidden_layer": tuned.task.hidden_layer or "none",
        }
        needed = {"pooling": classifier.pooling, "hidden_layer": classifier.hidden_layer}
        has = " and ".join(f"{key} {value}" for key, value in found.items())
        options = " ".join(f"--set task.{key}={value}" for key, value in needed.items())
        raise UserError(
            f"{tuned.source}: has {has}, and {classifier.architecture} computes something else; "
            f"tune with {options} to export it"
        )


def _head_weights(
    tuned: TunedModel, classifier: SequenceClassifier, backbone: Mapping[str, Tensor]
) -> dict[str, Tensor]:
    """Return the head's parameters by their names, and those of the backbone that change.

    Raises:
        UserError: their class has no bias of the outputs, and no other can stand for it.
    """
    head = tuned.network.head
    linears = [module for module in head.modules() if isinstance(module, nn.Linear)]
    weight, bias = (p.detach() for p in linears[-1].parameters())
    for scale in (module for module in head.modules() if isinstance(module, Scale)):
        weight, bias = scale.reach * weight, scale.middle + scale.reach * bias
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
    else:
        named[f"{classifier.output}.bias"] = bias
    if hidden := hidden_layer_of(head):
        dense, norm = hidden
        named |= {f"{classifier.dense}.{k}": p.detach() for k, p in dense.named_parameters()}
        if norm is not None:
            named |= {f"{classifier.norm}.{k}": p.detach() for k, p in norm.named_parameters()}
    return named


def _config(tuned: TunedModel, classifier: SequenceClassifier) -> Table:
    """Return the keys of `config.json` for the head."""
    names = tuned.labels if tuned.predicts_labels else ("LABEL_0",)
    kind = "single_label_classification" if tuned.predicts_labels else "regression"
    return {
        "architectures": [classifier.architecture],
        "id2label": {str(n): name for n, name in enumerate(names)},
        "label2id": {name: n for n, name in enumerate(names)},
        "problem_type": kind,
        **classifier.config,
    }


def _notes(tuned: TunedModel, family: Family, design: Design) -> tuple[str, ...]:
    notes = [
        *family.notes(design),
        f"transformers cuts texts to the {tuned.template.length:,} tokens of tuning with "
        "truncation=True: pipeline(..., truncation=True)",
    ]
    if tuned.template.is_causal and "[PAD]" not in tuned.tokenizer.vocab.special:
        notes.append("the tokenizer has no padding token: transformers reads one text at a time")
    if not tuned.predicts_labels:
        notes.append('the number is the output: pipeline(..., function_to_apply="none")')
    return tuple(notes)


def _check(tuned: TunedModel, out: Path, length: int) -> dict[str, float | None]:
    """Return how far the logits are from those of `transformers`, None if it is not installed.

    Texts go through their tokenizer and ours, several at once if there is a padding token. The last
    one, or the last pair, is cut.

    Args:
        tuned: the model.
        out: the folder that `export` wrote.
        length: the most tokens of a text.

    Raises:
        UserError: `transformers` cannot read the folder, or the logits differ beyond rounding.
    """
    if not check_logits.is_checkable():
        return {"logit_difference": None}
    import transformers

    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    try:
        theirs = transformers.AutoModelForSequenceClassification.from_pretrained(
            out, local_files_only=True, dtype=torch.float32, attn_implementation="eager"
        ).eval()
        tokenizer = transformers.AutoTokenizer.from_pretrained(out, local_files_only=True)
    except Exception as error:  # transformers' readers raise errors of any type
        reason = " ".join(str(error).split())
        raise UserError(f"{out}: transformers cannot read it: {reason}") from error
    # Compare both on texts or pairs that both encode, and cut.
    texts, pairs = _texts(tuned, length)
    template = replace(tuned.template, length=length)
    short = replace(tuned, template=template, device=torch.device("cpu"), dtype=torch.float32)
    ours = short.outputs(texts, pairs)
    groups = [list(range(len(texts)))]
    if tokenizer.pad_token_id is None:
        groups = [[n] for n in groups[0]]
    found: list[Array] = []
    for group in groups:
        given = [[texts[n] for n in group]]
        given += [] if pairs is None else [[pairs[n] for n in group]]
        padding = len(group) > 1
        batch = tokenizer(
            *given, return_tensors="pt", truncation=True, padding=padding, max_length=length
        )
        with torch.no_grad():
            found.append(theirs(**batch).logits.numpy())
    distance = float(np.abs(np.concatenate(found) - ours).max())
    largest = float(np.abs(ours).max())
    if not distance <= check_logits.TOLERANCE * max(1.0, largest):
        raise UserError(
            f"{out}: Foreword's logits differ from those of transformers by {distance:.3g}, where "
            f"the greatest is {largest:.3g}; this is a fault of Foreword"
        )
    return {"logit_difference": distance, "greatest_logit": largest}


def _texts(tuned: TunedModel, length: int) -> tuple[list[str], list[str] | None]:
    """Return texts of random tokens, and second texts if the model was tuned on pairs.

    The last text, or the last pair, has more tokens than `length`.
    """
    random, vocab = np.random.default_rng(1), tuned.tokenizer.vocab
    ordinary = np.flatnonzero(~vocab.is_special)

    def text(tokens: int) -> str:
        made = tuned.tokenizer.decode(random.choice(ordinary, tokens))
        return made if made.strip() else text(tokens)  # an empty one has no outputs

    def long_text() -> str:
        # Tokens that are decoded and encoded again may become fewer.
        words = [text(length)]
        while len(tuned.tokenizer.encode(" ".join(words))) <= length:
            words.append(text(length))
        return " ".join(words)

    firsts = [*map(text, SHORT), long_text()]
    is_pair = bool(tuned.tuned_on.is_pair)
    return firsts, [*map(text, SHORT), long_text()] if is_pair else None
