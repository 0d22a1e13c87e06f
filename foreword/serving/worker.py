"""The one thread that computes with a model: texts step by step together, other work in between.

Texts of several requests are generated together, a token at a time; others join between two steps,
so that no request waits for another's end. Other work is done in batches of items, of several
requests if they ask for the same; after each batch all texts take a step.
"""

from __future__ import annotations

import asyncio
import threading
import traceback
from collections import Counter, deque
from collections.abc import Callable, Hashable, Iterable, Sequence
from contextlib import nullcontext, suppress
from dataclasses import dataclass, field
from typing import Any

import torch

from foreword.errors import UserError
from foreword.evaluation.decoder import Decoder, threads_for
from foreword.evaluation.decoding import stops_of
from foreword.nn.linear import packed_weights
from foreword.runs.trained_model import TrainedModel
from foreword.serving.written import Piece, WrittenText

READ_AT_ONCE = 2048  # tokens of prompts that are read before all texts take a step


class FullError(Exception):
    """As many requests wait as may."""


@dataclass(frozen=True)
class ItemKind:
    """Work on items that does not depend on which of them are computed together.

    Attributes:
        key: items of equal keys may be computed together.
        compute: returns the result of each of some items.
        at_once: the most of them.
    """

    key: Hashable
    compute: Callable[[Sequence[Any]], Sequence[Any]]
    at_once: int


@dataclass(eq=False)
class RequestJob:
    """The work of a request.

    Attributes:
        waiting: texts to write, or items with their numbers, that are not begun.
        kind: what is computed for items; None for texts.
        events: pieces of texts, the results of all items, or an error.
        is_cancelled: whether nobody waits for it any more.
    """

    waiting: deque[Any]
    kind: ItemKind | None = None
    results: dict[int, Any] = field(default_factory=dict)
    events: asyncio.Queue[Any] = field(default_factory=asyncio.Queue)
    is_cancelled: bool = False
    loop: asyncio.AbstractEventLoop | None = None

    def __post_init__(self) -> None:
        self.size = len(self.waiting)

    def post(self, event: Any) -> None:
        """Pass an event to the request, from the worker's thread."""
        assert self.loop is not None
        with suppress(RuntimeError):  # the server has ended
            self.loop.call_soon_threadsafe(self.events.put_nowait, event)

    def fail(self, error: Exception) -> None:
        """Pass an error to the request, which ends it."""
        self.is_cancelled = True
        self.post(error)


