"""The models of a server: what each can do, and requests as work for its thread."""

from __future__ import annotations

import secrets
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch

from foreword.errors import TooLongError, UserError
from foreword.evaluation import decoding, filling, scoring, translation
from foreword.evaluation.beam import Beams
from foreword.evaluation.decoder import TextLimits
from foreword.evaluation.loaded import LoadedModel
from foreword.evaluation.sampling import Sampling
from foreword.evaluation.scorer import padded
from foreword.evaluation.starts import Start, next_token_batch
from foreword.runs.run_folder import open_run
from foreword.runs.trained_model import NEURAL, TrainedModel
from foreword.serving import bodies
from foreword.serving.worker import ItemKind, ModelWorker, RequestJob
from foreword.serving.written import Piece, Wanted, WrittenText
from foreword.settings import kinds
from foreword.tables.chat import ASSISTANT, read_messages, to_text
from foreword.tables.columns import Columns
from foreword.tables.examples import Labelled, LabelledTexts
from foreword.tables.given import records_table
from foreword.tables.reads_rows import ReadsLabelled
from foreword.tables.table import BadRows
from foreword.tuning.example_reader import tuned_examples
from foreword.tuning.predict_table import PredictOptions, output_types, rows_to_predict
from foreword.tuning.tasks._conversations import ConversationTask
from foreword.tuning.tasks._writing import AnswerForm
from foreword.tuning.tuned_model import Predictor, TunedWriter
from foreword.types import Array

MOST_ITEMS = 1024  # prompts, texts or rows of a request
MOST_BLANKS = 256  # of a text that is read again for each
UNLIMITED = 4096  # tokens of a text, of a model without a last position

Opened = LoadedModel | Predictor | TunedWriter
Check = Callable[[TrainedModel], object]


@dataclass(frozen=True)
class Capacity:
    """How much a server takes on for each model.

    Attributes:
        together: the most texts that are generated at the same time.
        queue: the most requests that wait.
        length: the most tokens of a text with its prompt; None for the model's own.
    """

    together: int = 32
    queue: int = 64
    length: int | None = None


