"""A comparison from a grid to its results, in reading order.

    out/  grid.toml   the grid of the last call
          data/       tokenizers and token shards, shared by the cells
          sweeps/     the result of each trial of a cell's sweep, and first embeddings they share
          runs/       a run folder per cell and seed, its probes and fine-tunings in `evaluations/`
          scratch/    fine-tunings of the same networks from random weights
          baselines/  scores of a bag of words
          table.md results.csv results.json plot.png

Finished work in the same folder is reused: a killed comparison continues, and of a changed grid
only the changes are run.
"""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from foreword.comparison import keys
from foreword.comparison.compute import JobInputs, compute
from foreword.comparison.corpora import Corpora
from foreword.comparison.grid import Cell, Grid, GridTask, read_examples
from foreword.comparison.jobs import NO_CELL, Failure, Job, JobProgress, TimeLeft
from foreword.comparison.probing import GridProbe, GridText
from foreword.comparison.sweep import SEED, describe
from foreword.comparison.trials import Trials
from foreword.data.prepared_text import PreparedText
from foreword.disk import atomic, store, stored
from foreword.errors import UserError, is_out_of_memory
from foreword.probes._while_training import checksums
from foreword.runs import first_embeddings
from foreword.runs import run as running
from foreword.runs.branch import going_on
from foreword.runs.corpus import is_prepared, require_form, require_sentences, require_text
from foreword.runs.dry_run import dry_run
from foreword.runs.provenance import make_provenance
from foreword.runs.recipe import Recipe
from foreword.runs.run_folder import is_finished
from foreword.runs.sizes import MACHINES, least_memory, require_memory
from foreword.runs.sources import require_one_tokenizer, source_texts
from foreword.runs.stages import ProgressReporter
from foreword.settings import config, kinds
from foreword.tables.examples import overlap_note
from foreword.train import checkpoint
from foreword.tuning.tuned_folder import VERSION

GRID_FILE, RESULTS = "grid.toml", "results.json"


