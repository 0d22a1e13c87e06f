"""Records of web archives."""

from __future__ import annotations

STORY = "It was a dark night, and the rain fell in torrents over the whole of the town."
PAGE = (
    "<html><head><title>No</title></head><body><nav><a href='/'>Home</a><a href='/a'>About</a>"
    f"</nav><article><h1>The storm</h1><p>{STORY}</p></article><footer>Copyright</footer></body>"
)
READ = f"The storm\n\n{STORY}"


def record(
    body: bytes | str = PAGE,
    *,
    kind: str = "response",
    type_: str = "text/html",
    status: str = "200 OK",
    headers: str = "",
    length: int | str = "",
) -> bytes:
    """Return a record; of a response, with the head of HTTP."""
    block = body.encode() if isinstance(body, str) else body
    if kind in ("response", "request"):
        block = f"HTTP/1.1 {status}\r\nContent-Type: {type_}\r\n{headers}\r\n".encode() + block
        type_ = "application/http"
    head = (
        f"WARC/1.0\r\nWARC-Type: {kind}\r\nWARC-Target-URI: https://a.example/{kind}\r\n"
        f"Content-Type: {type_}\r\nContent-Length: {length or len(block)}\r\n\r\n"
    )
    return head.encode() + block + b"\r\n\r\n"
