"""The server's answers: against the models asked directly, and what it refuses."""

from __future__ import annotations

import asyncio
import base64
import json
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace
from typing import Any
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import numpy as np
import pytest

from benchmarks.serve import bad_requests
from foreword.evaluation import decoding, scoring
from foreword.evaluation.loaded import LoadedModel
from foreword.evaluation.sampling import Sampling
from foreword.serving.bodies import CompletionBody
from foreword.serving.guard import Guard
from foreword.serving.metrics import Metrics
from foreword.serving.served import Capacity, Served
from foreword.serving.written import HALF, WholeCharacters
from foreword.text.tokenizer import Tokenizer
from tests.serving.conftest import Asks, trained_model
from tests.serving.site import serving

PROMPTS = ["The cat sat", "A bird", "One day the sun shone on", "The dog ran to the river"]


def streamed(text: str) -> list[Any]:
    """Return the events of a stream, which must end with [DONE]."""
    events = [line.removeprefix("data: ") for line in text.split("\n\n") if line]
    assert events[-1] == "[DONE]"
    return [json.loads(event) for event in events[:-1]]


@pytest.mark.parametrize("family", ["decoder", "stream", "encoder_decoder", "prefix"])
def test_texts_are_those_of_generate(ask: Asks, bpe: Tokenizer, family: str) -> None:
    model, client = trained_model(family, bpe), ask(family)
    sampling = Sampling(tokens=12, temperature=0.9, top_k=20, seed=7)
    for prompt in PROMPTS[:2]:
        expected = decoding.generate(model, [prompt], sampling, 2)
        body = {
            "prompt": prompt,
            "max_tokens": 12,
            "temperature": 0.9,
            "top_k": 20,
            "seed": 7,
            "n": 2,
        }
        answer = client.post("/v1/completions", json=body).json()
        assert [c["text"] for c in answer["choices"]] == [e.text for e in expected]
        events = streamed(client.post("/v1/completions", json=body | {"stream": True}).text)
        for n in range(2):
            choices = [e["choices"][0] for e in events if e["choices"][0]["index"] == n]
            assert "".join(c["text"] for c in choices) == expected[n].text
            assert choices[-1]["finish_reason"] in ("stop", "length")


def test_echo_scores_the_prompt_as_score_does(ask: Asks, bpe: Tokenizer) -> None:
    model, client = trained_model("decoder", bpe), ask("decoder")
    text = "The cat looked at the naïve bird."
    expected = scoring.score(model, text).log_probs
    ids = bpe.encode(text).tolist()
    for prompt in (text, ids, [*model.prompt_prefix.tolist(), *ids]):
        body = {"prompt": prompt, "max_tokens": 0, "echo": True, "logprobs": 3}
        choice = client.post("/v1/completions", json=body).json()["choices"][0]
        scored = choice["logprobs"]
        has_prefix = isinstance(prompt, list) and len(prompt) > len(ids)
        assert choice["text"].removeprefix("<s>" * has_prefix).lstrip() == text
        values = scored["token_logprobs"][has_prefix:]
        np.testing.assert_allclose(values, expected[: len(ids)], atol=1e-5)
        best = scored["top_logprobs"][-1]
        assert 3 <= len(best) <= 4 and values[-1] in best.values()
        offsets = scored["text_offset"]
        assert offsets == sorted(offsets) and len(offsets) == len(prompt if has_prefix else ids)


@pytest.mark.parametrize("family", ["decoder", "stream", "encoder_decoder"])
def test_answers_are_equal_alone_and_together(ask: Asks, family: str) -> None:
    client = ask(family, together=3)
    bodies = [
        {"prompt": p, "max_tokens": 20, "logprobs": 2, "seed": n, "temperature": (n % 2) * 0.9}
        for n, p in enumerate(PROMPTS * 2)
    ]

    def post(body: dict[str, Any]) -> Any:
        return client.post("/v1/completions", json=body).json()["choices"][0]

    alone = [post(body) for body in bodies]
    with ThreadPoolExecutor(len(bodies)) as pool:
        together = list(pool.map(post, bodies))
    for one, other in zip(alone, together, strict=True):
        assert one["text"] == other["text"]
        assert one["logprobs"]["tokens"] == other["logprobs"]["tokens"]
        pairs = [c["logprobs"]["token_logprobs"] for c in (one, other)]
        np.testing.assert_allclose(*pairs, atol=1e-5)


def test_a_stop_ends_a_text_and_is_no_part_of_it(ask: Asks) -> None:
    client = ask("decoder")
    body = {"prompt": "The cat", "max_tokens": 30, "temperature": 0.0}
    free = client.post("/v1/completions", json=body).json()["choices"][0]["text"]
    for at in (3, 7, 11):
        stop = free[at : at + 4]
        wanted = body | {"stop": [stop, "@@"]}
        (choice,) = client.post("/v1/completions", json=wanted).json()["choices"]
        assert (choice["text"], choice["finish_reason"]) == (free[: free.index(stop)], "stop")
        events = streamed(client.post("/v1/completions", json=wanted | {"stream": True}).text)
        assert "".join(e["choices"][0]["text"] for e in events) == choice["text"]


