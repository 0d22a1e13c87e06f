"""One file for a classroom without a network: the page, and the answers to all that it asks.

The page is the server's own; in place of the server it has a recording, answers by request.
"""

from __future__ import annotations

import asyncio
import base64
import itertools
import json
import re
import unicodedata
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from urllib.parse import quote, unquote

from foreword.disk import atomic, stored
from foreword.serving import bundle
from foreword.serving.app import Server, application
from foreword.serving.guard import Guard

WHOLE: Mapping[str, Mapping[str, Any]] = {  # what is asked of a whole text, and how
    "inspect/text": {"top": 8},
    "inspect/attention": {},
    "inspect/lens": {"top": 8},
    "inspect/counts": {},
    "inspect/pieces": {},
}
AT_ONCE = 16  # requests
LINKED = re.compile(r"<(?:link|script)\b.*\n")  # files of the server
COMPONENT = "!'()*~"  # what encodeURIComponent leaves as it is, beside letters and digits

Asked = tuple[str, Mapping[str, Any] | None]  # the path and the body of a request


def write(
    server: Server, texts: Sequence[str], out: Path, say: Callable[[str], object]
) -> tuple[int, int]:
    """Write the page with a recording.

    Args:
        server: the models.
        texts: what they are asked about.
        out: the file.
        say: called with a line for people.

    Returns:
        The number of answers in it, and its bytes.

    Raises:
        UserError: it cannot be written.
    """
    atomic.require_writable(out, is_folder=False)
    with ThreadPoolExecutor(1) as thread:  # in a notebook this one has a loop already
        answers = thread.submit(asyncio.run, _recorded(server, texts, say)).result()
    content = page({"texts": list(texts), "answers": answers}).encode()
    atomic.write_bytes(out, content)
    return len(answers), len(content)


def page(recording: Mapping[str, Any]) -> str:
    """Return the page with its modules, its style and a recording in it, as HTML."""
    html = (bundle.FOLDER / "index.html").read_text(encoding="utf-8")
    icon = base64.b64encode((bundle.FOLDER / "icon.svg").read_bytes()).decode()
    parts = [
        bundle.head(["style.css", "page.css"], "app.js"),
        f'<link rel="icon" href="data:image/svg+xml;base64,{icon}">\n',
        bundle.data(recording, ' id="recording"'),
        "\n</head>",
    ]
    return LINKED.sub("", html).replace("</head>", "".join(parts))


# -- what is asked ---------------------------------------------------------------------------------


async def _recorded(
    server: Server, texts: Sequence[str], say: Callable[[str], object]
) -> dict[str, Any]:
    """Return the answers to all that the page asks about some texts, by request."""
    app, answers = application(server, Guard()), dict[str, Any]()

    async def ask(asked: Asked) -> None:
        path, body = asked
        status, content = await _answer(app, path, body)
        answers[key_of(path, body)] = {"status": status, "content": content}

    async def ask_all(asked: Iterable[Asked]) -> None:
        waiting = list(asked)
        for first in range(0, len(waiting), AT_ONCE):
            await asyncio.gather(*map(ask, waiting[first : first + AT_ONCE]))

    await ask_all([("/v1/models", None), ("/runs", None)])
    await ask_all((f"/runs/{quote(name, safe=COMPONENT)}", None) for name in server.watched)
    for model in answers["/v1/models"]["content"]["data"]:
        name = model["id"]
        say(f"{name}: {len(texts)} text{'s' * (len(texts) != 1)}")
        await ask_all(asked for text in texts for asked in _of_model(model, text))
        steps = server.watched[name].steps if name in server.watched else []
        for number, step in enumerate(steps, 1):
            say(f"{name}: checkpoint {number} of {len(steps)}")
            await ask_all(
                asked for text in texts for asked in _of_step(model, f"{name}@{step}", text)
            )
    return answers


def _of_model(model: Mapping[str, Any], text: str) -> Iterator[Asked]:
    """Yield what the panels that show one text ask (page/panels/sentence.js, inside.js)."""
    name = {"model": model["id"]}
    for path, more in WHOLE.items():
        if path in model["endpoints"]:
            yield f"/{path}", {**name, "text": text, **more}
    yield from _fillings(model, model["id"], text)
    if "inspect/analogy" in model["endpoints"]:
        yield "/inspect/analogy", {**name, "a": "man", "b": "king", "c": "woman"}
    for start, _ in _words(text):
        if "inspect/next" in model["endpoints"] and "fill" not in model["endpoints"]:
            yield "/inspect/next", {**name, "text": text[:start].rstrip(), "top": 8}
    for start, stop in _words(text, "'’") if "inspect/word" in model["endpoints"] else ():
        word = {"start": start, "stop": stop, "others": []}
        yield "/inspect/word", {**name, "text": text, **word}


def _of_step(model: Mapping[str, Any], name: str, text: str) -> Iterator[Asked]:
    """Yield what the time machine asks of a checkpoint (page/panels/time.js)."""
    if "inspect/text" in model["endpoints"]:
        yield "/inspect/text", {"model": name, "text": text, **WHOLE["inspect/text"]}
    yield from _fillings(model, name, text)
    if "completions" in model["endpoints"]:
        body = {"prompt": text, "max_tokens": 40, "seed": 1, "temperature": 0.8}
        yield "/v1/completions", {"model": name, **body}


def _fillings(model: Mapping[str, Any], name: str, text: str) -> Iterator[Asked]:
    """Yield the request to fill the place of each word."""
    for start, stop in _words(text) if "fill" in model["endpoints"] else ():
        blanked = text[:start] + model["blank"] + text[stop:]
        yield "/fill", {"model": name, "text": blanked, "top": 8}


def _words(text: str, signs: str = "'’-") -> Iterator[tuple[int, int]]:
    """Yield the words of a text, as the page finds them: letters, digits, marks and some signs."""
    is_word = [unicodedata.category(c)[0] in "LMN" or c in signs for c in text]
    for _, run in itertools.groupby(enumerate(is_word), lambda pair: pair[1]):
        places = [n for n, inside in run if inside]
        if places:
            yield places[0], places[-1] + 1


def key_of(path: str, body: Mapping[str, Any] | None) -> str:
    """Return the key of a request in a recording: page/api.js makes the same."""
    values = sorted((body or {}).items())
    return "\n".join([path, *(f"{name} {stored.to_json(value)}" for name, value in values)])


async def _answer(app: Any, path: str, body: Mapping[str, Any] | None) -> tuple[int, Any]:
    """Return the status and the content of the answer to a request, without a network."""
    request, sent = [{"type": "http.request", "body": b"", "more_body": False}], list[Any]()
    if body is not None:
        request[0]["body"] = stored.to_json(body).encode()

    async def receive() -> Any:
        if request:
            return request.pop()
        return await asyncio.Event().wait()  # nobody leaves

    async def send(message: Any) -> None:
        sent.append(message)

    scope = {
        "type": "http",
        "method": "GET" if body is None else "POST",
        "path": unquote(path),
        "raw_path": path.encode(),
        "query_string": b"",
        "headers": [(b"host", b"127.0.0.1")],
    }
    await app(scope, receive, send)
    content = b"".join(message.get("body", b"") for message in sent[1:])
    return sent[0]["status"], json.loads(content)
