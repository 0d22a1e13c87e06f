from __future__ import annotations

import json
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from foreword import predict
from foreword import tune as run_tune
from foreword.cli.main import run as command
from foreword.errors import UserError
from foreword.evaluation.decoding import generate
from foreword.evaluation.sampling import Sampling
from foreword.evaluation.text_metrics import exact_match, right_answers
from foreword.runs.run_folder import open_run
from foreword.runs.trained_model import TrainedModel
from foreword.tables.columns import Columns
from foreword.tables.examples import Labelled
from foreword.tuning.answers import AnswerExamples
from foreword.tuning.example_reader import mix_tasks
from foreword.tuning.input_template import template_of
from foreword.tuning.settings import TuneSettings
from foreword.tuning.starting_network import build_network
from foreword.tuning.strategies.frozen import Frozen
from foreword.tuning.strategies.full import Full
from foreword.tuning.tasks.text_to_text import TextToText
from foreword.tuning.tune_result import save_network
from tests.train.runs import short_spans
from tests.tuning.runs import PARTS, make_run, reviews, tune
from tests.tuning.tasks.test_span import questions
from tests.tuning.tasks.test_span import write as write_squad

FAST = TuneSettings(strategy=Full(lr=3e-3), seeds=1, epochs=6, precision="fp32")
TASK = TextToText("the ", ("bad=dull grim", "good=fine"))  # one answer of two words, one of one


