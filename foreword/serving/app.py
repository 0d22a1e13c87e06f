"""The endpoints: JSON in, checked by dataclasses, and answers or streams of them out."""

from __future__ import annotations

import asyncio
import json
import re
import time
import traceback
from collections import OrderedDict
from collections.abc import (
    AsyncIterator,
    Awaitable,
    Callable,
    Iterable,
    Iterator,
    Mapping,
    Sequence,
)
from contextlib import asynccontextmanager
from dataclasses import asdict, dataclass, fields
from functools import partial
from typing import Any
from urllib.parse import urlsplit

from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.requests import ClientDisconnect, Request
from starlette.responses import PlainTextResponse, Response, StreamingResponse
from starlette.routing import BaseRoute, Route

from foreword.disk import stored
from foreword.errors import TooLongError, UserError, is_out_of_memory, nearest
from foreword.serving import bodies, dialect, schema
from foreword.serving.dialect import TextAnswer
from foreword.serving.guard import Guard
from foreword.serving.inspection import LOOKS
from foreword.serving.looks._look import Look
from foreword.serving.metrics import Metrics, add
from foreword.serving.served import Served
from foreword.serving.watched import Watched
from foreword.serving.worker import FullError, RequestJob
from foreword.serving.written import WrittenText
from foreword.settings import config
from foreword.text import utf8

LONGEST = 400  # characters of a message
OPENED = 3  # checkpoints of earlier steps that are held in memory
UNREAD = 1 << 26  # bytes beyond a request's limit that are read and dropped
STOP = "/runs/stop"
GONE = 499  # of a client that has left, as other servers count it


class RequestError(Exception):
    """A request that is refused.

    Args:
        status: that of HTTP.
        message: one line.
    """

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


class JSON(Response):
    """An answer in JSON; a number that is not finite is null."""

    media_type = "application/json"

    def render(self, content: Any) -> bytes:
        """Return a value as JSON."""
        return stored.to_json(content).encode()


class Server:
    """The models that are served, and what was asked of them.

    Args:
        models: the models.
        most_bytes: of a request.
        watched: folders of runs and comparisons.
    """

    def __init__(
        self, models: Sequence[Served], most_bytes: int, watched: Sequence[Watched] = ()
    ) -> None:
        self.models = {model.name: model for model in models}
        self.watched = {one.name: one for one in watched}
        self.most_bytes, self.metrics, self.created = most_bytes, Metrics(), int(time.time())
        self._checkpoints: OrderedDict[str, Served] = OrderedDict()  # the last used at the end
        self._opening = asyncio.Lock()

    def named(self, name: str | None) -> Served:
        """Return a model by its name, or the only one.

        Raises:
            RequestError: there is none of the name, or there are several to choose from.
        """
        if name is None and len(self.models) == 1:
            return next(iter(self.models.values()))
        if name is None:
            raise RequestError(400, f"model: is needed; there is: {', '.join(self.models)}")
        if name not in self.models:
            hint = nearest(name, self.models)
            raise RequestError(404, f"model: '{name:.100}' is not served here{hint}")
        return self.models[name]

    def watching(self, name: str | None) -> Watched:
        """Return what is watched by its name, or the only one.

        Raises:
            RequestError: there is none of the name, or there are several to choose from.
        """
        if name is None and len(self.watched) == 1:
            return next(iter(self.watched.values()))
        if name not in self.watched:
            names = ", ".join(self.watched) or "none"
            raise RequestError(404, f"model: '{name or '':.100}' is no run here; there is: {names}")
        return self.watched[name]

    @asynccontextmanager
    async def using(self, name: str | None) -> AsyncIterator[Served]:
        """Return a model by its name, or a checkpoint of a run as NAME@STEP, held while it is used.

        Raises:
            RequestError: there is none of the name.
            FullError: as many checkpoints are in use as are held.
        """
        run, at, step = (name or "").rpartition("@")
        if name in self.models or not at or run not in self.models:
            model = self.named(name)
        else:
            model = await self._checkpoint(run, step)
        model.users += 1
        try:
            yield model
        finally:
            model.users -= 1

    async def _checkpoint(self, run: str, step: str) -> Served:
        """Return a run's model at a step, which is opened unless it was used lately."""
        name = f"{run}@{step}"
        steps = [str(n) for n in self.watched[run].steps] if run in self.watched else []
        if step not in steps:
            raise RequestError(
                404, f"model: {run} has kept no checkpoint of step {step:.20}{nearest(step, steps)}"
            )
        async with self._opening:
            while name not in self._checkpoints and len(self._checkpoints) >= OPENED:
                unused = (old for old, model in self._checkpoints.items() if not model.users)
                if (oldest := next(unused, None)) is None:
                    raise FullError
                await run_in_threadpool(self._checkpoints.pop(oldest).worker.close)
            if name not in self._checkpoints:
                self._checkpoints[name] = await run_in_threadpool(
                    self.models[run].at_step, name, self.watched[run].checkpoint(int(step))
                )
            self._checkpoints.move_to_end(name)
            return self._checkpoints[name]

    def close(self) -> None:
        """End all work."""
        for model in (*self.models.values(), *self._checkpoints.values()):
            model.worker.close()

    async def events(self, model: Served, job: RequestJob, request: Request) -> AsyncIterator[Any]:
        """Begin a job, and yield its events; if the client leaves, it is cancelled.

        Raises:
            FullError: as many requests wait as may.
            ClientDisconnect: the client has left.
            UserError: the model cannot do it.
        """
        watching = asyncio.ensure_future(_watch(request, job))
        model.users += 1
        try:
            model.worker.submit(job)
            while True:
                event = await job.events.get()
                if isinstance(event, Exception):
                    raise event
                yield event
        finally:
            watching.cancel()
            job.is_cancelled = True
            model.users -= 1

    async def results(self, model: Served, job: RequestJob, request: Request) -> list[Any]:
        """Return the results of all items of a job."""
        events = self.events(model, job, request)
        try:
            return list(await anext(events))
        finally:
            await events.aclose()  # type: ignore[attr-defined]


