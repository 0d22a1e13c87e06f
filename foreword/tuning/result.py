"""The result of fine-tuning: rows of scores, and a network that can be saved."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import save_file

from foreword.disk import atomic, manifest, stored
from foreword.errors import UserError
from foreword.evaluation.prompting import PromptedModel
from foreword.formatting import quantity
from foreword.nn.model import Model
from foreword.objectives._source_target import SourceTarget
from foreword.objectives.mixture import Mixture
from foreword.objectives.prefix import Prefix
from foreword.runs.provenance import write_files
from foreword.runs.recipe import Recipe
from foreword.settings import kinds, plugins
from foreword.text.tokenizer import CHAT_TEMPLATE, Tokenizer
from foreword.train import checkpoint
from foreword.train.checkpoint import weights_of
from foreword.train.finite import require_finite
from foreword.tuning.bag_of_words import BagOfWords
from foreword.tuning.input_template import InputTemplate
from foreword.tuning.margins import margins
from foreword.tuning.network import Network
from foreword.tuning.predictor import TunedOn, TunedTask
from foreword.tuning.tasks._contract import Task
from foreword.tuning.writing import WritingTask
from foreword.types import Array

# Of the folder of a network with a task's head. 2: means over a text have its special tokens too.
KIND, VERSION = "tuned", 2
SCORES = "scores.json"  # a copy of the evaluation in that folder

Row = dict[str, Any]

# Columns of a row that describe the run, not its scores.
RUN_COLUMNS = (
    "start", "strategy", "seed", "epoch", "lr", "trained_parameters", "train_loss", "skipped_steps",
    "diverged", "kept_epoch",
)  # fmt: skip


@dataclass(frozen=True)
class TuneResult:
    """The result of fine-tuning.

    Attributes:
        task: the task.
        labels: the labels, in the order of the head's outputs.
        template: the input template.
        recipe: the recipe of pretraining.
        tokenizer: the tokenizer of pretraining, with the special tokens that the template adds.
        network: the network of the first variant's first seed, on the CPU: its scores are those of
            that seed in `epochs`, not the means in `rows`.
        rows: one per variant, with mean and standard deviation over seeds of the kept epoch's
            scores on the dev examples, and one for the baseline.
        epochs: one per variant, seed and epoch.
        settings: the settings of the task and of the first variant, as a table.
        examples: numbers of examples: train, dev, cut, skipped; with `TuneSettings.examples` also
            `drawn_from`, of how many those of each seed were drawn.
        notes: what a reader of the scores has to know, a line each.
        confusion: of the first variant, how often each label (row) got each answer (column), over
            all seeds; None unless the labels are classes.
        correct: by the name of a row, how far each dev example was answered correctly, (seeds,
            examples) float64, 0 to 1, nan for a seed that diverged; empty unless the mean is the
            accuracy.
        resumed: how many seeds an earlier call had finished.
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
    notes: tuple[str, ...] = ()
    confusion: list[list[int]] | None = None
    correct: Mapping[str, Array] = field(default_factory=dict)
    resumed: int = 0


def is_score(name: str) -> bool:
    """Return whether a column of a row is a score; `layer_...` are learned weights, not scores."""
    return name not in (*RUN_COLUMNS, "seeds", "epochs") and not name.startswith("layer_")


def chosen_metric(row: Row, metric: str = "") -> str:
    """Return the score that chooses: `metric`, or the first of a row.

    Raises:
        UserError: a row has no such score.
    """
    names = [name for name in row if is_score(name) and not name.endswith("_std")]
    if metric and metric not in names:
        raise UserError(f"tune.metric: '{metric}' is not a score of this task: {', '.join(names)}")
    return metric or names[0]


@cache
def _shipped_lower() -> frozenset[str]:
    """Return the `lower_is_better` of all shipped tasks together."""
    folder = "tuning/tasks"
    tasks = [kinds.load(folder, name) for name in plugins.SHIPPED.kinds(folder)]
    return frozenset(name for task in tasks for name in task.lower_is_better)


def is_lower_better(metric: str, task: Task | None = None) -> bool:
    """Return whether the lower one of two scores is better, as `Task.lower_is_better` says.

    Args:
        metric: name of the score.
        task: the task whose score it is; where only names are known: any shipped one.
    """
    return metric in (_shipped_lower() if task is None else task.lower_is_better)


