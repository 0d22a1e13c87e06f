"""A server in a thread of its own, and a browser that opens its page."""

from __future__ import annotations

import shutil
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import pytest
import uvicorn

from foreword.serving import pages, run
from foreword.serving.app import Server, application
from foreword.serving.guard import Guard
from foreword.serving.served import Capacity, Opened, Served
from foreword.serving.watched import Watched

CHROMIUM = next(
    filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), ""
)


@contextmanager
def serving(
    models: dict[str, Opened], watched: Sequence[Watched] = (), guard: Guard | None = None
) -> Iterator[str]:
    """Serve models and the page, and yield the address."""
    served = [Served(name, model, Capacity()) for name, model in models.items()]
    server = Server(served, 1 << 20, watched)
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


@contextmanager
def watching_tab(browser: Any, site: str) -> Iterator[Any]:
    """Yield an empty tab; whatever it asks must be of the site, and nothing may go wrong."""
    tab, wrong = browser.new_page(), list[str]()
    tab.on("console", lambda m: wrong.append(m.text) if m.type in ("error", "warning") else None)
    tab.on("pageerror", lambda error: wrong.append(str(error)))
    known = (site, "data:")
    tab.on("request", lambda r: None if r.url.startswith(known) else wrong.append(r.url))
    tab.set_default_timeout(20_000)
    try:
        yield tab
    finally:
        tab.close()
    assert not wrong


def expect(locator: Any) -> Any:
    """Return what waits until a locator is as it should be; a policy of the page forbids eval."""
    return pytest.importorskip("playwright.sync_api").expect(locator)


def accessible(tab: Any) -> bool:
    """Check a page by axe-core's rules, and name what breaks one."""
    axe = pytest.importorskip("axe_playwright_python.sync_playwright")
    found = axe.Axe().run(tab)
    assert not found.violations_count, found.generate_report()
    return True
