from __future__ import annotations

import base64
import hashlib
import json
import math
import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from foreword import formatting
from foreword.errors import UserError
from foreword.reports.charts import Chart, Line, smoothed
from foreword.reports.folder import PNG, read
from foreword.reports.page import page, write_page
from foreword.runs.recipe import Recipe
from foreword.serving import bundle
from foreword.settings import config

VOID = {"meta", "br", "img", "link", "hr", "input"}


class Checker(HTMLParser):
    """A parser that checks that tags are closed in order and nothing outside the page is used."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: set[str] = set()
        self.scripts: list[tuple[bool, str]] = []  # whether each is data, and its text

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        if tag == "script":
            self.scripts.append((("type", "application/json") in attrs, ""))
        if tag not in VOID:
            self.open.append(tag)
        for name, value in attrs:
            assert name not in ("srcset", "data") and not name.startswith("on"), name
            if name == "src":  # a picture, and within the page
                assert tag == "img" and value is not None
                assert re.fullmatch(r"data:image/png;base64,[A-Za-z0-9+/=]+", value)
            if name in ("href", "xlink:href"):
                assert value is not None and value.startswith("#")

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)
        if tag not in VOID:
            self.open.pop()

    def handle_data(self, data: str) -> None:
        if self.open[-1:] == ["script"]:
            is_data, text = self.scripts[-1]
            self.scripts[-1] = is_data, text + data

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def check(html: str) -> Checker:
    checker = Checker()
    checker.feed(html)
    assert checker.open == []
    assert not {"link", "iframe"} & checker.tags
    code = [text for is_data, text in checker.scripts if not is_data]
    assert "<html" not in html or code == [bundle.script("report.js")]
    for text in [*code, *re.findall("<style>(.*?)</style>", html, re.DOTALL)]:
        assert base64.b64encode(hashlib.sha256(text.encode()).digest()).decode() in html
    assert "unsafe" not in html and ' style="' not in html
    assert "@import" not in html and "url(http" not in html
    return checker


def figures_of(html: str) -> list[Any]:
    """Return the data of the figures of a page, in their order."""
    return [json.loads(text) for is_data, text in check(html).scripts if is_data]


def write_run(folder: Path, **files: Any) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    recipe = 'description = "Tiny: a <decoder> & more"\nlayout = "decoder"\n[model]\nkind = "x"\n'
    (folder / "recipe.toml").write_text(recipe, encoding="utf-8")
    for name, content in files.items():
        path = folder / name.replace("__", "/").replace("_json", ".json")
        path.parent.mkdir(exist_ok=True, parents=True)
        text = content if isinstance(content, str) else json.dumps(content)
        path.write_text(text, encoding="utf-8")
    return folder


def metrics(steps: int = 50) -> list[dict[str, Any]]:
    records: list[dict[str, Any]] = []
    for step in range(1, steps + 1):
        record = {"kind": "train", "step": step, "loss": 5.0 / step, "lr": 1e-3 / step}
        record |= {"tokens": 1024 * step, "tokens_per_second": 5e3 + step, "seconds": step / 4}
        records.append(record | {"flops": 1e9 * step, "share_of_matmul": 0.25, "skipped": 0})
    held = {"kind": "heldout", "step": steps, "loss": 1.2345, "perplexity": 3.4366}
    records.append(held | {"bits_per_byte": None, "tokens": 1024 * steps, "seconds": 9.0})
    samples = [{"prompt": "The <b>[MASK]</b>", "text": "The <b>«cat»</b> </div><script>x</script>"}]
    records.append({"kind": "samples", "step": steps, "samples": samples})
    return records


def full_run(folder: Path) -> Path:
    write_run(
        folder,
        run_json={
            "parameters": 536064,
            "texts": ["a<b>.txt"],
            "machine": {"cores": 2, "gpu": None},
            "word_vectors": {"tokens": 10_000_000, "flops": 1e11, "seconds": 3.2},
        },
        evaluations__tune_json={
            "name": "tune-sst2",
            "task": "classify",
            "command": "foreword tune <x>",
            "rows": [{"start": "<pre>", "accuracy": 0.5}, {"start": "b", "f1": None}],
        },
    )
    lines = "".join(json.dumps(record) + "\n" for record in metrics())
    (folder / "metrics.jsonl").write_text(lines + '{"kind": "train", "st', encoding="utf-8")
    return folder


def test_the_page_of_a_run_shows_all_its_records(tmp_path: Path) -> None:
    path = write_page(full_run(tmp_path / "run"))
    assert path == tmp_path / "run" / "report.html"
    html = path.read_text(encoding="utf-8")
    assert [one["title"] for one in figures_of(html)] == [
        "Loss, nats per prediction", "Learning rate", "Tokens per second"
    ]  # fmt: skip
    for expected in ("1.234", "536,064 parameters", "51,200", "12 s", "5.0 × 10¹⁰", "25 %"):
        assert expected in html, expected
    assert "began as word vectors, counted from 10 M tokens in 3 s" in html
    assert "<mark>cat</mark>" in html
    assert "tune &lt;x&gt;" in html and "&lt;pre&gt;" in html and "a&lt;b&gt;.txt" in html
    assert "&lt;script&gt;" in html and "a &lt;decoder&gt; &amp; more" in html
    assert "Could not be read: 1 of 53 lines of metrics.jsonl" in html
    assert html.count("<table") == 2 + html.count('<table class="plain">')


def test_plots_are_inline_below_their_evaluation(tmp_path: Path) -> None:
    rows = [{"a": 1}]
    translated = {"name": "translate-x.en", "task": '<b>"task', "rows": rows, "notes": ["a <note>"]}
    run = write_run(
        tmp_path / "run",
        run_json={},
        **{
            "evaluations__translate-x.en.json": translated,
            "evaluations__translate-x.en-2.json": {"name": "other", "rows": rows},
        },
    )
    names = ("x.en", "x.en-line-10", "x.en-line-9", "x.en-2-line-1", "x.en-line-<i>")
    for name in names:
        path = run / "evaluations" / f"translate-{name}.png"
        path.write_bytes(PNG + name.encode())
    (run / "evaluations" / "translate-x.en-broken.png").write_bytes(b"GIF89a")
    (run / "evaluations" / "alone.png").write_bytes(PNG)
    page = read(run)
    labels = {one.name: [drawn.label for drawn in one.pictures] for one in page.evaluations}
    assert labels == {
        "translate-x.en": ["", "line 9", "line 10", "line <i>"],
        "other": ["line 1"],
    }
    assert page.unread == (
        "alone.png (it belongs to no evaluation)",
        "translate-x.en-broken.png",
    )
    html = write_page(run).read_text(encoding="utf-8")
    check(html)
    assert html.count("<img ") == len(names)
    assert base64.b64encode(PNG + b"x.en-line-9").decode() in html
    assert 'alt="&lt;b&gt;&quot;task: line &lt;i&gt;"' in html
    assert "<figcaption>line 10</figcaption>" in html and "a &lt;note&gt;" in html


def test_ngram_orders_are_plotted_as_bars(tmp_path: Path) -> None:
    rows = [
        {"order": n, "n-grams in the model": 5, "megabytes": n / 3, "never seen": share}
        for n, share in ((1, 0.0), (2, 0.25), (3, None))
    ]
    evaluations = {"evaluations__counts.json": {"name": "counts", "rows": rows}}
    html = write_page(write_run(tmp_path / "run", **evaluations)).read_text(encoding="utf-8")
    seen, sizes = figures_of(html)
    assert seen["title"].endswith("never seen, by order") and seen["x"]["names"] == ["1", "2", "3"]
    assert seen["series"][0]["points"] == [[0, 0.0], [1, 0.25], [2, None]]
    assert sizes["series"][0]["style"] == "bars" and ">0.6667</td>" in html


@pytest.mark.parametrize(("unknown", "message"), [(25, "2.5 % of the tokens are [UNK]"), (0, "")])
def test_a_note_gives_the_share_of_unknown_tokens(
    unknown: int, message: str, tmp_path: Path
) -> None:
    counts = {"heldout": {"tokens": 1000, "unknown": unknown}, "train": {"unknown": 7}}
    run = write_run(tmp_path / "run", run_json={"data": {"counts": counts}})
    (run / "metrics.jsonl").write_text(json.dumps(metrics()[-2]) + "\n", encoding="utf-8")
    html = write_page(run).read_text(encoding="utf-8")
    check(html)
    assert ("flatter the model" in html) == bool(message) and message in html


def test_loss_components_have_tiles_and_figures(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run")
    records = [
        {"kind": kind, "step": step, "lr": 1e-3, "masked": 8.25, "next_<b>_accuracy": 0.5}
        for step in (1, 2)
        for kind in ("train", "heldout")
    ]
    (run / "metrics.jsonl").write_text("".join(json.dumps(record) + "\n" for record in records))
    html = write_page(run).read_text(encoding="utf-8")
    check(html)
    assert "<b>8.250</b><span>held-out masked</span>" in html
    assert "<figcaption>Masked</figcaption>" in html
    assert "<figcaption>Next &lt;b&gt; accuracy</figcaption>" in html


@pytest.mark.full
def test_the_page_is_deterministic(tmp_path: Path) -> None:
    run = full_run(tmp_path / "run")
    one, other = (write_page(run, tmp_path / f"{n}.html").read_bytes() for n in (1, 2))
    assert one == other
    assert not (run / "report.html").exists()


def test_a_run_without_records_has_a_page(tmp_path: Path) -> None:
    html = write_page(write_run(tmp_path / "run")).read_text(encoding="utf-8")
    check(html)
    assert "Nothing has been measured yet" in html
    assert "run.json" in html, "what is missing is said"


def test_malformed_records_are_skipped_and_named(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run", run_json="[1]", evaluations__a_json={"rows": 3})
    odd: list[Any] = [
        {"kind": "train", "step": 1, "loss": None, "lr": "x"},
        {"kind": "train"},
        {"kind": "heldout", "step": 1, "loss": None},
        {"kind": "samples", "step": 1, "samples": [{"prompt": None, "text": "\ud800"}]},
        {"kind": "samples", "samples": "x"},
        7,
    ]
    lines = "".join(json.dumps(record) + "\n" for record in odd)
    (run / "metrics.jsonl").write_text(lines, encoding="utf-8")
    check(write_page(run).read_text(encoding="utf-8"))
    unread = read(run).unread
    assert unread == ("run.json", "1 of 6 lines of metrics.jsonl", "a.json (it has no rows)")


def test_records_with_unicode_line_ends_are_read(tmp_path: Path) -> None:
    record = {"kind": "samples", "samples": [{"prompt": "a\u2028b", "text": "c\u0085d"}]}
    line = json.dumps(record, ensure_ascii=False) + "\n"
    records = read(write_run(tmp_path / "run", **{"metrics.jsonl": line, "run.json": "{}"}))
    assert records.samples == (record,)
    assert records.unread == ()


def test_a_folder_that_is_not_a_run_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="no such folder"):
        write_page(tmp_path / "nowhere")
    with pytest.raises(UserError, match=r"no recipe\.toml"):
        write_page(tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_a_chart_is_data_and_a_short_table() -> None:
    lines = [Line("a", range(1, 30), [3.0, math.nan, *[2.0] * 27]), Line("", [1], [2.0], "second")]
    html = Chart("</script>", lines, "step", levels=[(2.5, "x")]).html()
    (data,) = figures_of(html)
    assert data["series"][0]["points"][:2] == [[1, 3.0], [2, None]]
    assert [one["colour"] for one in data["series"]] == ["var(--accent)", "var(--second)"]
    assert data["title"] == "</script>" and data["levels"] == [{"y": 2.5, "label": "x"}]
    assert html.count("<tr>") <= 9 and '<th scope="row">29</th><td class="n">2.000</td>' in html


def test_smoothing_corrects_its_start_and_keeps_nan() -> None:
    assert smoothed([2.0, 2.0, 2.0]) == pytest.approx([2.0, 2.0, 2.0])
    values = smoothed([1.0, math.nan, 3.0])
    assert values[0] == 1.0 and math.isnan(values[1]) and 1.0 < values[2] < 3.0


@pytest.mark.parametrize(
    ("shown", "expected"),
    [
        (formatting.quantity(536064), "536,064"),
        (formatting.quantity(109_514_298), "110 M"),
        (formatting.quantity(math.nan), "–"),
        (formatting.power(1.5e17), "1.5 × 10¹⁷"),
        (formatting.duration(42), "42 s"),
        (formatting.duration(200), "3 min 20 s"),
        (formatting.duration(7500), "2 h 5 min"),
        (formatting.probability(0.5), "0.5000"),
        (formatting.probability(0.00002), "2.0e-05"),
        (formatting.figure(3.43), "3.430"),
        (formatting.figure(376.0), "376.0"),
        (formatting.figure(1234.5), "1234"),
        (formatting.figure(0.0), "0"),
        (formatting.cell(None), "–"),
        (formatting.cell(True), "yes"),
        (formatting.cell(7182), "7,182"),
    ],
)
def test_numbers_are_formatted_for_people(shown: str, expected: str) -> None:
    assert shown == expected


def test_intervals_stand_beside_their_figures() -> None:
    row = {"run": "m", "auc": 0.5, "low": 0.4, "high": 0.6, "ppl": 36.0, "low_rank": 3}
    row |= {"ppl_low": 9.0, "ppl_high": 1500.0, "icat": None, "icat_low": None, "icat_high": None}
    assert formatting.with_intervals(row) == {
        "run": "m", "auc": 0.5, "interval": "0.400 to 0.600", "ppl": "36.00 (9.000 to 1500)",
        "low_rank": 3, "icat": None,
    }  # fmt: skip
    damaged = {"low": "a", "high": [2]}
    assert formatting.with_intervals(damaged) == {"interval": None}


def test_a_heading_is_escaped() -> None:
    assert "<title>a &lt;b&gt;</title>" in page("a <b>", "<p>c</p>")


def tuning_run(folder: Path, **more: Any) -> Path:
    seeds = {"seeds": 3, "epochs": 2, "lr": 1e-3, "skipped_steps": 0}
    rows: list[dict[str, Any]] = [
        {"start": start, "strategy": strategy, **seeds, "accuracy": mean, "accuracy_std": 0.01}
        for start, strategy, mean in (
            ("pretrained", "full", 0.8),
            ("pretrained", "frozen", 0.7),
            ("from scratch", "full", 0.75),
        )
    ]
    rows += [
        {"start": "no network", "strategy": "bag of words", "accuracy": 0.77},
        {"start": "no model", "strategy": "majority class", "accuracy": 0.5, "accuracy_std": None},
    ]
    tuned = {"name": "영화", "task": "classify", "rows": rows, "examples": {"train": 9, "dev": 872}}
    return write_run(folder, run_json={}, evaluations__tune_json=tuned, **more)


def test_results_that_began_with_a_tuned_model_are_on_the_page(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run", run_json={})
    assert "From the tuned model" not in write_page(run).read_text(encoding="utf-8")
    again = tuning_run(run / "tuned" / "mnli")
    tuning_run(again / "tuned" / "rte")
    write_run(again, evaluations__loss_json=loss_evaluation(1.5, 10))
    html = write_page(run).read_text(encoding="utf-8")
    check(html)
    for name in ("mnli: 영화", "mnli/rte: 영화"):
        assert f"<h2>From the tuned model {name}" in html
    assert "held-out loss, nats" not in html  # the tuned model's is not the run's


def test_fine_tuning_has_a_chart_with_intervals_a_sentence_and_a_table(tmp_path: Path) -> None:
    html = write_page(tuning_run(tmp_path / "run")).read_text(encoding="utf-8")
    check(html)
    assert "영화: Pretraining adds 5.0 points of accuracy" in html
    assert "bars: ± one standard deviation over 3 seeds" in html
    scores = figures_of(html)[0]
    named = ["pretrained", "pretrained, frozen", "from scratch", "bag of words", "majority class"]
    assert scores["y"]["names"] == named
    ends = [None not in pair for pair in scores["series"][0]["ends"]]
    assert ends == [True] * 3 + [False] * 2, "an interval each for those with several seeds"
    assert "0.800 ± 0.010" in html and '<td class="n" data-name="accuracy">0.770</td>' in html
    assert "9 training examples, 872 scored; 2 epochs; 3 seeds" in html
    assert "accuracy std" not in html and "skipped steps" not in html


def test_scores_in_folds_are_not_said_to_be_over_seeds(tmp_path: Path) -> None:
    run = tuning_run(tmp_path / "run")
    file = run / "evaluations" / "tune.json"
    content = json.loads(file.read_text(encoding="utf-8"))
    file.write_text(json.dumps({**content, "settings": {"folds": 3}}), encoding="utf-8")
    html = write_page(run).read_text(encoding="utf-8")
    assert "Accuracy out of fold; bars: ± one standard deviation over 3 folds" in html
    assert "2 epochs; 3 folds; " in html and "±: standard deviation over folds" in html


def loss_evaluation(loss: float, predictions: int) -> dict[str, Any]:
    rows = [
        {"what": "model", "loss": loss, "perplexity": math.exp(loss), "predictions": predictions},
        {"what": "unigram counts", "loss": 6.5, "perplexity": 665.1, "predictions": predictions},
    ]
    output = {"prediction": "masked token", "checkpoint": "step-00000050"}
    return {"name": "evaluate-heldout", "task": "held-out loss", "rows": rows, **output}


def test_a_page_has_one_held_out_loss_or_the_reason_for_two(tmp_path: Path) -> None:
    records = "".join(json.dumps(r | {"predictions": 900}) + "\n" for r in metrics())
    files = {"metrics.jsonl": records, "run_json": {}}
    run = write_run(tmp_path / "run", **files, evaluations__a_json=loss_evaluation(1.5, 4000))
    html = write_page(run).read_text(encoding="utf-8")
    check(html)
    assert "<b>1.500</b><span>held-out loss, nats</span>" in html
    assert "1.234" in html, "that of training's sample"
    assert "on all of the held-out text (4,000 predictions), by checkpoint step-00000050" in html
    assert "the curve&#x27;s lowest, 1.234, is measured during training on a sample" in html
    assert "the loss is 1.50 nats per masked token" in html and "1 in 670 (6.50 nats)" in html
    same = write_run(tmp_path / "same", **files, evaluations__a_json=loss_evaluation(1.2339, 900))
    assert "is measured during training" not in write_page(same).read_text(encoding="utf-8")
    later = write_run(tmp_path / "later", **files, evaluations__a_json=loss_evaluation(1.4, 900))
    page = write_page(later).read_text(encoding="utf-8")
    assert "is measured during training on the same, at step 50" in page
    alone = write_page(write_run(tmp_path / "alone", **files)).read_text(encoding="utf-8")
    assert "<b>1.234</b><span>held-out loss, nats</span>" in alone
    assert "Held-out loss: the lowest during training, at step 50" in alone
    held = {"kind": "heldout", "step": 50, "loss": 7.42, "perplexity": None, "generator": 6.645}
    recipe = config.to_table(config.load(Recipe, config.RECIPES.find("electra_tiny")))
    summed = {
        "recipe.toml": config.dumps(recipe),
        "metrics.jsonl": json.dumps(held) + "\n",
        "run_json": {},
    }
    page = write_page(write_run(tmp_path / "sum", **summed)).read_text(encoding="utf-8")
    assert "7.42 nats, a sum of which its tokens are 6.64 nats per masked token" in page


def test_a_loss_on_another_text_is_named_after_it(tmp_path: Path) -> None:
    other = loss_evaluation(2.0, 10) | {"name": "evaluate-x", "text": "/home/me/<x>.txt"}
    run = write_run(tmp_path / "run", run_json={}, evaluations__x_json=other)
    html = write_page(run).read_text(encoding="utf-8")
    assert "<h2>Loss on &lt;x&gt;.txt</h2>" in html and "On &lt;x&gt;.txt the loss is 2.00" in html


def test_plots_in_png_are_shown_at_the_size_of_their_text() -> None:
    import matplotlib
    from matplotlib.figure import Figure

    from foreword import figures
    from foreword.reports.evaluations import screen_width

    with matplotlib.rc_context(figures.STYLE):
        png = figures.render(Figure(figsize=(4, 2))).data
    assert screen_width(png) == 4 * 96
    assert screen_width(PNG + b"broken") == 0