def as_gain(metric: str, score: float, task: Task | None = None) -> float:
    """Return a score such that higher is better; nan is the worst. See `is_lower_better`."""
    if math.isnan(score):
        return -math.inf
    return -score if is_lower_better(metric, task) else score


def train_count(examples: Mapping[str, Any]) -> str:
    """Return the number of training examples in words, from the numbers of examples of a result."""
    drawn = examples.get("drawn_from")
    if not isinstance(drawn, int):
        count = examples["train"]
        return f"{count:,} training example{'s' * (count != 1)}"
    return f"{examples['train']:,} of {drawn:,} training examples, drawn for each seed"


def metric_name(name: str) -> str:
    """Return what people call a metric."""
    return "macro F1" if name == "f1" else name.replace("_f1", " F1").replace("_", " ")


def score_cells(row: Row, metrics: Sequence[str]) -> list[str]:
    """Return the scores of a row of results with their deviations; a dash for one it lacks."""
    return [score_text(row[m], row[f"{m}_std"]) if m in row else "–" for m in metrics]


def setting_cells(rows: Sequence[Row]) -> list[dict[str, str]]:
    """Return each row's learning rate, "" if it has none, and its number of trained parameters.

    The number is left out if all networks have the same.
    """
    trained = [row.get("trained_parameters") for row in rows]
    cells = [{"lr": f"{row['lr']:.2g}" if "lr" in row else ""} for row in rows]
    if len(set(trained) - {None}) > 1:
        for row_cells, number in zip(cells, trained, strict=True):
            row_cells["trained parameters"] = "" if number is None else quantity(number)
    return cells


def as_scored(row: Row) -> Row:
    """Return a row that was read from JSON with nan for each undefined score, which is null."""
    undefined = {k for k, v in row.items() if v is None and is_score(k) and k[-4:] != "_std"}
    return {**row, **dict.fromkeys(undefined, math.nan)}


def score_text(mean: float | None, deviation: float | None) -> str:
    """Return a score with its standard deviation over seeds; a dash if it is undefined."""
    if mean is None or math.isnan(mean):
        return "–"
    return f"{mean:.3f}" if deviation is None else f"{mean:.3f} ± {deviation:.3f}"


def summarise(finals: Sequence[Row], epochs: int | None = None) -> Row:
    """Return the means of the kept epochs of all seeds, with sample standard deviations `_std`.

    With one seed the deviation is None. Seeds that diverged are counted, not averaged.

    Args:
        finals: the row of each seed; of one that diverged, without scores.
        epochs: number of epochs, if the kept one is not the last but chosen by its score.
    """
    first = finals[0]
    row: Row = {"start": first["start"], "strategy": first["strategy"]}
    sound = [final for final in finals if not final.get("diverged")]
    if "seed" in first:
        row |= {"seeds": len(finals), "epochs": epochs or first["epoch"], "lr": first["lr"]}
        row["trained_parameters"] = first["trained_parameters"]
        row["skipped_steps"] = sum(final["skipped_steps"] for final in sound)
        row["diverged"] = len(finals) - len(sound)
        if epochs is not None and sound:
            row["kept_epoch"] = float(np.mean([final["epoch"] for final in sound]))
    for name in sound[0] if sound else ():
        if name not in RUN_COLUMNS:
            values = [final[name] for final in sound]
            row[name] = float(np.mean(values))
            row[f"{name}_std"] = float(np.std(values, ddof=1)) if len(values) > 1 else None
    return row


def with_words(result: TuneResult, words: Sequence[BagOfWords]) -> TuneResult:
    """Return a result with a bag of words' row before the baselines that read no text."""
    if not words:
        return result
    first = next(n for n, row in enumerate([*result.rows, {}]) if "lr" not in row)
    row = summarise([one.row for one in words])
    correct = {row_name(row): np.stack([one.correct for one in words])}
    rows = [*result.rows[:first], row, *result.rows[first:]]
    return replace(result, rows=rows, correct={**result.correct, **correct})


def row_name(row: Mapping[str, Any]) -> str:
    """Return the name of a row: of a variant its start and strategy, of a baseline its own."""
    return f"{row['start']}, {row['strategy']}" if "lr" in row else str(row["strategy"])


