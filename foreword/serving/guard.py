"""Who may ask a server: by its token, by the name it is called by, and from which pages."""

from __future__ import annotations

import hmac
from dataclasses import dataclass
from urllib.parse import SplitResult, urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from foreword.disk import stored
from foreword.serving import dialect

LOOPBACK = ("127.0.0.1", "localhost", "::1")
PAGE = "/page/"  # where the files of the page are, which hold nothing of a model
OPEN = ("/health", "/")  # paths that need no token, beside these
PREFLIGHT = {
    "access-control-allow-methods": "GET, POST",
    "access-control-allow-headers": "authorization, content-type",
    "access-control-max-age": "600",
}


@dataclass(frozen=True)
class Guard:
    """Who may ask.

    A page of another site may not, even one that has got this machine's address under its own
    name: a browser tells the name that it calls, and the site that a request comes from.

    Attributes:
        host: the address at which the server listens.
        token: what requests bring as `Authorization: Bearer TOKEN`; None for nothing.
        origin: the site of one page that may ask from a browser: http://localhost:3000.
    """

    host: str = LOOPBACK[0]
    token: str | None = None
    origin: str | None = None

    @property
    def is_local(self) -> bool:
        """Whether the server is reached from this machine alone."""
        return self.host in LOOPBACK

    def around(self, app: ASGIApp) -> ASGIApp:
        """Return an application that answers only those who may ask."""

        async def guarded(scope: Scope, receive: Receive, send: Send) -> None:
            if scope["type"] != "http":
                await app(scope, receive, send)
                return
            headers = Headers(scope=scope)
            is_cross = self.origin is not None and headers.get("origin") == self.origin

            async def marked(message: Message) -> None:
                if is_cross and message["type"] == "http.response.start":
                    out = MutableHeaders(scope=message)
                    out["access-control-allow-origin"] = str(self.origin)
                    out["vary"] = "origin"
                await send(message)

            answer = app
            if (refused := self._refusal(headers, scope["path"], scope["method"])) is not None:
                answer = _error(*refused)
            elif is_cross and scope["method"] == "OPTIONS":
                answer = Response(status_code=204, headers=PREFLIGHT)
            await answer(scope, receive, marked)

        return guarded

    def _refusal(self, headers: Headers, path: str, method: str) -> tuple[int, str] | None:
        """Return status and message for those who may not ask; None for others."""
        name = _split(f"//{headers.get('host', '')}").hostname or ""
        known = {*LOOPBACK, self.host, urlsplit(self.origin or "").hostname}
        if self.is_local and name not in known:
            return 403, f"host: this server is called {self.host}, not {name:.100}"
        origin = headers.get("origin")
        is_own = origin is None or _split(origin).netloc == headers.get("host")
        if not is_own and origin != self.origin:
            return (
                403,
                "origin: pages of other sites may not ask; --origin of the server allows one",
            )
        is_open = path in OPEN or path.startswith(PAGE) or method == "OPTIONS"
        if self.token is None or is_open:
            return None
        given = headers.get("authorization", "").removeprefix("Bearer ").strip()
        if not hmac.compare_digest(given.encode(), self.token.encode()):
            return 401, "this server needs its token: 'Authorization: Bearer TOKEN'"
        return None


def _split(address: str) -> SplitResult:
    """Return the parts of an address; none of one that is malformed."""
    try:
        return urlsplit(address)
    except ValueError:
        return urlsplit("")


def _error(status: int, message: str) -> Response:
    content = stored.to_json(dialect.error(status, message))
    headers = {"www-authenticate": "Bearer"} if status == 401 else None
    return Response(content, status, headers, "application/json")