async def _watch(request: Request, job: RequestJob) -> None:
    """Tell a job when its client has left."""
    while (await request.receive())["type"] != "http.disconnect":
        pass
    job.events.put_nowait(ClientDisconnect())


# -- what the paths answer -------------------------------------------------------------------------


async def _completions(
    server: Server, model: Served, body: bodies.CompletionBody, request: Request
) -> Response:
    texts = await run_in_threadpool(model.completion, body)
    return await _texts(server, model, texts, body, request)


async def _chat(server: Server, model: Served, body: bodies.ChatBody, request: Request) -> Response:
    texts = await run_in_threadpool(model.chat, body)
    return await _texts(server, model, texts, body, request)


async def _texts(
    server: Server,
    model: Served,
    texts: Sequence[WrittenText],
    body: bodies.Generates,
    request: Request,
) -> Response:
    """Answer with texts, at once or as they are generated."""
    read = sum(text.prompt_tokens for text in texts if text.start.number == 0)
    is_chat = isinstance(body, bodies.ChatBody)
    scores = texts[0].limits.scores
    answer = TextAnswer(model.name, model.trained.tokenizer, is_chat, scores, read)
    begun, events = time.perf_counter(), server.events(model, model.writing(texts), request)

    async def pieces() -> AsyncIterator[Any]:
        left = len(texts)
        async for event in events:
            for piece in event if isinstance(event, list) else [event]:
                yield piece
                left -= piece.finish is not None
            if not left:
                break
        answer.new_tokens = sum(text.tokens for text in texts)

    async def stream(first: Any) -> AsyncIterator[str]:
        try:
            yield _event(answer.chunk(first))
            async for piece in rest:
                yield _event(answer.chunk(piece))
            if body.stream_options.include_usage:
                yield _event(answer.last_chunk())
        except Exception as error:  # the answer has begun, and its status is sent
            yield _event(refusal(error)[1])
        finally:
            await events.aclose()  # type: ignore[attr-defined]
        yield "data: [DONE]\n\n"

    rest = pieces()
    try:
        first = await anext(rest)
        if not body.stream:
            return JSON(answer.whole([first, *[piece async for piece in rest]]))
        add(server.metrics.first_seconds, request.url.path, time.perf_counter() - begun)
    except BaseException:
        await events.aclose()  # type: ignore[attr-defined]
        raise
    headers = {"cache-control": "no-cache", "x-accel-buffering": "no"}
    return StreamingResponse(stream(first), media_type="text/event-stream", headers=headers)


def _event(content: Any) -> str:
    return f"data: {stored.to_json(content)}\n\n"