def test_a_character_is_streamed_whole(bpe: Tokenizer) -> None:
    text = "naïve café “straße” 日本 ☃"
    ids = bpe.encode(text).tolist()
    model = trained_model("decoder", bpe)
    characters = WholeCharacters(model, bpe.encode("The").tolist())
    pieces = [characters.add(token) for token in ids]
    assert "".join(pieces) == text and len(pieces) > len(text) - 5
    assert all(HALF not in piece for piece in pieces)


def test_a_text_begins_while_another_goes_on(bpe: Tokenizer) -> None:
    """And one of a request of many gives its place to another request."""

    async def order() -> list[str]:
        served = Served("decoder", LoadedModel(trained_model("decoder", bpe)), Capacity(together=2))
        got: list[str] = []

        async def take(name: str, body: CompletionBody) -> None:
            job = served.writing(served.completion(body))
            left = job.size
            served.worker.submit(job)
            while left:
                piece = await job.events.get()
                got.append(name)
                left -= piece.finish is not None

        many = CompletionBody(prompt="The cat", n=6, max_tokens=40, min_tokens=40, stream=True)
        one = CompletionBody(prompt="A bird", max_tokens=4, min_tokens=4, stream=True)
        await asyncio.gather(take("many", many), take("one", one))
        served.worker.close()
        return got

    got = asyncio.run(order())
    # Of six texts by two, it comes after the first three at the latest, and ends before the rest.
    assert got.index("one") < 0.75 * len(got)
    assert got[-1] == "many"


def test_a_client_that_leaves_frees_its_place(bpe: Tokenizer) -> None:
    async def leave() -> None:
        served = Served("decoder", LoadedModel(trained_model("decoder", bpe)), Capacity(together=1))
        long = CompletionBody(prompt="The cat", max_tokens=60, n=100, stream=True)
        bodies = (long, CompletionBody(prompt="A bird"))
        jobs = [served.writing(served.completion(body)) for body in bodies]
        for job in jobs:
            served.worker.submit(job)
        await jobs[0].events.get()
        jobs[0].is_cancelled = True
        await asyncio.wait_for(jobs[1].events.get(), 10)
        assert served.worker.texts <= 1 and jobs[0].waiting
        served.worker.close()

    asyncio.run(leave())


def test_requests_beyond_the_queue_are_told_to_come_again(
    ask: Asks,
) -> None:
    client = ask("decoder", together=1, queue=1)
    body = {"prompt": "The cat", "max_tokens": 40}
    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(lambda _: client.post("/v1/completions", json=body), range(8)))
    statuses = {answer.status_code for answer in answers}
    assert statuses == {200, 429}
    refused = next(answer for answer in answers if answer.status_code == 429)
    assert refused.headers["retry-after"] and refused.json()["error"]["type"] == "rate_limit_error"


def test_vectors_are_the_mean_of_the_states(ask: Asks, bpe: Tokenizer) -> None:
    client, model = ask("encoder"), LoadedModel(trained_model("encoder", bpe))
    texts = ["The cat sat", "A bird sang in the tree."]
    plain = client.post("/v1/embeddings", json={"input": texts}).json()["data"]
    coded = client.post(
        "/v1/embeddings",
        json={"input": [bpe.encode(t).tolist() for t in texts], "encoding_format": "base64"},
    ).json()["data"]
    for text, one, other in zip(texts, plain, coded, strict=True):
        expected = model.encode(text).mean(0)
        np.testing.assert_allclose(one["embedding"], expected, atol=1e-5)
        vector = np.frombuffer(base64.b64decode(other["embedding"]), "<f4")
        np.testing.assert_allclose(vector, expected, atol=1e-5)


def test_fill_score_and_translate_answer_as_the_model_does(ask: Asks, bpe: Tokenizer) -> None:
    client = ask("encoder", "encoder_decoder", "decoder")
    encoder = LoadedModel(trained_model("encoder", bpe))
    text = "The [MASK] sat on the [MASK]."
    filled = client.post("/fill", json={"model": "encoder", "text": [text], "top": 3}).json()
    assert filled["data"][0]["text"] == encoder.fill(text).text
    assert [len(blank) for blank in filled["data"][0]["blanks"]] == [3, 3]
    decoder = LoadedModel(trained_model("decoder", bpe))
    texts = ["The cat sat", "A bird sang in the tree."]
    scored = client.post("/score", json={"model": "decoder", "text": texts}).json()["data"]
    for given, row in zip(texts, scored, strict=True):
        expected = decoder.score(given)
        np.testing.assert_allclose(
            [t["nats"] for t in row["scored"]], -expected.log_probs, atol=1e-5
        )
        assert row["perplexity"] == pytest.approx(expected.totals.perplexity, rel=1e-5)
    answer = client.post(
        "/translate", json={"model": "encoder_decoder", "text": ["The cat", ""], "beams": 2}
    )
    assert [set(row) for row in answer.json()["data"]] == [{"text"}] * 2
    pair = {"model": "encoder_decoder", "text": "A bird", "source": "The cat"}
    assert client.post("/score", json=pair).json()["data"][0]["first_token_given"] == "the source"


