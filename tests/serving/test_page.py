"""The page in a browser: what each panel shows, by mouse and keys, and what it never does."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import httpx
import numpy as np
import pytest
import torch

import foreword
from foreword.evaluation.loaded import LoadedModel
from foreword.evaluation.sampling import Sampling, distribution
from foreword.serving import pages
from foreword.serving.guard import Guard
from foreword.text.tokenizer import Tokenizer
from tests.evaluation.conftest import TEXTS
from tests.serving.conftest import trained_model
from tests.serving.site import browsing, expect, serving, watching_tab

HOSTILE = '<img src=x onerror="document.title=1">'
FAMILIES = {"gpt": "decoder", "books": "encoder", "t5": "encoder_decoder", HOSTILE: "decoder"}
FAMILIES["translator"] = "goes_on"
VIEWS = [
    "sentence",
    *(f"generate?view={view}" for view in ("next", "beam", "translate")),
    *(f"inside?view={view}" for view in ("attention", "layers", "words", "counts", "pieces")),
]
READY = {
    "sentence": ".model:not(.busy) .token",
    "generate": ".bars li, .tree .node, table.heat td[style]",
    "inside": ".stack:not(.busy) .card",
}


@pytest.fixture(scope="module")
def site(bpe: Tokenizer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    folder = tmp_path_factory.mktemp("page")
    (folder / "text.txt").write_text("\n\n".join(TEXTS * 3), encoding="utf-8")
    bpe.save(folder / "tokenizer")
    ngram = foreword.pretrain(
        "ngram_tiny",
        folder / "text.txt",
        folder / "counts",
        tokenizer=folder / "tokenizer",
        documents="paragraph",
        progress=False,
    )
    models: Any = {
        name: LoadedModel(trained_model(f, bpe, "rotary")) for name, f in FAMILIES.items()
    }
    with serving(models | {"counts": foreword.load(ngram)}) as url:
        yield url


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with browsing() as browser:
        yield browser


@pytest.fixture
def page(browser: Any, site: str) -> Iterator[Any]:
    with watching_tab(browser, site) as tab:
        yield tab


def opened(page: Any, site: str, view: str, text: str = "The cat sat on the mat.") -> Any:
    page.goto("about:blank")
    mark = "&" if "?" in view else "?"
    page.goto(f"{site}/#{view}{mark}text={httpx.QueryParams(t=text)}".replace("text=t=", "text="))
    page.wait_for_selector(READY[view.split("?")[0]])
    return page


def test_every_file_has_a_policy_and_its_type(site: str) -> None:
    answers = [httpx.get(site + route.path) for route in pages.routes()]
    assert {a.headers["content-security-policy"] for a in answers} == {pages.POLICY}
    assert {a.headers["content-type"] for a in answers} == set(pages.TYPES.values())
    assert "unsafe" not in pages.POLICY
    assert httpx.get(site + "/page/../app.py").status_code == 404


def test_a_token_opens_the_page(browser: Any, bpe: Tokenizer) -> None:
    models = {"gpt": LoadedModel(trained_model("decoder", bpe))}
    with serving(models, guard=Guard(token="secret")) as url:
        tab = browser.new_page()
        tab.goto(url)
        tab.fill("input[type=password]", "secret")
        tab.keyboard.press("Enter")
        tab.wait_for_selector("#foot p")
        tab.close()


def test_a_sentence_is_read_masked_and_branches_by_keys_alone(page: Any, site: str) -> None:
    opened(page, site, "sentence")
    expect(page.locator(".model .total b")).to_have_count(5, timeout=20_000)
    assert page.inner_text(".model >> nth=3 >> h2") == HOSTILE
    expect(page.locator(".token.at")).to_have_count(5)  # the last word, before one is chosen
    assert page.locator("text=Mask the word").is_enabled()
    page.focus(".model >> nth=1 >> .token >> nth=0")
    for key in ("ArrowRight", "ArrowRight"):
        page.keyboard.press(key)
    assert page.eval_on_selector_all(".token.at", "all => all.length") == 5  # in every model
    page.keyboard.press("ArrowDown")
    assert page.evaluate("document.activeElement.closest('.others') !== null")
    page.focus(".model >> nth=1 >> .others li:not(.right) button >> nth=0")
    page.keyboard.press("Enter")
    page.wait_for_selector(".branches li li button[aria-current]")
    assert page.input_value("#sentence-text") != "The cat sat on the mat."
    page.click(".branches button >> nth=0")
    expect(page.locator("textarea").first).to_have_value("The cat sat on the mat.")
    page.hover(".model >> nth=1 >> .token >> nth=1")
    page.click("text=Mask the word")
    expect(page.locator(".others", has_text="masked")).to_have_count(5, timeout=20_000)


def test_sliders_move_the_bars_as_the_server_samples(page: Any, site: str) -> None:
    opened(page, site, "generate?view=next")
    rng = np.random.default_rng(1)
    nats = np.sort(np.log(rng.dirichlet(np.full(300, 0.3))))[::-1].copy()
    for temperature, k, p in [(1, 0, 1), (0.5, 7, 1), (1.7, 0, 0.9), (1.2, 40, 0.5), (0, 0, 1)]:
        how = {"temperature": temperature, "topK": k, "topP": p}
        got = page.evaluate(
            "async ([b, r, how]) => (await import('/page/sampling.js')).sampled(b, r, how)",
            [nats[:200].tolist(), [[n, 1] for n in nats[200:].tolist()], how],
        )
        expected = np.eye(1, 300)[0]
        if temperature:
            sampling = Sampling(1, temperature, k, p)
            expected = distribution(torch.tensor(nats)[None], sampling)[0].numpy()
        np.testing.assert_allclose(got["p"], expected[:200], atol=1e-6)
        assert got["kept"] == (expected > 0).sum()
    page.click("text=Draw a token")
    page.wait_for_selector(".written .token")
    page.fill("input[type=range] >> nth=1", "1")  # top-k
    expect(page.locator(".bars .faint").nth(10)).to_be_attached()


@pytest.mark.full
@pytest.mark.parametrize("view", VIEWS)
@pytest.mark.parametrize(("width", "scheme"), [(1280, "light"), (360, "dark")])
def test_all_views_keep_the_rules_of_access(
    page: Any, site: str, view: str, width: int, scheme: str
) -> None:
    from axe_playwright_python.sync_playwright import Axe

    page.emulate_media(color_scheme=scheme, reduced_motion="reduce")
    page.set_viewport_size({"width": width, "height": 800})
    opened(page, site, view)
    page.wait_for_timeout(300)
    found = Axe().run(page).response["violations"]
    assert [(v["id"], [n["html"][:200] for n in v["nodes"]][:3]) for v in found] == []
    assert page.evaluate("document.documentElement.scrollWidth") <= width


FEW = ("sentence", "generate?view=beam", "inside?view=pieces")


@pytest.mark.parametrize(
    "view", [pytest.param(v, marks=[] if v in FEW else pytest.mark.full) for v in VIEWS]
)
def test_texts_are_text(page: Any, site: str, view: str) -> None:
    opened(page, site, view, HOSTILE + " & </script>")
    page.wait_for_timeout(200)
    assert not page.query_selector("img") and "Foreword" in page.title()