async def _embeddings(
    server: Server, model: Served, body: bodies.EmbeddingBody, request: Request
) -> Response:
    job, tokens = await run_in_threadpool(model.embedding, body)
    vectors = await server.results(model, job, request)
    if body.dimensions not in (None, len(vectors[0])):
        raise UserError(f"dimensions: this model has {len(vectors[0])}; leave it out")
    as_base64 = body.encoding_format == "base64"
    return JSON(dialect.embeddings(model.name, vectors, tokens, as_base64=as_base64))


async def _fill(server: Server, model: Served, body: bodies.FillBody, request: Request) -> Response:
    job = await run_in_threadpool(model.fill, body)
    return _rows(model, map(asdict, await server.results(model, job, request)))


async def _score(
    server: Server, model: Served, body: bodies.ScoreBody, request: Request
) -> Response:
    job, given = await run_in_threadpool(model.score, body)
    scores = await server.results(model, job, request)
    rows = ({**s.totals.as_row(), "first_token_given": given, "scored": s.scored} for s in scores)
    return _rows(model, rows)


async def _translate(
    server: Server, model: Served, body: bodies.TranslateBody, request: Request
) -> Response:
    job = await run_in_threadpool(model.translate, body)
    return _rows(model, ({"text": text} for text in await server.results(model, job, request)))


async def _predict(
    server: Server, model: Served, body: bodies.PredictBody, request: Request
) -> Response:
    job, rows = await run_in_threadpool(model.predict, body)
    cut = 0
    for result in await server.results(model, job, request):
        rows[result["row"]] |= result["answer"]
        cut += result["is_cut"]
    return _rows(model, rows, cut=cut)


async def _examples(
    server: Server, model: Served, body: bodies.ExamplesBody, request: Request
) -> Response:
    job, rows, total = await run_in_threadpool(model.examples, body)
    for result in await server.results(model, job, request):
        rows[result["row"]] |= result["answer"]
    return _rows(model, rows, total=total)


def _rows(model: Served, rows: Any, **others: Any) -> Response:
    return JSON({"model": model.name, "data": list(rows), **others})


async def _tokenize(
    server: Server, model: Served, body: bodies.TokenizeBody, request: Request
) -> Response:
    ids = await run_in_threadpool(model.tokens, body.prompt)
    return JSON({"tokens": ids.tolist(), "count": len(ids), "max_model_len": model.length})


async def _detokenize(
    server: Server, model: Served, body: bodies.DetokenizeBody, request: Request
) -> Response:
    return JSON({"prompt": await run_in_threadpool(model.text, body.tokens)})


async def _runs(server: Server, request: Request) -> Response:
    some = [await run_in_threadpool(one.summary) for one in server.watched.values()]
    return JSON({"data": some})


async def _run(server: Server, request: Request) -> Response:
    watched = server.watching(request.path_params["name"])
    return JSON(await run_in_threadpool(watched.history))


async def _controlled(
    server: Server, run: Watched, body: bodies.Body, request: Request
) -> Response:
    """Do what the server's own page asks for, and nobody else."""
    origin = urlsplit(request.headers.get("origin", "")).netloc
    if not origin or origin != request.headers.get("host"):
        raise RequestError(403, "origin: only the page of this server stops and resumes training")
    await run_in_threadpool(run.stop if request.url.path == STOP else run.resume)
    return JSON(await run_in_threadpool(run.about))


def _looked(look: Look) -> Callable[[Server, Served, Any, Request], Awaitable[Response]]:
    async def answer(server: Server, model: Served, body: Any, request: Request) -> Response:
        job = await run_in_threadpool(look.job, model, body)
        return _rows(model, await server.results(model, job, request))

    return answer


@dataclass(frozen=True)
class Endpoint:
    """What a path does with the body of a request.

    Attributes:
        body: the class of the body.
        answer: answers for the model that the body names.
        summary: what it does.
        is_of_run: whether the body names a run that is watched.
    """

    body: type[bodies.Body]
    answer: Callable[[Server, Any, Any, Request], Awaitable[Response]]
    summary: str
    is_of_run: bool = False