@pytest.mark.product(few=1)
@pytest.mark.parametrize("layout", ["encoder_decoder", "prefix"])
@pytest.mark.parametrize("objective", ["span_corruption", "mixture"])
def test_text_to_text_learns_to_answer_and_is_saved_as_a_run(
    tmp_path: Path, layout: str, objective: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = {"kind": objective, **short_spans(objective, 32)}
    monkeypatch.setitem(PARTS[layout], "objective", settings)
    trained = open_run(make_run(tmp_path / "run", layout), "cpu")
    is_whole = objective == "span_corruption"  # the other tests the special tokens
    how = FAST if is_whole else replace(FAST, epochs=1)
    result = tune(trained, TASK, reviews(300, 1), reviews(24, 2), how)
    if is_whole:
        assert result.rows[0]["accuracy"] > 0.9
    assert result.rows[0]["tokens"] >= result.rows[0]["accuracy"]
    assert result.rows[-1].strategy == "most frequent answer"
    assert result.rows[-1]["accuracy"] == 0.5
    assert (
        "tokens" not in result.rows[-1].metrics
    )  # the model's follow right ones, as no answer's do
    assert str(result.rows[-1].metrics["accuracy"]) == "0.500"
    save_network(result, tmp_path / "tuned")
    prompted = open_run(tmp_path / "tuned", "cpu")
    examples = reviews(24, 2)
    greedy = Sampling(tokens=4, temperature=0.0)
    answers = generate(prompted, ["the " + e.text for e in examples], greedy)
    words = {"bad": "dull grim", "good": "fine"}
    right = [a.text.strip() == words[e.label] for a, e in zip(answers, examples, strict=True)]
    # What is written token by token is right as often as the score says.
    assert np.mean(right) == pytest.approx(result.rows[0]["accuracy"])


def batches(folder: Path, layout: str, lengths: list[int]) -> tuple[AnswerExamples, TrainedModel]:
    prompted = open_run(make_run(folder, layout), "cpu")
    examples = [Labelled(" ".join(["film"] * n), "warm day"[: 4 + n % 2 * 4]) for n in lengths]
    template = template_of(prompted.recipe, prompted.vocab, None)
    template = replace(template, is_causal=not prompted.answers)
    encoded = TextToText().encode(examples, prompted.tokenizer, template)
    return AnswerExamples.of(prompted, encoded, template), prompted


@pytest.mark.product(few=2)
@pytest.mark.parametrize("layout", ["encoder_decoder", "prefix", "decoder", "hybrid", "recurrent"])
def test_packed_examples_give_the_outputs_of_each_alone(tmp_path: Path, layout: str) -> None:
    answers, prompted = batches(tmp_path, layout, [3, 9, 1, 22, 5, 12])
    packed = next(answers.batches(np.arange(6), "cpu"))
    assert len(packed.batch.ids) < 6
    for device in ("cpu", "cuda"):  # the shapes of CUDA, computed here
        for batch in answers.batches(np.arange(6), device):
            states = prompted.run_backbone(batch.batch).states[batch.rows, batch.columns]
            for n in set(batch.numbers.tolist()):
                alone = next(answers.batches(np.asarray([n]), "cpu"))
                expected = prompted.run_backbone(alone.batch).states[alone.rows, alone.columns]
                where = batch.numbers == n
                assert batch.targets[where].tolist() == answers.targets[n].tolist()
                torch.testing.assert_close(states[where], expected, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("layout", ["encoder_decoder", "prefix", "decoder"])
def test_the_fused_loss_equals_that_of_all_logits(tmp_path: Path, layout: str) -> None:
    answers, prompted = batches(tmp_path, layout, [3, 9, 1])
    network = build_network(prompted, TextToText(), ("day",), None)
    (batch,) = (one.to("cpu") for one in answers.batches(np.arange(3), "cpu"))
    results = []
    for is_fused in (True, False):
        features = batch.features(network)
        if is_fused:
            nats = network.training_outputs(features, batch.targets)
            loss = TextToText().loss(nats, batch.targets, batch.numbers)
            assert loss.count == len(batch.targets)
            total = loss.total
        else:
            logits = network.head(features[0])
            total = torch.nn.functional.cross_entropy(logits, batch.targets, reduction="sum")
        gradients = torch.autograd.grad(total, list(network.parameters()), allow_unused=True)
        results.append((total, *(g for g in gradients if g is not None)))
    for fused, expected in zip(*results, strict=True):
        torch.testing.assert_close(fused, expected, rtol=1e-4, atol=1e-5)


def test_sources_are_cut_and_keep_the_end_token_of_pretraining(tmp_path: Path) -> None:
    answers, prompted = batches(tmp_path, "encoder_decoder", [3, 50])
    ends = [int(example.ids[-1]) for example in answers.encoded]
    assert ends == [prompted.vocab.id("</s>")] * 2
    assert [example.was_cut for example in answers.encoded] == [False, True]
    assert [len(example.ids) for example in answers.encoded] == [4, 32]
    assert [int(target[-1]) for target in answers.targets] == ends


def test_source_and_answer_fit_the_positions_together(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(PARTS["prefix"]["model"], "position", {"kind": "learned", "length": 40})
    prompted = open_run(make_run(tmp_path, "prefix"), "cpu")
    template = template_of(prompted.recipe, prompted.vocab, None)

    def answers(source: int, target: int) -> AnswerExamples:
        example = Labelled("film " * source, "day " * target)
        encoded = TextToText().encode([example], prompted.tokenizer, template)
        return AnswerExamples.of(prompted, encoded, template)

    for source, target, left in ((12, 9, 12), (50, 3, 31), (50, 19, 19)):
        examples = answers(source, target)
        assert len(examples.encoded[0].ids) == left + 1
        assert int(examples.encoded[0].ids[-1]) == prompted.vocab.id("</s>")
        assert examples.encoded[0].was_cut == (left < source)
        prompted.run_backbone(next(examples.batches(np.arange(1), "cpu")).batch)
    with pytest.raises(
        UserError, match=r"an answer of 61 tokens leaves no room .* the 40 positions"
    ):
        answers(1, 60)


def test_prefixes_hold_text_and_pair() -> None:
    example = Labelled("a film", "good", "a day")
    assert example.with_prefix("sst2 sentence: ").text == "sst2 sentence: a film a day"
    template = "mnli hypothesis: {pair} premise: {text}"
    assert example.with_prefix(template).text == "mnli hypothesis: a day premise: a film"
    assert Labelled("a film").with_prefix("") == Labelled("a film")


def test_tasks_are_mixed_in_proportion_or_by_temperature() -> None:
    tasks = [
        [Labelled(f"{n}", name) for n in range(count)] for name, count in (("a", 90), ("b", 10))
    ]
    assert Counter(mix_tasks(tasks)) == Counter(tasks[0] + tasks[1])
    tempered = Counter(example.label for example in mix_tasks(tasks, 2.0))
    assert tempered == {"a": 75, "b": 25}  # 3 : 1, the roots of 90 : 10
    assert abs(Counter(e.label for e in mix_tasks(tasks, 1e6))["a"] - 50) <= 1
    with pytest.raises(UserError, match=r"--temperature 0\.5: must be at least 1"):
        mix_tasks(tasks, 0.5)


def test_a_decoder_reads_the_text_and_is_scored_on_the_answer_and_its_end(tmp_path: Path) -> None:
    answers, prompted = batches(tmp_path, "decoder", [2, 50])
    token = prompted.tokenizer.token
    (batch,) = answers.batches(np.asarray([0]), "cpu")
    assert [token(int(i)) for i in batch.batch.ids[0]] == ["film", "film", "[SEP]", "warm", "</s>"]
    assert [token(int(i)) for i in batch.targets] == ["warm", "</s>"]
    assert batch.columns.tolist() == [2, 3]
    # A text that is too long loses its end; text and answer share the length of pretraining.
    long = answers.encoded[1]
    assert long.was_cut and len(long.ids) + len(long.written) == 32
    assert [token(int(i)) for i in long.written] == ["warm", "</s>"]
    assert answers.template.fresh == (prompted.vocab.id("[SEP]"),)  # </s> ended texts before


def test_a_long_answer_of_a_decoder_leaves_half_of_the_row_to_the_text(tmp_path: Path) -> None:
    prompted = open_run(make_run(tmp_path, "decoder"), "cpu")
    template = template_of(prompted.recipe, prompted.vocab, None)
    for source, answer, expected in ((40, 40, (16, 16)), (5, 40, (6, 26)), (40, 4, (27, 5))):
        example = Labelled("film " * source, "day " * answer)
        encoded = TextToText().encode([example], prompted.tokenizer, template)
        (one,) = AnswerExamples.of(prompted, encoded, template).encoded
        assert (len(one.ids), len(one.written)) == expected
        assert one.was_cut


def test_generate_says_that_it_only_continues_what_a_tuned_decoder_would_answer(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run, pairs = make_run(tmp_path / "run", "decoder"), [("the film", "fine")] * 2
    out = run_tune(run, pairs, pairs, task="text_to_text", epochs=1, seeds=1, progress=False).out
    for folder, is_tuned in ((run, False), (out, True)):
        assert command(["generate", str(folder), "the film", "--tokens", "2"]) == 0
        assert ("tuned to answer texts" in capsys.readouterr().err) is is_tuned


def test_a_model_that_writes_no_text_is_refused(tmp_path: Path) -> None:
    trained = open_run(make_run(tmp_path, "encoder"), "cpu")
    with pytest.raises(UserError, match=r"not trained to write text.* classify and span work with"):
        tune(trained, TASK, reviews(8, 1), reviews(8, 2), FAST)


def test_a_comparison_leaves_a_tied_output_layer_out_before_the_first_seed(
    tmp_path: Path,
) -> None:
    run = make_run(tmp_path / "run", "encoder_decoder")
    rows = [(e.text, e.label) for e in reviews(8, 1)]
    how: dict[str, Any] = {"epochs": 1, "seeds": 1, "device": "cpu", "progress": False}
    result = run_tune(run, rows, rows, task="text_to_text", compare=True, **how)
    assert [(row["start"], row["strategy"]) for row in result.rows] == [
        ("pretrained", "full"),
        ("from scratch", "full"),
        ("no model", "most frequent answer"),
    ]
    (note,) = [note for note in result.content["notes"] if note.startswith("no frozen variant")]
    assert "the output layer, which this model shares with its embedding" in note


def test_a_tied_output_layer_cannot_be_trained_alone(tmp_path: Path) -> None:
    trained = open_run(make_run(tmp_path, "encoder_decoder"), "cpu")
    with pytest.raises(UserError, match="shares with its embedding; use full"):
        tune(trained, TASK, reviews(8, 1), reviews(8, 2), TuneSettings(strategy=Frozen(), seeds=1))


def test_scores_count_whole_answers_and_tokens() -> None:
    targets = [np.array([5, 6, 1]), np.array([7, 1])]
    right = np.array([[5.0], [6.0], [1.0], [8.0], [1.0]])
    assert TextToText().judge.scores(right, targets) == {"accuracy": 0.5, "tokens": 0.8}
    baselines = TextToText().judge.baselines([*targets, targets[1]], targets, ("a", "b"))
    scores = TextToText().judge.scores(baselines["most frequent answer"], targets)
    assert scores["accuracy"] == 0.5


def test_a_score_that_the_baseline_lacks_may_choose_the_epoch(tmp_path: Path) -> None:
    trained = open_run(make_run(tmp_path, "encoder_decoder"), "cpu")
    settings = TuneSettings(
        strategy=Full(lr=3e-3), seeds=1, epochs=2, precision="fp32", keep="best", metric="tokens"
    )
    result = tune(trained, TextToText(), reviews(16, 1), reviews(8, 2), settings)
    assert result.rows[0]["tokens"] == max(row["tokens"] for row in result.epochs)
    assert "tokens" not in result.rows[-1].metrics
    with pytest.raises(UserError, match="'exact' is not a score of this task"):
        tune(trained, TextToText(), reviews(4, 1), reviews(4, 2), replace(settings, metric="exact"))


def test_words_must_name_a_label() -> None:
    with pytest.raises(ValueError, match="words: must be label=word each, got 'good'"):
        TextToText(words=("good",))


# -- questions about passages ----------------------------------------------------------------------

PASSAGES = Columns("context", "answers", "question")


@pytest.mark.parametrize(
    ("answers", "right"),
    [
        ([{"text": "warm", "answer_start": 0}, {"text": "a day", "answer_start": 9}], 2),
        ({"text": ["warm", "a day"], "answer_start": [0, 9]}, 2),
        ([], 0),
        ({"text": [], "answer_start": []}, 0),
    ],
)
def test_answers_in_squads_layouts_are_read(answers: Any, right: int) -> None:
    row = {"context": "warm was a day", "question": "what", "answers": answers}
    example = TextToText().reader.read(row, PASSAGES, "a:1")
    assert example is not None
    task = TextToText(metric="answer").for_examples(PASSAGES, [])
    assert example.with_prefix(task.prefix).text == "question: what context: warm was a day"
    targets = task.targets([example], ())
    assert targets.references == ([["warm", "a day"]] if right else [[""]])
    assert task.labels([example]) == (() if right else ("",))
    alias, none = (np.asarray([text], dtype=object) for text in ("The day!", "unanswerable"))
    assert task.judge.scores(alias, targets)["exact_match"] == float(right > 0)
    assert task.judge.scores(none, targets)["exact_match"] == float(right == 0)
    assert TextToText().reader.read({**row, "answers": None}, PASSAGES, "a:1") == example._replace(
        label=""
    )


def test_a_prefix_with_the_text_replaces_t5s_form_of_questions() -> None:
    own = TextToText(prefix="{text} -> {pair}")
    assert own.for_examples(PASSAGES, []) is own
    named = TextToText(prefix="squad ").for_examples(PASSAGES, [])
    assert named.prefix == "squad question: {pair} context: {text}"
    assert named.for_examples(Columns(), []) is named


def fine_or_nothing(count: int, seed: int) -> list[dict[str, Any]]:
    """Questions that "fine" answers, or that have no answer."""
    rows = questions(count, seed)
    for row in rows:
        for answer in row["answers"]:
            row["context"] = row["context"].replace(answer["text"], "fine")
            answer["text"] = "fine"
    return rows


@pytest.mark.full
def test_questions_about_passages_are_predicted_as_scored(tmp_path: Path) -> None:
    run, rows = make_run(tmp_path / "run", "encoder_decoder"), fine_or_nothing(24, 2)
    train = write_squad(tmp_path / "train.json", fine_or_nothing(300, 1))
    dev = tmp_path / "dev.jsonl"
    dev.write_text("".join(json.dumps(row) + "\n" for row in rows))
    how: dict[str, Any] = {"device": "cpu", "progress": False}
    known = {"task.metric": "answer", "task.words": ["=dull grim"]}  # words of the vocabulary
    result = run_tune(
        run, train, dev, task="text_to_text", settings=known, seeds=1, epochs=6, lr=3e-3,
        precision="fp32", **how,
    )  # fmt: skip
    tuned, baseline = result.rows
    assert baseline["exact_match"] == 0.5  # half have no answer
    assert tuned["exact_match"] > 0.5
    found = predict(result.out, dev, **how).predictions
    assert "" in found and "dull grim" not in found
    right = [right_answers([one["text"] for one in row["answers"]]) for row in rows]
    scores = [exact_match(answer, one) for answer, one in zip(found, right, strict=True)]
    assert np.mean(scores) == pytest.approx(tuned["exact_match"])
    # As pairs, and as the official script reads them.
    pairs = [(row["context"], row["question"]) for row in rows]
    assert predict(result.out, pairs, **how).predictions == found
    predict(result.out, dev, out=tmp_path / "out.json", **how)
    written = json.loads((tmp_path / "out.json").read_text())
    assert written == dict(zip([row["id"] for row in rows], found, strict=True))


def test_answers_in_squads_layout_are_refused_with_the_tasks_that_read_them(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run")
    file = write_squad(tmp_path / "a.json", questions(4, 1, unanswerable=False))
    with pytest.raises(UserError, match="got dict; --task span and text_to_text read answers"):
        run_tune(run, file, file, task="classify", progress=False)
    rows = tmp_path / "a.jsonl"
    answers = {"text": ["a"], "answer_start": [0]}
    rows.write_text(json.dumps({"text": "a", "label": answers}) + "\n")
    with pytest.raises(UserError, match="got dict; --task span and text_to_text read answers"):
        run_tune(run, rows, rows, task="classify", progress=False)
