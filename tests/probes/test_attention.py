"""Attention maps of a sentence: the table, the plot and the command."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from matplotlib.figure import Figure

from foreword.cli.main import run as command
from foreword.errors import UserError
from foreword.probes._contract import ProbedModel
from foreword.probes.attention import Attention, _summary
from foreword.runs.run_folder import open_run

SENTENCE = "the bank of the river"


def test_a_head_is_summed_up_by_what_it_attends_to() -> None:
    before = np.eye(4, k=-1)
    before[0, 0] = 1
    special = np.array([True, False, False, False])
    assert _summary(before, special) == {
        "entropy": 0,
        "distance": 0.75,
        "itself": 0.25,
        "before": 1,
        "after": 0,
        "special": 0.5,
    }
    even = _summary(np.full((4, 4), 0.25), special)
    assert even["entropy"] == pytest.approx(math.log(4)) and even["special"] == 0.25


def test_each_layer_and_head_has_a_map_with_the_tokens(make_run: Callable[[str], Path]) -> None:
    models = [ProbedModel(name, open_run(make_run(name), "cpu")) for name in ("encoder", "decoder")]
    found = Attention(SENTENCE).measure(models)
    figure = Figure(layout="constrained")
    found.plot(figure)
    assert [axes.get_title() for axes in figure.axes[:4]] == [
        f"layer {layer}, head {head}" for layer in (1, 2) for head in (1, 2)
    ]
    assert len(figure.axes) == 8
    assert [tick.get_text() for tick in figure.axes[0].get_yticklabels()] == [
        *SENTENCE.split(),
        "</s>",
    ]
    decoder = [row for row in found.details if row["run"] == "decoder"]
    for place, row in enumerate(decoder[:5]):
        weights = [float(weight) for weight in row["weights"].split()]
        assert row["token"] == ["</s>", *SENTENCE.split()][place]
        assert sum(weights) == pytest.approx(1, abs=1e-3) and not any(weights[place + 1 :])


def test_a_sentence_without_words_is_refused() -> None:
    with pytest.raises(UserError, match=r"probe\.sentence: is empty"):
        Attention(" ").measure([])


def test_the_command_saves_the_maps_where_the_report_shows_them(
    make_run: Callable[[str], Path], capsys: pytest.CaptureFixture[str]
) -> None:
    run = make_run("decoder")
    words = ["probe", run, "attention", "--set", f"sentence={SENTENCE}", "--json"]
    assert command([str(word) for word in words]) == 0
    assert len(json.loads(capsys.readouterr().out)["rows"]) == 4
    assert (run / "evaluations" / "probe-attention.png").is_file()
    (run / "metrics.jsonl").write_text("", encoding="utf-8")
    assert command(["report", str(run)]) == 0
    page = (run / "report.html").read_text(encoding="utf-8")
    assert "data:image/png" in page and f"attention weights: {SENTENCE}" in page


def test_a_model_without_attention_is_refused_in_one_line(
    make_run: Callable[[str], Path], refused: Callable[..., str]
) -> None:
    words = ("probe", make_run("lstm"), "attention", "--set", "sentence=the bank")
    assert "has no self-attention" in refused(*words)