ENDPOINTS = {
    "/v1/completions": Endpoint(bodies.CompletionBody, _completions, "Continue texts"),
    "/v1/chat/completions": Endpoint(bodies.ChatBody, _chat, "Answer a conversation"),
    "/v1/embeddings": Endpoint(bodies.EmbeddingBody, _embeddings, "Represent texts as vectors"),
    "/fill": Endpoint(bodies.FillBody, _fill, "Fill the blanks of texts"),
    "/score": Endpoint(bodies.ScoreBody, _score, "Score texts token by token"),
    "/predict": Endpoint(bodies.PredictBody, _predict, "Predict by a fine-tuned model"),
    "/translate": Endpoint(bodies.TranslateBody, _translate, "Translate texts"),
    "/tokenize": Endpoint(bodies.TokenizeBody, _tokenize, "Cut a text into tokens"),
    "/detokenize": Endpoint(bodies.DetokenizeBody, _detokenize, "Read tokens as text"),
    "/inspect/examples": Endpoint(
        bodies.ExamplesBody, _examples, "Answer the examples that a model was scored on"
    ),
    STOP: Endpoint(bodies.Body, _controlled, "Save and end a training", is_of_run=True),
    "/runs/resume": Endpoint(bodies.Body, _controlled, "Continue a training", is_of_run=True),
    **{
        f"/inspect/{name}": Endpoint(look.body, _looked(look), look.summary)
        for name, look in LOOKS.items()
    },
}

KEYS = {f.name for endpoint in ENDPOINTS.values() for f in fields(endpoint.body)}


# -- requests --------------------------------------------------------------------------------------


def application(server: Server, guard: Guard, others: Sequence[BaseRoute] = ()) -> Any:
    """Return the application that answers requests.

    Args:
        server: the models.
        guard: who may ask.
        others: routes besides, such as those of a page.
    """

    async def health(request: Request) -> Response:
        return JSON({"status": "ok"})

    def about(model: Served) -> dict[str, Any]:
        frame = {"object": "model", "created": server.created, "owned_by": "foreword"}
        content = {"id": model.name, **frame, **model.about()}
        content["endpoints"] += [
            f"inspect/{name}" for name, look in LOOKS.items() if look.can(model)
        ]
        return content

    async def models(request: Request) -> Response:
        return JSON({"object": "list", "data": list(map(about, server.models.values()))})

    async def model(request: Request) -> Response:
        return JSON(about(server.named(request.path_params["name"])))

    async def metrics(request: Request) -> Response:
        workers = {name: model.worker for name, model in server.models.items()}
        return PlainTextResponse(server.metrics.text(workers))

    async def tokenizer_info(request: Request) -> Response:
        trained = server.named(request.query_params.get("model")).trained
        ids = {"bos_token": trained.prompt_prefix, "eos_token": trained.eos}
        name = trained.tokenizer.token
        return JSON({role: name(int(i[0])) if len(i) else None for role, i in ids.items()})

    async def openapi(request: Request) -> Response:
        posts = {path: (one.body, one.summary) for path, one in ENDPOINTS.items()}
        gets = {path: (None, summary) for path, (summary, _) in plain.items()}
        return JSON(schema.document({**gets, **posts}, is_locked=guard.token is not None))

    plain: dict[str, tuple[str, Callable[[Request], Awaitable[Response]]]] = {
        "/health": ("Say that the server answers", health),
        "/v1/models": ("List the models, and what each can do", models),
        "/v1/models/{name}": ("Say what a model can do", model),
        "/runs": (
            "List the runs and comparisons, and what goes on in each",
            partial(_runs, server),
        ),
        "/runs/{name}": (
            "Give the curves, samples and checkpoints of a run",
            partial(_run, server),
        ),
        "/metrics": ("Count requests and tokens, for Prometheus", metrics),
        "/tokenizer_info": ("Name the special tokens of a model", tokenizer_info),
        "/openapi.json": ("Describe all requests", openapi),
    }

    def post(endpoint: Endpoint) -> Callable[[Request], Awaitable[Response]]:
        async def handler(request: Request) -> Response:
            body = _body(endpoint.body, await _read(request, server.most_bytes))
            if endpoint.is_of_run:
                return await endpoint.answer(server, server.watching(body.model), body, request)
            async with server.using(body.model) as model:
                return await endpoint.answer(server, model, body, request)

        return handler

    async def other(request: Request, error: Exception) -> Response:
        status = getattr(error, "status_code", 404)
        path, known = request.url.path, [*plain, *ENDPOINTS]
        message = f"{path:.100}: no such path{nearest(path, known)}"
        if status != 404:
            message = f"{path}: takes {'POST' if path in ENDPOINTS else 'GET'}"
        return JSON(dialect.error(status, message), status)

    routes: list[BaseRoute] = [
        Route(path.replace("{name}", "{name:path}"), _answering(server, path, handler))  # org/name
        for path, (_, handler) in plain.items()
    ]
    for path, endpoint in ENDPOINTS.items():
        routes.append(Route(path, _answering(server, path, post(endpoint)), methods=["POST"]))
    handlers: Any = {404: other, 405: other}
    return guard.around(Starlette(routes=[*routes, *others], exception_handlers=handlers))


