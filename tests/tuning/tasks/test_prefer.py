"""Preferences: the loss of the paper, the reference, measures, and what is refused."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.nn import functional as F

from foreword import predict, tune
from foreword.cli.main import run as command
from foreword.errors import UserError
from foreword.nn.masks import CausalMask
from foreword.runs.continued import with_special
from foreword.runs.run_folder import open_run
from foreword.runs.trained_model import TrainedModel
from foreword.tables.chat import Message, of_text
from foreword.tables.columns import Columns
from foreword.tables.examples import Labelled
from foreword.tables.read import read_table
from foreword.tables.table import chosen_columns, labelled
from foreword.tuning import tune_data
from foreword.tuning.input_template import InputTemplate
from foreword.tuning.job import Examples
from foreword.tuning.outputs import scored_outputs
from foreword.tuning.settings import TuneSettings
from foreword.tuning.starting_network import build_network
from foreword.tuning.tasks.prefer import Prefer
from foreword.tuning.tune_data import TuneData
from foreword.types import Batch, Example, Tokens
from tests.tuning.runs import make_run

COLUMNS = Columns("prompt", "chosen", "rejected")
WHOLE = Columns("chosen", "chosen", "rejected")
FAST: dict[str, Any] = {
    "seeds": 1, "lr": 5e-3, "device": "cpu", "precision": "fp32", "progress": False,
}  # fmt: skip
ROWS = [
    {"prompt": "the day", "chosen": "was warm", "rejected": "was cold and grim"},
    {"prompt": "in town", "chosen": "fine", "rejected": "dull"},
    {"prompt": "a film", "chosen": "lovely and bright", "rejected": "awful"},
]


def read(row: dict[str, Any]) -> Labelled:
    example = Prefer().reader.read(row, COLUMNS, "x.jsonl:3")
    assert example is not None
    return example


def opened(folder: Path, layout: str = "decoder") -> tuple[TrainedModel, InputTemplate]:
    trained = open_run(make_run(folder, layout), "cpu")
    trained = with_special(trained, tune_data.added_tokens(trained, Prefer()))
    return trained, tune_data.template_for(trained, Prefer(), None)


def referred_data(trained: TrainedModel, template: InputTemplate, task: Prefer) -> TuneData:
    examples = [read(row) for row in ROWS]
    one = [TuneSettings(seeds=1, max_length=template.length)]
    return tune_data.draw_and_encode(trained, task, one, Examples(examples, examples))


def tokens_of(ids: np.ndarray) -> Tokens:
    whole = ids[None].astype(np.int64)
    return Tokens(whole, np.zeros_like(whole), np.arange(len(ids))[None])


def log_prob(model: TrainedModel, prompt: str, answer: str) -> torch.Tensor:
    """The log-probability of an answer and its end, by the logits of a text alone in its row."""

    def ids_of(text: str) -> np.ndarray:
        return np.asarray(model.tokenizer.encode(text, special=True))

    after = ids_of(f"{answer}</s>")
    if model.answers:
        source = model.source_of(ids_of(f"<|user|>{prompt}"))
        weights = np.ones((1, len(after)), np.float32)
        example = Example(tokens_of(source), tokens_of(after), weights)
        batch = model.recipe.layout.arrange(example, model.vocab)
        where = np.nonzero(np.asarray(batch.weights)[0])[0]
    else:
        begin = "<s>" if len(model.bos) else ""
        before = ids_of(f"{begin}<|user|>{prompt}</s><|assistant|>")
        whole = tokens_of(np.concatenate([before, after]))
        batch = Batch(whole.ids, whole.positions, CausalMask())
        where = np.arange(len(before) - 1, len(before) + len(after) - 1)
    logits = model.model.token_head(model.model.backbone(batch.to("cpu")).states)
    log_probs = F.log_softmax(logits[0, where].float(), dim=-1)
    return log_probs[torch.arange(len(after)), torch.from_numpy(after)].sum()


@pytest.mark.parametrize("layout", ["decoder", "hybrid", "encoder_decoder", "prefix"])
def test_loss_and_gradient_are_those_of_the_paper(layout: str, tmp_path: Path) -> None:
    trained, template = opened(tmp_path, layout)
    task = Prefer(beta=0.3)
    referred = referred_data(trained, template, task).train
    # A policy that is no longer the reference.
    network = build_network(trained, task, (), None).eval()
    with torch.no_grad():
        for parameter in network.parameters():
            noise = torch.randn(parameter.shape, generator=torch.Generator().manual_seed(1))
            parameter += 0.05 * noise
    (batch,) = referred.batches(np.array([0, 1, 2]), "cpu")
    moved = batch.to("cpu")
    outputs = network.training_outputs(moved.features(network), moved.targets)
    loss = task.loss(outputs, moved.targets, moved.numbers)
    # The formula, from the log-probabilities of whole answers.
    policy = network.as_model()
    assert policy is not None
    reference = trained
    ours = TrainedModel(policy, trained.recipe, trained.tokenizer, trained.device)
    expected, margins = torch.zeros(()), []
    for row in ROWS:
        prompt, chosen, rejected = row["prompt"], row["chosen"], row["rejected"]
        log_ratio = log_prob(ours, prompt, chosen) - log_prob(ours, prompt, rejected)
        with torch.no_grad():
            before = log_prob(reference, prompt, chosen) - log_prob(reference, prompt, rejected)
        margins.append(float(log_ratio - before))
        expected = expected - F.logsigmoid(task.beta * (log_ratio - before))
    assert loss.count == 3
    torch.testing.assert_close(loss.total, expected, rtol=1e-4, atol=1e-5)
    assert max(map(abs, margins)) > 0.01
    parameters = list(network.parameters())
    gradients = torch.autograd.grad(loss.total, parameters, allow_unused=True)
    theirs = torch.autograd.grad(expected, parameters, allow_unused=True)
    for one, other in zip(gradients, theirs, strict=True):
        if one is not None and other is not None:
            torch.testing.assert_close(one, other, rtol=1e-3, atol=1e-5)
    # The scores of the same outputs.
    scores = task.judge.scores(
        network.scored_outputs(moved.features(network), moved.targets).detach().numpy(),
        referred.targets,
    )
    assert scores["accuracy"] == np.mean([margin > 0 for margin in margins])
    assert scores["margin"] == pytest.approx(task.beta * np.mean(margins), abs=1e-5)
    assert scores["loss"] == pytest.approx(float(expected) / 3, abs=1e-5)


def test_the_reference_itself_has_no_margin(tmp_path: Path) -> None:
    trained, template = opened(tmp_path)
    task = Prefer()
    referred = referred_data(trained, template, task)
    (dev,) = referred.dev
    network = build_network(trained, task, (), None)
    scores = task.judge.scores(scored_outputs(task, network, dev), dev.targets)
    assert scores == {"accuracy": 0.5, "loss": pytest.approx(math.log(2)), "margin": 0.0}
    longest = task.judge.baselines(referred.train.targets, dev.targets, ())["longer answer"]
    assert task.judge.scores(longest, dev.targets)["accuracy"] == 0.5  # longer, equal, shorter


def test_both_answers_follow_the_same_prompt(tmp_path: Path) -> None:
    trained, template = opened(tmp_path)
    long = {"prompt": "film " * 50, "chosen": "the day " * 4, "rejected": "grim " * 60}
    first, second = Prefer().encode([read(long)], trained.tokenizer, template)
    begin = first.pooled_positions[0]
    assert begin == second.pooled_positions[0] == template.length // 2 - 1
    assert first.ids[: begin + 1].tolist() == second.ids[: begin + 1].tolist()
    assert trained.tokenizer.token(int(first.ids[begin])) == "<|assistant|>"
    assert (len(first.ids), len(second.ids)) == (template.length // 2 + 9, template.length)
    assert first.was_cut and second.was_cut
    assert first.ids[-1] == trained.vocab.id("</s>") != second.ids[-1]


@pytest.mark.product(few=1)
@pytest.mark.parametrize(
    ("layout", "epochs"), [("decoder", 16), ("hybrid", 16), ("encoder_decoder", 32)]
)
def test_preferences_are_learned_after_instructions_and_answers_written(
    layout: str, epochs: int, tmp_path: Path
) -> None:
    run = make_run(tmp_path / "run", layout)
    answered = [
        {"prompt": r["prompt"], "completion": r[k]} for r in ROWS for k in ("chosen", "rejected")
    ]
    file = tmp_path / "sft.jsonl"
    file.write_text("".join(json.dumps(row) + "\n" for row in answered * 4))
    sft = tune(run, file, file, task="chat", epochs=epochs, batch=4, name="sft", **FAST)
    gentle = {**FAST, "lr": 3e-4}
    result = tune(sft.out, ROWS * 4, ROWS, task="prefer", epochs=4, batch=4, **gentle)
    tuned, longer = result.rows
    assert longer["strategy"] == "longer answer"
    assert tuned["accuracy"] == 1.0
    assert tuned["loss"] < 0.69 and tuned["margin"] > 0
    found = predict(result.out, ["the day", "in town", "a film"], device="cpu", progress=False)
    assert found.predictions == [row["chosen"] for row in ROWS]
    # Rows of a file have no answers.
    asked = tmp_path / "asked.jsonl"
    asked.write_text('{"prompt": "in town"}\n')
    assert predict(result.out, asked, device="cpu", progress=False).predictions == ["fine"]
    assert (result.out / "tokenizer" / "chat_template.jinja").is_file()


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ({"prompt": "a", "chosen": "b"}, "'rejected' is missing or empty"),
        ({"prompt": "a", "chosen": " ", "rejected": "b"}, "'chosen' is missing or empty"),
        ({"prompt": "a", "chosen": "b", "rejected": "b"}, "are the same"),
        ({"prompt": "a", "chosen": [3], "rejected": "b"}, "'chosen' is not a text, nor a list"),
        ({"prompt": "a", "chosen": {"x": 1}, "rejected": "b"}, "expected text or a number"),
        (
            {"prompt": [{"role": "assistant", "content": "b"}], "chosen": "b", "rejected": "c"},
            "message 1 is by 'assistant'",
        ),
        (
            {"prompt": [{"role": "system", "content": "b"}], "chosen": "b", "rejected": "c"},
            "does not end with a message of the user",
        ),
    ],
)
def test_what_is_no_preference_is_refused(row: dict[str, Any], message: str) -> None:
    with pytest.raises(UserError) as raised:
        read(row)
    assert str(raised.value).startswith("x.jsonl:3: ")
    assert message in str(raised.value)


def test_lists_of_messages_are_read_as_trl_writes_them() -> None:
    row = {
        "prompt": [{"role": "user", "content": "a"}],
        "chosen": [{"role": "assistant", "content": "b"}],
        "rejected": [{"role": "assistant", "content": "c"}],
    }
    assert (read(row).label, read(row).pair) == ("b", "c")
    assert Prefer().reader.read({"prompt": " "}, COLUMNS, "x:1") is None


def messages(*contents: str) -> list[dict[str, str]]:
    return [
        {"role": ("user", "assistant")[n % 2], "content": content}
        for n, content in enumerate(contents)
    ]


@pytest.mark.parametrize(
    "row",
    [
        {"chosen": messages("a", "b", "c", "d"), "rejected": messages("a", "b", "c", "e")},
        {
            "prompt": "c",  # UltraFeedback has the question beside both conversations
            "chosen": messages("a", "b", "c", "d"),
            "rejected": messages("a", "b", "c", "e"),
        },
        {
            "chosen": "\n\nHuman: a\n\nAssistant: b\n\nHuman: c\n\nAssistant: d",
            "rejected": "\n\nHuman: a\n\nAssistant: b\n\nHuman: c\n\nAssistant: e ",
        },
    ],
    ids=["trl", "ultrafeedback", "hh-rlhf"],
)
def test_whole_conversations_are_parted_where_their_last_answers_begin(
    row: dict[str, Any], tmp_path: Path
) -> None:
    file = tmp_path / "a.jsonl"
    file.write_text(json.dumps(row) + "\n")
    table = read_table(file)
    (example,), _ = labelled(
        table, chosen_columns(table, Prefer.reader.columns, {}), Prefer().reader.read
    )
    asked = [Message("user", "a"), Message("assistant", "b"), Message("user", "c")]
    assert (of_text(example.text), example.label, example.pair) == (asked, "d", "e")


@pytest.mark.parametrize(
    ("chosen", "rejected", "message"),
    [
        (messages("a", "b"), messages("x", "c"), "'rejected' differ before their last answers"),
        (messages("a", "b", "c", "d"), messages("a", "b"), "expected the same beginning"),
        (messages("a", "b"), messages("a", "b"), "the chosen and the rejected answer are the same"),
        (messages("a"), messages("a", "b"), "'chosen' is not a conversation that ends with an ans"),
        ("fine", "dull", "answers alone need a column 'prompt'"),
        ("Human: a\n\nAssistant: b", None, "'rejected' is not a conversation"),
        ("Human: a\n\nHuman: b", "Human: a", "message 2 is by 'user', expected assistant"),
    ],
)
def test_conversations_without_a_common_beginning_are_refused(
    chosen: Any, rejected: Any, message: str
) -> None:
    with pytest.raises(UserError) as raised:
        Prefer().reader.read({"chosen": chosen, "rejected": rejected}, WHOLE, "x.jsonl:3")
    assert str(raised.value).startswith("x.jsonl:3: ")
    assert message in str(raised.value)


def test_a_prompt_that_its_conversations_lack_is_refused() -> None:
    row = {"prompt": "z", "chosen": messages("a", "b"), "rejected": messages("a", "c")}
    with pytest.raises(UserError, match="x:1: 'prompt' is not in the conversations"):
        Prefer().reader.read(row, COLUMNS, "x:1")


@pytest.mark.full
def test_other_columns_are_named_and_a_conversation_is_answered_where_it_ends(
    tmp_path: Path,
) -> None:
    run = make_run(tmp_path / "run", "decoder")
    rows = [{"q": r["prompt"], "good": r["chosen"], "bad": r["rejected"]} for r in ROWS]
    file = tmp_path / "pairs.jsonl"
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    named = {"text": "q", "label": "good", "pair": "bad"}
    out = tune(run, file, file, task="prefer", epochs=1, name="named", **named, **FAST).out
    asked = [{"q": row["q"]} for row in rows]
    assert len(predict(out, asked, device="cpu", progress=False).predictions) == 3
    # Tuples are prompt, chosen and rejected; conversations need no prompt.
    values = [tuple(row.values()) for row in ROWS]
    tune(run, values, values, task="prefer", epochs=1, name="tuples", **FAST)
    whole = [{k: messages(row["prompt"], row[k]) for k in ("chosen", "rejected")} for row in ROWS]
    out = tune(run, whole, whole, task="prefer", epochs=1, name="whole", **FAST).out
    how: dict[str, Any] = {"device": "cpu", "progress": False}
    answers = predict(out, [row["prompt"] for row in ROWS], **how).predictions
    file.write_text("".join(json.dumps(row) + "\n" for row in whole))
    assert predict(out, file, text="chosen", **how).predictions == answers


def test_both_answers_have_one_source(tmp_path: Path) -> None:
    trained, template = opened(tmp_path, "encoder_decoder")
    long = {"prompt": "film " * 50, "chosen": "the day", "rejected": "grim " * 60}
    first, second = Prefer().encode([read(long)], trained.tokenizer, template)
    assert first.ids.tolist() == second.ids.tolist()
    assert len(first.ids) < template.length == len(second.written)
    assert first.was_cut and second.was_cut


def test_an_encoder_is_refused_in_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = make_run(tmp_path / "run", "encoder")
    file = tmp_path / "a.jsonl"
    file.write_text(json.dumps(ROWS[0]) + "\n")
    call = ["tune", str(run), "--task", "prefer", "--train", str(file), "--dev", str(file)]
    assert command([*call, "--quiet"]) == 2
    assert "work with models that answer a source" in capsys.readouterr().err.splitlines()[-1]


def test_an_epoch_of_lower_perplexity_or_loss_is_the_better_one(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", "decoder")
    result = tune(
        run, ROWS * 4, ROWS, task="prefer", epochs=4, batch=4,
        settings={"tune.keep": "best", "tune.metric": "loss"}, **FAST,
    )  # fmt: skip
    losses = [row["loss"] for row in result.content["epochs"]]
    assert result.rows[0]["loss"] == pytest.approx(min(losses))
    assert min(losses) < max(losses)
