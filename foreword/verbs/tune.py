"""`foreword tune`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from foreword.display.progress import ProgressDisplay
from foreword.display.results import Part, Remark, Result, ResultTable, remarks
from foreword.errors import UserError, quoted_command
from foreword.settings import kinds
from foreword.settings.ranges import Folds, Temperature
from foreword.tables.columns import Columns
from foreword.tables.reads_rows import ReadsLabelled
from foreword.verbs._arguments import assignments, paths
from foreword.verbs._contract import ARGUMENT, Flag, PathName, Paths, Verb
from foreword.verbs._groups import Examples
from foreword.verbs._tune_settings import BEST, FineTunes

if TYPE_CHECKING:
    from foreword.evaluation.loaded import LoadedModel
    from foreword.runs.trained_model import TrainedModel
    from foreword.tuning.job import TuneJob
    from foreword.tuning.settings import TuneSettings
    from foreword.tuning.tasks._contract import Task
    from foreword.tuning.tune_result import TuneResult
    from foreword.tuning.tuned_model import Predictor, TunedWriter
    from foreword.verbs._unlabelled import Unlabelled

FILES = Flag(takes=list[PathName])
ADAPT = "adapt."  # begins the settings of the recipe that continues the model


@dataclass(frozen=True, repr=False)
class TuningResult(Result):
    """Scores of fine-tuning, and where the tuned model is.

    Attributes:
        out: folder of the tuned model.
        evaluation: file of the scores.
        content: the scores as the file has them.
        result: all that fine-tuning returned; None with strategy best, and if it was done by an
            earlier call.
        was_done: whether an earlier call did it.
    """

    out: Path
    evaluation: Path
    content: Mapping[str, Any]
    result: TuneResult | None = None
    was_done: bool = False

    @property
    def title(self) -> str:
        """The title of the scores."""
        return str(self.content["title"])

    @property
    def rows(self) -> list[dict[str, Any]]:
        """A row per variant: mean and deviation over seeds; and the majority class's."""
        from foreword.tuning.scores import Scores

        return [Scores.of(row).as_row() for row in self.content["rows"]]

    def __fspath__(self) -> str:
        return str(self.out)

    def load(self, device: str = "auto") -> Predictor | TunedWriter | LoadedModel:
        """Return the tuned model, as `foreword.load` does.

        Raises:
            UserError: it is no longer there.
        """
        from foreword.verbs._load import load

        return load(self.out, device)

    def data(self) -> dict[str, Any]:
        """Return the scores, and where they and the tuned model are."""
        saved = {"evaluation": str(self.evaluation), "out": str(self.out)}
        return dict(self.content) | saved

    def tables(self) -> Sequence[Part]:
        """Return a row for each variant, what a reader of the scores has to know, and the files."""
        from foreword.tuning.remarks import candidate_rows, label_rows, remarks_on, setting_cells
        from foreword.tuning.scores import Scores, metric_name

        scores = [Scores.of(row) for row in self.rows]
        settings = setting_cells(scores)
        rows = [
            {"": one.name}
            | {metric_name(m): one.shown(m) for m in scores[0].metrics}
            | one_settings
            for one, one_settings in zip(scores, settings, strict=True)
        ]
        lines = remarks_on(
            self.content, scores, shows_parameters="trained parameters" in settings[0]
        )
        if self.was_done:
            lines.append("done already, with the same model, settings and examples")
        files = f"scores: {self.evaluation}", f"tuned model: {self.out}"
        use = f"{quoted_command('predict', self.out, 'FILE')} uses it"
        parts: list[Part] = [ResultTable(rows, self.title)]
        if labels := label_rows(self.content):
            parts.append(ResultTable(labels))
        if candidates := candidate_rows(self.content):
            parts.append(ResultTable(candidates, "Candidates, cross-validated on the labels given"))
        return [*parts, *remarks(lines), *map(Remark, [*files, use])]


