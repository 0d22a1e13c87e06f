"""With equal weights, the loss on answers alone is that of `transformers` with labels of -100."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
import torch

from foreword import tune
from foreword.cli.main import run as command
from foreword.runs.recipe import load_recipe
from foreword.runs.run_folder import open_run
from foreword.tables.examples import Labelled
from foreword.text.tokenizers.word import Word
from foreword.tuning.job import Examples
from foreword.tuning.settings import TuneSettings
from foreword.tuning.starting_network import build_network
from foreword.tuning.tasks._contract import Task
from foreword.tuning.tasks.chat import Chat
from foreword.tuning.tasks.text_to_text import TextToText
from foreword.tuning.tune_data import draw_and_encode
from tests.evaluation.conftest import TEXTS, write_run

transformers = pytest.importorskip("transformers")

CHATS: list[dict[str, Any]] = [
    {
        "messages": [
            {"role": "system", "content": "the river was cold"},
            {"role": "user", "content": "the dog ran"},
            {"role": "assistant", "content": "to the river and slept"},
            {"role": "user", "content": "the cat"},
            {"role": "assistant", "content": "sat"},
        ]
    },
    {
        "messages": [
            {"role": "user", "content": "one day the sun shone on the mat"},
            {"role": "assistant", "content": "the cat slept there"},
        ]
    },
]
PAIRS = [("the dog ran to the river", "cold and deep"), ("a bird", "sang in the tree and looked")]


def labelled_ids(tokenizer: Any, messages: list[dict[str, str]]) -> tuple[list[int], list[int]]:
    """The ids of a conversation, and as labels those that come after the prompt of each answer."""

    def ids_of(count: int, *, asks: bool = False) -> list[int]:
        part = messages[:count]
        found = tokenizer.apply_chat_template(part, add_generation_prompt=asks, return_dict=False)
        return list(found)

    ids = ids_of(len(messages))
    labels = [-100] * len(ids)
    for n, message in enumerate(messages):
        if message["role"] == "assistant":
            answer = slice(len(ids_of(n, asks=True)), len(ids_of(n + 1)))
            labels[answer] = ids[answer]
    return ids, labels


def their_loss(model: Any, rows: list[tuple[list[int], list[int]]]) -> torch.Tensor:
    width = max(len(ids) for ids, _ in rows)
    ids = torch.tensor([ids + [0] * (width - len(ids)) for ids, _ in rows])
    labels = torch.tensor([labels + [-100] * (width - len(labels)) for _, labels in rows])
    mask = torch.tensor([[1] * len(row) + [0] * (width - len(row)) for row, _ in rows])
    loss: torch.Tensor = model(input_ids=ids, attention_mask=mask, labels=labels).loss
    return loss


def our_loss(run: Path, task: Task, examples: list[Labelled]) -> tuple[float, torch.Tensor]:
    """The loss of a training step, and its gradient at the token embedding."""
    trained = open_run(run, "cpu")
    data = draw_and_encode(trained, task, [TuneSettings(seeds=1)], Examples(examples, examples))
    network = build_network(trained, task, (), None).eval()

    (batch,) = data.train.batches(data.draws[0].numbers, "cpu")
    batch = batch.to("cpu")
    outputs = network.training_outputs(batch.features(network), batch.targets)
    loss = task.loss(outputs, batch.targets, batch.numbers)
    mean = loss.total / loss.count
    mean.backward()  # type: ignore[no-untyped-call]
    gradient = network.backbone.embedding.token.weight.grad
    assert gradient is not None
    return mean.item(), gradient


@pytest.mark.parametrize("kind", ["chat", "text_to_text"])
def test_the_loss_on_answers_is_that_of_transformers(kind: str, tmp_path: Path) -> None:
    tokenizer = Word(min_count=1).train([text.lower() for text in TEXTS])
    recipe = load_recipe("gpt2_tiny", ["model.dropout=0", "model.attention_dropout=0"])
    run = write_run(tmp_path / "run", recipe, tokenizer)
    rows: Any = CHATS if kind == "chat" else PAIRS
    tuned = tune(
        run, rows, rows, task=kind, seeds=1, epochs=2, lr=1e-2, device="cpu", precision="fp32",
        progress=False, strategy="full"
    )  # fmt: skip
    assert command(["export", str(tuned.out), "--out", str(tmp_path / "hf")]) == 0
    model = transformers.AutoModelForCausalLM.from_pretrained(tmp_path / "hf").eval()
    theirs = transformers.AutoTokenizer.from_pretrained(tmp_path / "hf")
    if kind == "chat":
        task: Task = Chat()
        labelled = [labelled_ids(theirs, row["messages"]) for row in CHATS]
        examples = [task.reader.read(row, task.reader.columns[0], "") for row in CHATS]
    else:
        task, labelled, examples = TextToText(), [], [Labelled(*pair) for pair in PAIRS]
        for text, answer in PAIRS:
            source = theirs(f"{text}[SEP]")["input_ids"]
            target = theirs(f"{answer}</s>", add_special_tokens=False)["input_ids"]
            labelled.append(([*source, *target], [-100] * len(source) + target))
    loss = their_loss(model, labelled)
    loss.backward()  # type: ignore[no-untyped-call]
    if kind == "chat":
        assert math.log(tuned.rows[0]["perplexity"]) == pytest.approx(loss.item(), rel=1e-5)
    ours, gradient = our_loss(tuned.out, task, [e for e in examples if e is not None])
    assert ours == pytest.approx(loss.item(), rel=1e-5)
    expected = model.get_input_embeddings().weight.grad
    torch.testing.assert_close(gradient, expected[: len(gradient)], atol=1e-6, rtol=1e-4)
