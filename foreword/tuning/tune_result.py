"""The result of fine-tuning: rows of scores, and a network that can be saved."""

from __future__ import annotations

from abc import ABC
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import save_file

from foreword.disk import atomic, manifest, stored
from foreword.evaluation.margins import margins
from foreword.nn.model import Model
from foreword.objectives._source_target import SourceTarget
from foreword.objectives.mixture import Mixture
from foreword.objectives.prefix import Prefix
from foreword.runs.provenance import write_files
from foreword.runs.recipe import Recipe
from foreword.runs.trained_model import TrainedModel
from foreword.settings import plugins
from foreword.text.tokenizer import CHAT_TEMPLATE, Tokenizer
from foreword.train import checkpoint
from foreword.train.checkpoint import weights_of
from foreword.train.finite import require_finite
from foreword.tuning.bag_of_words import BagOfWords
from foreword.tuning.input_template import InputTemplate
from foreword.tuning.network import Network
from foreword.tuning.scores import MeanScore, Scores, of_classes
from foreword.tuning.tasks._contract import Confusion, Task
from foreword.tuning.tasks._writing import AnswerForm, WritingTask
from foreword.tuning.tuned_folder import KIND, SCORES, VERSION, Tuned, TunedOn
from foreword.types import Array


@dataclass(frozen=True, kw_only=True)
class TuneScores(ABC):
    """What the file of scores of a fine-tuning says.

    Attributes:
        labels: the labels, or () for a task without.
        max_tokens: the length to which texts were cut.
        rows: the scores of each variant, then of each baseline.
        epochs: the scores of each epoch of each seed of each variant.
        settings: the settings of the task and of the first variant, as a table.
        examples: numbers of examples: train, dev, cut, in_windows, skipped; with
            `TuneSettings.examples` also `drawn_from`, of how many those of each seed were drawn.
        notes: what a reader of the scores has to know, a line each.
        confusion: how often each label (row) got each answer (column), over all seeds of the first
            variant; None unless the labels are classes.
        correct: by the name of a row, how far each dev example was answered correctly, (seeds,
            examples) float64, 0 to 1, nan for a seed that diverged; empty unless the mean is the
            accuracy.
        further: what else the file holds, such as the `rate` that was chosen and how, and the
            `calibration`: what was fitted on examples held out.
    """

    labels: tuple[str, ...]
    max_tokens: int
    rows: list[Scores]
    epochs: Sequence[Scores] = ()
    settings: dict[str, Any]
    examples: dict[str, int]
    notes: tuple[str, ...] = ()
    confusion: Confusion | None = None
    correct: Mapping[str, Array] = field(default_factory=dict)
    further: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class TuneResult(TuneScores):
    """The result of fine-tuning.

    Attributes:
        recipe: the recipe of pretraining.
        tokenizer: the tokenizer of pretraining, with the special tokens that the template adds.
        network: the network of the first variant's first seed, on the CPU: its scores are those of
            that seed in `epochs`, not the means in `rows`.
        resumed: how many seeds an earlier call had finished.
    """

    task: Task
    template: InputTemplate
    recipe: Recipe
    tokenizer: Tokenizer
    network: Network
    resumed: int = 0


def with_words(result: TuneResult, words: Sequence[BagOfWords]) -> TuneResult:
    """Return a result with a bag of words' row before the baselines that read no text."""
    if not words:
        return result
    first = next((n for n, row in enumerate(result.rows) if not row.about), len(result.rows))
    one = words[0].row
    values = {name: MeanScore.of([each.row[name] for each in words]) for name in one.metrics}
    row = Scores(one.start, one.strategy, values)
    rows = [*result.rows[:first], row, *result.rows[first:]]
    known = [each.correct for each in words if each.correct is not None]
    are_folds = result.settings.get("folds") is not None  # of all examples together
    correct = (
        {row.name: np.concatenate(known)[None] if are_folds else np.stack(known)} if known else {}
    )
    return replace(result, rows=rows, correct={**result.correct, **correct})


def as_json(result: TuneScores, name: str, command: str) -> dict[str, Any]:
    """Return the scores as in their file in `evaluations/`."""
    task = str(result.settings["task"]["kind"])
    names = dict.fromkeys(row.name for row in result.rows)
    known = {name: result.correct[name] for name in names if name in result.correct}
    return {
        "name": name,
        "title": f"Fine-tuning: {task}, {name}",
        "task": task,
        "rows": [row.as_row() for row in result.rows],
        "command": command,
        "settings": result.settings,
        "examples": result.examples,
        "max_tokens": result.max_tokens,
        "labels": result.labels,
        **of_classes(result.labels, result.confusion),
        "margins": margins(known),
        "epochs": [row.as_row() for row in result.epochs],
        "notes": list(result.notes),
        **result.further,
    }


def save_network(
    result: TuneResult,
    folder: Path,
    tuned_on: TunedOn | None = None,
    scores: Mapping[str, Any] | None = None,
) -> None:
    """Save what `foreword.tuning.tuned_model.load_tuned` needs.

    A network that answers in text is saved as a run, which every command can open.

    Args:
        tuned_on: the form of the examples, to predict for others in the same form.
        scores: the scores, for `TuneJob.done`.

    Raises:
        NotFiniteError: its weights hold nan or infinity.
        UserError: the folder cannot be written.
    """
    weights = weights_of(result.network)
    require_finite(weights)
    tuned = Tuned(result.task, result.labels, result.template, tuned_on or TunedOn())
    with atomic.folder(folder) as part:
        tuned.save(part, result.recipe)
        model, chat_template = result.network.as_model(), ""
        if model is not None:
            cpu = torch.device("cpu")
            prompted = TrainedModel(model, result.recipe, result.tokenizer, cpu)
            form = AnswerForm(prompted, result.template)
            recipe = form.tuned_recipe
            if prompted.answers:
                recipe = replace(recipe, objective=_tuned_objective(prompted))
            write_run(part, model, recipe)
            assert isinstance(result.task, WritingTask)
            chat_template = result.task.chat_template(form)
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


def write_run(folder: Path, model: Model, recipe: Recipe) -> None:
    """Write weights as a checkpoint of the recipe's model, with the state of a run."""
    checkpoint.save(folder / "checkpoints" / checkpoint.name_of(0), model, None, {"step": 0})
    write_files(folder, {"texts": [], "plugins": plugins.used_by(recipe)}, recipe)


def _tuned_objective(prompted: TrainedModel) -> SourceTarget:
    """Return the objective with the form of fine-tuning's sources: plain text, in the same mode."""
    plain = [form for form in prompted.source_forms if not form.has_sentinels]
    mode = [*plain, *prompted.source_forms][0].mode
    names = {int(n): f"<extra_id_{k}>" for k, n in enumerate(prompted.vocab.sentinels)}
    names |= {number: name for name, number in prompted.vocab.special.items()}
    objective = Prefix(end="".join(names[int(n)] for n in prompted.end_token))
    return Mixture((objective,), (), (names[mode[0]],)) if mode else objective
