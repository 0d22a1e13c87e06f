"""`foreword.tune`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from foreword.api import _arguments, _fine_tuning
from foreword.api._arguments import PathName, Settings, Track, checked
from foreword.api._examples import ExampleReader, Examples, name_of, sources_of
from foreword.api._fine_tuning import FineTuning
from foreword.api._result import FactsAndRows
from foreword.api._tune_settings import GivenSettings, require_name
from foreword.api.progress import ProgressDisplay, progress_of
from foreword.process import allocator
from foreword.runs.tracking import trackers_of
from foreword.runs.trained_model import TrainedModel
from foreword.tables.examples import overlap_note
from foreword.train.device import choose_precision, precision_warning
from foreword.tuning import result as results
from foreword.tuning.encoding import added_tokens
from foreword.tuning.model_settings import recipe_for
from foreword.tuning.published_head import with_published_head
from foreword.tuning.result import TuneResult
from foreword.tuning.run import without_tied_head
from foreword.tuning.task_mixture import mix_tasks
from foreword.tuning.tuned_start import open_start

if TYPE_CHECKING:
    from foreword.evaluation.loaded import LoadedModel
    from foreword.tuning.predict import TunedModel
    from foreword.tuning.tasks._contract import Task
    from foreword.tuning.written import TunedWriter


@dataclass(frozen=True, repr=False)
class TuningResult(FactsAndRows):
    """Scores of fine-tuning, and where the tuned model is.

    Attributes:
        out: folder of the tuned model.
        evaluation: file of the scores.
        title: of the scores.
        rows: one per variant: mean and standard deviation over seeds, and the majority class's.
        content: the scores as the file has them.
        result: all that fine-tuning returned; None if it was done by an earlier call.
    """

    out: Path
    evaluation: Path
    title: str
    rows: list[dict[str, Any]]
    content: Mapping[str, Any]
    result: TuneResult | None = None

    def __fspath__(self) -> str:
        return str(self.out)

    def load(self, device: str = "auto") -> TunedModel | TunedWriter | LoadedModel:
        """Return the tuned model, as `foreword.load` does.

        Raises:
            UserError: it is no longer there.
        """
        from foreword.api.load import load

        return load(self.out, device)

    def _facts(self) -> Mapping[str, Any]:
        return {
            "tuned model": self.out, "scores": self.evaluation, "task": self.title,
            "notes": "; ".join(self.content.get("notes", ())) or None,
        }  # fmt: skip

    def _rows(self) -> Sequence[Mapping[str, Any]]:
        metrics = [key for key in self.rows[0] if results.is_score(key) and key[-4:] != "_std"]
        rows = []
        for row, row_settings in zip(self.rows, results.setting_cells(self.rows), strict=True):
            name = f"{row['start']}, {row['strategy']}" if "lr" in row else row["strategy"]
            names = map(results.metric_name, metrics)
            scores = dict(zip(names, results.score_cells(row, metrics), strict=True))
            rows.append({"": name, **scores, **row_settings})
        return rows


@checked
def tune(
    run: PathName,
    train: Examples,
    dev: Examples,
    *,
    test: Examples | None = None,
    text: str | None = None,
    pair: str | None = None,
    label: str | None = None,
    columns: str = "",
    bad_rows: float | None = None,
    prefix: str | Sequence[str] | None = None,
    temperature: float = 1.0,
    task: str = "classify",
    strategy: str = "full",
    from_scratch: bool = False,
    compare: bool = False,
    seeds: int = 3,
    epochs: int = 3,
    batch: int = 16,
    examples: int | None = None,
    lr: float | Sequence[float] | None = None,
    choose: str = "train",
    settings: Settings = (),
    max_length: int | None = None,
    precision: str = "auto",
    name: str = "",
    out: PathName | None = None,
    device: str = "auto",
    track: Track = (),
    progress: bool | ProgressDisplay = True,
) -> TuningResult:
    """Fine-tune a pretrained model on labelled text.

        tuned = foreword.tune("runs/books", "train.tsv", "dev.tsv")
        tuned.load().predict(["a new text"])

    It trains on `train` and scores the last epoch on `dev`, once per seed; nothing is chosen by the
    score, but for the threshold of `span`, and the epoch with `{"tune.keep": "best"}`. A seed that
    diverges is counted and left out. The saved model is that of seed 1, while the scores
    are means over the seeds. What is done already, with the same model, settings and examples,
    is not done again: neither a finished call nor, of one that was interrupted, a finished seed.

    Args:
        run: a run folder, or one of its checkpoints; or a model tuned on another task, which gets a
            new head (intermediate-task tuning).
        train: labelled text: a file, .tsv, .csv, .jsonl or .parquet, or a table, such as a
            DataFrame, or one of these per task; or examples, `(text, label)` or `(text, label,
            second text)`. Labels may be numbers. Other tasks read files of their own (`tag`:
            .conllu, .conll), and examples of their columns (`(words, labels)`), or dictionaries;
            `embed` needs no labels: `(text, second text)`.
        dev: labelled text to score on, in the same forms.
        test: labelled text that is scored once, when training has ended, and chooses nothing.
        text: column of the text, a number from 0 if the files have no header; default: `text`, or
            that of the task and the format.
        pair: column of a second text.
        label: column of the label; default: `label`, or that of the task and the format.
        columns: names of all columns, `a,b,c`, if the files have no header.
        bad_rows: the share of a file's rows that may be wrong: they are left out, counted and
            named; more are refused. Default: 0.01.
        prefix: task prefix for the texts of each file, in their order.
        temperature: of the mixture of several files: above 1, more equal shares of an epoch.
        task: classify, regress, tag, span, choice, embed, chat, prefer or text_to_text;
            `foreword.show` describes each.
        strategy: which parameters are trained, and how: full, frozen (the head alone), top_layers,
            gradual_unfreezing, layer_decay, lora or prefix_tuning; `foreword.show("strategies")`
            lists them, and `settings` has their settings: `{"tune.strategy.rank": 4}`.
        from_scratch: train the same network from random weights.
        compare: compare pretrained, pretrained frozen (if the head can be trained alone) and from
            scratch; and, for `classify`, a bag of words.
        seeds: number of seeds; scores are their mean and deviation.
        epochs: number of epochs.
        batch: examples per step.
        examples: number of training examples, drawn anew for each seed, each label in its
            proportion; default: all.
        lr: peak learning rate; default: by the model's width. Of several the best is chosen.
        choose: what chooses one of several rates: `train`, a tenth of the training examples that
            the trials do not learn from, or `dev`, as papers did, whose scores are then too high.
        settings: of the task and of fine-tuning: `{"task.pooling": "mean"}`.
        max_length: maximum tokens of an example; default: the row length of pretraining.
        precision: auto, bf16 or fp32.
        name: of the results; default: folder and file of `train`.
        out: folder for the tuned model; default: RUN/tuned/NAME.
        device: auto, cpu, cuda or mps.
        track: where the scores of each epoch go too: `"tensorboard"`, `"wandb"`, or a tracker.
        progress: whether to show the progress, or what shows it.

    Raises:
        UserError: the examples do not fit the task or each other, something is in the way, or the
            model has no gradients.
        TrainingStoppedError: the loss is no longer finite.
    """
    # Check every argument.
    how = GivenSettings.of(
        strategy=strategy,
        from_scratch=from_scratch,
        seeds=seeds,
        epochs=epochs,
        batch=batch,
        examples=examples,
        lr=lr,
        choose=choose,
        settings=settings,
        max_length=max_length,
        precision=precision,
    )
    tuning_task, variants = how.variants({"kind": task}, compare=compare)
    trackers, display = trackers_of(track), progress_of(progress)
    require_name(name)
    reader = ExampleReader.of(
        tuning_task, columns, prefix, bad_rows, text=text, label=label, pair=pair
    )
    train_sources = sources_of(train, "train", tuning_task)
    dev_sources = sources_of(dev, "dev", tuning_task)
    test_sources = [] if test is None else sources_of(test, "test", tuning_task)

    # Open the model.
    trained = open_start(_arguments.path(run, "RUN"), device)
    trained.require_gradients()
    for variant in variants:
        recipe_for(trained.recipe, variant.strategy)  # before text is read
    left_out: list[str] = []
    if compare:
        variants, left_out = without_tied_head(variants, trained, tuning_task)
    tuning_task = with_published_head(tuning_task, trained)
    name = name or name_of(train_sources)
    evaluation = trained.run / "evaluations" / f"tune-{task}-{name}.json"
    folder = trained.run / "tuned" / name if out is None else _arguments.path(out, "--out")

    # Read the examples; return a result that is there already, and never overwrite another one.
    with allocator.returning_freed():
        splits = reader.read(train_sources, dev_sources, test_sources)
    if not reader.prefixes:
        tuning_task = tuning_task.for_columns(splits.train.columns[0])
    scored = {which: part.together for which, part in splits.scored.items()}
    mixture = mix_tasks(splits.train.tasks, temperature)
    overlaps = [overlap_note(splits.train.tasks, part, which) for which, part in scored.items()]
    warnings = [*reader.bad.notes, *filter(None, overlaps)]
    remarks = tuning_task.notes(mixture, scored["dev"], trained.tokenizer)
    job = FineTuning(
        tuning_task,
        variants,
        mixture,
        scored.pop("dev"),
        reader.tuned_on(splits.train),
        reader.as_table(splits, temperature),
        name,
        evaluation,
        folder,
        splits.skipped,
        further=scored,
        rates=how.rates,
        notes=[*warnings, *remarks, *left_out],
    )
    if (done := _fine_tuning.find(trained, job)) is not None:
        return TuningResult(folder, evaluation, done["title"], done["rows"], done)
    for note in _notes(trained, tuning_task):
        display.note(note)
    emulated = precision_warning(trained.device, choose_precision(precision, trained.device))
    for warning in filter(None, [*warnings, emulated]):
        display.warn(warning)

    # Fine-tune, and write the model and its scores.
    with display:
        result, content = _fine_tuning.fine_tune(trained, job, display, trackers)
    return TuningResult(folder, evaluation, content["title"], result.rows, content, result)


def _notes(trained: TrainedModel, task: Task) -> list[str]:
    """Return what is worth knowing before the work, a line each."""
    added = added_tokens(trained, task)
    names = ", ".join(added)
    return [
        *trained.notes,
        *[f"special tokens added for the input template: {names}"] * bool(added),
    ]