def require_free(evaluation: Path, out: Path) -> None:
    """Check before the work that its results can be written and overwrite nothing.

    Raises:
        UserError: the evaluation exists, the folder is not empty, or one cannot be written.
    """
    atomic.require_writable(evaluation, is_folder=False, remedy=atomic.MOVE_AWAY)
    if evaluation.exists():
        raise UserError(f"{evaluation}: already exists; choose another --name")
    atomic.require_new_folder(out, "choose another --out or --name")


def save_evaluation(result: TuneResult, path: Path, name: str, command: str) -> dict[str, Any]:
    """Write the scores as JSON, and return them."""
    content = as_json(result, name, command)
    stored.write(path, content)
    return content


def as_json(result: TuneResult, name: str, command: str) -> dict[str, Any]:
    """Return the scores as in their file in `evaluations/`."""
    task = str(result.settings["task"]["kind"])
    confusion = {} if result.confusion is None else {"confusion": result.confusion}
    names = dict.fromkeys(row_name(row) for row in result.rows)
    known = {name: result.correct[name] for name in names if name in result.correct}
    return {
        "name": name,
        "title": f"Fine-tuning: {task}, {name}",
        "task": task,
        "rows": result.rows,
        "command": command,
        "settings": result.settings,
        "examples": result.examples,
        "max_tokens": result.template.length,
        "labels": result.labels,
        **confusion,
        "margins": margins(known),
        "epochs": result.epochs,
        "notes": list(result.notes),
    }


def save_network(
    result: TuneResult,
    folder: Path,
    tuned_on: TunedOn | None = None,
    scores: Mapping[str, Any] | None = None,
) -> None:
    """Save what `foreword.tuning.predict.load_tuned` needs.

    A network that answers in text is saved as a run, which every command can open.

    Args:
        result: the result.
        folder: the folder to write.
        tuned_on: the form of the examples, to predict for others in the same form.
        scores: the scores, for `finished`.

    Raises:
        NotFiniteError: its weights hold nan or infinity.
        UserError: the folder cannot be written.
    """
    weights = weights_of(result.network)
    require_finite(weights)
    tuned = TunedTask(result.task, result.labels, result.template, tuned_on or TunedOn())
    with atomic.folder(folder) as part:
        tuned.save(part, result.recipe)
        model, chat_template = result.network.as_model(), ""
        if model is not None:
            _save_run(result, model, part)
            assert isinstance(result.task, WritingTask)
            chat_template = result.task.chat_template(_prompted(result, model), result.template)
        else:
            save_file(weights, part / "weights.safetensors")
            (part / "recipe.toml").write_text(result.recipe.dumps(), encoding="utf-8")
        if scores is not None:
            (part / SCORES).write_text(stored.dumps(scores), encoding="utf-8")
        result.tokenizer.save(part / "tokenizer")
        if chat_template:
            atomic.write_text(part / "tokenizer" / CHAT_TEMPLATE, chat_template)
        if model is None:
            manifest.write(part, KIND, VERSION)


def _save_run(result: TuneResult, model: Model, folder: Path) -> None:
    """Save the weights as a checkpoint of the recipe's model, with the state of a run."""
    checkpoint.save(folder / "checkpoints" / checkpoint.name_of(0), model, None, {"step": 0})
    state = {"texts": [], "plugins": plugins.used_by(result.recipe)}
    prompted = _prompted(result, model)
    objective = _tuned_objective(prompted) if prompted.answers else result.recipe.objective
    write_files(folder, state, replace(result.recipe, objective=objective))


def _prompted(result: TuneResult, model: Model) -> PromptedModel:
    return PromptedModel(model, result.recipe, result.tokenizer, torch.device("cpu"))


def _tuned_objective(prompted: PromptedModel) -> SourceTarget:
    """Return the objective with the form of fine-tuning's sources: plain text, in the same mode."""
    plain = [form for form in prompted.source_forms if not form.has_sentinels]
    mode = [*plain, *prompted.source_forms][0].mode
    names = {int(n): f"<extra_id_{k}>" for k, n in enumerate(prompted.vocab.sentinels)}
    names |= {number: name for name, number in prompted.vocab.special.items()}
    objective = Prefix(end="".join(names[int(n)] for n in prompted.end_token))
    return Mixture((objective,), (), (names[mode[0]],)) if mode else objective
