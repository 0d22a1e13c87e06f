"""Tuned models behind the server: predictions are those of `predict`, conversations answered."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np

from foreword import predict, tune
from foreword.verbs._load import load
from tests.serving.conftest import Asks
from tests.serving.test_server import streamed
from tests.tuning.runs import make_run, reviews

FAST: dict[str, Any] = {
    "strategy": "full", "seeds": 1, "epochs": 1, "device": "cpu", "progress": False,
}  # fmt: skip


def test_predictions_are_those_of_predict(ask: Asks, tmp_path: Path) -> None:
    train = [(e.text, e.label) for e in reviews(40, 1)]
    tuned = tune(make_run(tmp_path / "run"), train, train[:4], lr=3e-3, **FAST).out
    client = ask(load(tuned, "cpu"))
    texts = ["", *(e.text for e in reviews(12, 3))]
    expected = predict(tuned, texts, device="cpu", probabilities=True, progress=False).rows
    body = {"data": texts, "probabilities": True}
    answer = client.post("/predict", json=body).json()
    assert str(tmp_path) not in str(answer) and answer["cut"] == 0
    for one, other in zip(answer["data"], expected, strict=True):
        assert list(one) == list(other)
        assert (one["text"], one["prediction"]) == (other["text"], other["prediction"])
        if other["probability"] is not None:
            np.testing.assert_allclose(one["probability"], other["probability"], atol=1e-5)
    rows = [{"text": text} for text in texts]
    assert client.post("/predict", json=body | {"data": rows}).json() == answer
    long = client.post("/predict", json={"data": ["a film " * 200, "a film"]}).json()
    assert len(long["data"]) == 2
    for wrong, message in [
        ([["a", "b"]], "single texts"),
        (["a", 5], "data[1]"),
        ([{"txt": "a"}], "text"),
    ]:
        refused = client.post("/predict", json={"data": wrong})
        assert refused.status_code == 400 and message in refused.json()["error"]["message"]
    assert client.post("/v1/completions", json={"prompt": "a"}).status_code == 400
    assert client.get("/v1/models").json()["data"][0]["labels"]


def test_a_conversation_is_answered_as_it_was_learned(ask: Asks, tmp_path: Path) -> None:
    turns = [("the day", "was warm"), ("in town", "cold")]
    rows = [
        {"messages": [{"role": "user", "content": q}, {"role": "assistant", "content": a}]}
        for q, a in turns
    ]
    settings = FAST | {"task": "chat", "epochs": 16, "lr": 5e-3}
    settings.pop("strategy")
    tuned = tune(make_run(tmp_path / "run", "decoder"), rows * 8, rows, **settings).out
    client = ask(load(tuned, "cpu"))
    for question, answer in turns:
        body = {"messages": [{"role": "user", "content": question}], "temperature": 0}
        choice = client.post("/v1/chat/completions", json=body).json()["choices"][0]
        assert choice["message"] == {"role": "assistant", "content": answer}
        assert choice["finish_reason"] == "stop"
        parts = [{"type": "text", "text": question}]
        body = {"messages": [{"role": "user", "content": parts}], "temperature": 0, "stream": True}
        deltas = [e["choices"][0]["delta"] for e in streamed(_text(client, body))]
        assert "".join(delta["content"] for delta in deltas) == answer
        assert [delta.get("role") for delta in deltas][:2] in (["assistant"], ["assistant", None])
    wrong = {"messages": [{"role": "assistant", "content": "hi"}]}
    refused = client.post("/v1/chat/completions", json=wrong)
    assert refused.status_code == 400 and refused.json()["error"]["param"] == "messages"


def _text(client: Any, body: dict[str, Any]) -> str:
    return str(client.post("/v1/chat/completions", json=body).text)


def test_examples_that_it_was_scored_on_come_with_its_answers(ask: Asks, tmp_path: Path) -> None:
    dev = tmp_path / "dev.jsonl"
    rows = [{"text": e.text, "label": e.label} for e in reviews(10, 2)]
    dev.write_text("".join(json.dumps(row) + "\n" for row in rows))
    train = [(e.text, e.label) for e in reviews(40, 1)]
    tuned = tune(make_run(tmp_path / "run"), train, dev, lr=3e-3, **FAST).out
    client = ask(load(tuned, "cpu"))
    expected = predict(tuned, dev, device="cpu", progress=False).predictions
    answers = [
        client.post("/inspect/examples", json={"first": first, "count": 4}).json()
        for first in (0, 4, 8)
    ]
    found = [row for answer in answers for row in answer["data"]]
    assert [answer["total"] for answer in answers] == [10] * 3 and len(found) == 10
    assert [row["prediction"] for row in found] == expected
    assert [row["text"] for row in found] == [row["text"] for row in rows]
    dev.unlink()
    gone = ask(load(tuned, "cpu")).post("/inspect/examples", json={})
    assert gone.status_code == 400 and str(tmp_path) not in gone.text
