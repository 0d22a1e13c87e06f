"""Conversations: what is read, what is scored, what is cut, and the template of `transformers`."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from foreword import predict, tune
from foreword.cli.main import run as command
from foreword.errors import UserError
from foreword.runs.continued import with_special
from foreword.runs.run_folder import open_run
from foreword.runs.trained_model import TrainedModel
from foreword.tables.chat import Message, of_text
from foreword.tables.columns import Columns
from foreword.tables.examples import Labelled
from foreword.text.tokenizer import Tokenizer
from foreword.tuning.input_template import InputTemplate, template_of
from foreword.tuning.starting_network import build_network
from foreword.tuning.tasks._conversations import jinja
from foreword.tuning.tasks._writing import AnswerForm
from foreword.tuning.tasks.chat import Chat
from foreword.tuning.tune_data import added_tokens
from foreword.tuning.tuned_folder import Tuned
from tests.tuning.runs import make_run

FAST: dict[str, Any] = {
    "task": "chat", "seeds": 1, "epochs": 16, "lr": 5e-3, "device": "cpu", "precision": "fp32",
    "progress": False,
}  # fmt: skip
COLUMNS = Columns("messages", "", "")
ROLES = {"s": "system", "u": "user", "a": "assistant"}


def conversation(*said: str) -> dict[str, Any]:
    """`u:we saw` is a message of the user."""
    pairs = [one.split(":", 1) for one in said]
    return {"messages": [{"role": ROLES[r], "content": content} for r, content in pairs]}


WHOLE = conversation("s:a film", "u:the day", "a:was warm", "u:and in town", "a:cold and grim")
SINGLE = [conversation("u:the day", "a:was warm"), conversation("u:in town", "a:cold")]


def read(row: dict[str, Any]) -> Labelled:
    example = Chat().reader.read(row, COLUMNS, "x.jsonl:3")
    assert example is not None
    return example


def opened(folder: Path, layout: str, **model: Any) -> tuple[TrainedModel, InputTemplate]:
    trained = open_run(make_run(folder, layout, **model), "cpu")
    trained = with_special(trained, added_tokens(trained, Chat()))
    return trained, template_of(trained.recipe, trained.vocab, None)


def text_of(tokenizer: Tokenizer, ids: Any) -> str:
    return " ".join(tokenizer.token(int(i)) for i in ids)


def test_a_decoder_reads_the_whole_and_is_scored_on_answers_and_their_ends(tmp_path: Path) -> None:
    trained, template = opened(tmp_path, "decoder")
    (one,) = Chat().encode([read(WHOLE)], trained.tokenizer, template)
    assert text_of(trained.tokenizer, one.ids) == (
        "<|system|> a film </s> <|user|> the day </s> <|assistant|> was warm </s> "
        "<|user|> and in town </s> <|assistant|> cold and grim </s>"
    )
    (targets,) = Chat().targets([], (), [one])
    assert text_of(trained.tokenizer, targets) == "was warm </s> cold and grim </s>"
    before = [trained.tokenizer.token(int(i)) for i in one.ids[one.pooled_positions]]
    assert before == ["<|assistant|>", "was", "warm", "<|assistant|>", "cold", "and", "grim"]


def test_a_message_cannot_end_its_turn(tmp_path: Path) -> None:
    trained, template = opened(tmp_path, "decoder")
    for name, count in {"</s>": 2, "<|assistant|>": 1, "<|user|>": 1, "[SEP]": 0}.items():
        row = conversation(f"u:the {name} day", f"a:{name}")
        (one,) = Chat().encode([read(row)], trained.tokenizer, template)
        assert text_of(trained.tokenizer, one.ids).split().count(name) == count


@pytest.mark.parametrize("layout", ["encoder_decoder", "prefix"])
def test_a_model_with_a_source_reads_what_came_before_each_answer(
    layout: str, tmp_path: Path
) -> None:
    trained, template = opened(tmp_path, layout)
    first, second = Chat().encode([read(WHOLE)], trained.tokenizer, template)
    names = [text_of(trained.tokenizer, one.ids) for one in (first, second)]
    assert names == [
        "<|system|> a film <|user|> the day",
        "<|system|> a film <|user|> the day <|assistant|> was warm <|user|> and in town",
    ]
    assert first.answer is not None and second.answer is not None
    assert text_of(trained.tokenizer, second.answer) == "cold and grim"
    assert (first.is_further, second.is_further) == (False, True)


def test_the_loss_is_the_mean_cross_entropy_of_the_answers(tmp_path: Path) -> None:
    from foreword.tuning.packed_examples import PooledExamples

    trained, template = opened(tmp_path, "decoder")
    task, examples = Chat(), [read(WHOLE), *map(read, SINGLE)]
    encoded = task.encode(examples, trained.tokenizer, template)
    placed = task.targets(examples, (), encoded)
    network = build_network(trained, task, (), None).eval()
    (batch,) = PooledExamples(encoded, placed, template).batches(np.arange(3), "cpu")
    batch = batch.to("cpu")
    loss = task.loss(
        network.training_outputs(batch.features(network), batch.targets),
        batch.targets,
        batch.numbers,
    )
    # Each conversation alone, through the pretrained model.
    prompted = trained
    expected = count = 0.0
    for one in encoded:
        ones = PooledExamples([one], task.targets([], (), [one]), template)
        (alone,) = ones.batches(np.arange(1), "cpu")
        logits = prompted.logits(prompted.run_backbone(alone.batch).states)[0]
        right = torch.from_numpy(one.ids[1:])
        nats = torch.nn.functional.cross_entropy(logits[:-1], right, reduction="none")
        expected += float(nats[one.pooled_positions].sum())
        count += len(one.pooled_positions)
    assert float(loss.count) == count == 12
    assert loss.total.item() == pytest.approx(expected, rel=1e-4)
    scores = task.judge.scores(
        network.scored_outputs(batch.features(network), batch.targets).detach().numpy(), placed
    )
    assert scores["perplexity"] == pytest.approx(math.exp(expected / count), rel=1e-4)


def test_the_oldest_exchanges_are_left_out_first(tmp_path: Path) -> None:
    trained, template = opened(tmp_path, "decoder")
    long = conversation("s:a", *["u:film", "a:was"] * 10, "u:we saw", "a:the day")
    (one,) = Chat().encode([read(long)], trained.tokenizer, template)
    assert len(one.ids) <= template.length == 32
    assert one.was_cut
    assert text_of(trained.tokenizer, one.ids).startswith("<|system|> a </s> <|user|> film")
    assert text_of(trained.tokenizer, one.ids).endswith(
        "<|user|> we saw </s> <|assistant|> the day </s>"
    )
    # One exchange alone: of a long question the end stays, of a long answer the beginning.
    asked = conversation("u:film " + "was " * 40 + "cold", "a:the day")
    (one,) = Chat().encode([read(asked)], trained.tokenizer, template)
    assert text_of(trained.tokenizer, one.ids).endswith("was cold </s> <|assistant|> the day </s>")
    assert len(one.ids) == 32 and one.was_cut
    answered = conversation("u:" + "was " * 40, "a:the day " + "grim " * 40)
    (one,) = Chat().encode([read(answered)], trained.tokenizer, template)
    assert len(one.ids) == 32 and len(one.pooled_positions) == 16
    assert one.ids[one.pooled_positions[0]] == trained.tokenizer.encode(
        "<|assistant|>", special=True
    )


@pytest.mark.product(few=1)
@pytest.mark.parametrize("layout", ["decoder", "hybrid", "encoder_decoder", "prefix"])
def test_answers_are_learned_and_written(layout: str, tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", layout)
    result = tune(run, SINGLE * 8, SINGLE, batch=4, **FAST)
    tuned, before, unigrams = result.rows
    assert (before["strategy"], unigrams["strategy"]) == ("not tuned", "unigrams of answers")
    assert tuned["perplexity"] < 1.5 < before["perplexity"]
    assert tuned["tokens"] == 1.0
    assert not any("no better" in note for note in result.content["notes"])
    asked = [conversation("u:the day"), conversation("u:in town", "a:whatever")]
    found = predict(result.out, asked, device="cpu", progress=False)
    assert found.predictions == ["was warm", "cold"]
    if layout in ("decoder", "hybrid"):  # still a causal language model
        assert open_run(result.out, "cpu").continues


@pytest.mark.full
@pytest.mark.parametrize("layout", ["decoder", "encoder_decoder"])
def test_every_answer_of_a_conversation_is_learned(layout: str, tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", layout)
    short = {"task.max_tokens": 4}
    result = tune(run, [WHOLE] * 14, [WHOLE], batch=4, settings=short, **FAST)
    assert result.rows[0]["perplexity"] < 1.5
    asked = [{"messages": WHOLE["messages"][:n]} for n in (2, 4)]
    found = predict(result.out, asked, device="cpu", progress=False)
    assert found.predictions == ["was warm", "cold and grim"]


def test_prompts_and_completions_are_conversations(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", "decoder")
    rows = [{"prompt": "the day", "completion": "was warm"}] * 4
    file = tmp_path / "a.jsonl"
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    result = tune(run, file, file, **{**FAST, "epochs": 1})
    assert result.content["examples"]["train"] == 4
    found = predict(result.out, file, device="cpu", progress=False)
    assert len(found.predictions) == 4


def test_generate_says_that_its_prompt_is_no_conversation(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = make_run(tmp_path / "run", "decoder")
    out = tune(run, SINGLE, SINGLE, **{**FAST, "epochs": 1}).out
    for folder, is_chat in ((run, False), (out, True)):
        assert command(["generate", str(folder), "the day", "--tokens", "2"]) == 0
        assert ("tuned on conversations" in capsys.readouterr().err) is is_chat


# -- the template ----------------------------------------------------------------------------------

CONTENTS = ("What's the day?", " two  words\n", "naïve 3.14 (déjà)!", "{{ x }} 'q' \"r\"", "sat")


def messages_of(count: int, *, has_system: bool) -> list[dict[str, str]]:
    roles = ["system"] * has_system + ["user", "assistant"] * count
    return [{"role": role, "content": CONTENTS[n % len(CONTENTS)]} for n, role in enumerate(roles)]


@pytest.mark.product(few=1)
@pytest.mark.parametrize("kind", ["word", "wordpiece", "bpe", "unigram"])
@pytest.mark.parametrize("name", ["gpt2", "t5"])
def test_the_exported_tokenizer_gives_our_ids(
    name: str, kind: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    transformers = pytest.importorskip("transformers")
    from foreword.runs.recipe import load_recipe
    from foreword.settings import kinds
    from tests.evaluation.conftest import TEXTS, write_run

    options = ["model.position.length=160"] if name == "gpt2" else []
    sizes = {"wordpiece": 200, "bpe": 400, "unigram": 176}
    settings = {"vocab": sizes[kind]} if kind in sizes else {}
    tokenizer = kinds.load("text/tokenizers", kind)(**settings).train([*TEXTS * 4, *CONTENTS * 4])
    run = write_run(tmp_path / "run", load_recipe(f"{name}_tiny", options), tokenizer)
    rows = [{"messages": messages_of(2, has_system=True)}] * 2
    result = tune(run, rows, rows, **{**FAST, "epochs": 1}, max_length=120)
    capsys.readouterr()
    out = tmp_path / "hf"
    assert command(["export", str(result.out), "--out", str(out), "--quiet"][:4]) == 0
    config = json.loads((out / "tokenizer_config.json").read_text())
    assert config["chat_template"] == (result.out / "tokenizer" / "chat_template.jinja").read_text()
    theirs = transformers.AutoTokenizer.from_pretrained(out)
    prompted = open_run(result.out, "cpu")
    template = Tuned.read(result.out).template
    for has_system in (False, True):
        for count in (1, 2):
            messages = messages_of(count, has_system=has_system)
            example = read({"messages": messages})
            if name == "gpt2":
                (one,) = Chat().encode([example], prompted.tokenizer, template)
                found = theirs.apply_chat_template(messages, return_dict=False)
                assert found == one.ids.tolist()
            form = AnswerForm.of(prompted, template)
            (start,), _ = Chat().starts([example], form, 4)
            ids = start.target if start.source is None else start.source
            asked = messages[:-1]
            found = theirs.apply_chat_template(asked, add_generation_prompt=True, return_dict=False)
            assert found == ids.tolist()


def test_the_template_quotes_what_jinja_would_read() -> None:
    from foreword.text.tokenizers.word import Word

    tokenizer = Word().train(["a day"] * 3)
    text = jinja(tokenizer, [5], 6, has_ends=True)
    jinja2 = pytest.importorskip("jinja2")
    made = jinja2.Template(text).render(
        messages=[{"role": "user", "content": "{{ 1 }}"}], add_generation_prompt=True
    )
    assert made == "<s><|user|>{{ 1 }}</s><|assistant|>"


# -- bad input -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("row", "message"),
    [
        (conversation("a:x"), "message 1 is by 'assistant', expected user or system"),
        (conversation("u:x", "u:y"), "message 2 is by 'user', expected assistant"),
        (conversation("s:x", "a:y"), "message 2 is by 'assistant', expected user"),
        (conversation("u:x", "s:y"), "message 2 is by 'system', expected assistant"),
        (conversation("u:x", "a: "), "message 2: the answer is empty"),
        ({"messages": [{"role": "tool", "content": ""}]}, "message 1 is by 'tool'"),
        ({"messages": [{"role": "user"}]}, "message 1: expected 'role' and 'content'"),
        (
            {"messages": [{"role": "user", "content": 3}]},
            "message 1: 'content' must be text, got 3",
        ),
        ({"messages": [3]}, "message 1: expected 'role' and 'content', got 3"),
        ({"messages": {"role": "user"}}, "expected a list of messages"),
    ],
)
def test_what_is_no_conversation_is_refused(row: dict[str, Any], message: str) -> None:
    with pytest.raises(UserError) as raised:
        read(row)
    assert str(raised.value).startswith("x.jsonl:3: ")
    assert message in str(raised.value)
    assert "\n" not in str(raised.value)


def test_rows_without_a_question_are_skipped() -> None:
    for row in ({"messages": []}, {"messages": None}, conversation("s:a film")):
        assert Chat().reader.read(row, COLUMNS, "x:1") is None
    assert read(conversation("u:x")).label == ""
    assert of_text(read(conversation("u:x")).text) == [Message("user", "x")]


def test_an_encoder_is_refused_in_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = make_run(tmp_path / "run", "encoder")
    file = tmp_path / "a.jsonl"
    file.write_text(json.dumps(SINGLE[0]) + "\n")
    call = ["tune", str(run), "--task", "chat", "--train", str(file), "--dev", str(file), "--quiet"]
    assert command(call) == 2
    (line,) = capsys.readouterr().err.splitlines()  # refused before anything is said of the text
    assert "was not trained to write text; --task text_to_text, chat and prefer work" in line
    bad = tmp_path / "b.jsonl"
    bad.write_text(json.dumps(conversation("u:x", "u:y")) + "\n")
    call[call.index("--train") + 1] = str(bad)
    call[1] = str(make_run(tmp_path / "decoder", "decoder"))
    assert command(call) == 2
    error = capsys.readouterr().err.splitlines()[-1]
    assert error == f"foreword: {bad}:1: message 2 is by 'user', expected assistant"


def test_new_tokens_that_a_strategy_leaves_at_random_are_named(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", "decoder")
    for strategy, is_said in (("top_layers", True), ("lora", False)):
        names = {"strategy": strategy, "name": strategy}
        result = tune(run, SINGLE, SINGLE, **names, **{**FAST, "epochs": 1})
        notes = [note for note in result.content["notes"] if "new to the model" in note]
        assert len(notes) == is_said
        assert all(note.startswith("<|system|>, <|user|>, <|assistant|>: ") for note in notes)


@pytest.mark.full
def test_lora_trains_the_embeddings_of_new_tokens_alone(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", "decoder")
    results = {}
    for epochs in (1, 3):
        names = {"strategy": "lora", "name": str(epochs)}
        results[epochs] = tune(run, SINGLE * 4, SINGLE, **names, **{**FAST, "epochs": epochs})
    before, one, three = (
        open_run(folder, "cpu").model.backbone.embedding.token.weight.detach()
        for folder in (run, results[1].out, results[3].out)
    )
    tokenizer = open_run(results[1].out, "cpu").tokenizer
    new = [int(tokenizer.encode(f"<|{role}|>", special=True)[0]) for role in ROLES.values()]
    # The other special tokens begin anew too, since pretraining never used them.
    known = range(tokenizer.vocab.special["</s>"], min(new))
    assert torch.equal(three[known], before[known])
    # The system never speaks here, but predicting other tokens moves its row as well.
    assert (three[new] != one[new]).any(dim=1).tolist() == [True, True, True]
    trained = results[1].rows[0]["trained_parameters"]
    assert trained == sum(p.numel() for p in _changes(run)) + 6 * before.shape[1]


def _changes(run: Path) -> list[torch.nn.Parameter]:
    from foreword.tuning.strategies.lora import LoRA

    network = build_network(open_run(run, "cpu"), Chat(), (), None)
    LoRA().prepare(network, 1)
    return [p for p in network.parameters() if p.requires_grad]