class ModelWorker:
    """What computes with one model, in a thread of its own.

    Args:
        name: the model's.
        prompted: a model that writes texts; None for one that has items alone.
        together: the most texts that are generated together.
        queue: the most requests that wait for a place.

    Attributes:
        counts: tokens of prompts and new ones, and steps.
    """

    def __init__(self, name: str, prompted: TrainedModel | None, together: int, queue: int) -> None:
        self.counts: Counter[str] = Counter()
        self._prompted, self._together, self._queue = prompted, together, queue
        self._decoder = None if prompted is None else Decoder(prompted, stops_of(prompted))
        self._written: dict[WrittenText, RequestJob] = {}  # texts that are being generated
        self._jobs: deque[RequestJob] = deque()  # some of whose work is not begun
        self._changed = threading.Condition()
        self._is_closed = False
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    @property
    def texts(self) -> int:
        """The number of texts that are being generated."""
        return len(self._written)

    @property
    def waiting(self) -> int:
        """The number of requests that wait."""
        return len(self._jobs)

    def submit(self, job: RequestJob) -> None:
        """Begin a job when its turn comes; called in the event loop.

        Raises:
            FullError: as many jobs wait as may.
        """
        job.loop = asyncio.get_running_loop()
        if not job.size:
            job.post([])
            return
        with self._changed:
            if len(self._jobs) >= self._queue:
                raise FullError
            self._jobs.append(job)
            self._changed.notify()

    def close(self) -> None:
        """End the thread after the step at hand."""
        with self._changed:
            self._is_closed = True
            self._changed.notify()
        self._thread.join(10)

    def _run(self) -> None:
        model = None if self._prompted is None else self._prompted.model
        with nullcontext() if model is None else packed_weights(model), torch.inference_mode():
            while self._has_work():
                self._leave_out_cancelled()
                if self._decoder is not None:
                    self._admit(self._decoder)
                    self._step(self._decoder)
                self._compute()

    def _has_work(self) -> bool:
        """Wait for work; return whether there is some."""
        with self._changed:
            while not (self._jobs or self._written or self._is_closed):
                self._changed.wait()
        return not self._is_closed

    def _leave_out_cancelled(self) -> None:
        with self._changed:
            self._jobs = deque(job for job in self._jobs if not job.is_cancelled)
        self._forget(text for text, job in list(self._written.items()) if job.is_cancelled)

    def _forget(self, texts: Iterable[WrittenText]) -> None:
        gone = {text.decoded for text in texts if self._written.pop(text, None) is not None}
        if gone and self._decoder is not None:
            self._decoder.drop(gone)

    def _admit(self, decoder: Decoder) -> None:
        """Begin texts of those that wait, one of each request in turn."""
        begun: list[tuple[WrittenText, RequestJob]] = []
        room, tokens = self._together - len(self._written), 0
        with self._changed:
            while len(begun) < room and tokens < READ_AT_ONCE:
                job = next((job for job in self._jobs if job.kind is None), None)
                if job is None:
                    break
                text = job.waiting.popleft()
                begun.append((text, job))
                tokens += text.prompt_tokens
                self._jobs.remove(job)
                if job.waiting:  # after those of others
                    self._jobs.append(job)
        self._written |= dict(begun)
        self._begin(decoder, [text for text, _ in begun])

    def _begin(self, decoder: Decoder, texts: Sequence[WrittenText]) -> None:
        """Read the starts of texts, which gives the first token of each."""
        if not texts:
            return
        others = {decoded for group in decoder.groups for decoded in group.texts}
        try:
            decoded = decoder.add([text.start for text in texts], [text.limits for text in texts])
        except Exception as error:
            decoder.drop({t for group in decoder.groups for t in group.texts} - others)
            if len(texts) == 1:
                self._fail(texts, error)
                return
            for text in texts:  # one of them alone
                self._begin(decoder, [text])
            return
        for text, one in zip(texts, decoded, strict=True):
            text.decoded = one
            self.counts["prompt_tokens"] += text.prompt_tokens
        self._give(texts)

    def _step(self, decoder: Decoder) -> None:
        """Extend each text that is being generated, and give out what is new of it."""
        by_decoded = {text.decoded: text for text in self._written}
        assert self._prompted is not None
        for group in list(decoder.groups):
            texts = [by_decoded[decoded] for decoded in group.texts]
            try:
                with threads_for(self._prompted, len(texts)):
                    group.step()
            except Exception as error:
                decoder.groups.remove(group)
                self._fail(texts, error)
                continue
            self.counts["steps"] += 1
            self._give(texts)
        decoder.groups = [group for group in decoder.groups if group.texts]

    def _give(self, texts: Sequence[WrittenText]) -> None:
        """Give out what is new of some texts, and forget those that are finished."""
        finished = []
        for text in texts:
            before = text.tokens
            piece: Piece | None = text.take()
            self.counts["new_tokens"] += text.tokens - before
            if piece is not None:
                self._written[text].post(piece)
                if piece.finish is not None:
                    finished.append(text)
        self._forget(finished)

    def _compute(self) -> None:
        """Compute a batch of items: of the request that came first, and others like it."""
        with self._changed:
            first = next((job for job in self._jobs if job.kind is not None), None)
            if first is None or first.kind is None:
                return
            kind, batch = first.kind, list[tuple[RequestJob, int, Any]]()
            alike = deque(job for job in self._jobs if job.kind and job.kind.key == kind.key)
            while alike and len(batch) < kind.at_once:
                job = alike.popleft()
                batch.append((job, *job.waiting.popleft()))
                if job.waiting:
                    alike.append(job)
            # Requests of another kind have the next turn.
            begun = [job for job, *_ in batch]
            others = [job for job in self._jobs if job not in begun]
            self._jobs = deque([*others, *(j for j in dict.fromkeys(begun) if j.waiting)])
        self._finish(kind, batch)

    def _finish(self, kind: ItemKind, batch: list[tuple[RequestJob, int, Any]]) -> None:
        """Compute some items, and give out the results of requests that are complete."""
        try:
            results = kind.compute([item for *_, item in batch])
        except Exception as error:
            if len(batch) > 1:  # of one of them alone
                for one in batch:
                    self._finish(kind, [one])
            else:
                batch[0][0].fail(_told(error))
            return
        for (job, number, _), result in zip(batch, results, strict=True):
            job.results[number] = result
            if len(job.results) == job.size and not job.is_cancelled:
                job.post([job.results[n] for n in range(job.size)])

    def _fail(self, texts: Sequence[WrittenText], error: Exception) -> None:
        for job in {self._written[text] for text in texts}:
            job.fail(_told(error))
        self._forget(texts)


def _told(error: Exception) -> Exception:
    """Return an error, after showing where a fault of ours arose."""
    if not isinstance(error, UserError):
        traceback.print_exception(error)
    return error