@dataclass(frozen=True)
class Tune(FineTunes, ReadsLabelled, Verb[TuningResult]):
    """Fine-tune a pretrained model on labelled text.

        tuned = foreword.tune("runs/books", "train.tsv", "dev.tsv")
        tuned.load().predict(["a new text"])

    By default the strategy is best: counts of words, regression on the model's states and
    fine-tuning are cross-validated on --train, and their best average is kept and scored on --dev.
    For tasks answered in text, and with --folds, --compare, --from-scratch or several --lr, it is
    full.

    --strategy full fine-tunes one network on --train, once per seed, and scores its last epoch on
    --dev, or without --dev on --folds of --train. Nothing is chosen by the score, except the
    threshold of `span`, and the epoch with --set tune.keep=best; --set tune.patience=2 then stops a
    seed after two epochs without a better score. A seed that diverges is counted and left out. A
    temperature, fitted on a tenth of --train that one more training holds out, calibrates
    probabilities and changes no prediction (--set tune.calibrate=false leaves it out).

    The scores go to RUN/evaluations, the first seed's model to --out. Classes are scored by
    accuracy, macro F1 (the mean of each label's F1) and Matthews correlation.

    With --unlabelled, texts of the task without labels, the model is pretrained further on them and
    on the training texts, by recipe adapt_encoder, before it is tuned (Gururangan et al. 2020). The
    adapted run is in RUN/adapted; a call with the same texts uses it again.

    A tuned model as RUN gets a new head for the task (intermediate-task tuning).

    What is done already is not done again; a call that was interrupted continues after the last
    finished seed. 'foreword tune-suite' fine-tunes on all tasks of GLUE.

    Attributes:
        run: a run folder, one of its checkpoints/step-*, or a model tuned on another task.
        train: labelled text: .tsv, .csv, .jsonl, .parquet, and what the task reads (.conllu,
            .conll); one file per task. In Python also a table, such as a DataFrame, or one per
            task; or examples, (text, label), (text, label, second text) or dictionaries of values
            by column.
        dev: labelled text to score on, never trained on; or --folds.
        test: labelled text to score once, at the end: it can choose nothing.
        task: what to learn: classify, multilabel, regress, tag, span, choice, embed, chat, prefer
            or text_to_text; 'foreword show tag' describes tag.
        text: column of the text, a number from 0 if the files have no header; default: text, or
            that of the task and the format.
        pair: column of a second text.
        label: column of the label; default: label, or that of the task and the format. Lists of
            labels, or several columns of 0 and 1, a,b,c, are the task multilabel.
        folds: number of parts of --train for cross-validation: each part is scored by a network
            that learned from the others, and the saved model learns from all.
        group: column of what examples have in common, such as an author: with --folds, examples of
            one group are in one fold.
        columns: names of all columns, a,b,c, if the files have no header.
        prefix: task prefix for the texts of each --train and --dev, in their order.
        bad_rows: share of a file's rows that may be wrong: they are left out, counted and named;
            more are refused; default: 0.01.
        temperature: with several --train: above 1, tasks have more equal shares of an epoch.
        unlabelled: unlabelled text of the task: files, folders or globs, read as 'pretrain' does,
            .csv and .tsv by their column --text; what is among --dev and --test is left out. --set
            adapt.NAME=value sets recipe adapt_encoder's: adapt.continuation.epochs=20.
        compare: compare one network pretrained, pretrained and frozen (if the head can be trained
            alone) and from scratch; for classify also a bag of words.
    """

    run: Annotated[PathName, ARGUMENT]
    train: Annotated[Examples, FILES]
    dev: Annotated[Examples | None, FILES] = None
    test: Annotated[Examples | None, FILES] = None
    task: str = "classify"
    _: KW_ONLY
    folds: Folds | None = None
    group: str | None = None
    temperature: Temperature = 1.0
    unlabelled: Paths | None = None
    compare: bool = False

    @property
    def chosen_strategy(self) -> str:
        """The name of the strategy: best, unless one network is asked for."""
        from foreword.tuning.strategies.best import suits

        if self.strategy or self.compare or self.from_scratch or self.rates[0] or self.folds:
            return self.strategy or "full"
        task: Task = kinds.load("tuning/tasks", self.task)()
        return BEST if suits(task) else "full"

    @property
    def _tune_assignments(self) -> list[str]:
        return [each for each in assignments(self.settings) if each not in self._adapt_assignments]

    @property
    def _adapt_assignments(self) -> list[str]:
        if self.unlabelled is None:
            return []
        return [each for each in assignments(self.settings) if each.startswith(ADAPT)]

    def _unlabelled(self) -> Unlabelled | None:
        """Return the unlabelled text, checked as far as it can be before text is read."""
        from foreword.tables.columns import Columns
        from foreword.verbs._unlabelled import Unlabelled

        if self.unlabelled is None:
            return None
        if self.prefix is not None:
            raise UserError("--unlabelled: cannot be combined with --prefix")
        columns = Columns(self.text or "text", "", self.pair or "")
        settings = [each.removeprefix(ADAPT) for each in self._adapt_assignments]
        files = paths(self.unlabelled)
        return Unlabelled(self.run, files, columns, settings, self.device, self.progress)

    def __call__(self) -> TuningResult:
        from foreword.process import allocator
        from foreword.reports import model_card
        from foreword.runs.stages import progress_folder, watchable
        from foreword.runs.tracking import trackers_of
        from foreword.tuning.best.tune import tune_best
        from foreword.tuning.example_reader import ExampleReader, name_of, sources_of
        from foreword.tuning.job import TuneJob
        from foreword.tuning.published_head import with_published_head
        from foreword.tuning.strategies.best import suits
        from foreword.tuning.tune_and_save import tune_and_save

        # Check every argument.
        kinds.file_of("tuning/tasks", self.task, "--task")
        task, settings = self.tuning_task({"kind": self.task})
        variants = self._variants(task, settings)
        trackers, display = trackers_of(self.track), self.display()
        self.require_name()
        reader = ExampleReader(task, self)
        if self.dev is None and settings.folds is None:
            raise UserError("--dev: required, labelled text to score on; or --folds 5")
        if self.dev is not None and settings.folds is not None:
            raise UserError("--folds: scores parts of --train; leave --dev out")
        if settings.folds is not None and settings.strategy.chooses:
            raise UserError("--folds: strategy best has folds of its own, and requires --dev")
        if self.group is not None and settings.folds is None:
            raise UserError("--group: requires --folds")
        further = {"dev": self.dev, "test": self.test}
        given = {"train": self.train, **{n: one for n, one in further.items() if one is not None}}
        sources = {name: sources_of(examples, name, task) for name, examples in given.items()}

        # Open the model, and read the examples.
        trained = base = self.opened(self.run)
        unlabelled = self._unlabelled()
        variants, left_out = self._possible(variants, trained, task)
        reader.task = with_published_head(task, trained)
        with allocator.returning_freed():
            examples, columns = reader.read(sources, self.temperature)
        known = Columns() if reader.prefixes else columns  # the prefixes are given
        task = reader.task.for_examples(known, examples.train)
        if variants[0].strategy.chooses and not suits(task, examples.train):
            if self.strategy is not None:
                raise UserError("--strategy best: texts to compare need scores; leave it out")
            variants = [replace(self, strategy="full").tuning_task({"kind": self.task})[1]]
        notes = task.judge.notes(examples.train, examples.dev, trained.tokenizer)
        examples = replace(examples, notes=[*examples.warnings, *notes, *left_out])
        name = self.name or name_of(sources["train"])
        if unlabelled is not None:
            name = self.name or f"{name}-adapted"
            run, examples = unlabelled.adapt(trained, examples, task, display)
            trained = self.opened(run)
        out = self.folder_of(base, name)
        scores = base.run / "evaluations" / f"tune-{self.task}-{name}.json"
        job = TuneJob(
            task, examples, variants, *self.rates, name=name, evaluation=scores, folder=out
        )

        # Return a result that is there already, and never overwrite another one.
        done, result = job.done(trained), None
        was_done = done is not None
        if done is None:
            self._say_before(display, trained, job)
            try:
                with display, watchable(display, progress_folder(out)) as shown:
                    if variants[0].strategy.chooses:
                        done = tune_best(trained, job, shown)
                    else:
                        result, done = tune_and_save(trained, job, shown, trackers)
            except KeyboardInterrupt:
                raise KeyboardInterrupt("interrupted; the same command continues") from None
        if not was_done and out.is_dir():
            model_card.write(out, out, model_card.OWN, {})
        return TuningResult(out, scores, done, result, was_done)

    def _variants(self, task: Task, settings: TuneSettings) -> list[TuneSettings]:
        from foreword.tuning.tune import variants

        rates, _ = self.rates  # refused where they are none
        if not self.compare:
            return [settings]
        if rates:
            raise UserError("--lr: several cannot be combined with --compare")
        if self.from_scratch or self.strategy not in (None, "full"):
            raise UserError(
                "--compare cannot be combined with --strategy or --from-scratch: it compares full "
                "fine-tuning, the frozen model and the same network from scratch"
            )
        return variants(
            settings, has_frozen=not (task.judge.scores_untuned or task.needs.has_reference)
        )

    def _possible(
        self, variants: list[TuneSettings], trained: TrainedModel, task: Task
    ) -> tuple[list[TuneSettings], list[str]]:
        """Return the variants that the model allows, and a note if one goes."""
        from foreword.tuning.starting_network import recipe_for
        from foreword.tuning.tasks._writing import AnswerForm, WritingTask
        from foreword.tuning.tune import without_tied_head

        if isinstance(task, WritingTask):
            AnswerForm.require_writer(trained, is_compared=task.needs.has_reference)
        for variant in variants:
            recipe_for(trained.recipe, variant.strategy)  # before text is read
        return without_tied_head(variants, trained, task) if self.compare else (variants, [])

    def _say_before(self, display: ProgressDisplay, trained: TrainedModel, job: TuneJob) -> None:
        """Show what is worth knowing before the work, a line each."""
        from foreword.planning.forecast import counting_suffices
        from foreword.tuning.tune_data import added_tokens

        notes = list(trained.notes)
        if added := ", ".join(added_tokens(trained, job.task)):
            notes.append(f"special tokens added for the input template: {added}")
        if self.task == "classify":
            labels = job.variants[0].examples or len(job.examples.train)
            notes += filter(None, [counting_suffices(trained, labels)])
        for note in notes:
            display.note(note)
        for warning in filter(None, [*job.examples.warnings, self.emulation_warning(trained)]):
            display.warn(warning)
