"""Fine-tuned models, read from their folders: they answer examples and rows of tables.

A `Predictor` answers with labels, numbers or vectors, however it computes; a `TunedWriter` in text.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NoReturn, Self, cast

import numpy as np
import pyarrow as pa
import torch

from foreword.disk import manifest
from foreword.errors import UserError
from foreword.evaluation.loaded import LoadedModel
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
from foreword.tuning.answers import written_answers
from foreword.tuning.encoded import by_example, cut_count, first_windows
from foreword.tuning.input_template import InputTemplate
from foreword.tuning.network import HeadNetwork, Network
from foreword.tuning.outputs import predict
from foreword.tuning.packed_examples import PooledExamples
from foreword.tuning.tasks._contract import PROBABILITY, ExampleOutputs, Task, probability_columns
from foreword.tuning.tasks._writing import AnswerForm, WritingTask
from foreword.tuning.tuned_folder import CHOSEN, FILE, KIND, VERSION, Tuned, TunedOn, is_tuned
from foreword.types import Array

FILES = (FILE, "recipe.toml", "weights.safetensors", "tokenizer/tokenizer.json")
Answered = tuple[list[dict[str, Any]], int]  # the columns of each answer; how many were cut


class Predictor(ABC):
    """The contract of a tuned model.

    Attributes:
        task: the task it was tuned for.
        labels: the labels, in the order of its outputs.
        source: the folder it was read from.
        tuned_on: the form of its training examples.
        device: where its parameters are.
        dtype: the precision it computes in.
    """

    task: Task
    labels: tuple[str, ...]
    source: Path
    tuned_on: TunedOn
    device: torch.device
    dtype: torch.dtype

    @abstractmethod
    def compute(
        self, examples: LabelledTexts, done: Callable[[int], None] = lambda count: None
    ) -> tuple[list[ExampleOutputs], int]:
        """Return what it computes for each example, and how many were cut to the model's length.

        Args:
            examples: with their prefixes.
            done: called with the number of examples computed since the last call.
        """

    @abstractmethod
    def with_task(self, task: Task) -> Self:
        """Return the model with other settings of its task."""

    def at_threshold(self, threshold: float) -> Self:
        """Return the model that predicts a label from this probability on.

        Raises:
            UserError: it has no label to which a threshold could apply.
        """
        settings = self.task.answers.at_threshold(threshold, self.labels)
        return self.with_task(replace(self.task, **settings))

    @property
    @abstractmethod
    def width(self) -> int:
        """The number of outputs of a text."""

    @property
    @abstractmethod
    def max_tokens(self) -> int:
        """The most tokens that it reads of an example, special ones included."""

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
                DataFrame, with the columns it was tuned on. One longer than `max_tokens` is read in
                windows, or cut, by the task's settings. For other tasks what `foreword.predict`
                takes.
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
            outputs: Array = np.full((len(has_text), self.width), np.nan, np.float32)
            if results:
                outputs[has_text] = np.concatenate([result.outputs for result in results])
            return outputs
        arrays = iter(result.outputs for result in results)
        return [next(arrays) if known else None for known in has_text]

    def outputs_of(self, examples: LabelledTexts) -> list[ExampleOutputs]:
        """Return what it computes for each example."""
        return self.compute(examples)[0]

    def answer_types(self, *, probabilities: bool, is_pair: bool = False) -> dict[str, Any]:
        """Return the Arrow type of each column of its answers.

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
        results, cut = self.compute(examples, done)
        return self.task.answers.rows(results, self.labels, probabilities=probabilities), cut