class Served:
    """A model that is served.

    Args:
        name: what requests and messages call it.
        opened: the model.
        capacity: how much is taken on.

    Attributes:
        users: the number of requests that use it, counted in the event loop's thread.
    """

    def __init__(self, name: str, opened: Opened, capacity: Capacity) -> None:
        self.name = name
        self._opened, self._capacity, self.users = opened, capacity, 0
        # Its messages name what it was read from: here its name, for no path leaves the machine.
        named = _of_source(opened, Path(name))
        self._trained = named.trained if isinstance(named, LoadedModel) else None
        self._predictor = named if isinstance(named, Predictor | TunedWriter) else None
        self._kept: dict[str, Any] = {}
        self.length = self._most_tokens(capacity.length)
        writer, _ = self.writes or (None, 0)
        self.worker = ModelWorker(name, writer, capacity.together, capacity.queue)

    def at_step(self, name: str, checkpoint: Path) -> Served:
        """Return the model as it was at a checkpoint of its run.

        Args:
            name: what requests and messages call it.
            checkpoint: the folder.

        Raises:
            UserError: the checkpoint is damaged.
        """
        model = self.trained
        precision = "bf16" if model.dtype == torch.bfloat16 else "fp32"
        opened = open_run(checkpoint, str(model.device), precision)
        return Served(name, LoadedModel(opened), self._capacity)

    @property
    def trained(self) -> TrainedModel:
        """The pretrained model.

        Raises:
            UserError: it was tuned for a task, and has the task's outputs alone.
        """
        if self._trained is None:
            raise UserError(f"{self.name}: was tuned for a task; use /predict")
        return self._trained

    @property
    def writes(self) -> tuple[TrainedModel, int] | None:
        """The model that writes token by token, and the most tokens of a text; else None."""
        try:
            self.require_writes()
        except UserError:
            return None
        return self.trained, self.length

    @property
    def abilities(self) -> list[str]:
        """The last parts of the paths that take the model."""
        able = ["predict"] if self._predictor is not None else []
        if isinstance(self._predictor, Predictor):
            embeds = kinds.name_of(self._predictor.task) == "embed"
            return [*able, *["embeddings"] * embeds]
        model = self.trained
        predicts = model.recipe.objective.predicts
        has_head = predicts.tokens and not model.detects_replacements
        is_chat = isinstance(self._chat_task(), ConversationTask)
        writes = self.writes is not None
        fills = has_head and (model.fills_in_place or model.uses_sentinels)
        others = {
            "completions": writes or model.unmasks,
            "chat/completions": is_chat and writes,
            "score": has_head,
            "fill": fills,
            "translate": model.answers,
            "embeddings": not model.is_count_based,
        }
        return [*able, *(name for name, is_able in others.items() if is_able)]

    def about(self) -> dict[str, Any]:
        """Return what /v1/models says of it."""
        about: dict[str, Any] = {"endpoints": self.abilities}
        if self._predictor is not None:
            about["task"] = kinds.name_of(self._predictor.task)
            about["labels"] = list(self._predictor.labels)
            about["max_tokens"] = self._predictor.max_tokens
            tuned = self._predictor.tuned_on
            about["columns"] = {"text": tuned.text, "pair": tuned.pair}
            about["is_pair"] = bool(tuned.pair) if tuned.is_pair is None else tuned.is_pair
        if self._trained is not None:
            named = self._trained.recipe.description
            about["description"] = named or self._trained.description
            about["vocab"] = self._trained.vocab.size
            about["parameters"] = self._trained.model.count_parameters()
            about["max_tokens"] = self.length
            about["reads_source"] = self._trained.answers and not self._trained.uses_sentinels
        if "fill" in self.abilities:
            about["blank"] = filling.blank_of(self.trained)
        return about

    def _most_tokens(self, asked: int | None) -> int:
        if self._trained is None:
            return 0
        own = self._trained.limit or UNLIMITED
        return own if asked is None else min(asked, self._trained.limit or asked)

    def require_writes(self) -> None:
        """Check that the model writes texts token by token, so that it can be batched.

        Raises:
            UserError: it does not.
        """
        decoding.starts_of(self.trained, [])
        if self.trained.unmasks:
            raise self.trained.unable(
                "writes in any order, so /v1/completions and 'foreword generate' have whole texts",
                "causal, encoder-decoder, n-gram",
            )

    # -- texts -------------------------------------------------------------------------------------

    def writing(self, texts: Sequence[WrittenText]) -> RequestJob:
        """Return the work of writing texts: token by token, or of masked diffusion one at a time.

        The events of the former are pieces; the one of the latter is a list of them, a text each.
        """
        model = self.trained
        if not model.unmasks:
            return RequestJob(deque(texts))

        stops = decoding.stops_of(model)

        def compute(some: Sequence[WrittenText]) -> list[Piece | None]:
            for text in some:
                how, least = text.limits.sampling, text.limits.min_tokens
                (new,) = decoding.decode(model, [text.start], how, stops, least)
                text.decoded.ids, text.decoded.stopped = new.ids.tolist(), new.stopped
            return [text.take() for text in some]

        return _job("writing", compute, texts, 1)

    def completion(self, body: bodies.CompletionBody) -> list[WrittenText]:
        """Return the texts that continue prompts.

        Raises:
            UserError: the model does not, or a prompt is empty, too long or not of its tokens.
        """
        if not self.trained.unmasks:
            self.require_writes()
        elif body.logprobs is not None:
            raise UserError(
                "logprobs: a model of masked diffusion has none for each token, but a bound for "
                "the whole text; use /score"
            )
        if body.echo and self.trained.answers:
            raise UserError("echo: this model reads the prompt as a source, and does not repeat it")
        prompts = _items(body.prompt, "prompt")
        _require_few(len(prompts) * body.n, "prompt")
        return [
            text
            for number, prompt in enumerate(prompts)
            for text in self._continued(prompt, number * body.n, body)
        ]

    def _continued(
        self, prompt: str | Array, first: int, body: bodies.CompletionBody
    ) -> list[WrittenText]:
        """Return the texts that continue a prompt, numbered from `first`."""
        model = self.trained
        if isinstance(prompt, str):
            ids, echo = decoding.prompt_ids(model, prompt), prompt
        else:
            ids = self.known(prompt)
            echo = model.tokenizer.decode(ids, skip_special=False)
        start = decoding.start_of_ids(model, ids)
        unseen = len(start.target) - len(ids)
        return self._texts(
            start,
            body,
            Wanted(
                first,
                _stops(body.stop),
                echo if body.echo else None,
                unseen,
                is_scored_only=body.max_tokens == 0,
            ),
            TextLimits(
                self._sampling(body, start, max(body.max_tokens, 1)),
                body.min_tokens,
                scores=body.logprobs is not None,
                alternatives=body.logprobs or 0,
                scores_start=body.echo and body.logprobs is not None,
            ),
        )

    def chat(self, body: bodies.ChatBody) -> list[WrittenText]:
        """Return the texts that answer a conversation.

        Raises:
            UserError: the model was not tuned on conversations, or these are out of order.
        """
        task = self._chat_task()
        if task is None or not isinstance(self._predictor, TunedWriter):
            raise UserError(
                f"{self.name}: was not tuned on conversations, so it has no form for them; tune it "
                "with 'foreword tune RUN --task chat', or use /v1/completions"
            )
        self.require_writes()
        messages = read_messages([_plain(item) for item in body.messages], "messages")
        if not messages or messages[-1].role == ASSISTANT:
            raise UserError("messages: must end with a message of the user")
        most = body.max_completion_tokens or body.max_tokens or task.max_tokens
        most = min(most, self.length)
        form = AnswerForm.of(self.trained, self._predictor.template)
        (start,), _ = task.starts([Labelled(to_text(messages))], form, most)
        limits = TextLimits(
            self._sampling(body, start, most),
            body.min_tokens,
            scores=body.logprobs,
            alternatives=body.top_logprobs if body.logprobs else 0,
        )
        wanted = Wanted(0, _stops(body.stop), is_answer=True)
        return self._texts(start, body, wanted, limits)

    def _chat_task(self) -> ConversationTask | None:
        task = self._predictor.task if isinstance(self._predictor, TunedWriter) else None
        return task if isinstance(task, ConversationTask) else None

    def _texts(
        self, start: Start, body: bodies.Generates, wanted: Wanted, limits: TextLimits
    ) -> list[WrittenText]:
        """Return the `n` texts after a start."""
        if not self.trained.unmasks:
            next_token_batch(self.trained, [start])  # whether it can be read
        return [
            WrittenText(
                self.trained,
                replace(start, number=n),
                limits,
                replace(wanted, number=wanted.number + n, is_whole=not body.stream),
            )
            for n in range(body.n)
        ]

    def _sampling(self, body: bodies.Generates, start: Start, most: int) -> Sampling:
        """Return the settings of sampling after a start."""
        self.require_length(start)
        room = self.length + 1 - len(start.target)  # the last position predicts one more
        seed = secrets.randbits(32) if body.seed is None else body.seed
        return Sampling(min(most, room), body.temperature, body.top_k, body.top_p, seed)

    def require_length(self, start: Start) -> None:
        """Check that a text may begin with a start.

        Raises:
            TooLongError: it is longer than the model reads.
        """
        self._require_length(
            "the prompt", len(start.target) + (0 if start.source is None else len(start.source))
        )

    def _require_length(self, what: str, length: int) -> None:
        if length > self.length:
            raise TooLongError(
                f"{what} has {length:,} tokens, and {self.name} reads {self.length:,}"
            )

    def _read_whole(self, texts: Sequence[str]) -> Sequence[str]:
        """Return texts that are read at once, or again for each token, if they are short enough.

        Masked diffusion reads a text again for each blank.
        """
        for text in texts:
            ids = self.tokens(text)
            self._require_length("text: one", len(ids))
            blanks = len(filling.blanks_in(self.trained, ids)) if self.trained.unmasks else 0
            if blanks > MOST_BLANKS:
                raise TooLongError(f"text: one has {blanks:,} blanks; at most {MOST_BLANKS}")
        return texts

    def kept(self, name: str, compute: Callable[[], Any]) -> Any:
        """Return what was computed under a name before; computed now if it is the first time."""
        if name not in self._kept:
            self._kept[name] = compute()
        return self._kept[name]

    def known(self, ids: Array) -> Array:
        """Return ids that are the model's tokens.

        Raises:
            UserError: one is not.
        """
        size = self.trained.vocab.size
        if len(ids) and (ids.min() < 0 or ids.max() >= size):
            wrong = next(i for i in ids.tolist() if not 0 <= i < size)
            raise UserError(f"there is no token {wrong}: ids are from 0 to {size - 1:,}")
        return ids

    def tokens(self, text: str) -> Array:
        """Return the ids of a text, in which names of special tokens become these."""
        return self.trained.tokenizer.encode(text, special=True)

    def text(self, ids: Sequence[int]) -> str:
        """Return the text of ids."""
        known = self.known(ids_of(ids, "tokens"))
        return self.trained.tokenizer.decode(known, skip_special=False)

    # -- items -------------------------------------------------------------------------------------

    def embedding(self, body: bodies.EmbeddingBody) -> tuple[RequestJob, int]:
        """Return the work of representing texts as vectors, and the number of their tokens.

        The vector is what the model was tuned to give, else the mean of the last hidden states.

        Raises:
            UserError: the model has no vectors, or a text is empty or too long.
        """
        items = _items(body.input, "input")
        if isinstance(self._predictor, Predictor):
            return self._tuned_embedding(self._predictor, items), 0
        model = self.trained
        if model.is_count_based:
            raise model.unable("has no hidden states", NEURAL)
        wrapped = []
        for item in items:
            ids = self.tokens(item) if isinstance(item, str) else self.known(item)
            wrapped.append(model.with_special_tokens(ids))
            self._require_length("input: a text", len(wrapped[-1]))
        if not all(map(len, wrapped)):
            raise UserError("input: a text is empty; there is nothing to embed")

        def compute(some: Sequence[Array]) -> list[Array]:
            states = model.encode(padded(some))
            return [row[: len(ids)].mean(0) for row, ids in zip(states, some, strict=True)]

        return _job("embeddings", compute, wrapped, 32), sum(map(len, wrapped))

    def _tuned_embedding(self, predictor: Predictor, items: Sequence[str | Array]) -> RequestJob:
        if "embeddings" not in self.abilities:
            raise UserError(
                f"{self.name}: was tuned to {predictor.task.answers.purpose}; use /predict"
            )
        texts = [item for item in items if isinstance(item, str)]
        if len(texts) < len(items):
            raise UserError("input: this model takes texts, not token ids")
        if not all(text.strip() for text in texts):
            raise UserError("input: a text is empty; there is nothing to embed")

        def compute(some: Sequence[str]) -> list[Array]:
            return list(np.asarray(predictor.outputs(some)))

        return _job("embeddings", compute, texts, 32)

    def fill(self, body: bodies.FillBody) -> RequestJob:
        """Return the work of filling blanks."""
        model = self.trained

        def compute(some: Sequence[str]) -> list[filling.FilledText]:
            return [filling.fill(model, text, body.top) for text in some]

        texts = self._read_whole(_texts(body.text, "text"))
        return _job(("fill", body.top), compute, texts, 4)

    def score(self, body: bodies.ScoreBody) -> tuple[RequestJob, str]:
        """Return the work of scoring texts, and what the first token of each is given."""
        model, texts = self.trained, _texts(body.text, "text")
        model.require_token_head()
        sources: Sequence[str | None] = (
            [body.source] if isinstance(body.source, str) else (body.source or [None] * len(texts))
        )
        if len(sources) != len(texts):
            raise UserError(f"source: {len(sources)} for {len(texts)} texts; give one for each")

        def compute(some: Sequence[tuple[str, str | None]]) -> list[scoring.TextScore]:
            return scoring.score_pairs(model, some, body.stride)

        pairs = list(zip(texts, sources, strict=True))
        at_once = 16
        if not (model.continues or model.answers):  # a masked one reads each often
            at_once, texts = 1, self._read_whole(texts)
        return _job(("score", body.stride), compute, pairs, at_once), scoring.first_context(model)

    def translate(self, body: bodies.TranslateBody) -> RequestJob:
        """Return the work of translating texts."""
        model = self.trained
        beams = Beams(body.beams, body.length_penalty, min(body.max_tokens, self.length))

        def compute(some: Sequence[str]) -> list[str]:
            return list(translation.translate(model, some, beams))

        next(translation.translate(model, [""], beams))  # whether it does
        texts = self._read_whole(_texts(body.text, "text"))
        return _job(("translate", beams), compute, texts, 8)

    def predict(self, body: bodies.PredictBody) -> tuple[RequestJob, list[dict[str, Any]]]:
        """Return the work of predicting for rows, and the rows: an empty one has no answer.

        Raises:
            UserError: the model was not tuned, or a row is not what it was tuned on.
        """
        if self._predictor is None:
            raise UserError(
                f"{self.name}: was pretrained and not fine-tuned; 'foreword tune' teaches it a task"
            )
        _require_few(len(body.data), "data")
        model: Any = self._predictor
        if body.threshold is not None:
            model = model.at_threshold(body.threshold)
        # Read the rows as examples.
        if body.data and all(isinstance(row, Mapping) for row in body.data):
            tuned = model.tuned_on
            table, columns = (
                records_table(body.data, "data", ()),
                Columns(tuned.text, "", tuned.pair),
            )
        else:
            table, columns = rows_to_predict(list(body.data), model, {}, ())
        how = PredictOptions(columns, BadRows(), body.prefix, body.probabilities)
        types = [name for name in output_types(table, model, how) if name not in table.types]
        read = list(how.bad.examples(table, table.rows(), columns, model.task.reader.read))
        examples = [None if e is None else model.tuned_on.with_prefix(e, body.prefix) for e in read]
        rows = [{**row, **dict.fromkeys(types)} for _, row in table.rows()]
        items = [(n, example) for n, example in enumerate(examples) if example is not None]
        return self._predicted(items, body.threshold, probabilities=body.probabilities), rows

    def _predicted(
        self,
        items: Sequence[tuple[int, Labelled]],
        threshold: float | None = None,
        *,
        probabilities: bool,
    ) -> RequestJob:
        """Return the work of predicting for examples with the numbers of their rows."""
        model: Any = self._predictor
        if threshold is not None:
            model = model.at_threshold(threshold)

        def compute(some: Sequence[tuple[int, Labelled]]) -> list[dict[str, Any]]:
            texts = LabelledTexts.of(example for _, example in some)
            answers, cut = model.answer(texts, probabilities=probabilities, done=lambda count: None)
            if cut and len(some) > 1:  # which of them?
                return [compute([one])[0] for one in some]
            return [
                {"row": number, "answer": answer, "is_cut": bool(cut)}
                for (number, _), answer in zip(some, answers, strict=True)
            ]

        return _job(("predict", probabilities, threshold), compute, items, 32)

    @cached_property
    def _dev(self) -> Sequence[Labelled]:
        """The examples that the model was scored on when it was tuned.

        Raises:
            UserError: it was not tuned, or they are not where they were.
        """
        if not isinstance(self._opened, Predictor | TunedWriter):
            raise UserError(
                f"{self.name}: was pretrained and not fine-tuned; 'foreword tune' teaches it a task"
            )
        try:
            return list(tuned_examples([self._opened], None, ReadsLabelled())[0].examples)
        except (UserError, KeyError):  # their message would name files
            raise UserError(
                f"{self.name}: the examples that it was scored on are not where they were; open a "
                "file of examples"
            ) from None

    def examples(self, body: bodies.ExamplesBody) -> tuple[RequestJob, list[dict[str, Any]], int]:
        """Return the work of predicting for some of the examples that it was scored on.

        Besides it these examples, each as a row, and the number of all are returned.

        Raises:
            UserError: as `_dev`.
        """
        some = self._dev[body.first : body.first + body.count]
        model: Any = self._predictor
        is_pair = any(example.pair is not None for example in some)
        types = model.task.answers.types(model.labels, probabilities=False, is_pair=is_pair)
        rows = [
            {"number": n, "text": e.text, "pair": e.pair, "label": e.label, **dict.fromkeys(types)}
            for n, e in enumerate(some, body.first)
        ]
        return self._predicted(list(enumerate(some)), probabilities=False), rows, len(self._dev)


