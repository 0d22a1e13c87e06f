"""Order, batch size and neighbours change no result of a verb that takes many texts."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import foreword
from foreword.evaluation import beam, decoding, scorer, scoring
from foreword.evaluation.beam import Beams
from foreword.evaluation.loaded import LoadedModel
from foreword.evaluation.passages import Passage, score_passages
from foreword.evaluation.sampling import Sampling
from foreword.evaluation.scoring import score_texts
from foreword.nn.init import initialise
from foreword.runs.recipe import load_recipe
from foreword.runs.run_folder import open_run
from foreword.runs.trained_model import TrainedModel
from foreword.text.tokenizer import Tokenizer
from foreword.tuning import packed_examples
from foreword.tuning.input_template import template_of
from foreword.tuning.starting_network import build_network
from foreword.tuning.tasks._contract import Task
from foreword.tuning.tasks.classify import Classify
from foreword.tuning.tasks.embed import Embed
from foreword.tuning.tasks.regress import Regress
from foreword.tuning.tasks.tag import Tag
from foreword.tuning.tuned_model import TunedModel
from tests.evaluation.conftest import FAMILIES, TEXTS, Make
from tests.tuning.runs import PARTS, make_run

# One of several tokens, of one, of an unknown one, a long one, and one of them twice.
MANY = ["The cat sat.", "One", "zebra", TEXTS[1], "A bird", "One", "The dog ran to the river."]
EMPTY = [MANY[0], "", *MANY[1:], " "]

Run = Callable[[Any, Sequence[Any]], Sequence[Any]]  # a model, its texts -> a result for each
DECODED = Sampling(tokens=8, temperature=1.0, seed=3)
NEURAL = {*FAMILIES, "lstm", "elmo"}
CONTINUES = {"decoder", "pairs", "stream", "transformer_xl", "lstm", "elmo", "hybrid", "ngram"}
CONTINUES |= {"diffusion"}
ANSWERS = set(FAMILIES) - CONTINUES - {"encoder", "electra", "xlnet"}


def encode(model: TrainedModel, texts: Sequence[str]) -> Sequence[Any]:
    return LoadedModel(model).encode(texts)


def score(model: TrainedModel, texts: Sequence[str]) -> Sequence[Any]:
    return [[t.nats, t.tokens, t.bytes, t.unknown, t.ends] for t in score_texts(model, texts)]


def suites(model: TrainedModel, texts: Sequence[str]) -> Sequence[Any]:
    passages = [Passage(text, before="The cat sat", after=" on the mat.") for text in texts]
    return [[p.nats, p.tokens, p.unknown] for p in score_passages(model, passages)]


def sample(model: TrainedModel, texts: Sequence[str]) -> Sequence[Any]:
    found = decoding.generate(model, texts, DECODED, samples=2)
    return [[one.text for one in found[n : n + 2]] for n in range(0, len(found), 2)]


def search(model: TrainedModel, texts: Sequence[str]) -> Sequence[Any]:
    return [found.text for found in beam.generate(model, texts, Beams(3, tokens=6))]


VERBS: dict[str, tuple[Run, set[str], list[str]]] = {
    "encode": (encode, NEURAL, EMPTY),
    "score": (score, {"ngram", *NEURAL} - ANSWERS, [*EMPTY, " ".join(TEXTS)]),
    "suites": (suites, {"ngram", *NEURAL}, MANY),
    "generate": (sample, CONTINUES | ANSWERS, MANY),
    "translate": (search, ANSWERS, MANY),
}


@pytest.fixture(scope="module")
def ngram(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("ngram")
    foreword.pretrain("ngram_tiny", texts=TEXTS * 4, out=folder / "run", progress=False)
    return folder / "run"


def assert_each_as_alone(run: Run, model: Any, items: Sequence[Any]) -> None:
    """Compare what each item gets among all, in reverse order, and alone."""
    together = run(model, items)
    reverse = run(model, items[::-1])[::-1]
    alone = [run(model, [item])[0] for item in items]
    assert len(together) == len(items)
    for n, item in enumerate(items):
        for other in (reverse[n], alone[n]):
            if isinstance(other, np.ndarray) or (other and isinstance(other[0], float)):
                np.testing.assert_allclose(other, together[n], atol=1e-4, err_msg=repr(item))
            else:
                assert other == together[n], item


@pytest.mark.product
@pytest.mark.parametrize(
    ("verb", "family"), [(verb, family) for verb in VERBS for family in sorted(VERBS[verb][1])]
)
def test_a_text_has_the_same_result_alone_and_among_others_in_any_order(
    make_prompted: Make,
    tokenizer: Tokenizer,
    ngram: Path,
    monkeypatch: pytest.MonkeyPatch,
    verb: str,
    family: str,
) -> None:
    run, _, texts = VERBS[verb]
    if family == "ngram":
        model = open_run(ngram, "cpu")
    elif family in FAMILIES:
        model = make_prompted(family)
    else:
        recipe = load_recipe(f"{family}_tiny")
        network = recipe.build(tokenizer.vocab)
        initialise(network, 1)
        model = TrainedModel(network.eval(), recipe, tokenizer, torch.device("cpu"))
    monkeypatch.setattr(scorer, "CHUNK", 3)
    monkeypatch.setattr(scoring, "DRAWS", 4)
    assert_each_as_alone(run, model, texts)


def predict(model: TunedModel, items: Sequence[Any]) -> Sequence[Any]:
    outputs: Sequence[Any] = model.outputs(items)
    return outputs


@pytest.mark.product(few=4)
@pytest.mark.parametrize(
    ("task", "layout"),
    [
        *((Classify(), layout) for layout in PARTS),
        *((task, "encoder") for task in (Regress(), Embed(), Tag())),
    ],
    ids=lambda one: one if isinstance(one, str) else type(one).__name__,
)
def test_a_tuned_model_answers_a_text_alone_as_among_others_in_any_order(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, task: Task, layout: str
) -> None:
    trained = open_run(make_run(tmp_path, layout), "cpu")
    network = build_network(trained, task, ("0", "1"), None)
    network.initialise_head(1)
    template = template_of(trained.recipe, trained.vocab, None)
    around = (trained.tokenizer, trained.device, trained.dtype, trained.recipe, tmp_path)
    model = TunedModel(network.eval(), task, ("0", "1"), template, *around)
    monkeypatch.setattr(packed_examples, "CHUNK", 3)
    texts = ["we saw the film", "day", "", "zebra", "the film was a lovely day " * 3, "day"]
    items = [text.split() for text in texts] if isinstance(task, Tag) else texts
    assert_each_as_alone(predict, model, items)
