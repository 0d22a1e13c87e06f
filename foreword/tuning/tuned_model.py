"""Fine-tuned models, read from their folders: they answer examples and rows of tables."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NoReturn, cast

import numpy as np
import pyarrow as pa
import torch

from foreword.disk import manifest
from foreword.errors import UserError, quoted_command
from foreword.evaluation.decoding import decode, stops_of, text_of
from foreword.evaluation.loaded import LoadedModel
from foreword.evaluation.sampling import GREEDY
from foreword.nn.init import initialise
from foreword.nn.model import neural
from foreword.runs.recipe import Recipe
from foreword.runs.run_folder import is_run, open_run, read_recipe
from foreword.runs.trained_model import TrainedModel
from foreword.settings import kinds
from foreword.tables.columns import PREDICTION
from foreword.tables.examples import LabelledTexts
from foreword.text.tokenizer import Tokenizer
from foreword.train.checkpoint import load_weights
from foreword.train.device import choose_device, choose_precision
from foreword.tuning.encoded import by_example, cut_count, output_counts
from foreword.tuning.input_template import InputTemplate
from foreword.tuning.network import HeadNetwork, Network
from foreword.tuning.outputs import predict
from foreword.tuning.rows import CHUNK, PooledExamples
from foreword.tuning.tasks._contract import (
    PROBABILITY,
    EncodedExample,
    ExampleOutputs,
    Task,
    probability_columns,
)
from foreword.tuning.tasks._writing import WritingTask
from foreword.tuning.tuned import FILE, KIND, VERSION, Tuned, TunedOn, is_tuned
from foreword.types import Array

FILES = (FILE, "recipe.toml", "weights.safetensors", "tokenizer/tokenizer.json")
Answered = tuple[list[dict[str, Any]], int]  # the columns of each answer; how many were cut


@dataclass(frozen=True, repr=False)
class TunedModel:
    """A fine-tuned network with what is needed to predict.

    Attributes:
        network: in evaluation mode, on `device`.
        task: the task it was tuned for.
        labels: the labels, in the order of its outputs.
        template: the input template.
        tokenizer: the one it was trained with.
        device: where the network's parameters are.
        dtype: the precision it computes in.
        recipe: the recipe of pretraining.
        source: the folder it was read from.
        tuned_on: the form of its training examples.
    """

    network: Network
    task: Task
    labels: tuple[str, ...]
    template: InputTemplate
    tokenizer: Tokenizer
    device: torch.device
    dtype: torch.dtype
    recipe: Recipe
    source: Path
    tuned_on: TunedOn = TunedOn()

    def __repr__(self) -> str:
        labels = f"{len(self.labels):,} labels, " if self.task.judge.has_classes else ""
        return f"<{kinds.name_of(self.task)}, {labels}{self.source}>"

    def predict(
        self, texts: Iterable[Any], pairs: Iterable[str] | None = None
    ) -> tuple[list[Any], Any]:
        """Return the most probable label of each text or pair, and all probabilities.

        Texts of similar length are computed together, so the order of many does not matter.

        Args:
            texts: texts, or pairs of texts, in a list, Series or array; or a table, such as a
                DataFrame, with the columns it was tuned on. One longer than `max_tokens` is cut.
                For other tasks what `foreword.predict` takes.
            pairs: the second text of each, if it was tuned on pairs and they are given apart.

        Returns:
            Labels, lists of them if it was tuned on lists, and probabilities (texts, labels) in the
            order of `labels`; for an empty text, None and nan. Of other tasks the answers and their
            probabilities, as `foreword.predict` gives them.

        Raises:
            UserError: an item is not a text, the numbers of texts and second texts differ, or the
                task is regression or embedding, whose answers `outputs` returns.
        """
        examples, has_text = self.tuned_on.examples(texts, pairs, self.task)
        if PROBABILITY not in self.task.answers.types(
            self.labels, probabilities=False, is_pair=False
        ):
            raise UserError(f"this model was tuned to {self.task.answers.purpose}; use `outputs`")
        has_classes, results = self.task.judge.has_classes, self.outputs_of(examples)
        answers = iter(self.task.answers.rows(results, self.labels, probabilities=has_classes))
        rows = [next(answers) if known else {} for known in has_text]
        predictions = [row.get(PREDICTION) for row in rows]
        if not has_classes:
            return predictions, [row.get(PROBABILITY) for row in rows]
        names = probability_columns(self.labels)
        shares = [[row.get(name, np.nan) for name in names] for row in rows]
        return predictions, np.array(shares, np.float32).reshape(len(rows), len(names))

    def outputs(self, texts: Iterable[Any], pairs: Iterable[str] | None = None) -> Any:
        """Return the head's outputs for each text or pair, (texts, outputs) float32.

        These are logits (`classify`), the predicted number (`regress`) or a vector (`embed`); nan
        for an empty text. Where an example has several, such as the words of a sentence or the
        vectors of a pair: a list of (n, outputs) each.

        Raises:
            UserError: an item is not a text, or the numbers of texts and second texts differ.
        """
        examples, has_text = self.tuned_on.examples(texts, pairs, self.task)
        results = self.outputs_of(examples)
        if self.task.reader.takes_texts and all(len(result.outputs) == 1 for result in results):
            return self._in_place(results, has_text)
        arrays = iter(result.outputs for result in results)
        return [next(arrays) if known else None for known in has_text]

    def outputs_of(self, examples: LabelledTexts) -> list[ExampleOutputs]:
        """Return what the network computes for each example."""
        return self._compute(self._encode(examples), examples)

    def _in_place(self, results: Sequence[ExampleOutputs], has_text: Array) -> Array:
        """Return the output of each text, (texts, outputs) float32; nan where there is none."""
        outputs: Array = np.full((len(has_text), self.width), np.nan, np.float32)
        if results:
            outputs[has_text] = np.concatenate([result.outputs for result in results])
        return outputs

    @property
    def max_tokens(self) -> int:
        """The most tokens that it reads of an example, special ones included."""
        return self.template.length

    def at_threshold(self, threshold: float) -> TunedModel:
        """Return the model that predicts a label from this probability on.

        Raises:
            UserError: it has no label to which a threshold could apply.
        """
        settings = self.task.answers.at_threshold(threshold, self.labels)
        return replace(self, task=replace(self.task, **settings))

    def answer_types(self, *, probabilities: bool, is_pair: bool = False) -> dict[str, Any]:
        """Return the Arrow type of each column of its answers.

        Args:
            probabilities: whether there is a column for the probability of each label.
            is_pair: whether the examples have second texts.

        Raises:
            UserError: the task has no probabilities.
        """
        return self.task.answers.types(self.labels, probabilities=probabilities, is_pair=is_pair)

    def answer(
        self, examples: LabelledTexts, *, probabilities: bool, done: Callable[[int], None]
    ) -> Answered:
        """Return the answer to each example, and how many were cut to the model's length.

        Args:
            examples: with their prefixes.
            done: called with the number of examples answered since the last call.
        """
        encoded = self._encode(examples)
        results = self._compute(encoded, examples, done)
        rows = self.task.answers.rows(results, self.labels, probabilities=probabilities)
        return rows, cut_count(encoded)

    def _encode(self, examples: LabelledTexts) -> Sequence[EncodedExample]:
        return self.task.encode(examples, self.tokenizer, self.template) if examples else []

    def _compute(
        self,
        encoded: Sequence[EncodedExample],
        examples: LabelledTexts,
        done: Callable[[int], None] | None = None,
    ) -> list[ExampleOutputs]:
        """Return what the network computes for each example."""
        if not encoded:
            return []
        is_first = np.asarray([not example.is_further for example in encoded])

        def examples_done(inputs: Array) -> None:
            if done is not None:
                done(int(is_first[inputs].sum()))

        targets = [np.zeros(count, np.int64) for count in output_counts(encoded)]
        unlabelled = PooledExamples(encoded, targets, self.template)
        outputs = predict(self.network, unlabelled, self.device, self.dtype, examples_done)
        return by_example(examples, encoded, outputs)

    @property
    def width(self) -> int:
        """The number of outputs of the head."""
        with torch.no_grad():
            states = torch.zeros(1, self.network.backbone.settings.state_width, device=self.device)
            return int(self.network.head(states).shape[-1])


class TunedWriter(LoadedModel):
    """A model tuned to answer in text, with all that a loaded run can do.

    Args:
        tuned: the task it was tuned for.
    """

    def __init__(self, trained: TrainedModel, tuned: Tuned) -> None:
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
        examples, has_text = self.tuned_on.examples(texts, pairs, self.task)
        answers = iter(self.answer(examples, probabilities=False, done=lambda _: None)[0])
        return [str(next(answers)[PREDICTION]) if known else None for known in has_text]

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

    def at_threshold(self, threshold: float) -> NoReturn:
        """Refuse: a text has no probability.

        Raises:
            UserError: always.
        """
        raise UserError("--threshold: this model was tuned to answer in text")

    def answer_types(self, *, probabilities: bool, is_pair: bool = False) -> dict[str, Any]:
        """Return the Arrow type of each column of its answers; see `TunedModel`."""
        if probabilities:
            raise UserError("this model was tuned to answer in text, which has no probabilities")
        return {PREDICTION: pa.string()}

    def answer(
        self, examples: LabelledTexts, *, probabilities: bool, done: Callable[[int], None]
    ) -> Answered:
        """Return the answer to each example, and how many were cut; see `TunedModel`."""
        if not examples:
            return [], 0
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
        return rows, cut


def load_tuned(folder: str | Path, device: str = "auto", precision: str = "fp32") -> TunedModel:
    """Load a model that `foreword tune` saved.

    Args:
        folder: the `--out` of `foreword tune`.
        precision: auto, bf16 or fp32; fine-tuning scored it in fp32.

    Raises:
        UserError: the folder holds no fine-tuned model, or a damaged one.
    """
    folder = Path(folder)
    if not folder.is_dir():
        raise UserError(f"{folder}: no such folder")
    if not is_tuned(folder):
        is_run = (folder / "recipe.toml").is_file()
        hint = "; it is a run, which 'foreword tune' fine-tunes" if is_run else ""
        raise UserError(f"{folder}: not a fine-tuned model (no {FILE}){hint}")
    if (folder / "run.json").exists():
        raise UserError(f"{folder}: answers in text; use {quoted_command('generate', folder)}")
    # Verify the files and the plug-ins before anything is built.
    manifest.verify(folder, KIND, VERSION, FILES)
    tuned = Tuned.read(folder)
    # Build the network, then load its weights.
    recipe = read_recipe(folder)
    tokenizer = Tokenizer.load(folder / "tokenizer", is_part=True)
    backbone = neural(recipe.build(tokenizer.vocab).backbone)
    head = tuned.task.head(backbone.settings.state_width, tuned.labels)
    assert head is not None
    network = HeadNetwork.of(tuned.task, backbone, head)
    load_weights(folder, network)
    chosen_device = choose_device(device)
    return TunedModel(
        network=network.to(chosen_device).eval(),
        task=tuned.task,
        labels=tuned.labels,
        template=tuned.template,
        tokenizer=tokenizer,
        device=chosen_device,
        dtype=choose_precision(precision, chosen_device),
        recipe=recipe,
        source=folder,
        tuned_on=tuned.tuned_on,
    )


def open_tuned(
    folder: str | Path, device: str = "auto", precision: str = "fp32"
) -> TunedModel | TunedWriter:
    """Load a model that `foreword tune` saved, whatever its task.

    Args:
        folder: the `--out` of `foreword tune`.
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
    return TunedWriter(open_run(folder, device, precision), Tuned.read(folder))


def open_start(path: Path, device: str = "auto") -> TrainedModel:
    """Open what fine-tuning starts from: a run, one of its checkpoints, or a tuned model.

    A tuned model has its backbone, in the recipe of pretraining, and its head besides; the heads of
    pretraining it has no more, and they are random.

    Raises:
        UserError: there is no such folder, or it is damaged.
    """
    if not is_tuned(path) or is_run(path):  # one that answers in text is a run itself
        return open_run(path, device)
    tuned = load_tuned(path, device)
    model = tuned.recipe.build(tuned.tokenizer.vocab)
    initialise(model, tuned.recipe.train.seed)
    model.backbone.load_state_dict(tuned.network.backbone.state_dict())
    return TrainedModel(
        model=model.to(tuned.device).eval(),
        recipe=tuned.recipe,
        tokenizer=tuned.tokenizer,
        device=tuned.device,
        dtype=tuned.dtype,
        source=path,
        tuned_head=tuned.network.head,
    )