@pytest.mark.parametrize(
    ("path", "body", "status", "message"),
    [
        ("/v1/completions", {"prompt": "a", "max_token": 5}, 400, "did you mean 'max_tokens'"),
        ("/v1/completions", {"prompt": "a", "temperature": -1}, 400, "temperature: must be"),
        ("/v1/completions", {"prompt": 5}, 400, "prompt: expected"),
        ("/v1/completions", {"prompt": [1, "a"]}, 400, "prompt[1]: expected a whole number"),
        ("/v1/completions", {"prompt": "a", "stop": ["a", 2]}, 400, "stop[1]: expected a string"),
        ("/v1/completions", {}, 400, "prompt: is needed"),
        ("/v1/completions", {"prompt": [99999]}, 400, "no token 99999"),
        ("/v1/completions", {"prompt": "cat " * 90}, 413, "64"),
        ("/v1/completions", {"prompt": "a", "n": 128, "best_of": 129}, 400, "best_of"),
        ("/v1/completions", {"prompt": ["a"] * 2000}, 413, "at most 1,024"),
        ("/v1/completions", {"prompt": "x" * 70_000}, 413, "65,536 bytes"),
        ("/v1/completions", {"prompt": "a", "suffix": "b"}, 400, "suffix: is not supported"),
        ("/v1/completions", {"prompt": "a", "model": "decodr"}, 404, "did you mean 'decoder'"),
        ("/v1/completions", b"{", 400, "not valid JSON"),
        ("/v1/completions", b"[]", 400, "JSON object"),
        ("/v1/completions", b'{"prompt": "\\ud800"}', 400, "prompt, character 0: half"),
        ("/v1/completions", b'{"temperature": NaN}', 400, "NaN"),
        ("/v1/completions", b"[" * 9000, 400, "nested too deeply"),
        ("/v1/chat/completions", {"messages": []}, 400, "not tuned on conversations"),
        ("/fill", {"text": "The cat"}, 400, "decoder: this"),
        ("/predict", {"data": ["a"]}, 400, "not fine-tuned"),
        ("/translate", {"text": "a"}, 400, "does not translate"),
        ("/score", {"text": "a", "source": "b"}, 400, "source"),
        ("/v1/completion", {}, 404, "did you mean '/v1/completions'"),
    ],
)
def test_bad_requests_are_told_what_is_wrong(
    ask: Asks, path: str, body: Any, status: int, message: str
) -> None:
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    answer = ask("decoder").post(path, content=data)
    error = answer.json()["error"]
    assert (answer.status_code, message in error["message"]) == (status, True), error
    assert len(error["message"]) < 500
    assert set(error) == {"message", "type", "param", "code"}


def test_what_is_read_without_windows_has_a_limit(ask: Asks, bpe: Tokenizer) -> None:
    client = ask(LoadedModel(trained_model("encoder", bpe, "rotary")), length=16)
    for path, key in {"/fill": "text", "/v1/embeddings": "input"}.items():
        assert client.post(path, json={key: "a [MASK]"}).status_code == 200
        refused = client.post(path, json={key: ["a [MASK]", "the cat " * 20 + "[MASK]"]})
        assert refused.status_code == 413 and "model0 reads 16" in refused.text
    assert client.post("/score", json={"text": "the cat " * 20}).status_code == 413
    client = ask(LoadedModel(trained_model("diffusion", bpe, "rotary")))
    refused = client.post("/fill", json={"text": "[MASK]" * 300})
    assert refused.status_code == 413 and "300 blanks" in refused.text


