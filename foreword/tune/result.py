"""What came of fine-tuning: rows of scores, and a network that loads back."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import save_file
from torch import nn

from foreword import atomic, manifest, plugins, stored
from foreword.errors import UserError
from foreword.evaluate.prompting import PromptedModel
from foreword.nn.model import Model
from foreword.objectives._source_target import SourceTarget
from foreword.objectives.mixture import Mixture
from foreword.objectives.prefix import Prefix
from foreword.runs.provenance import write_recipe, write_state
from foreword.runs.recipe import Recipe
from foreword.text.tokenizer import Tokenizer
from foreword.train import checkpoint
from foreword.train.checkpoint import weights_of
from foreword.train.finite import require_finite
from foreword.tune.answers import Words
from foreword.tune.input_template import InputTemplate
from foreword.tune.network import Network
from foreword.tune.tasks._contract import Task

KIND, VERSION = "tuned", 1  # of the folder of a network that tells labels apart

Row = dict[str, Any]

# Columns of a row that say what was run, not how well it went.
PLAIN = ("start", "strategy", "seed", "epoch", "lr", "train_loss", "skipped_steps")


@dataclass(frozen=True)
class TuneResult:
    """What came of fine-tuning.

    Attributes:
        task: what was learned.
        labels: what it tells apart, in the order of the head's outputs.
        template: how texts are framed.
        recipe: of pretraining.
        tokenizer: of pretraining, with the special tokens that the frame adds.
        network: of the first seed of the first settings, on the CPU.
        rows: one per settings, with mean and standard deviation over seeds of the last epoch's
            scores on the dev examples, and the majority class's.
        epochs: one per settings, seed and epoch.
        settings: of the task and of the first way to tune, as a table.
        examples: how many there were: train, dev, cut, skipped.
    """

    task: Task
    labels: tuple[str, ...]
    template: InputTemplate
    recipe: Recipe
    tokenizer: Tokenizer
    network: Network
    rows: list[Row]
    epochs: list[Row]
    settings: dict[str, Any]
    examples: dict[str, int]


def is_score(name: str) -> bool:
    """Whether a column of a row says how well it went; `layer_...` says what was learned."""
    return name not in (*PLAIN, "seeds", "epochs") and not name.startswith("layer_")


def summarise(finals: Sequence[Row]) -> Row:
    """One row of the last epochs of all seeds: means, and sample standard deviations `_std`.

    With one seed there is no deviation: it is None.
    """
    first = finals[0]
    row: Row = {"start": first["start"], "strategy": first["strategy"]}
    if "seed" in first:
        row |= {"seeds": len(finals), "epochs": first["epoch"], "lr": first["lr"]}
        row["skipped_steps"] = sum(final["skipped_steps"] for final in finals)
    for name in first:
        if name not in PLAIN:
            values = [final[name] for final in finals]
            row[name] = float(np.mean(values))
            row[f"{name}_std"] = float(np.std(values, ddof=1)) if len(values) > 1 else None
    return row


def check_free(evaluation: Path, out: Path) -> None:
    """Make sure before the work that its results can be written and overwrite nothing.

    Raises:
        UserError: the evaluation is there, the folder holds something, or one cannot be written.
    """
    atomic.require_writable(out, is_folder=True)
    atomic.require_writable(evaluation, is_folder=False)
    if evaluation.exists():
        raise UserError(f"{evaluation}: is there already; give this one another --name")
    if out.is_dir() and any(out.iterdir()):
        raise UserError(f"{out}: holds something already; give another --out or --name")


def save_evaluation(result: TuneResult, path: Path, name: str, command: str) -> dict[str, Any]:
    """Writes the scores as JSON, and returns what was written."""
    document = as_document(result, name, command)
    stored.write(path, document)
    return document


def as_document(result: TuneResult, name: str, command: str) -> dict[str, Any]:
    """The scores as a file of `evaluations/` has them."""
    task = str(result.settings["task"]["kind"])
    return {
        "name": name,
        "title": f"Fine-tuning: {task}, {name}",
        "task": task,
        "rows": result.rows,
        "command": command,
        "settings": result.settings,
        "examples": result.examples,
        "labels": result.labels,
        "epochs": result.epochs,
    }


def save_network(result: TuneResult, folder: Path) -> None:
    """Writes all that `foreword.tune.predict.load_tuned` needs.

    A network that answers in text is written as a run, which every command can open.

    Raises:
        NotFiniteError: its weights hold nan or infinity.
        UserError: the folder cannot be written.
    """
    weights = weights_of(result.network)
    require_finite(weights)
    about = {
        "task": result.settings["task"],
        "labels": result.labels,
        "template": asdict(result.template),
        "plugins": plugins.used_by(result.task, result.recipe),
    }
    with atomic.folder(folder) as part:
        (part / "labels.json").write_text(stored.dumps(about), encoding="utf-8")
        if isinstance(result.network.head, Words):
            _save_run(result, part)
        else:
            save_file(weights, part / "weights.safetensors")
            (part / "recipe.toml").write_text(result.recipe.dumps(), encoding="utf-8")
        result.tokenizer.save(part / "tokenizer")
        if not isinstance(result.network.head, Words):
            manifest.write(part, KIND, VERSION)


def _save_run(result: TuneResult, folder: Path) -> None:
    """The weights as a checkpoint of the recipe's model, and what a run says of its text."""
    assert isinstance(result.network.head, Words)
    heads = nn.ModuleDict({"token": result.network.head.token_head})
    model = Model(result.network.backbone, heads)
    checkpoint.save(folder / "checkpoints" / checkpoint.name_of(0), model, None, {"step": 0})
    write_state(folder, {"texts": [], "plugins": plugins.used_by(result.recipe)})
    write_recipe(folder, replace(result.recipe, objective=_as_tuned(result, model)))


def _as_tuned(result: TuneResult, model: Model) -> SourceTarget:
    """The objective whose sources look like those of fine-tuning: plain, in the mode it was in."""
    prompted = PromptedModel(model, result.recipe, result.tokenizer, torch.device("cpu"))
    plain = [form for form in prompted.forms if not form.has_sentinels]
    mode = [*plain, *prompted.forms][0].mode
    names = {int(n): f"<extra_id_{k}>" for k, n in enumerate(prompted.vocab.sentinels)}
    names |= {number: name for name, number in prompted.vocab.special.items()}
    objective = Prefix(end="".join(names[int(n)] for n in prompted.end))
    return Mixture((objective,), (), (names[mode[0]],)) if mode else objective
