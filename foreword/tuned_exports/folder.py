"""The folder of an exported model: written, and compared with the model in `transformers`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import save_file
from torch import Tensor

from foreword.errors import UserError
from foreword.interop import check_logits, exporting, files, tokens
from foreword.interop.hf._contract import Family, Table
from foreword.interop.hf_config import FILE as CONFIG
from foreword.interop.importing import RECIPE
from foreword.runs.trained_model import TrainedModel
from foreword.tables.examples import LabelledTexts
from foreword.tuning.tasks._contract import ExampleOutputs, Exports, Task
from foreword.tuning.tuned_model import TunedModel
from foreword.types import Array

SHORT = (1, 7)  # tokens of texts that are compared, besides one that is cut


def write(
    tuned: TunedModel,
    trained: TrainedModel,
    family: Family,
    weights: Mapping[str, Tensor],
    table: Table,
    folder: Path,
    padding_side: str = "right",
) -> None:
    """Write weights, tokenizer and config.

    Args:
        trained: its backbone, as if it still had the heads of pretraining.
        weights: the weights by their names in `transformers`.
        table: what the config has besides the backbone.
    """
    _, design = family.folders(trained.model, trained.recipe)[""]
    contiguous = {name: tensor.contiguous() for name, tensor in weights.items()}
    save_file(contiguous, folder / files.WEIGHTS, metadata={"format": "pt"})
    write_tokenizer(tuned, folder, padding_side)
    config = exporting.hf_config(design, tuned.tokenizer.vocab, family, "")
    exporting.write_json(folder / CONFIG, config | table)
    (folder / RECIPE).write_text(trained.recipe.dumps(), encoding="utf-8")


def write_tokenizer(tuned: TunedModel, folder: Path, padding_side: str = "right") -> None:
    """Write the tokenizer, with the special tokens of the input template."""
    template = tuned.template
    segments = 2 if template.has_segments else 1
    use = tokens.TokenizerUse(("", ""), "", segments, template.length, padding_side)
    tokens.write(tuned.tokenizer, use, folder)
    around = template.prefix, template.separator, template.suffix
    tokens.write_template(tuned.tokenizer, *around, folder)


def check(tuned: TunedModel, out: Path, longest: int | None) -> dict[str, float | None]:
    """Return how far the logits are from those of `transformers`, None if it is not installed.

    Texts go through their tokenizer and ours, several at once if there is a padding token. Where a
    task cuts long texts, the last text, or the last pair, is one that is cut.

    Args:
        out: the folder that `export` wrote.
        longest: the most tokens of which the two are the same; None for any number.

    Raises:
        UserError: `transformers` cannot read the folder, or the logits differ beyond rounding.
    """
    if not check_logits.is_checkable():
        return {"logit_difference": None}
    hf_model, tokenizer = _read(tuned, out)
    # Compute both on examples that both encode.
    length = min(longest or tuned.template.length, tuned.template.length)
    template = replace(tuned.template, length=length)
    task, cpu = cutting(tuned.task), torch.device("cpu")
    short = replace(tuned, task=task, template=template, device=cpu, dtype=torch.float32)
    results = short.outputs_of(random_examples(tuned, length))
    groups = [results] if tokenizer.pad_token_id is not None else [[result] for result in results]
    expected = np.concatenate([result.outputs.ravel() for result in results])
    expected = expected / calibration_of(tuned.task)  # which the weights hold
    hf_outputs = [
        output
        for group in groups
        for output in _hf_outputs(hf_model, tokenizer, tuned, group, length)
    ]
    distance = float(
        np.abs(np.concatenate([output.ravel() for output in hf_outputs]) - expected).max()
    )
    largest = float(np.abs(expected).max())
    if not distance <= check_logits.TOLERANCE * max(1.0, largest):
        raise UserError(
            f"{out}: Foreword's logits differ from those of transformers by {distance:.3g}, where "
            f"the greatest is {largest:.3g}; this is a fault of Foreword"
        )
    return {"logit_difference": distance, "greatest_logit": largest}


def calibration_of(task: Task) -> float:
    """Return what logits of classes are divided by for calibrated probabilities; 1 for nothing."""
    temperature = getattr(task, "temperature", None) if task.judge.has_classes else None
    return temperature or 1.0


def cutting(task: Task) -> Task:
    """Return a task with long texts cut, as the classes of `transformers` read them."""
    setting: dict[str, Any] = {"windows": "cut"}
    return task if task.needs.windows == "cut" else replace(task, **setting)


def _read(tuned: TunedModel, out: Path) -> tuple[Any, Any]:
    """Return the model and the tokenizer, loaded by `transformers`."""
    import transformers

    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    with check_logits.transformers_errors(f"{out}: transformers cannot read it"):
        name = f"AutoModelFor{exports_of(tuned).auto_class}"
        if tuned.task.reader.compares_texts and not tuned.recipe.layout.start:
            name = "AutoModel"  # which reads the decoder too, where there is one
        auto_class = getattr(transformers, name)
        hf_model = auto_class.from_pretrained(
            out, local_files_only=True, dtype=torch.float32, attn_implementation="eager"
        ).eval()
        tokenizer = transformers.AutoTokenizer.from_pretrained(out, local_files_only=True)
    return hf_model, tokenizer


def _hf_outputs(
    model: Any, tokenizer: Any, tuned: TunedModel, group: Sequence[ExampleOutputs], length: int
) -> list[Array]:
    """Return the outputs of `transformers` for each example of a group."""
    exports = exports_of(tuned)
    texts = [text for result in group for text in exports.texts(result.example)]
    batch = tokenizer(
        *map(list, zip(*texts, strict=True)),
        return_tensors="pt",
        truncation=True,
        padding=len(texts) > 1,
        max_length=length,
    )
    if tuned.task.needs.loss_unit == "example":  # (examples, inputs, length)
        batch = {name: ids.unflatten(0, (len(group), -1)) for name, ids in batch.items()}
    with torch.no_grad():
        output = model(**batch)
    width = batch["input_ids"].shape[-1]
    is_left = getattr(tokenizer, "padding_side", "right") == "left"
    return [
        exports.outputs(
            output, row, result.inputs[0], width - len(result.inputs[0].ids) if is_left else 0
        )
        for row, result in enumerate(group)
    ]


def exports_of(tuned: TunedModel) -> Exports:
    """Return the class of `transformers` for a model's task, which has one."""
    assert tuned.task.exports is not None
    return tuned.task.exports


def random_examples(
    tuned: TunedModel, length: int, lengths: Sequence[int] = SHORT
) -> LabelledTexts:
    """Return examples made of texts of random tokens, the last one longer than `length`.

    Args:
        lengths: the tokens of the other texts.
    """
    random, vocab = np.random.default_rng(1), tuned.tokenizer.vocab
    ordinary = np.flatnonzero(~vocab.is_special)

    def text(tokens: int) -> str:
        decoded = tuned.tokenizer.decode(random.choice(ordinary, tokens))
        return decoded if decoded.strip() else text(tokens)  # an empty one has no outputs

    def long_text() -> str:
        # Tokens that are decoded and encoded again may become fewer.
        words = [text(length)]
        while len(tuned.tokenizer.encode(" ".join(words))) <= length:
            words.append(text(length))
        return " ".join(words)

    def texts() -> list[str]:
        return [*map(text, lengths), *([long_text()] if exports_of(tuned).cuts_texts else [])]

    firsts = texts()
    seconds: Sequence[str | None] = texts() if tuned.tuned_on.is_pair else [None] * len(firsts)
    return LabelledTexts.of(map(exports_of(tuned).example, firsts, seconds))
