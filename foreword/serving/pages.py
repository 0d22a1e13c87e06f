"""The page that a server has: its files, read once, and what a browser may do with them."""

from __future__ import annotations

from pathlib import Path

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from foreword.serving.bundle import FOLDER
from foreword.serving.guard import PAGE

TYPES = {
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".svg": "image/svg+xml",
}
# Scripts and styles are files of this server alone, and so is all that they ask.
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
    "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
HEADERS = {
    "content-security-policy": POLICY,
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cache-control": "no-cache",
}


def routes() -> list[Route]:
    """Return the routes of the page: `/`, and under `/page/` each of its files."""
    found = [path for path in sorted(FOLDER.rglob("*.*")) if path.suffix in TYPES]
    files = {PAGE + path.relative_to(FOLDER).as_posix(): path for path in found}
    return [_route(path, file) for path, file in {"/": FOLDER / "index.html", **files}.items()]


def _route(path: str, file: Path) -> Route:
    content = file.read_bytes()

    async def answer(request: Request) -> Response:
        return Response(content, headers=HEADERS, media_type=TYPES[file.suffix])

    return Route(path, answer)
