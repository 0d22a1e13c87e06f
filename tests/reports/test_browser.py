"""Reports in a browser: their charts, by keys and without scripts, on a phone and in the dark."""

from __future__ import annotations

import json
from pathlib import Path

from foreword.reports.charts import Chart, ChartAxis, Line
from foreword.reports.comparison import write_comparison
from foreword.reports.page import write_page
from foreword.reports.rates import rates_page
from foreword.scaling.rates import BestRate, rate_rule
from tests.reports import test_comparison
from tests.reports.test_page import metrics, tuning_run
from tests.serving.site import accessible, browsing, expect, watching_tab

HOSTILE = '<img src=x onerror="document.title=1">'


def test_charts_stand_in_the_place_of_their_tables(tmp_path: Path) -> None:
    records = [*metrics(), {"kind": "probes", "step": 1, "scores": {HOSTILE: {"y": 0.5}}}]
    log = {"metrics.jsonl": "".join(json.dumps(record) + "\n" for record in records)}
    run = tuning_run(tmp_path / "run", **log)
    tuned = json.loads((run / "evaluations" / "tune.json").read_text())
    tuned |= {"labels": [HOSTILE, "b"], "confusion": [[3, 1], [2, 2]]}
    (run / "evaluations" / "tune.json").write_text(json.dumps(tuned))
    files = {write_page(run): (5, 4), write_comparison(test_comparison.write(tmp_path)): (2, 2)}
    with browsing() as browser:
        for (file, (figures, charts)), width in zip(files.items(), (1280, 360), strict=True):
            with watching_tab(browser, file.as_uri()) as tab:
                tab.set_viewport_size({"width": width, "height": 800})
                tab.emulate_media(color_scheme="dark" if width < 400 else "light")
                tab.goto(file.as_uri())
                expect(tab.locator("svg.chart")).to_have_count(charts)
                assert tab.locator("figure").count() == figures
                assert tab.evaluate("document.documentElement.scrollWidth") <= width
                tab.locator("svg.chart").first.focus()
                for key in ("ArrowRight", "End"):
                    tab.keyboard.press(key)
                assert tab.inner_text("figure >> nth=0 >> [role=status]").count(": ") == 1
                tab.locator("text=Values").first.click()
                expect(tab.locator(".values tbody tr").nth(1)).to_be_visible()  # filled when opened
                assert accessible(tab) and not tab.query_selector("img")
        still = browser.new_context(java_script_enabled=False).new_page()
        still.goto(next(iter(files)).as_uri())
        assert "held-out sample" in still.inner_text("figure table >> nth=0")


LABELS = """() => [...document.querySelectorAll("svg.chart")].map((svg) => {
  const all = [...svg.querySelectorAll("text")].map((text) => text.getBoundingClientRect());
  const meet = (a, b) => Math.min(a.right, b.right) - Math.max(a.left, b.left) > 2
    && Math.min(a.bottom, b.bottom) - Math.max(a.top, b.top) > 4;
  const isWrong = (a, n) => a.right > innerWidth || all.some((b, m) => m > n && meet(a, b));
  return all.filter(isWrong).length;
})"""


def test_labels_of_a_chart_stand_apart_and_within_it(tmp_path: Path) -> None:
    best = [
        BestRate(width, 2, flops, 0.256 / width, 2.0, is_at_edge=False)
        for width in (64, 128, 256)
        for flops in (4e12, 6e12)
    ]
    file = tmp_path / "rates.html"
    flops = ChartAxis("training FLOPs", log=True)
    sizes = ChartAxis("parameters", log=True)
    lines = [Line("", [1.2e12, 3e13], [450_000, 5_500_000])]
    more = Chart("FLOPs across", lines, flops, sizes).html()
    more += Chart("Sizes across", [Line("", lines[0].y, lines[0].x)], sizes, flops).html()
    more += Chart("Epochs across", [Line("", [1, 2], [0.1, 0.4])], "epoch").html()
    file.write_text(
        rates_page("decoder", best, rate_rule(best)).replace("</main>", more + "</main>")
    )
    with browsing() as browser, watching_tab(browser, file.as_uri()) as tab:
        for width in (360, 1200):
            tab.set_viewport_size({"width": width, "height": 800})
            tab.goto(file.as_uri())
            expect(tab.locator("svg.chart")).to_have_count(4)
            assert tab.evaluate(LABELS) == [0, 0, 0, 0]
            ticks = tab.locator("svg.chart >> nth=2 >> text").all_text_contents()
            assert "1M" in ticks and ("3M" in ticks or "2M" in ticks)  # none between left out
            epochs = tab.locator("svg.chart >> nth=3 >> text").all_text_contents()
            assert "1" in epochs and "1.5" not in epochs
            points = tab.locator("svg.chart >> nth=0 >> text", has_text="2")
            assert points.all_text_contents().count("2") == len(best)
        assert accessible(tab)
