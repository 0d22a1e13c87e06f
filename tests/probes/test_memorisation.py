"""What a model has memorised: continuations, membership by loss, and canaries."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from sklearn.metrics import roc_auc_score

from foreword.data.shards import Shards
from foreword.errors import UserError
from foreword.evaluation import heldout
from foreword.evaluation.decoding import decode, stops_of
from foreword.evaluation.sampling import GREEDY
from foreword.evaluation.scorer import padded
from foreword.evaluation.scoring import score
from foreword.evaluation.starts import Start
from foreword.nn.init import initialise
from foreword.probes._canaries import Canary, candidates, exposure, read_canaries
from foreword.probes._contract import Finding, ProbedModel
from foreword.probes._passages import continued, losses, passages, separation
from foreword.probes.memorisation import Memorisation
from foreword.runs.recipe import Recipe
from foreword.runs.trained_model import TrainedModel
from foreword.settings import config
from foreword.testing.models import tiny_model
from foreword.types import Example

WORDS = [f"w{n}" for n in range(40)]


def text_of(seed: int, words: int = 400) -> str:
    return " ".join(np.random.default_rng(seed).choice(WORDS, words))


def write(path: Path, text: str) -> Path:
    path.write_text(text, encoding="utf-8")
    return path


def measure(tmp_path: Path, probe: Memorisation, model: TrainedModel, seed: int = 2) -> Finding:
    unseen = write(tmp_path / "unseen.txt", text_of(seed))
    return probe.measure([ProbedModel("m", model, (str(unseen),))])


@pytest.fixture
def shards(tmp_path: Path) -> Shards:
    model = tiny_model("decoder", WORDS)
    file = write(tmp_path / "text.txt", text_of(1, 23) + "\n\n" + text_of(2, 9))
    recipe = config.build(Recipe, {"read": {"documents": "paragraph"}, **_table()})
    with heldout.shards_of_texts(replace(model, recipe=recipe), (str(file),)) as (made, _):
        yield made


def _table() -> dict[str, Any]:
    return {"objective": "causal", "layout": "decoder", "model": {"kind": "transformer"}}


def test_passages_lie_apart_within_documents(shards: Shards) -> None:
    starts = shards.document_starts.tolist()
    assert len(starts) == 3
    found = passages(shards, 5, 100)
    assert len(found) == sum((b - a) // 5 for a, b in itertools.pairwise(starts))
    tokens = shards.tokens.tolist()
    assert found[0].tolist() == tokens[:5] and found[1].tolist() == tokens[5:10]
    second = starts[1]
    assert found[-1].tolist() in [tokens[at : at + 5] for at in range(second, len(tokens) - 4, 5)]
    assert len(passages(shards, 5, 2)) == 2
    assert passages(shards, 50, 10).shape == (0, 50)


def test_a_continuation_is_that_of_greedy_decoding() -> None:
    text = " ".join(np.random.default_rng(1).permutation(WORDS))
    model = overfitted([text], steps=60)
    whole = model.tokenizer.encode(text)
    tokens = np.stack([whole[n : n + 8] for n in range(0, 30, 3)])
    tokens[::2, 5] = tokens[::2, 6]  # half of them differ from what it knows
    starts = [Start(None, np.concatenate([model.prompt_prefix, row[:3]])) for row in tokens]
    written = decode(model, starts, replace(GREEDY, tokens=5), stops_of(model))
    expected = []
    for row, new in zip(tokens[:, 3:].tolist(), written, strict=True):
        same = [one == other for one, other in zip(row, new.ids.tolist(), strict=False)]
        expected.append([*same, False].index(False))
    assert continued(model, tokens, 3, 5).tolist() == expected
    assert set(expected) >= {2, 5}


def test_the_separation_is_the_area_under_the_roc_curve() -> None:
    rng = np.random.default_rng(1)
    members, others = rng.integers(0, 20, 50) / 2, rng.integers(3, 25, 70) / 2
    labels = np.repeat([1, 0], [50, 70])
    expected = roc_auc_score(labels, -np.concatenate([members, others]))
    assert separation(members, others) == pytest.approx(expected)


def overfitted(texts: list[str], words: list[str] = WORDS, steps: int = 150) -> TrainedModel:
    """Return a tiny LSTM that has memorised texts, and knows words besides."""
    trained = tiny_model("lstm", [*WORDS, *words])
    recipe = replace(trained.recipe, model=replace(trained.recipe.model, d_model=64, layers=1))
    network = recipe.build(trained.vocab)
    initialise(network, 1)
    model = replace(trained, model=network, recipe=recipe)
    ids = [model.tokenizer.encode(text) for text in texts]
    rows = torch.stack([torch.from_numpy(one[: min(map(len, ids))]) for one in ids])
    optimizer = torch.optim.Adam(network.parameters(), 0.02)
    for _ in range(steps):
        tokens = padded(list(rows.numpy()))
        example = Example(None, tokens, np.ones(tokens.ids.shape, np.float32))
        batch = recipe.layout.arrange(example, model.vocab).to(torch.device("cpu"))
        loss = network.token_head.loss(network.backbone(batch), batch)
        optimizer.zero_grad()
        (loss.total / loss.count).backward()
        optimizer.step()
    network.eval()
    return model


@pytest.mark.full
def test_a_model_that_knows_its_text_by_heart_is_found_out(tmp_path: Path) -> None:
    text = " ".join(np.random.default_rng(1).permutation(WORDS))  # each word has one successor
    model = overfitted([text])
    train = write(tmp_path / "train.txt", text)
    probe = Memorisation((2, 6), 6, 20, str(train))
    (row,) = measure(tmp_path, probe, model).rows
    assert row["continued"] == 1 and row["continued, held out"] == 0
    assert row["tokens"] == 6 and row["AUC"] == 1
    assert row["high"] is None  # each draw of the sentences gives 1
    # Random weights know nothing.
    untrained = tiny_model("lstm", [*WORDS, text])
    (row,) = measure(tmp_path, probe, untrained).rows
    assert row["continued"] == 0 and 0.1 < row["AUC"] < 0.9


def test_the_loss_of_a_masked_model_tells_members_too(tmp_path: Path) -> None:
    model = tiny_model("encoder", WORDS)
    train = write(tmp_path / "train.txt", text_of(1))
    found = measure(tmp_path, Memorisation((4,), 4, 6, str(train)), model)
    (row,) = found.rows
    assert row["continued"] is None and 0 <= row["low"] <= row["AUC"] <= row["high"] <= 1
    assert not any(detail["what"] == "continued" for detail in found.details)
    assert not any(note.startswith("continued") for note in found.notes)


def test_losses_are_those_that_score_gives_the_tokens() -> None:
    model = tiny_model("decoder", WORDS)
    text = text_of(3, 12)
    (found,) = losses(model, model.tokenizer.encode(text)[None])
    scored = score(model, text).log_probs  # from the second token on, if none comes before the text
    begin = len(model.prompt_prefix)
    assert found == pytest.approx(-scored[begin : begin + 11].mean(), rel=1e-4)


def test_candidates_differ_by_their_digits_alone() -> None:
    some = candidates("The code is 48-31.", 100)
    assert some[0] == "The code is 48-31." and len(set(some)) == 100
    assert all(one[:12] == "The code is " and one[14] == "-" and len(one) == 18 for one in some)
    assert candidates("a 7", 100) == ["a 7", *(f"a {n}" for n in range(10) if n != 7)]
    assert candidates("The code is 48-31.", 100) == some


@pytest.mark.parametrize(("better", "bits"), [(0, 10), (1, 9), (7, 7), (1023, 0)])
def test_exposure_is_the_log_of_the_rank_from_the_top(better: int, bits: float) -> None:
    def nats_of(texts: Any) -> Any:
        return np.array([5.0, *[1.0] * better, *[9.0] * (len(texts) - 1 - better)])

    assert exposure(Canary("code 123456", 1), 1024, nats_of) == pytest.approx(bits)


def test_a_model_that_tells_no_digits_apart_exposes_nothing() -> None:
    bits = exposure(Canary("code 123456", 1), 1024, lambda texts: np.full(len(texts), 5.0))
    assert bits == pytest.approx(1, abs=0.01)


@pytest.mark.full
def test_planted_canaries_are_exposed_and_counted(tmp_path: Path) -> None:
    digits = [f"code {n}" for n in range(10)]
    model = overfitted(["code 7"], words=digits)
    file = write(tmp_path / "canaries.txt", "code 7\n\ncode 7\ncode 3\ncode 3 7\n")
    planted = [("code 7", 2), ("code 3", 1), ("code 3 7", 1)]
    assert read_canaries(str(file)) == [Canary(*each) for each in planted]
    train = write(tmp_path / "train.txt", text_of(1))
    probe = Memorisation((2,), 2, 6, str(train), str(file), 16)
    found = measure(tmp_path, probe, model)
    shown = [row for row in found.details if row["what"] == "exposure"]
    assert [(row["text"], row["times"]) for row in shown] == planted
    assert shown[0]["value"] == math.log2(10) > shown[1]["value"]
    assert [row["limit"] for row in shown] == [math.log2(10), math.log2(10), 4]
    at_most = "at most 4 for 1 of 16 candidates, 3.32 for 2 of 10 candidates"
    assert f"exposure: the mean over canaries, in bits; {at_most}" in found.notes


@pytest.mark.parametrize(
    ("content", "message"),
    [("", "no canary in it"), ("a secret\n", "'a secret' has no digit"), (None, "cannot be read")],
)
def test_broken_lists_of_canaries_are_refused(
    tmp_path: Path, content: str | None, message: str
) -> None:
    file = tmp_path / "canaries.txt"
    if content is not None:
        file.write_text(content, encoding="utf-8")
    with pytest.raises(UserError, match=message) as error:
        read_canaries(str(file))
    assert "\n" not in str(error.value)


def test_passages_longer_than_the_model_reads_are_refused(
    make_run: Callable[[str], Path], refused: Callable[..., str]
) -> None:
    words = ("probe", make_run("decoder"), "memorisation")
    assert "passages have 80 tokens" in refused(*words)
    assert "shards are not there" in refused(
        *words, "--set", "prefixes=[4]", "--set", "continuation=4"
    )
    assert "prefixes: must name at least one length" in refused(*words, "--set", "prefixes=[]")
    assert "expected different lengths" in refused(*words, "--set", "prefixes=[4, 4]")
