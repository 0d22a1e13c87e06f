"""What the page asks for: against the models asked directly, and what is refused."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from foreword.evaluation import beam, decoding, scoring
from foreword.evaluation.beam import Beams
from foreword.evaluation.sampling import Sampling
from foreword.serving.inspection import LOOKS
from foreword.serving.looks._look import MOST_TOKENS
from foreword.text.tokenizer import Tokenizer
from tests.serving.conftest import Asks, trained_model

TEXT = "The cat looked at the bird."


def row(client: Any, name: str, **body: Any) -> dict[str, Any]:
    answer = client.post(f"/inspect/{name}", json=body)
    assert answer.status_code == 200, answer.text
    (only,) = answer.json()["data"]
    return dict(only)


@pytest.mark.parametrize("family", ["decoder", "encoder", "encoder_decoder"])
def test_tokens_make_up_the_text_and_their_nats_the_score(
    ask: Asks, bpe: Tokenizer, family: str
) -> None:
    text = " The  naïve cat,\n日 looked!  "
    read = row(ask(family), "text", text=text, top=3)
    tokens = [token for token in read["tokens"] if not token["is_end"]]
    assert "".join(token["text"] for token in tokens) == text
    assert [token["id"] for token in tokens] == bpe.encode(text).tolist()
    assert all(len(token["best"]) == 3 for token in tokens if "nats" in token)
    if family != "encoder_decoder":
        assert read["nats"] == pytest.approx(
            scoring.score(trained_model(family, bpe), text).totals.nats
        )


def test_steps_draw_the_text_that_generate_writes(ask: Asks, bpe: Tokenizer) -> None:
    model, client = trained_model("decoder", bpe), ask("decoder")
    how = {"temperature": 0.9, "top_k": 20, "top_p": 0.95, "seed": 7}
    expected = decoding.generate(model, [TEXT], Sampling(tokens=8, **how))[0]
    ids: list[int] = []
    for _ in range(8):
        step = row(client, "next", text=TEXT, tokens=ids, top=256, **how)
        total = sum(np.exp(token["nats"]) for token in step["best"])
        total += sum(np.exp(nats) * count for nats, count in step["rest"])
        assert 0.5 < total < 1 + 1e-6  # special tokens are left out
        assert len(step["best"]) + sum(count for _, count in step["rest"]) <= bpe.vocab.size
        if step["drawn"]["is_end"]:
            break
        ids.append(step["drawn"]["id"])
    assert row(client, "next", text=TEXT, tokens=ids)["text"] == expected.text


@pytest.mark.parametrize("family", ["decoder", "encoder_decoder"])
def test_the_best_leaf_is_that_of_the_search(ask: Asks, bpe: Tokenizer, family: str) -> None:
    model = trained_model(family, bpe)
    found = row(ask(family), "beam", text=TEXT, beams=3, max_tokens=6)
    expected = beam.generate(model, [TEXT], Beams(3, 1.0, 6), 3)
    assert [text["text"] for text in found["texts"]] == [text.text for text in expected]
    nodes = {node["node"]: node for node in found["nodes"]}
    for text in found["texts"]:
        node, nats = nodes.get(text["node"]), 0.0
        total = node and node["total"]
        while node is not None:
            nats, node = nats + node["nats"], nodes.get(node["parent"])
        assert total is None or nats == pytest.approx(total, abs=1e-4)


@pytest.mark.parametrize("family", ["decoder", "encoder", "encoder_decoder"])
def test_attention_rows_sum_to_1_and_keep_the_mask(ask: Asks, family: str) -> None:
    read = row(ask(family), "attention", text=TEXT)
    for layer in read["layers"]:
        weights = np.array(layer)
        np.testing.assert_allclose(weights.sum(-1), 1, atol=0.01)
        assert (np.triu(weights, 1) == 0).all() == (family == "decoder")
    one = row(ask(family), "attention", text=TEXT, layer=2)
    assert one["layers"] == read["layers"][1:] and one["first"] == 2


def test_alignments_and_lenses_have_their_shapes(ask: Asks) -> None:
    client = ask("encoder_decoder")
    aligned = row(client, "alignment", text=TEXT, target="A bird.")
    assert np.array(aligned["weights"]).shape == (len(aligned["target"]), len(aligned["source"]))
    lens, read = row(client, "lens", text=TEXT, top=2), row(client, "text", text=TEXT, top=2)
    for one, many in zip(read["tokens"], lens["tokens"], strict=True):
        assert many["layers"][-1] == {key: one[key] for key in ("nats", "rank", "best")}


def test_a_word_is_near_itself_in_the_same_text(ask: Asks) -> None:
    text = "The cat saw the cat."
    for family in ("decoder", "encoder"):
        near = row(ask(family), "word", text=text, start=16, stop=19, others=["A bird sang."])
        assert near["word"] == "cat" and len(near["alone"]) == 8
        (twin,) = [place for place in near["same_text"] if place["word"] == "cat"]
        assert len(twin["cosines"]) == len(near["layers"]) == 3
        assert all(-1 <= cosine <= 1 for cosine in twin["cosines"])


def test_analogies_are_asked_of_words_in_their_sentences_too(ask: Asks) -> None:
    client, words = ask("encoder"), {"a": "cat", "b": "dog", "c": "bird"}
    alone = row(client, "analogy", **words)
    assert set(alone) == {"nearest"}
    texts = {"text": "The cat saw a Dog.", "others": ["A bird sang.", "The bird is a dog."]}
    found = row(client, "analogy", **words, **texts, top=3)
    assert found["nearest"] == alone["nearest"][:3] and not found["missing"]
    assert len(found["layers"]) == 3 and all(len(layer) == 3 for layer in found["layers"])
    named = {place["word"].lower() for layer in found["layers"] for place in layer}
    assert not named & set(words.values())
    assert row(client, "analogy", **words, text="A cat.")["missing"] != []


def test_pieces_are_those_of_the_tokenizer(ask: Asks, bpe: Tokenizer) -> None:
    words = row(ask("encoder"), "pieces", text=TEXT)["words"]
    pieces = [piece for word in words for piece in word["pieces"]]
    assert pieces == [bpe.token(int(i)) for i in bpe.encode(TEXT)]


def test_models_that_cannot_say_so_and_long_texts_are_refused(ask: Asks) -> None:
    families = ("decoder", "encoder", "xlnet")
    client = ask(*families)
    listed = {m["id"]: m["endpoints"] for m in client.get("/v1/models").json()["data"]}
    words = {"a": "cat", "b": "dog", "c": "bird"}
    others = {"word": {"text": TEXT, "start": 4, "stop": 7}, "analogy": words}
    long = {"model": "encoder", "text": "cat " * 20 * MOST_TOKENS, "start": 0, "stop": 3}
    for name in LOOKS:
        body: dict[str, Any] = others.get(name, {"text": TEXT})
        for family in families:
            answer = client.post(f"/inspect/{name}", json={"model": family, **body})
            can = f"inspect/{name}" in listed[family]
            assert answer.status_code == (200 if can else 400), answer.text
        if name in ("text", "lens", "attention", "word", "pieces"):
            keys = long.keys() & {"model", *body}
            answer = client.post(f"/inspect/{name}", json={key: long[key] for key in keys})
            assert answer.status_code == 413 and answer.json()["error"]["param"] == "text"
