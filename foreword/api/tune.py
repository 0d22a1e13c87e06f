"""`foreword.tune`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from foreword import allocator, atomic, config, kinds, stored
from foreword.api import _arguments
from foreword.api._arguments import PathName, Settings, Track, checked
from foreword.api._examples import ExampleReader, Examples, name_of, sources_of
from foreword.api._result import Result
from foreword.api.progress import ProgressDisplay, progress_of
from foreword.data.given import texts_of
from foreword.errors import UserError
from foreword.runs.provenance import command
from foreword.runs.tracking import Tracking, closing, trackers_of
from foreword.runs.trained_model import TrainedModel, open_run
from foreword.tuning import finished, unfinished
from foreword.tuning import result as results
from foreword.tuning import run as tuning
from foreword.tuning.examples import LabelledTexts, overlap_note
from foreword.tuning.published_head import with_published_head
from foreword.tuning.result import TuneResult
from foreword.tuning.run import TuneSettings, variants
from foreword.tuning.task_mixture import mix_tasks

if TYPE_CHECKING:
    from foreword.evaluation.loaded import LoadedModel
    from foreword.tuning.predict import TunedModel
    from foreword.tuning.tasks._contract import Task
    from foreword.tuning.written import TunedWriter


LONGEST_NAME = 200  # bytes; files add a few of their own, and may have 255


@dataclass(frozen=True, repr=False)
class TuningResult(Result):
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
        for row in self.rows:
            name = f"{row['start']}, {row['strategy']}" if "lr" in row else row["strategy"]
            names = map(results.metric_name, metrics)
            scores = dict(zip(names, results.score_cells(row, metrics), strict=True))
            rows.append({"": name, **scores, **results.setting_cells(row)})
        return rows


@checked
def tune(
    run: PathName,
    train: Examples,
    dev: Examples,
    *,
    text: str | None = None,
    pair: str | None = None,
    label: str | None = None,
    columns: str = "",
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
    lr: float | None = None,
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
        run: a run folder, or one of its checkpoints.
        train: labelled text: a file, .tsv, .csv, .jsonl or .parquet, or a table, such as a
            DataFrame, or one of these per task; or examples, `(text, label)` or `(text, label,
            second text)`. Labels may be numbers. Other tasks read files of their own (`tag`:
            .conllu, .conll), and examples of their columns (`(words, labels)`), or dictionaries;
            `embed` needs no labels: `(text, second text)`.
        dev: labelled text to score on, in the same forms.
        text: column of the text, a number from 0 if the files have no header; default: `text`, or
            that of the task and the format.
        pair: column of a second text.
        label: column of the label; default: `label`, or that of the task and the format.
        columns: names of all columns, `a,b,c`, if the files have no header.
        prefix: task prefix for the texts of each file, in their order.
        temperature: of the mixture of several files: above 1, more equal shares of an epoch.
        task: classify, regress, tag, span, choice, embed, chat or text_to_text; `foreword.show`
            describes each.
        strategy: which parameters are trained, and how: full, frozen (the head alone), top_layers,
            gradual_unfreezing, layer_decay or lora; `foreword.show("strategies")` lists them, and
            `settings` has their settings: `{"tune.strategy.rank": 4}`.
        from_scratch: train the same network from random weights.
        compare: compare pretrained, pretrained frozen and from scratch; and, for `classify`, a bag
            of words.
        seeds: number of seeds; scores are their mean and deviation.
        epochs: number of epochs.
        batch: examples per step.
        examples: number of training examples, drawn anew for each seed, each label in its
            proportion; default: all.
        lr: peak learning rate; default: by the model's width.
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
    options = {
        "from_scratch": from_scratch,
        "seeds": seeds,
        "epochs": epochs,
        "batch": batch,
        "examples": examples,
        "max_length": max_length,
        "precision": precision,
    }
    made, several = _variants(
        task, strategy, lr, options, _arguments.assignments(settings), compare=compare
    )
    trackers, display = trackers_of(track), progress_of(progress)
    _require_name(name)
    named = {"text": text, "label": label, "pair": pair}
    reader = ExampleReader(
        made,
        {field: column for field, column in named.items() if column is not None},
        [column.strip() for column in columns.split(",")] if columns else [],
        [prefix] if isinstance(prefix, str) else list(texts_of(prefix or (), "prefix")),
    )
    train_sources, dev_sources = sources_of(train, "train", made), sources_of(dev, "dev", made)

    # Open the model.
    trained = open_run(_arguments.path(run, "RUN"), device)
    trained.require_gradients()
    made = with_published_head(made, trained)
    name = name or name_of(train_sources)
    evaluation = trained.run / "evaluations" / f"tune-{task}-{name}.json"
    folder = trained.run / "tuned" / name if out is None else _arguments.path(out, "--out")

    # Read the examples; return a result that is there already, and never overwrite another one.
    with allocator.returning_freed():
        training, scored = reader.read(train_sources, dev_sources)
    dev_examples = LabelledTexts.of(example for examples in scored.tasks for example in examples)
    mixture = mix_tasks(training.tasks, temperature)
    tables = [config.to_table(variant) for variant in several]
    request = finished.request_digest(trained, made, tables, (mixture, dev_examples))
    if (done := finished.find(folder, evaluation, name, request)) is not None:
        return TuningResult(folder, evaluation, done["title"], done["rows"], done)
    results.require_free(evaluation, folder)
    for note in _notes(trained, made):
        display.note(note)
    if overlap := overlap_note(training.tasks, dev_examples):
        display.warn(overlap)
    remarks = made.notes(mixture, dev_examples)
    for remark in remarks:
        display.note(remark)

    # Fine-tune; record where the examples came from, and write the model and its scores.
    with atomic.guarded(trained.run):
        used = {"task": {"kind": task, **config.to_table(made)}, **config.to_table(several[0])}
        place = trained.run / "tracking" / evaluation.stem
        tracking = Tracking(place, evaluation.stem, display.warn, lambda: used)
        with closing(tracking, trackers), display:
            result = tuning.tune(
                trained, made, mixture, dev_examples, several,
                display.stage("tuning"), lambda row: tracking.record(_record(row)),
                unfinished=unfinished.folder_for(folder),
            )  # fmt: skip
        if result.resumed:
            display.note(f"{result.resumed} seeds were trained by an earlier call")
        result = replace(
            result,
            examples=result.examples | {"skipped": training.skipped + scored.skipped},
            settings=result.settings | {"data": reader.as_table(training, scored, temperature)},
        )
        content = {**results.as_json(result, name, command()), "request": request}
        content["notes"] += [*[overlap] * bool(overlap), *remarks]
        results.save_network(result, folder, reader.tuned_on(training), content)
        stored.write(evaluation, content)
        unfinished.remove(unfinished.folder_for(folder))
    return TuningResult(folder, evaluation, content["title"], result.rows, content, result)


def _require_name(name: str) -> None:
    """Check that a name is one that files can have.

    Raises:
        UserError: it is a path, or too long.
    """
    if "/" in name:
        raise UserError(f"--name {name}: must be a name, not a path; --out takes a path")
    if len(name.encode(errors="surrogatepass")) > LONGEST_NAME:
        raise UserError(f"--name: must be at most {LONGEST_NAME} bytes, for names of files")


def _notes(trained: TrainedModel, task: Task) -> list[str]:
    """Return what is worth knowing before the work, a line each."""
    added = tuning.added_tokens(trained, task)
    names = ", ".join(added)
    return [
        *trained.notes,
        *[f"special tokens added for the input template: {names}"] * bool(added),
    ]


def _record(row: Mapping[str, Any]) -> dict[str, Any]:
    """Return the scores of an epoch as a record for trackers, its step the epoch."""
    kind = f"{row['start']}, {row['strategy']}, seed {row['seed']}"
    numbers = {name: v for name, v in row.items() if name not in ("seed", "epoch")}
    return {"kind": kind, "step": row["epoch"], **numbers}


def _variants(
    task: str,
    strategy: str,
    lr: float | None,
    options: Mapping[str, Any],
    assignments: Sequence[str],
    *,
    compare: bool,
) -> tuple[Task, list[TuneSettings]]:
    """Return the task, and the settings of each variant to fine-tune.

    Raises:
        UserError: arguments contradict each other, or a setting is unknown.
    """
    if compare and (options["from_scratch"] or strategy != "full"):
        raise UserError(
            "--compare cannot be combined with --strategy or --from-scratch: it runs them all"
        )
    chosen = {"kind": strategy} | ({} if lr is None else {"lr": lr})
    table = config.assign({"task": {"kind": task}, "tune": {"strategy": chosen}}, assignments)
    if unknown := sorted(table.keys() - {"task", "tune"}):
        raise UserError(f"--set {unknown[0]}: expected task.NAME=value or tune.NAME=value")
    made: Task = config.build_kind(kinds.Part("tuning/tasks"), table["task"], "task")
    given = {name: value for name, value in options.items() if value is not None} | table["tune"]
    settings = config.build(TuneSettings, given, "tune")
    usual = variants(settings, has_frozen=not made.scores_untuned) if compare else [settings]
    return made, usual