def _of_source(opened: Opened, source: Path) -> Opened:
    """Return the same model, said to be read from another place."""
    if not isinstance(opened, LoadedModel):
        return replace(opened, source=source)  # type: ignore[type-var]
    other = copy(opened)
    other.trained = replace(opened.trained, source=source)
    return other


def _job(
    key: Any, compute: Callable[[Sequence[Any]], Sequence[Any]], items: Any, most: int
) -> RequestJob:
    return RequestJob(deque(enumerate(items)), ItemKind(key, compute, most))


def _items(value: Any, name: str) -> list[str | Array]:
    """Return prompts as texts and ids: a text, a list of ids, or a list of these."""
    if isinstance(value, str) or (value and isinstance(value[0], int)):
        value = (value,)
    _require_few(len(value), name)
    return [item if isinstance(item, str) else ids_of(item, name) for item in value]


def ids_of(ids: Sequence[int], name: str) -> Array:
    """Return the ids that a key of a request holds.

    Raises:
        UserError: one is too great to be a token.
    """
    if any(abs(i) > 1 << 31 for i in ids):
        raise UserError(f"{name}: there is no such token")
    return np.asarray(ids, np.int64)


def _texts(value: str | Sequence[str], name: str) -> Sequence[str]:
    texts = [value] if isinstance(value, str) else value
    _require_few(len(texts), name)
    return texts


def _require_few(count: int, name: str) -> None:
    if not count:
        raise UserError(f"{name}: is empty")
    if count > MOST_ITEMS:
        raise TooLongError(f"{name}: asks for {count:,} texts; at most {MOST_ITEMS:,} at once")


def _stops(value: str | Sequence[str]) -> Sequence[str]:
    return (value,) if isinstance(value, str) else value


def _plain(message: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return a message whose content, perhaps a list of parts of text, is text."""
    content = message.get("content")
    if not isinstance(content, list):
        return message
    texts = [part.get("text") if isinstance(part, Mapping) else None for part in content]
    if not all(isinstance(text, str) for text in texts):
        raise UserError("messages: 'content' must be text, or a list of parts of type text")
    return {**message, "content": "".join(map(str, texts))}
