"""Prediction with a model tuned to answer in text, which is saved as a run."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any, NoReturn, cast

import pyarrow as pa

from foreword.errors import UserError, quoted_command
from foreword.evaluation.decoding import decode, stops_of, text_of
from foreword.evaluation.loaded import LoadedModel
from foreword.evaluation.sampling import GREEDY
from foreword.runs.trained_model import TrainedModel, open_run
from foreword.tables.columns import PREDICTION
from foreword.tables.examples import LabelledTexts
from foreword.tuning.predict import TunedModel, load_tuned
from foreword.tuning.predictor import Answers, TunedTask, is_tuned
from foreword.tuning.rows import CHUNK
from foreword.tuning.writing import WritingTask


class TunedWriter(LoadedModel):
    """A model tuned to answer in text, with all that a loaded run can do.

    Args:
        trained: the model.
        tuned: the task it was tuned for.
    """

    def __init__(self, trained: TrainedModel, tuned: TunedTask) -> None:
        super().__init__(trained)
        self.task = cast(WritingTask, tuned.task)  # only these are saved as a run
        self.labels, self.template, self.tuned_on = tuned.labels, tuned.template, tuned.tuned_on

    def predict(self, texts: Iterable[Any], pairs: Iterable[str] | None = None) -> list[str | None]:
        """Return the answer to each text or pair: the label of a word it writes, or the text.

        It takes the likeliest token each time, and writes at most as many as the task says, or as
        the longest label of training has. Texts of one length are computed together.

        Args:
            texts: texts, or pairs of texts, in a list, Series or array; or a table, such as a
                DataFrame, with the columns it was tuned on. One longer than `max_tokens` is cut.
                For conversations: lists of messages.
            pairs: the second text of each, if it was tuned on pairs and they are given apart.

        Returns:
            The answers; None for an empty text.

        Raises:
            UserError: an item is not a text, or the numbers of texts and second texts differ.
        """
        inputs = self.tuned_on.examples(texts, pairs, self.task)
        answers = iter(self.answer(inputs.examples, probabilities=False, done=lambda _: None).rows)
        return [
            str(next(answers)[PREDICTION]) if has_text else None for has_text in inputs.has_text
        ]

    def outputs(self, texts: Iterable[Any], pairs: Iterable[str] | None = None) -> NoReturn:
        """Refuse: the model has no head whose outputs it could return.

        Raises:
            UserError: always.
        """
        raise UserError("this model was tuned to answer in text; use `predict`")

    @property
    def source(self) -> Path:
        """The folder it was read from."""
        return self.trained.run

    @property
    def max_tokens(self) -> int:
        """The most tokens that it reads of an example, special ones included."""
        return self.template.length

    def answer_types(self, *, probabilities: bool, is_pair: bool = False) -> dict[str, Any]:
        """See `Predictor`."""
        if probabilities:
            raise UserError("this model was tuned to answer in text, which has no probabilities")
        return {PREDICTION: pa.string()}

    def answer(
        self, examples: LabelledTexts, *, probabilities: bool, done: Callable[[int], None]
    ) -> Answers:
        """See `Predictor`."""
        if not examples:
            return Answers([], 0)
        # Cut each text so that its longest answer still has a position.
        prompted = self.trained
        tokens = self.task.most_tokens(self.labels, prompted)
        starts, cut = self.task.starts(examples, prompted, self.template, tokens)
        # Write texts of similar length together; words that stand for labels become these.
        sizes = [len(start.target if start.source is None else start.source) for start in starts]
        order = sorted(range(len(starts)), key=sizes.__getitem__)
        rows: list[dict[str, Any]] = [{}] * len(starts)
        greedy, stops = replace(GREEDY, tokens=tokens), stops_of(prompted)
        for begin in range(0, len(order), CHUNK):
            chunk = order[begin : begin + CHUNK]
            outputs = decode(prompted, [starts[n] for n in chunk], greedy, stops)
            for n, new in zip(chunk, outputs, strict=True):
                text = text_of(prompted, starts[n], new.ids).strip()
                rows[n] = {PREDICTION: self.task.answer_of(text, self.labels)}
            done(len(chunk))
        return Answers(rows, cut)


def open_tuned(
    folder: str | Path, device: str = "auto", precision: str = "fp32"
) -> TunedModel | TunedWriter:
    """Load a model that `foreword tune` saved, whatever its task.

    Args:
        folder: the `--out` of `foreword tune`.
        device: auto, cpu, cuda or mps.
        precision: auto, bf16 or fp32; fine-tuning scored it in fp32.

    Raises:
        UserError: the folder holds no fine-tuned model, or a damaged one.
    """
    folder = Path(folder)
    if not is_tuned(folder) and (folder / "recipe.toml").is_file():
        raise UserError(
            f"{folder}: was pretrained and not fine-tuned; "
            f"{quoted_command('tune', folder, '--train', 'FILE', '--dev', 'FILE')} teaches it a "
            "task"
        )
    if not (folder / "run.json").is_file():
        return load_tuned(folder, device, precision)
    return TunedWriter(open_run(folder, device, precision), TunedTask.read(folder))
