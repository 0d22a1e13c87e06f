"""One file for a classroom without a network: the page, and the answers to all that it asks.

The page is the server's own; in place of the server it has a recording, answers by request.
"""

from __future__ import annotations

import asyncio
import base64
import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path, PurePosixPath
from typing import Any
from urllib.parse import quote, unquote

from foreword.disk import atomic, stored
from foreword.serving import pages
from foreword.serving.app import Server, application
from foreword.serving.guard import PAGE, Guard

WORD = re.compile(r"[\w'’-]+")  # page/surprise.js finds the same
AT_ONCE = 16  # requests
POLICY = (
    "default-src 'none'; script-src 'unsafe-inline' data:; style-src 'unsafe-inline'; img-src data:"
)
IMPORT = re.compile(r'(\b(?:from|import)\s*)"(\.[^"]+)"')
COMPONENT = "!'()*~"  # what encodeURIComponent leaves as it is, beside letters and digits
ROOT = "foreword/"  # what the names of modules begin with in the file

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
    answers = asyncio.run(_recorded(server, texts, say))
    content = page({"texts": list(texts), "answers": answers}).encode()
    atomic.write_bytes(out, content)
    return len(answers), len(content)


def page(recording: Mapping[str, Any]) -> str:
    """Return the page with its modules, its style and a recording in it, as HTML."""
    html = (pages.FOLDER / "index.html").read_text(encoding="utf-8")
    names = {path: path.relative_to(pages.FOLDER).as_posix() for path in _files(".js")}
    modules = {ROOT + name: _url("text/javascript", _module(p, name)) for p, name in names.items()}
    head = [
        f'<meta http-equiv="content-security-policy" content="{POLICY}">',
        f'<script type="importmap">{_script({"imports": modules})}</script>',
        f'<script type="application/json" id="recording">{_script(recording)}</script>',
    ]

    def inline(match: re.Match[str]) -> str:
        name = match[1].removeprefix(PAGE)
        text = (pages.FOLDER / name).read_text(encoding="utf-8")
        if name.endswith(".css"):
            return f"<style>\n{text}</style>"
        if name.endswith(".svg"):
            return f'<link rel="icon" href="{_url("image/svg+xml", text)}">'
        return "".join(f"{one}\n" for one in head) + (
            f'<script type="module">import "{ROOT}{name}";</script>'
        )

    return re.sub(
        r'<(?:link|script)\b[^>]*(?:href|src)="([^"]+)"[^>]*>(?:</script>)?', inline, html
    )


def _files(ending: str) -> list[Path]:
    return [path for path in sorted(pages.FOLDER.rglob(f"*{ending}")) if path.suffix == ending]


def _module(path: Path, name: str) -> str:
    """Return a module whose imports are by names that do not depend on where it is."""

    def named(match: re.Match[str]) -> str:
        parts: list[str] = []
        for part in (PurePosixPath(name).parent / match[2]).parts:
            if part == "..":
                parts.pop()
            else:
                parts.append(part)
        return f'{match[1]}"{ROOT}{"/".join(parts)}"'

    return IMPORT.sub(named, path.read_text(encoding="utf-8"))


def _url(kind: str, text: str) -> str:
    return f"data:{kind};base64,{base64.b64encode(text.encode()).decode()}"


def _script(value: Any) -> str:
    """Return a value as JSON that ends no element, whatever is in it."""
    return stored.to_json(value).replace("<", "\\u003c")


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

    about: list[Asked] = [("/v1/models", None), ("/runs", None)]
    await asyncio.gather(*map(ask, about))
    for name in server.watched:
        await ask((f"/runs/{quote(name, safe=COMPONENT)}", None))
    for model in answers["/v1/models"]["content"]["data"]:
        name = model["id"]
        steps = server.watched[name].steps if name in server.watched else []
        for number, step in enumerate(steps, 1):
            say(f"{name}: checkpoint {number} of {len(steps)}")
            some = [asked for text in texts for asked in _of_step(model, f"{name}@{step}", text)]
            for first in range(0, len(some), AT_ONCE):
                await asyncio.gather(*map(ask, some[first : first + AT_ONCE]))
    return answers


def _of_step(model: Mapping[str, Any], name: str, text: str) -> Iterator[Asked]:
    """Yield what the time machine asks of a checkpoint (page/panels/time.js)."""
    if "inspect/text" in model["endpoints"]:
        yield "/inspect/text", {"model": name, "text": text, "top": 5}
    if "fill" in model["endpoints"]:
        for word in WORD.finditer(text):
            blanked = text[: word.start()] + model["blank"] + text[word.end() :]
            yield "/fill", {"model": name, "text": blanked, "top": 8}
    if "completions" in model["endpoints"]:
        body = {"prompt": text, "max_tokens": 40, "seed": 1, "temperature": 0.8}
        yield "/v1/completions", {"model": name, **body}


def key_of(path: str, body: Mapping[str, Any] | None) -> str:
    """Return the key of a request in a recording: page/api.js makes the same."""
    if body is None:
        return path
    return f"{path} {json.dumps(body, sort_keys=True, separators=(',', ':'), ensure_ascii=False)}"


async def _answer(app: Any, path: str, body: Mapping[str, Any] | None) -> tuple[int, Any]:
    """Return the status and the content of the answer to a request, without a network."""
    request, sent = [{"type": "http.request", "body": b"", "more_body": False}], list[Any]()
    if body is not None:
        request[0]["body"] = json.dumps(body).encode()

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