class Comparison:
    """A grid in its folder.

    All recipes and all files of tasks are read first, so mistakes show before the work.

    Args:
        grid: what to compare.
        out: the folder; created if it does not exist.
        progress: shows it.

    Raises:
        UserError: a mistake in the grid, or the folder holds something else.
    """

    def __init__(self, grid: Grid, out: Path, progress: ProgressReporter) -> None:
        self.grid, self.out, self.progress = grid, out, progress
        atomic.require_writable(out, is_folder=True)
        if out.exists() and not (out / GRID_FILE).is_file() and _holds_other_files(out):
            raise UserError(f"{out}: holds something else than a comparison; choose another --out")
        self.recipes = {
            (cell.name, seed): grid.recipe(cell, seed)
            for cell in grid.cells
            for seed in range(1, grid.seeds_of(cell) + 1)
        }
        for cell in grid.cells:
            with _naming_cell(cell.name):
                _require_cell(self.recipes[cell.name, 1], grid.data)
            for values in grid.trials(cell):
                grid.trial_recipe(cell, values)
        self.examples = {task.name: read_examples(task) for task in grid.tasks}
        self.warnings: list[str] = []
        for name, task_examples in self.examples.items():
            if overlap := overlap_note([task_examples.train], task_examples.dev):
                self.warnings.append(f"task '{name}': {overlap}")
                progress.warn(self.warnings[-1])
        read = [recipe.read for recipe in self.recipes.values()]
        sources = {
            source.name: text
            for recipe in (self.recipes.values() if grid.sources else ())
            for source, text in zip(
                recipe.data.sources, source_texts(recipe, grid.data), strict=True
            )
        }
        require_one_tokenizer(sources)
        self.corpora = Corpora(grid.data, out / "data", progress.stage, grid.heldout, read, sources)
        self.trials = Trials(grid, out / "sweeps", self.corpora)
        self.failures: list[Failure] = []
        self._memory: dict[str, int] = {}  # by the name of the cell; so is:
        self._unigram: dict[str, float | None] = {}

    def tasks_of(self, cell: Cell) -> tuple[GridTask, ...]:
        """Return the tasks that a cell is fine-tuned on; a count-based one has no weights to."""
        is_count_based = self.recipes[cell.name, 1].model.is_count_based
        tasks = [task for task in self.grid.tasks if cell.is_measured_by(task.name)]
        return () if is_count_based else tuple(tasks)

    def memory_of(self, cell: Cell) -> int:
        """Return the bytes that training a cell takes at least."""
        if cell.name not in self._memory:
            recipe = self.recipes[cell.name, 1]
            components = least_memory(recipe, self.corpora.tokenizer_for(recipe).vocab)
            self._memory[cell.name] = sum(components.values())
        return self._memory[cell.name]

    def unigram_of(self, cell: Cell) -> float | None:
        """Return the loss of token frequencies on a cell's predictions; None without one."""
        if cell.name not in self._unigram:
            recipe = self.recipe(cell, 1) or self.recipes[cell.name, 1]
            self._unigram[cell.name] = self.corpora.unigram_loss(recipe)
        return self._unigram[cell.name]

    def jobs(self) -> list[Job]:
        """Return all jobs in order; each cell is measured right after its pretraining."""
        jobs, grid = list[Job](), self.grid
        trainings = [
            (cell, seed) for cell in grid.cells for seed in range(1, grid.seeds_of(cell) + 1)
        ]
        if not grid.by_cell:
            trainings.sort(key=lambda training: training[1])
        for cell, seed in trainings:
            if seed == 1:
                jobs += [Job(cell, SEED, planned=planned) for planned in self.trials.planned(cell)]
            jobs.append(Job(cell, seed))
            jobs += [
                Job(cell, seed, probe=measurement)
                for measurement in grid.measurements
                if cell.is_measured_by(measurement.name)
            ]
            for task in self.tasks_of(cell):
                jobs.append(Job(cell, seed, task))
                is_too = cell.is_measured_by(task.name, is_scratch=True)
                if task.scratch and is_too and seed == 1:
                    jobs.append(Job(cell, seed, task, is_scratch=True))
        jobs += [Job(NO_CELL, 0, task) for task in self.grid.tasks if task.task.judge.has_classes]
        return jobs

    def require_same_text(self) -> None:
        """Check that results in the folder, which new ones replace, are of the same text.

        It may have changed, or have moved.

        Raises:
            UserError: they are of another.
        """
        file, texts = self.out / GRID_FILE, [*self.grid.data, *self.grid.heldout]
        if not (self.out / RESULTS).is_file() or not file.is_file():
            return
        before = config.read_toml(file)
        earlier = [*before.get("data", ()), *before.get("heldout", ())]
        if list(map(os.path.abspath, earlier)) == list(map(os.path.abspath, texts)):
            return
        if is_prepared(self.grid.data):
            is_known = any(self.run_folder(cell, 1) for cell in self.grid.cells)
        else:
            is_known = any(self.corpora.has_read(recipe) for recipe in self.recipes.values())
        if not is_known:
            raise UserError(
                f"{self.out}: holds the results on another text, {', '.join(earlier)}; choose "
                "another --out"
            )

    def prepare(self) -> None:
        """Make the tokenizers and token shards that do not exist yet.

        Raises:
            UserError: a cell, which is named, cannot use the text (then the folder is left as it
                was, unless something was made); or another process works in the folder.
        """
        before = running.names_in(self.out)
        try:
            with self.locked():
                for cell in self.grid.cells:
                    with _naming_cell(cell.name):
                        recipe = self.recipes[cell.name, 1]
                        texts = _texts(recipe, self.grid.data)
                        require_sentences(recipe, texts, self.grid.heldout)
                for cell in self.grid.cells:
                    with _naming_cell(cell.name):
                        self._require_heldout(self.recipes[cell.name, 1])
                        if self.grid.trials(cell):
                            self.corpora.validation_for(self.recipes[cell.name, 1])
                        for values in self.grid.trials(cell) or [{}]:
                            recipe = self.grid.recipe(cell, 1, values)
                            if not recipe.train.embedding_init.is_random:
                                vocab = self.corpora.tokenizer_for(recipe).vocab
                                first_embeddings.require_budget(recipe, vocab)
        except UserError:
            if not any((self.out / "data").glob("*/*.json")):  # no tokenizer and no shards
                running.undo_start(self.out, before)
            raise

    def _require_heldout(self, recipe: Recipe) -> None:
        """Check that the held-out text of a cell fills a row, where its loss is what is compared.

        Raises:
            UserError: it does not.
        """
        held, length = self.corpora.shards_for(recipe).heldout.tokens_total, recipe.packing.length
        is_loss = self.grid.has_budgets or not (self.grid.tasks or self.grid.probes)
        if is_loss and held < length:
            raise UserError(
                f"{held:,} tokens of held-out text do not fill one row of {length}, so there is no "
                "loss to compare; give more text, name some to hold out with --heldout, or hold "
                "out more by prepare = { heldout = 0.1 } in the grid's [set]"
            )

    def run(self, after_job: Callable[[], None] = lambda: None) -> bool:
        """Run the jobs that are not done; a failure is recorded, and the others are run.

        Args:
            after_job: called after each job that was run.

        Returns:
            False if a signal stopped it.

        Raises:
            UserError: another process works in the folder.
        """
        with self.locked():
            return self._run(after_job)

    def _run(self, after_job: Callable[[], None]) -> bool:
        jobs, was_done = self.jobs(), False
        groups = [
            (
                p.planned and p.planned.round,
                p.probe and p.probe.name,
                p.task and p.task.name,
                p.is_scratch,
            )
            for p in jobs
        ]
        time_left = TimeLeft(groups)
        for number, job in enumerate(jobs):
            if self.is_left_out(job):
                continue
            with self.recording_failure(job):
                seconds = self.seconds_taken(job)
                was_done = seconds is not None
                if not was_done:
                    progress = JobProgress(self.progress, time_left, job, number, len(jobs))
                    progress.show(0.0, 0.0)
                    examples = None if job.task is None else self.examples[job.task.name]
                    content = compute(self.inputs(job), progress, examples)
                    if content is None:
                        return False
                    self.store(job, content)
                    seconds = self.seconds_taken(job)
                time_left.add(number, seconds or 0.0)
            if not was_done:
                after_job()
                if job.task is None and job.probe is None:
                    _free_memory()
        return True

    def is_left_out(self, job: Job) -> bool:
        """Return whether a job cannot be run.

        What it builds on has failed, its pretraining or a trial, or it has nothing to try.
        """
        if job.planned is not None and self.trials.is_empty(job.cell, job.planned):
            return True
        before = self.grid.before(job.cell)
        if before is not None and self.is_left_out(Job(before, job.seed)):
            return True
        needed = [] if before is None else [Job(before, job.seed)]
        return any(
            failed.job in needed or (failed.job.cell == job.cell and _builds_on(job, failed.job))
            for failed in self.failures
        )

    def recipe(self, cell: Cell, seed: int) -> Recipe | None:
        """Return the recipe of a run, with the best values of the cell's sweep.

        None if the sweep is not done, or all of it diverged.
        """
        if (before := self.grid.before(cell)) is not None and cell.budget is not None:
            first = self.recipe(before, seed)
            return None if first is None else going_on(first, cell.budget)
        if not self.grid.trials(cell):
            return self.recipes[cell.name, seed]
        best = self.trials.best(cell)
        return None if best is None else self.grid.recipe(cell, seed, best.values)

    def run_folder(self, cell: Cell, seed: int) -> Path | None:
        """Return the run folder of a cell; None if it has not been begun."""
        key = self._run_key(cell, seed)
        file = key and store.find(self.out / "runs", key)
        return file.with_suffix("") if file else None

    def saved(self, job: Job) -> dict[str, Any] | None:
        """Return the saved result of a probe, a fine-tuning or a baseline; None if not done."""
        folder = self._folder_of(job)
        key = folder and self._key_of(job)
        file = folder and key and store.find(folder, key)
        return stored.read(file) if file else None

    def is_one_tuning(self, job: Job, other: Job) -> bool:
        """Return whether two jobs fine-tune alike, so that one result is that of both."""
        if None in (job.task, other.task):
            return False
        one, two = (replace(j, task=None) for j in (job, other))
        return one == two and self._key_of(job) == self._key_of(other)

    def seconds_taken(self, job: Job) -> float | None:
        """Return how long a job took; None if it is not done."""
        if job.planned is not None:
            trial = self.trials.result(job.cell, job.planned)
            return None if trial is None else trial.seconds
        if not job.is_pretraining:
            saved = self.saved(job)
            return None if saved is None else float(saved["seconds"])
        run = self.run_folder(job.cell, job.seed)
        if run is None or not (run / "recipe.toml").is_file() or not is_finished(run):
            return None
        return float(checkpoint.newest_state(run)["spent"]["seconds"])

    def inputs(self, job: Job) -> JobInputs:
        """Return what a job is computed from; the folder of a run is chosen if it has none.

        Raises:
            UserError: the text is too short for it, or its sweep found no values.
        """
        command = make_provenance()["command"]
        if job.planned is not None:
            recipe, shards, trial = self.trials.begin(job.cell, job.planned)
            return JobInputs(job, command, recipe, _folders(shards), trial)
        if job.is_baseline:
            return JobInputs(job, command)
        run = self.run_folder(job.cell, job.seed)
        if not job.is_pretraining:
            device = self.recipes[job.cell.name, job.seed].train.device
            first = self.grid.task_before(job.task) if job.task and not job.is_scratch else None
            text = _folders(self._text_of(job))
            return JobInputs(job, command, None, text, run, device, first=first)
        run_recipe = self.recipe(job.cell, job.seed)
        if run_recipe is None:
            rounds = {trial.round for trial in self.trials.of(job.cell)}
            of_last = "of the last round " if len(rounds) > 1 else ""
            raise UserError(
                f"every run {of_last}of its sweep diverged; give the cell other values to try"
            )
        if run is None:
            name, key = f"{job.cell.name}-{job.seed}", self._run_key(job.cell, job.seed)
            run = store.publish(self.out / "runs", name, key, {}).with_suffix("")
        run_shards = self.corpora.shards_for(run_recipe)
        before = self.grid.before(job.cell)
        start = None if before is None else self.run_folder(before, job.seed)
        is_alone = self.grid.seeds == 1 and not (self.grid.sources or self.grid.has_budgets)
        folders = _folders(run_shards)
        return JobInputs(
            job, command, run_recipe, folders, run, start=start, keeps_batches=is_alone
        )

    def store(self, job: Job, content: dict[str, Any]) -> None:
        """Save the result of a job; that of a pretraining is its run."""
        if job.planned is not None:
            trial = self.trials.finish(job.cell, job.planned, content)
            loss = "diverged" if trial.loss is None else f"validation loss {trial.loss:.4f}"
            values = "" if job.planned.values is not None else f", {describe(trial.values)}"
            self.progress.note(f"{job}{values}: {loss}")
        elif not job.is_pretraining:
            name = job.cell.name if job.is_scratch else ""
            if job.probe is not None:
                name += f"probe-{job.probe.name}"
            elif job.task is not None:
                name += f"{'-' if name else ''}tune-{kinds.name_of(job.task.task)}"
                name += f"-{job.task.name}"
            folder = self._folder_of(job)
            assert folder is not None
            store.publish(folder, name, self._key_of(job), content)

    def _run_key(self, cell: Cell, seed: int) -> keys.RunKey | None:
        """Return the key of a run; None if the settings that its sweep chooses are not known."""
        recipe = self.recipe(cell, seed)
        if recipe is None:
            return None
        return keys.RunKey(keys.without_labels(recipe), self.corpora.shards_for(recipe).fingerprint)

    def _text_of(self, job: Job) -> PreparedText | None:
        """Return the text that a job measures the loss on; None for other jobs."""
        if not isinstance(job.probe, GridText):
            return None
        recipe = self.recipes[job.cell.name, job.seed]
        return self.corpora.source_shards(recipe, job.probe.source)

    def _key_of(self, job: Job) -> keys.Key | None:
        """Return the key of a job's saved result; None as for the run."""
        if (text := self._text_of(job)) is not None:
            return keys.LossKey(text.fingerprint)
        if isinstance(job.probe, GridProbe):
            return keys.ProbeKey(checksums(job.probe.probe), job.probe.probe)
        assert job.task is not None
        key = self._tuning_key(job.task)
        if not job.is_scratch:
            return key
        recipe = self.recipe(job.cell, job.seed)
        if recipe is None:
            return None
        fields = {
            name: getattr(recipe, name) for name in ("model", "objective", "layout", "packing")
        }
        tokenizer = self.corpora.shards_for(recipe).manifest["tokenizer"]["fingerprint"]
        return replace(key, recipe=type(recipe)(**fields), tokenizer=tokenizer, first=None)

    def _tuning_key(self, task: GridTask) -> keys.TuningKey:
        """Return the key of a fine-tuning of a pretrained model."""
        before, files = self.grid.task_before(task), self.examples[task.name].checksums
        first = None if before is None else self._tuning_key(before)
        return keys.TuningKey(keys.settings_of_task(task), files, version=VERSION, first=first)

    def _folder_of(self, job: Job) -> Path | None:
        """Return the folder of a job's saved result; None if its run has not been begun."""
        if job.is_scratch or job.is_baseline:
            return self.out / ("scratch" if job.is_scratch else "baselines")
        run = self.run_folder(job.cell, job.seed)
        return run and run / "evaluations"

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Keep other processes out of the folder, and write the grid into it."""
        with atomic.locked(self.out):
            atomic.write_text(self.out / GRID_FILE, config.dumps(config.to_table(self.grid)))
            yield

    @contextmanager
    def recording_failure(self, job: Job) -> Iterator[None]:
        """Record an error of a job instead of raising it."""
        try:
            yield
        except Exception as error:
            line = " ".join(str(error).split()) or type(error).__name__
            is_fault = not (isinstance(error, UserError) or is_out_of_memory(error))
            text = f"{type(error).__name__}: {line}" if is_fault else line
            if job.planned is not None and job.planned.values is None:
                text = f"{describe(self.trials.values(job.cell, job.planned) or {})}: {text}"
            self.failures.append(Failure(job, text, is_fault))
            self.progress.note(f"{job}: failed: {text}")


def _builds_on(job: Job, other: Job) -> bool:
    """Return whether a job builds on another one of its cell."""
    if other.planned is None:
        return job.planned is None and other == Job(job.cell, job.seed)
    return job.planned is None or job.planned.round > other.planned.round


def _require_cell(recipe: Recipe, data: Sequence[str]) -> None:
    """Check what is known of a cell before its text is read."""
    running.require_machine(recipe)
    texts = _texts(recipe, data)
    if recipe.data.sources:
        require_text(recipe, texts)
    else:
        require_form(recipe, texts)
    require_memory(recipe, machines=MACHINES)
    if not any(is_prepared([text]) for text in texts):  # prepared text has its own vocabulary
        dry_run(recipe)


def _texts(recipe: Recipe, data: Sequence[str]) -> Sequence[str]:
    """Return the texts of a cell: the grid's, or the path of each of its sources."""
    return source_texts(recipe, data) if recipe.data.sources else data


def _folders(shards: PreparedText | None) -> tuple[str, ...]:
    """Return the folder of shards, or that of each source of a mixture; none without shards."""
    if shards is None:
        return ()
    return tuple(str(source.folder) for source in shards.sources.values()) or (str(shards.folder),)


@contextmanager
def _naming_cell(name: str) -> Iterator[None]:
    """Name the cell in an error."""
    try:
        yield
    except UserError as error:
        raise UserError(f"cell '{name}': {error}") from error


def _holds_other_files(folder: Path) -> bool:
    """Return whether a folder holds more than the first files of a comparison."""
    return any(path.name not in (atomic.LOCK, f".{GRID_FILE}.part") for path in folder.iterdir())


def _free_memory() -> None:
    """Free the memory that the last model took."""
    gc.collect()
    if "torch._dynamo" in sys.modules:  # or all models would share one small cache
        torch.compiler.reset()
    if torch.cuda.is_available():
        torch.cuda.empty_cache()