@dataclass(frozen=True, repr=False)
class TunedModel(Predictor):
    """A fine-tuned network with what is needed to predict; see also `Predictor`.

    Attributes:
        network: in evaluation mode, on `device`.
        recipe: the recipe of pretraining.
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

    @property
    def max_tokens(self) -> int:
        return self.template.length

    def with_task(self, task: Task) -> Self:
        return replace(self, task=task)

    def compute(
        self, examples: LabelledTexts, done: Callable[[int], None] = lambda count: None
    ) -> tuple[list[ExampleOutputs], int]:
        """Return what the network computes for each example, and how many were cut.

        Texts of similar length are computed together, so the order of many does not matter.
        """
        if not examples:
            return [], 0
        encoded = self.task.encode(examples, self.tokenizer, self.template)
        firsts = first_windows(encoded)[:-1]
        is_first = np.asarray([not encoded[n].is_further for n in firsts])

        def examples_done(texts: Array) -> None:
            done(int(is_first[texts].sum()))

        unlabelled = PooledExamples.unlabelled(encoded, self.template)
        outputs = predict(self.network, unlabelled, self.device, self.dtype, examples_done)
        return by_example(examples, encoded, outputs), cut_count(encoded)

    @property
    def width(self) -> int:
        settings = self.network.backbone.settings
        layers = 1 if self.network.scalar_mix is None else settings.layers + 1
        with torch.no_grad():
            states = torch.zeros(layers, 1, settings.state_width, device=self.device)
            return int(self.network.outputs(states).shape[-1])


class TunedWriter(LoadedModel):
    """A model tuned to answer in text, with all that a loaded run can do."""

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
        """Raise UserError: the model has no head whose outputs it could return."""
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
        """Raise UserError: a text has no probability."""
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
        form = AnswerForm.of(prompted, self.template)
        starts, cut = self.task.starts(examples, form, tokens)
        found = written_answers(prompted, starts, tokens, lambda numbers: done(len(numbers)))
        # Words that stand for labels become these.
        return [{PREDICTION: self.task.answer_of(text, self.labels)} for text, _ in found], cut


def not_one_network(folder: Path) -> UserError:
    """Return the error that a folder holds an average of candidates."""
    network = folder / "fine_tuned"
    remedy = f"name the network in it, {network}, or " if network.is_dir() else ""
    return UserError(
        f"{folder}: an average of candidates, not one network; {remedy}tune with --strategy full"
    )


def load_tuned(folder: str | Path, device: str = "auto", precision: str = "fp32") -> TunedModel:
    """Load a tuned network with a task's head; `foreword.tuning.open_tuned` opens any tuned model.

    Args:
        precision: auto, bf16 or fp32; fine-tuning scored it in fp32.

    Raises:
        UserError: the folder holds an average of candidates, or what it holds is damaged.
    """
    folder = Path(folder)
    if (folder / CHOSEN).is_file():
        raise not_one_network(folder)
    # Verify the files and the plug-ins before anything is built.
    manifest.verify(folder, KIND, VERSION, FILES)
    tuned = Tuned.read(folder)
    # Build the network, then load its weights.
    recipe = read_recipe(folder)
    tokenizer = Tokenizer.load(folder / "tokenizer", is_part=True)
    backbone = neural(recipe.build(tokenizer.vocab).backbone)
    head = tuned.task.head(backbone.settings.state_width, tuned.labels)
    assert head is not None
    network = HeadNetwork(backbone, head, needs=tuned.task.needs)
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
    return tuned_start(tuned.network, tuned.recipe, tuned.tokenizer, tuned)


def tuned_start(
    network: Network, recipe: Recipe, tokenizer: Tokenizer, on: TunedModel | TrainedModel
) -> TrainedModel:
    """Return what fine-tuning starts from after another one, as `open_start`.

    Args:
        network: what the first one tuned.
        recipe: the recipe of its pretraining.
        tokenizer: the tokenizer, with the tokens that the first one added.
        on: its device and precision, and where it comes from.
    """
    model = recipe.build(tokenizer.vocab)
    initialise(model, recipe.train.seed)
    model.backbone.load_state_dict(network.backbone.state_dict())
    return TrainedModel(
        model=model.to(on.device).eval(),
        recipe=recipe,
        tokenizer=tokenizer,
        device=on.device,
        dtype=on.dtype,
        source=on.source,
        tuned_head=network.head,
    )
