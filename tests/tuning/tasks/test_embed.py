"""Vectors of sentences: the forms of training rows, losses, measures, and predictions."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
import torch
from scipy import stats
from torch.nn import functional as F

from foreword import predict, tune
from foreword.cli.main import run as command
from foreword.errors import UserError
from foreword.runs.run_folder import open_run
from foreword.tables.examples import Labelled
from foreword.tuning.input_template import template_of
from foreword.tuning.packed_examples import PooledExamples
from foreword.tuning.starting_network import build_network, has_dropout, with_dropout
from foreword.tuning.tasks._contract import ExampleOutputs
from foreword.tuning.tasks.embed import Embed
from foreword.tuning.tuned_model import load_tuned
from tests.tuning.runs import BAD, GOOD, make_run, reviews

FAST: dict[str, Any] = {
    "task": "embed", "strategy": "full", "seeds": 1,
    "epochs": 2, "lr": 3e-3, "device": "cpu", "progress": False,
}  # fmt: skip


def pairs(count: int, seed: int) -> list[tuple[str, str]]:
    """Texts with one telling word, and another with the same word."""
    first, second = reviews(count, seed), reviews(count, seed + 1)
    made = []
    for one, other in zip(first, second, strict=True):
        word = next(w for w in one.text.split() if w in GOOD + BAD)
        made.append((one.text, f"{word} {' '.join(other.text.split()[:2])}"))
    return made


def scored(count: int, seed: int) -> list[tuple[str, float, str]]:
    """Pairs that are alike if their telling words are both good or both bad."""
    made = []
    for n, (one, other) in enumerate(
        zip(reviews(count, seed), reviews(count, seed + 1), strict=True)
    ):
        like = BAD[n % 4] + " " + other.text if n % 4 > 1 else one.text
        made.append((one.text, 1.5 if n % 4 > 1 else 5.0, like))
    return made


def write(path: Path, names: str, rows: list[Any]) -> Path:
    lines = [names.split(), *rows]
    text = "".join("\t".join(map(str, line)) + "\n" for line in lines)
    path.write_text(text, encoding="utf-8")
    return path


# -- losses ----------------------------------------------------------------------------------------


def labelled(rows: list[tuple[str, ...]]) -> list[Labelled]:
    return [Labelled(row[0], row[1] if len(row) > 2 else "", row[-1], "x:1") for row in rows]


def loss_of(task: Embed, rows: list[tuple[str, ...]], vectors: torch.Tensor) -> float:
    examples = labelled(rows)
    targets = torch.from_numpy(np.concatenate(list(task.targets(examples, ()))))
    loss = task.loss(vectors, targets, torch.arange(len(rows)).repeat_interleave(2))
    assert loss.count == len(rows)
    return float(loss.total / loss.count)


def test_the_loss_of_pairs_is_the_cross_entropy_over_the_second_texts_of_the_batch() -> None:
    vectors = torch.randn(8, 5, generator=torch.Generator().manual_seed(1))
    rows = [(f"a{n}", f"b{n}") for n in range(4)]
    expected = 0.0
    for n in range(4):
        cosines = [F.cosine_similarity(vectors[2 * n], vectors[2 * k + 1], 0) for k in range(4)]
        weights = [math.exp(float(cosine) / 0.1) for cosine in cosines]
        expected -= math.log(weights[n] / sum(weights)) / 4
    assert loss_of(Embed(temperature=0.1), rows, vectors) == pytest.approx(expected, rel=1e-5)


def test_equal_texts_are_no_negatives_of_each_other() -> None:
    vectors = torch.randn(6, 5, generator=torch.Generator().manual_seed(1))
    vectors[5] = vectors[1]
    whole = loss_of(Embed(), [("a", "b"), ("c", "d"), ("e", "b")], vectors)
    # The third pair's second text stands for the first one's: both have one negative, d.
    task = Embed()
    parts = [
        loss_of(task, [("a", "b"), ("c", "d")], vectors[:4]),
        loss_of(task, [("e", "b"), ("c", "d")], vectors[[4, 5, 2, 3]]),
    ]
    first, second = F.normalize(vectors[0::2], dim=1), F.normalize(vectors[1::2], dim=1)
    logits = first @ second.T / task.temperature
    own = F.cross_entropy(logits[1:2], torch.tensor([1]))  # of c, which has b twice as negatives
    alone = [F.cross_entropy(logits[n : n + 1, :2], torch.tensor([0])) for n in (0, 2)]
    assert whole == pytest.approx(float(alone[0] + own + alone[1]) / 3, rel=1e-5)
    assert all(math.isfinite(part) for part in parts)


def test_a_text_that_is_also_a_second_text_is_not_its_own_negative() -> None:
    vectors = torch.randn(4, 5, generator=torch.Generator().manual_seed(1))
    rows = [("a", "b"), ("c", "a")]
    first, second = F.normalize(vectors[0::2], dim=1), F.normalize(vectors[1::2], dim=1)
    logits = first @ second.T / 0.05
    expected = float(F.cross_entropy(logits[1:], torch.tensor([1]))) / 2
    assert loss_of(Embed(), rows, vectors) == pytest.approx(expected, rel=1e-5)


def test_the_loss_of_scores_ranks_the_cosines() -> None:
    vectors = torch.randn(6, 5, generator=torch.Generator().manual_seed(1))
    rows = [("a", "3", "b"), ("c", "1", "d"), ("e", "1", "f")]
    cosines = [float(F.cosine_similarity(vectors[2 * n], vectors[2 * n + 1], 0)) for n in range(3)]
    costs = sum(math.exp((cosines[n] - cosines[0]) / 0.05) for n in (1, 2))
    assert loss_of(Embed(), rows, vectors) == pytest.approx(math.log(1 + costs), rel=1e-5)


@pytest.mark.parametrize("form", ["pairs", "scores"])
def test_the_losses_equal_those_of_sentence_transformers(form: str) -> None:
    st = pytest.importorskip("sentence_transformers.sentence_transformer.losses")
    vectors = torch.randn(12, 7, generator=torch.Generator().manual_seed(1))
    given = [vectors[0::2], vectors[1::2]]
    scores = torch.tensor([0.0, 1, 2, 2, 5, 3])
    if form == "pairs":
        rows: list[tuple[str, ...]] = [(f"a{n}", f"b{n}") for n in range(6)]
        made = st.MultipleNegativesRankingLoss(torch.nn.Identity(), scale=20.0)
        expected = made.compute_loss_from_embeddings(given, None)
    else:
        rows = [(f"a{n}", str(float(scores[n])), f"b{n}") for n in range(6)]
        made = st.CoSENTLoss(torch.nn.Identity(), scale=20.0)
        expected = made.compute_loss_from_embeddings(given, scores)
    assert loss_of(Embed(), rows, vectors) == pytest.approx(float(expected), rel=1e-5)


def test_all_examples_of_a_step_are_in_one_batch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from foreword.tuning import packed_examples

    monkeypatch.setattr(packed_examples, "TOKENS_AT_ONCE", {"cpu": 32})
    trained = open_run(make_run(tmp_path), "cpu")
    template = template_of(trained.recipe, trained.vocab, None)
    task, examples = Embed(), labelled(pairs(40, 1))
    encoded, targets = (
        task.encode(examples, trained.tokenizer, template),
        task.targets(examples, ()),
    )
    batches = list(PooledExamples(encoded, targets, template, loss_unit="batch").batches(
        np.arange(40)[::-1], "cpu"))  # fmt: skip
    (batch,) = batches
    assert batch.numbers.tolist() == np.repeat(np.arange(40), 2).tolist()
    assert np.array_equal(batch.targets, targets.arrays, equal_nan=True)
    parts = list(PooledExamples(encoded, targets, template, loss_unit="example").batches(
        np.arange(40), "cpu"))  # fmt: skip
    assert len(parts) > 1
    network = build_network(trained, task, (), None).eval()
    whole = network.outputs(batch.to("cpu").features(network))
    again = torch.cat([network.outputs(part.to("cpu").features(network)) for part in parts])
    torch.testing.assert_close(whole, again, rtol=1e-4, atol=1e-5)


# -- measures --------------------------------------------------------------------------------------


def test_scores_are_scipys_correlations_of_cosines() -> None:
    random = np.random.default_rng(1)
    vectors = random.normal(size=(40, 6)).astype(np.float32)
    given = random.uniform(0, 5, 20).round(1)
    rows = [(f"a{n}", str(given[n]), f"b{n}") for n in range(20)]
    scores = Embed().judge.scores(vectors, Embed().targets(labelled(rows), ()))
    cosines = [
        float(a @ b / np.linalg.norm(a) / np.linalg.norm(b))
        for a, b in zip(vectors[0::2], vectors[1::2], strict=True)
    ]
    assert scores["spearman"] == pytest.approx(stats.spearmanr(cosines, given).statistic)
    assert scores["pearson"] == pytest.approx(stats.pearsonr(cosines, given).statistic, abs=1e-6)


def test_retrieval_counts_the_right_text_among_all_second_texts() -> None:
    second = np.eye(3, dtype=np.float32)
    first = np.array([[1, 0.1, 0], [1, 0.9, 0], [0, 0, 2]], np.float32)
    vectors = np.stack([first, second], axis=1).reshape(6, 3)
    rows = [("a", "x"), ("b", "y"), ("c", "z")]
    scores = Embed().judge.scores(vectors, Embed().targets(labelled(rows), ()))
    assert scores == {
        "accuracy_at_1": pytest.approx(2 / 3),
        "reciprocal_rank": pytest.approx(2.5 / 3),
    }
    # A second text that occurs twice is one text.
    twice = Embed().targets(labelled([("a", "x"), ("b", "x")]), ())
    assert Embed().judge.scores(np.ones((4, 2)), twice)["accuracy_at_1"] == 1.0
    # One vector for all texts is chance.
    constant = Embed().judge.scores(np.ones((6, 2)), Embed().targets(labelled(rows), ()))
    assert constant["accuracy_at_1"] == pytest.approx(1 / 3)


# -- training and predicting -----------------------------------------------------------------------


@pytest.mark.product(few=1)
@pytest.mark.parametrize("layout", ["encoder", "decoder", "encoder_decoder"])
def test_pairs_are_learned_and_the_model_before_tuning_stands_beside(
    tmp_path: Path, layout: str
) -> None:
    run = make_run(tmp_path / "run", layout)
    result = tune(run, pairs(200, 1), pairs(20, 7), batch=20, **{**FAST, "epochs": 6})
    tuned, before, words = result.rows
    assert (before["strategy"], words["strategy"]) == ("not tuned", "bag of words")
    assert tuned["reciprocal_rank"] > before["reciprocal_rank"] + 0.1
    assert list(tuned)[:2] == ["start", "strategy"]
    assert "accuracy_at_1" in result.content["rows"][0]
    # The saved model gives the same scores.
    model = load_tuned(result.out, "cpu")
    vectors = model.outputs([text for pair in pairs(20, 7) for text in pair])
    scores = Embed().judge.scores(vectors, Embed().targets(labelled(pairs(20, 7)), ()))
    assert scores["accuracy_at_1"] == pytest.approx(tuned["accuracy_at_1"], abs=0.051)


@pytest.mark.full
def test_scores_are_learned(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run")
    result = tune(run, scored(200, 1), scored(50, 7), batch=20, **FAST)
    assert result.rows[0]["spearman"] > 0.7


@pytest.mark.full
def test_texts_alone_are_learned_by_dropout_and_measured_on_pairs(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = make_run(tmp_path / "run")
    train = write(tmp_path / "train.tsv", "text", [(one.text,) for one in reviews(60, 1)])
    dev = write(
        tmp_path / "dev.tsv", "sentence1 sentence2 score", [(a, b, s) for a, s, b in scored(20, 3)]
    )
    call = [
        "tune", str(run), "--task", "embed", "--train", str(train), "--dev", str(dev), "--seeds",
        "1", "--epochs", "1", "--device", "cpu", "--quiet",
    ]  # fmt: skip
    assert command(call) == 2
    assert "requires dropout" in capsys.readouterr().err
    assert command([*call, "--set", "tune.dropout=0.1", "--json"]) == 0
    content = json.loads(capsys.readouterr().out)
    assert content["examples"]["train"] == 60
    assert content["rows"][0]["spearman"] != content["rows"][1]["spearman"]
    recipe = (Path(content["out"]) / "recipe.toml").read_text()
    assert "dropout = 0.0" in recipe  # that of pretraining


def test_dropout_can_be_changed_without_changing_weights(tmp_path: Path) -> None:
    trained = open_run(make_run(tmp_path), "cpu")
    changed = with_dropout(trained, 0.3)
    assert (has_dropout(trained), has_dropout(changed)) == (False, True)
    assert with_dropout(trained, None) is trained
    for name, tensor in trained.model.state_dict().items():
        assert torch.equal(tensor, changed.model.state_dict()[name]), name


def test_no_cosine_exceeds_one() -> None:
    draws = np.random.default_rng(0).normal(size=(200, 1, 24)).astype(np.float32)
    found = [ExampleOutputs(Labelled("", ""), (), np.repeat(one, 2, 0)) for one in draws]
    lengths = [vector / np.linalg.norm(vector) for vector in draws]
    assert max(float((unit @ unit.T).item()) for unit in lengths) > 1
    rows = Embed().answers.rows(found, (), probabilities=False)
    assert min(row["prediction"] for row in rows) > 0.999
    assert max(row["prediction"] for row in rows) == 1


def test_predict_gives_vectors_of_texts_and_cosines_of_pairs(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run")
    out = tune(run, pairs(20, 1), pairs(20, 7), **FAST).out
    model = load_tuned(out, "cpu")
    texts = ["we saw the day", "", "a lovely film"]
    vectors = model.outputs(texts)
    assert np.isnan(vectors[1]).all()
    found = predict(out, texts, device="cpu", progress=False).predictions
    assert found[1] is None
    np.testing.assert_allclose(found[2], vectors[2], rtol=1e-6)
    (cosine,) = predict(out, [(texts[0], texts[2])], device="cpu", progress=False).predictions
    a, b = vectors[0], vectors[2]
    assert cosine == pytest.approx(float(a @ b / np.linalg.norm(a) / np.linalg.norm(b)), abs=1e-6)
    # Files of either form, and types in Parquet.
    write(tmp_path / "pairs.tsv", "text pair", [(texts[0], texts[2])])
    write(tmp_path / "texts.tsv", "text", [(texts[0],)])
    for name in ("pairs", "texts"):
        predict(
            out,
            tmp_path / f"{name}.tsv",
            out=tmp_path / f"{name}.parquet",
            device="cpu",
            progress=False,
        )
    (one,) = pq.read_table(tmp_path / "pairs.parquet")["prediction"].to_pylist()
    assert one == pytest.approx(cosine, abs=1e-6)
    (vector,) = pq.read_table(tmp_path / "texts.parquet")["prediction"].to_pylist()
    np.testing.assert_allclose(vector, vectors[0], rtol=1e-6)


# -- bad input -------------------------------------------------------------------------------------

GIVEN = [("a day", "the day"), ("a film", "the film")]


@pytest.mark.parametrize(
    ("train", "dev", "message"),
    [
        (GIVEN, [("a day",)], "has no second text, and dev examples are pairs"),
        (GIVEN, [("a", "high", "b")], "the score 'high' is not a number"),
        ([("a", "nan", "b"), ("c", "1", "d")], GIVEN, "the score 'nan' is not a number"),
        ([("a", "b"), ("c",)], GIVEN, r"train\[1\]: expected two texts, as train\[0\] has"),
        ([()], GIVEN, r"train\[0\]: expected"),
    ],
)
def test_bad_examples_are_refused(tmp_path: Path, train: Any, dev: Any, message: str) -> None:
    run = make_run(tmp_path / "run")
    with pytest.raises(UserError, match=message):
        tune(run, train, dev, **FAST)


def test_rows_of_several_forms_are_refused() -> None:
    mixed = [Labelled("a", "1", "b"), Labelled("c", "", "d")]
    with pytest.raises(UserError, match="several forms"):
        Embed().reader.to_train(mixed, True)
    with pytest.raises(UserError, match="has no score, but other pairs have one"):
        Embed().targets([replaced(one) for one in mixed], ())


def test_a_batch_without_anything_to_compare_is_refused(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run")
    for batch, train in ((1, GIVEN), (16, GIVEN[:1])):
        with pytest.raises(UserError, match="--batch: this task compares the examples of a batch"):
            tune(run, train, GIVEN, batch=batch, **FAST)
    with pytest.raises(UserError, match="all scores are 1; pairs that are simply alike need none"):
        tune(run, [(a, 1, b) for a, b in GIVEN], GIVEN, **FAST)


def replaced(one: Labelled) -> Labelled:
    return one._replace(source="x:1")


def test_what_does_not_fit_the_task_is_refused(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run")
    with pytest.raises(UserError, match="head has nothing to train"):
        tune(run, GIVEN, GIVEN, **{**FAST, "strategy": "frozen"})
    with pytest.raises(UserError, match="embed reads its examples as they are"):
        tune(run, GIVEN, GIVEN, prefix="query: ", **FAST)
    out = tune(run, GIVEN, GIVEN, **FAST).out
    with pytest.raises(UserError, match="to embed texts, not to label them"):
        predict(out, ["a"], probabilities=True, device="cpu", progress=False)
    with pytest.raises(UserError, match="to embed texts, not to label them; use `outputs`"):
        load_tuned(out, "cpu").predict(["a"])
    with pytest.raises(UserError, match="reads texts as they are"):
        predict(out, ["a"], prefix="query: ", device="cpu", progress=False)


def test_a_comparison_has_no_frozen_variant(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run")
    result = tune(run, GIVEN, GIVEN, compare=True, **FAST)
    assert [(row["start"], row["strategy"]) for row in result.rows] == [
        ("pretrained", "full"),
        ("from scratch", "full"),
        ("pretrained", "not tuned"),
        ("no model", "bag of words"),
    ]
