"""The unlabelled text of `tune`: a run that continues the model on it, made once and kept."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from foreword.data.read_documents import read_documents
from foreword.disk import atomic, stored
from foreword.display.progress import ProgressDisplay
from foreword.errors import UserError
from foreword.runs.recipe import load_recipe
from foreword.runs.run import is_begun
from foreword.runs.run_folder import is_finished
from foreword.runs.trained_model import TrainedModel
from foreword.tables.columns import Columns
from foreword.tables.examples import Labelled
from foreword.tables.files import SEPARATED, ending_of
from foreword.tables.read import read_table
from foreword.tables.table import labelled
from foreword.train import log, tensor_files
from foreword.tuning.job import Examples
from foreword.tuning.tasks._contract import Task
from foreword.tuning.tuned_folder import is_tuned
from foreword.verbs._arguments import texts_file
from foreword.verbs._contract import PathName
from foreword.verbs.pretrain import Pretrain
from foreword.verbs.resume import Resume

RECIPE, FOLDER = "adapt_encoder", "adapted"
NEW = "new"  # the source of the new text in a continued run


@dataclass(frozen=True)
class Unlabelled:
    """Unlabelled text of a task, and how a model is continued on it.

    Attributes:
        files: files, folders, globs.
        columns: the columns of text and second text in tables.
        settings: `--set` of the recipe that continues the model.
    """

    run: PathName
    files: Sequence[str]
    columns: Columns
    settings: Sequence[str]
    device: str
    progress: bool | ProgressDisplay

    def __post_init__(self) -> None:
        if is_tuned(Path(self.run)):
            raise UserError(
                f"--unlabelled: {self.run} is a tuned model; name the run it was tuned from"
            )
        load_recipe(RECIPE, self.settings)  # its mistakes are told before text is read

    def adapt(
        self, trained: TrainedModel, examples: Examples, task: Task, display: ProgressDisplay
    ) -> tuple[Path, Examples]:
        """Return a run that continues the model on the text, and the examples with a note of it.

        The run is named by a digest of the model, the texts and the settings, so that it is never
        one of others. One that was interrupted is resumed.

        Args:
            examples: the labelled examples, whose training texts are read too.

        Raises:
            UserError: the text or the continuation is refused.
            KeyboardInterrupt: it was stopped before its end.
        """
        texts = _Texts(self, trained, examples, task)
        digest = hashlib.blake2b(digest_size=4)
        of_model = tensor_files.checksum(trained.folder, "weights"), trained.recipe.dumps()
        for text in (*of_model, load_recipe(RECIPE).dumps(), *self.settings, *texts):
            digest.update(stored.to_json(text).encode())
        name = Path(self.files[0]).name.partition(".")[0].strip("*") or "text"
        run = trained.run / FOLDER / f"{name}-{digest.hexdigest()}"
        lines = [
            f"{texts.count:,} unlabelled texts, those of the training examples among them; "
            f"{texts.left:,} that are dev or test texts are left out",
            f"adapted model: {run}",
        ]
        for line in lines:
            display.note(line)
        if not (is_begun(run) and is_finished(run)) and not self._verb(run, texts)().is_done:
            raise KeyboardInterrupt("interrupted; the same command continues")
        about = {"unlabelled": list(self.files), "adapted": str(run.resolve())}
        notes = [*examples.notes, *lines, _losses(run)]
        return run, replace(examples, about={**(examples.about or {}), **about}, notes=notes)

    def _verb(self, run: Path, texts: Iterable[str]) -> Pretrain | Resume:
        """Return what trains the run, from its start or from where it was interrupted."""
        if is_begun(run):
            return Resume(run, progress=self.progress)
        with atomic.writing(texts_file(run)) as file:
            file.writelines(stored.to_json({"text": text}) + "\n" for text in texts)
        settings = [*self.settings]
        settings += [] if self.device == "auto" else [f"train.device={self.device}"]
        return Pretrain(
            RECIPE,
            texts_file(run),
            run,
            from_=self.run,
            settings=settings,
            progress=self.progress,
        )


def _losses(run: Path) -> str:
    """Return the loss on unlabelled text that was held out, before and after, in words."""
    records = [record for record in log.read(run) if record["kind"] == "heldout"]
    # Where the model's own text is not read as well, the new text is the only source.
    sources = [record.get("sources", {NEW: record["loss"]}) for record in records]
    if not sources or NEW not in sources[0]:
        few = "loss on the unlabelled texts: too few were held out to measure it"
        return f"{few}; --set adapt.prepare.heldout=0.1 holds out a tenth"
    before, after = sources[0][NEW], sources[-1][NEW]
    return f"loss on unlabelled texts held out: {before:.3f} before, {after:.3f} after adapting"


class _Texts:
    """The unlabelled texts and those of the training examples, without dev and test texts.

    Attributes:
        count: how many there are, once they were read.
        left: how many were left out.
    """

    def __init__(
        self, given: Unlabelled, trained: TrainedModel, examples: Examples, task: Task
    ) -> None:
        self._files, self._columns = given.files, given.columns
        self._read = replace(
            trained.recipe.read, field=given.columns.text, target="", blank_lines=False
        )
        self._task = task
        self._train = examples.train
        scored = (examples.dev, *examples.extra.values())
        self._scored = {_key(text) for part in scored for text in self._texts_of(part)}
        self.count = self.left = 0

    def __iter__(self) -> Iterator[str]:
        self.count = self.left = 0
        for text in self._all():
            if _key(text) in self._scored:
                self.left += 1
                continue
            lines = text.split("\n")  # a file may have a text in each
            kept = [line for line in lines if _key(line) not in self._scored]
            self.left += len(lines) - len(kept)
            if any(kept):
                self.count += 1
                yield "\n".join(kept)

    def _all(self) -> Iterator[str]:
        for path in self._files:
            if ending_of(Path(path)) in SEPARATED:
                table = read_table(path, are_numbers=self._columns.are_numbers)
                rows = labelled(table, self._columns, needs_label=False)[0]
                yield from (text for row in rows for text in (row.text, row.pair) if text)
            else:
                yield from (document.text for document in read_documents([path], self._read))
        yield from dict.fromkeys(self._texts_of(self._train))

    def _texts_of(self, examples: Sequence[Labelled]) -> Iterable[str]:
        """Return the texts of examples as they stand in the data."""
        exports = self._task.exports
        for example in examples:
            if exports is not None:
                texts = [text for texts in exports.texts(example) for text in texts]
            elif self._task.reader.takes_texts:
                texts = [example.text, example.pair or ""]
            else:
                texts = []
            yield from filter(None, texts)


def _key(text: str) -> str:
    return " ".join(text.split())
