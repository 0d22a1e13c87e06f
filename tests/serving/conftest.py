"""Servers of tiny models with random weights, asked without a network."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

import pytest
import torch
from starlette.testclient import TestClient

from foreword.evaluation.loaded import LoadedModel
from foreword.runs.trained_model import TrainedModel
from foreword.serving.app import Server, application
from foreword.serving.guard import Guard
from foreword.serving.served import Capacity, Opened, Served
from foreword.text.tokenizer import Tokenizer
from foreword.text.tokenizers.bpe import BPE
from tests.evaluation.conftest import TEXTS, draw, recipe_of

Asks = Callable[..., TestClient]


@pytest.fixture(scope="session")
def bpe() -> Tokenizer:
    return BPE(vocab=380).train([*TEXTS * 4, "naïve café “straße” 日本"])


def trained_model(family: str, text: Tokenizer, position: str = "learned") -> TrainedModel:
    recipe = recipe_of(family, position)
    model = recipe.build(text.vocab)
    draw(model)
    return TrainedModel(model.eval(), recipe, text, torch.device("cpu"))


@pytest.fixture
def ask(bpe: Tokenizer) -> Iterator[Asks]:
    """Return what serves models, given or by their families, and gives a client."""
    servers: list[Server] = []

    def asks(*models: str | Opened, guard: Guard | None = None, **capacity: int) -> TestClient:
        opened = {
            model if isinstance(model, str) else f"model{n}": LoadedModel(trained_model(model, bpe))
            if isinstance(model, str)
            else model
            for n, model in enumerate(models)
        }
        limits = replace(Capacity(), **capacity)
        served = [Served(name, one, limits) for name, one in opened.items()]
        servers.append(Server(served, 1 << 16))
        app = application(servers[-1], guard or Guard())
        return TestClient(app, base_url="http://127.0.0.1", raise_server_exceptions=True)

    yield asks
    for server in servers:
        server.close()
