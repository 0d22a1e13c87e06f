"""A server in a thread of its own, and a browser that opens its page."""

from __future__ import annotations

import shutil
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import uvicorn

from foreword.serving import pages, run
from foreword.serving.app import Server, application
from foreword.serving.guard import Guard
from foreword.serving.served import Capacity, Opened, Served

CHROMIUM = next(
    filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), ""
)


@contextmanager
def serving(models: dict[str, Opened], guard: Guard | None = None) -> Iterator[str]:
    """Serve models and the page, and yield the address."""
    server = Server([Served(name, model, Capacity()) for name, model in models.items()], 1 << 20)
    listening = run.listen("127.0.0.1", 0)
    listening.listen()
    config = uvicorn.Config(
        application(server, guard or Guard(), pages.routes()), log_config=None, lifespan="off"
    )
    answering = uvicorn.Server(config)
    thread = threading.Thread(target=answering.run, args=([listening],))
    thread.start()
    try:
        yield f"http://127.0.0.1:{listening.getsockname()[1]}"
    finally:
        answering.should_exit = True
        thread.join(10)
        listening.close()
        server.close()


@contextmanager
def browsing() -> Iterator[Any]:
    """Yield a browser without a window; skip the test where there is none."""
    playwright = pytest.importorskip("playwright.sync_api", reason="needs playwright")
    if not CHROMIUM:
        pytest.skip("needs Chromium, and there is none")
    with playwright.sync_playwright() as started:
        browser = started.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield browser
        browser.close()
