"""The page in a browser: what it shows, to whom, and what it never does."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from foreword.evaluation.loaded import LoadedModel
from foreword.serving import pages
from foreword.serving.guard import Guard
from foreword.text.tokenizer import Tokenizer
from tests.serving.conftest import trained_model
from tests.serving.site import browsing, serving, watching_tab

HOSTILE = '<img src=x onerror="document.title=1">'


@pytest.fixture(scope="module")
def site(bpe: Tokenizer) -> Iterator[str]:
    families = {"gpt": "decoder", "books": "encoder", HOSTILE: "decoder"}
    models = {name: LoadedModel(trained_model(f, bpe)) for name, f in families.items()}
    with serving(models) as url:
        yield url


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with browsing() as browser:
        yield browser


@pytest.fixture
def page(browser: Any, site: str) -> Iterator[Any]:
    with watching_tab(browser, site) as tab:
        yield tab


def test_every_file_has_a_policy_and_its_type(site: str) -> None:
    import httpx

    answers = [httpx.get(site + route.path) for route in pages.routes()]
    assert {a.headers["content-security-policy"] for a in answers} == {pages.POLICY}
    assert {a.headers["content-type"] for a in answers} == set(pages.TYPES.values())
    assert "unsafe" not in pages.POLICY
    assert httpx.get(site + "/page/../app.py").status_code == 404


def test_names_are_text(page: Any, site: str) -> None:
    page.goto(site)
    page.wait_for_selector("#foot p")
    assert HOSTILE in page.inner_text("#foot") and not page.query_selector("img")


def test_a_token_opens_the_page(browser: Any, bpe: Tokenizer) -> None:
    models = {"gpt": LoadedModel(trained_model("decoder", bpe))}
    with serving(models, guard=Guard(token="secret")) as url:
        tab = browser.new_page()
        tab.goto(url)
        tab.fill("input[type=password]", "secret")
        tab.keyboard.press("Enter")
        tab.wait_for_selector("#foot p")
        tab.close()