def _answering(
    server: Server, path: str, handler: Callable[[Request], Awaitable[Response]]
) -> Callable[[Request], Awaitable[Response]]:
    """Return a handler whose answers are counted, and whose errors are answers."""

    async def answer(request: Request) -> Response:
        begun = time.perf_counter()
        try:
            response = await handler(request)
        except Exception as error:
            status, content = refusal(error, server.watched.values())
            headers = {"retry-after": "1"} if status in (429, 503) else None
            response = JSON(content, status, headers)
        server.metrics.requests[path, response.status_code] += 1
        add(server.metrics.seconds, path, time.perf_counter() - begun)
        return response

    return answer


def refusal(error: Exception, watched: Iterable[Watched] = ()) -> tuple[int, dict[str, Any]]:
    """Return an error as the status of an answer and its content, in which no folder is named."""
    if isinstance(error, ClientDisconnect):
        return GONE, {}
    if isinstance(error, RequestError):
        status, message = error.status, str(error)
    elif isinstance(error, FullError):
        status, message = 429, "too many requests wait; ask again in a second"
    elif isinstance(error, UserError):
        status, message = 413 if isinstance(error, TooLongError) else 400, str(error)
    elif is_out_of_memory(error):
        status, message = 503, "out of memory; ask for fewer or shorter texts"
    else:
        traceback.print_exception(error)
        status, message = 500, f"internal error: {type(error).__name__}; the server's log has more"
    for one in watched:
        message = message.replace(str(one.folder), one.name)
    # Options of the command line are keys here, but for those of quoted commands.
    message = re.sub(
        r"('[^']*'|\"[^\"]*\")|--([a-z][a-z-]*)",
        lambda m: m[1] or m[2].replace("-", "_"),
        message,
    )
    if len(message) > LONGEST:
        message = f"{message[: LONGEST // 2]}...{message[-LONGEST // 2 :]}"
    key = re.match(r"[a-z_]+", message)
    return status, dialect.error(status, message, key[0] if key and key[0] in KEYS else None)


async def _read(request: Request, most: int) -> bytes:
    """Return the bytes of a request.

    Raises:
        RequestError: there are too many. Most of what follows is read before: a client that still
            sends sees a broken connection in place of an answer.
    """
    data, size = bytearray(), 0
    async for part in request.stream():
        size += len(part)
        if size <= most:
            data += part
        elif size > most + UNREAD:
            break
    if size > most:
        raise RequestError(413, f"the request has more than {most:,} bytes")
    return bytes(data)


def _body(cls: type[bodies.Body], data: bytes) -> Any:
    """Return the body of a request.

    Raises:
        UserError: it is not JSON, or has a key or a value that cannot be.
    """

    def refuse(constant: str) -> float:
        raise ValueError(f"{constant} is not a number in JSON")

    try:
        table = json.loads(data.decode(), parse_constant=refuse)
    except (ValueError, RecursionError) as error:
        reason = "nested too deeply" if isinstance(error, RecursionError) else str(error)
        raise UserError(f"the request is not valid JSON: {reason}") from None
    if not isinstance(table, dict):
        raise UserError("the request must be a JSON object: {...}")
    if stored.is_too_deep(table):
        raise UserError("the request is nested too deeply")
    for key, text in _strings(table, ""):
        utf8.encode(text, key)
    given = {key: value for key, value in table.items() if value is not None}
    return config.build(cls, given)


def _strings(value: Any, key: str) -> Iterator[tuple[str, str]]:
    """Yield all texts in a value, with the key of the request that they are under."""
    if isinstance(value, str):
        yield key or "key", value
    elif isinstance(value, Mapping):
        for name, item in value.items():
            yield key or "key", name
            yield from _strings(item, key or name)
    elif isinstance(value, list):
        for item in value:
            yield from _strings(item, key)