def test_what_writes_in_any_order_gives_whole_texts_and_no_next_token(
    ask: Asks, bpe: Tokenizer
) -> None:
    client, model = ask("diffusion"), trained_model("diffusion", bpe)
    endpoints = client.get("/v1/models").json()["data"][0]["endpoints"]
    paths = ("inspect/next", "inspect/beam")
    assert {"score", "fill", "completions"} <= set(endpoints) and not {*paths} & set(endpoints)
    for path in paths:
        refused = client.post(f"/{path}", json={"text": "The cat"})
        assert refused.status_code == 400 and "writes in any order" in refused.text
    # The texts are those of `foreword generate`, whole or as a stream of one piece each.
    body = {"prompt": ["The cat", "A dog sat"], "max_tokens": 6, "n": 2, "seed": 3}
    answer = client.post("/v1/completions", json=body).json()
    sampling = Sampling(6, 1.0, top_k=0, seed=3)
    texts = [one.text for one in decoding.generate(model, body["prompt"], sampling, 2)]
    assert [one["text"] for one in answer["choices"]] == texts and answer["usage"]["total_tokens"]
    lines = client.post("/v1/completions", json=body | {"stream": True}).text.split("\n\n")
    pieces = [json.loads(line[6:])["choices"][0] for line in lines[:-2]]
    assert [piece["text"] for piece in pieces] == texts and lines[-2] == "data: [DONE]"
    stop = texts[0][1:3]
    echoed = body | {"prompt": "The cat", "n": 1, "stop": stop, "echo": True}
    (cut,) = client.post("/v1/completions", json=echoed).json()["choices"]
    assert cut["text"] == "The cat" + texts[0].partition(stop)[0] and cut["finish_reason"] == "stop"
    refused = client.post("/v1/completions", json=body | {"logprobs": 1})
    assert refused.status_code == 400 and refused.json()["error"]["param"] == "logprobs"


def test_only_those_who_may_are_answered(ask: Asks) -> None:
    page = "http://localhost:3000"
    client = ask("decoder", guard=Guard("0.0.0.0", "secret", page))
    bearer = {"authorization": "Bearer secret"}
    for headers, status in [
        ({}, 401),
        ({"authorization": "Bearer secre"}, 401),
        (bearer, 200),
        (bearer | {"origin": page}, 200),
        (bearer | {"origin": "http://127.0.0.1"}, 200),
        (bearer | {"origin": "http://evil.example"}, 403),
        (bearer | {"origin": "null"}, 403),
    ]:
        answer = client.get("/v1/models", headers=headers)
        assert answer.status_code == status, headers
        allowed = answer.headers.get("access-control-allow-origin")
        assert allowed == (page if headers.get("origin") == page else None)
    assert client.get("/health").status_code == 200
    assert client.options("/v1/completions", headers={"origin": page}).status_code == 204
    local = ask("decoder")
    for headers in ({"host": "evil.example"}, {"host": "[::1"}, {"origin": "http://["}):
        assert local.get("/health", headers=headers).status_code == 403
    assert local.get("/health", headers={"host": "localhost:8000"}).status_code == 200


def test_the_server_describes_itself_without_paths(ask: Asks, bpe: Tokenizer) -> None:
    client = ask("decoder", "encoder")
    models = client.get("/v1/models").json()["data"]
    assert [model["id"] for model in models] == ["decoder", "encoder"]
    assert client.get("/v1/models/encoder").json() == models[1]
    assert "completions" in models[0]["endpoints"] and "fill" in models[1]["endpoints"]
    schema = client.get("/openapi.json").json()
    body = schema["paths"]["/v1/completions"]["post"]["requestBody"]["content"]
    properties = body["application/json"]["schema"]["properties"]
    assert properties["temperature"]["maximum"] == 1000 and properties["stop"]["description"]
    asked = {"model": "decoder", "prompt": "The cat"}
    usage = client.post("/v1/completions", json=asked).json()["usage"]
    idle: Any = SimpleNamespace(counts=Counter(), texts=0, waiting=0)
    assert r'foreword_texts{model="a\"\n\\"} 0' in Metrics().text({'a"\n\\': idle})
    counts = client.get("/metrics").text
    assert 'foreword_requests_total{path="/v1/completions",status="200"} 1' in counts
    assert f'foreword_new_tokens_total{{model="decoder"}} {usage["completion_tokens"]}\n' in counts
    ids = client.post("/tokenize", json={"model": "decoder", "prompt": "The cat"}).json()["tokens"]
    assert ids == bpe.encode("The cat").tolist()
    text = client.post("/detokenize", json={"model": "decoder", "tokens": ids}).json()["prompt"]
    assert text.strip() == "The cat"


@pytest.mark.parametrize("family", ["decoder", "encoder", "encoder_decoder"])
def test_no_request_is_answered_by_a_fault(ask: Asks, family: str) -> None:
    client = ask(family)
    requests = list(bad_requests(400, seed=len(family)))
    statuses = {client.post(path, content=data).status_code for path, data in requests}
    assert statuses >= {200, 400, 404} and max(statuses) < 500


def test_a_client_that_sends_too_much_reads_why() -> None:
    with serving({}) as url:
        request = Request(f"{url}/score", data=b"x" * (1 << 24))
        with pytest.raises(HTTPError, match="413") as refused:
            urlopen(request, timeout=20)
        assert "1,048,576 bytes" in refused.value.read().decode()
