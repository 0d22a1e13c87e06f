"""Reports in a browser: their charts, by keys and without scripts, on a phone and in the dark."""

from __future__ import annotations

import json
from pathlib import Path

from foreword.reports.comparison import write_comparison
from foreword.reports.page import write_page
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
