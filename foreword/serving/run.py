"""Running a server until a signal ends it: what is begun is finished first."""

from __future__ import annotations

import logging
import signal
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import uvicorn

from foreword.errors import UserError
from foreword.process import signals


class _Uvicorn(uvicorn.Server):
    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield  # they are handled below


def listen(host: str, port: int) -> socket.socket:
    """Return a socket that listens at an address; at port 0, at a free one.

    Raises:
        UserError: there is no such address, or the port is in use.
    """
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        listening = socket.socket(family, kind, protocol)
    except (OSError, UnicodeError):
        raise UserError(f"--host {host}: no such address") from None
    try:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind(address)
    except OSError as error:
        listening.close()
        raise UserError(
            f"--port {port}: {error.strerror}; choose another, or 0 for a free one"
        ) from None
    return listening


def run(app: Any, listening: socket.socket, say: Callable[[str], object]) -> None:
    """Answer requests until a signal ends it.

    The first signal stops new requests, and those that are begun are finished; a second ends all
    at once.

    Args:
        app: what answers.
        listening: where requests come in.
        say: called with a line for people.
    """
    config = uvicorn.Config(
        app,
        log_config=None,
        access_log=False,
        lifespan="off",
        server_header=False,
        backlog=1024,
        timeout_keep_alive=75,  # longer than clients keep a connection that they may use again
    )
    server = _Uvicorn(config)
    logging.getLogger("asyncio").setLevel(logging.ERROR)  # it warns of clients that have left

    def stop(number: signal.Signals) -> None:
        if server.should_exit:
            server.force_exit = True
        elif server.server_state.connections:
            say("finishing what is begun; a second signal ends it at once")
        server.should_exit = True

    with signals.handled(stop):
        server.run(sockets=[listening])
