"""Losses by length of memory, and decoding, scoring and filling of models with a memory."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from torch.nn import functional as F

from foreword.cli import main
from foreword.data.holdout import SplitFiles
from foreword.data.shards import Shards
from foreword.data.write_shards import PrepareSettings, prepare
from foreword.disk import stored
from foreword.errors import UserError
from foreword.evaluation.context import by_memory
from foreword.evaluation.decoding import decode, generate
from foreword.evaluation.filling import fill
from foreword.evaluation.sampling import GREEDY, Sampling
from foreword.evaluation.scorer import ScoringItem, scorer_of
from foreword.evaluation.scoring import score
from foreword.evaluation.starts import Start
from foreword.nn.masks import CausalMask
from foreword.runs.trained_model import TrainedModel
from foreword.text.tokenizer import Tokenizer
from foreword.types import Batch
from tests.evaluation.conftest import Make

LENGTH = 8


@pytest.fixture
def shards(tokenizer: Tokenizer, tmp_path: Path) -> Shards:
    """About 120 tokens: a single stream."""
    file = tmp_path / "text.txt"
    file.write_text("The cat sat on the mat. The dog ran to the cold river.\n" * 8)
    return prepare(
        SplitFiles.find([str(file)]), tokenizer, tmp_path / "shards", PrepareSettings(heldout=0.0)
    ).train


def in_one_pass(prompted: TrainedModel, shards: Shards) -> tuple[float, int]:
    """Return the nats per token of the whole text, read as one row, and the number of tokens."""
    text = torch.from_numpy(np.asarray(shards.tokens, dtype=np.int64))
    stop = (len(text) + 1) // LENGTH * LENGTH  # one document and its </s>, cut to whole rows
    text = torch.cat([text, torch.tensor([prompted.vocab.id("</s>")])])[None, :stop]
    positions = torch.arange(stop - 1)[None]
    states = prompted.run_backbone(Batch(text[:, :-1], positions, CausalMask())).states
    return float(F.cross_entropy(prompted.logits(states)[0], text[0, 1:])), stop - 1


def test_a_memory_of_the_whole_text_gives_the_loss_of_one_long_row(
    make_prompted: Make, shards: Shards
) -> None:
    prompted = make_prompted("transformer_xl", length=LENGTH)
    expected, tokens = in_one_pass(prompted, shards)
    short, full = by_memory(prompted, shards, [4, tokens - LENGTH + 1], 4.0)
    assert short.predictions == full.predictions == tokens
    assert full.loss == pytest.approx(expected, abs=1e-5)
    assert short.loss != pytest.approx(expected, abs=1e-3)
    assert by_memory(prompted, shards, [4], 4.0) == [short]  # the other length has no effect


def test_models_without_a_memory_read_tokens_again(make_prompted: Make, shards: Shards) -> None:
    prompted = make_prompted("stream", length=LENGTH)
    losses = by_memory(prompted, shards, [0, 3, LENGTH - 1], 4.0)
    _, tokens = in_one_pass(prompted, shards)
    assert {one.predictions for one in losses} == {tokens}
    # With all but one token read again, each token is predicted from the row before it.
    text = np.append(np.asarray(shards.tokens, dtype=np.int64), prompted.vocab.id("</s>"))
    text = text[: tokens + 1]
    windows = [text[max(0, n - LENGTH) : n + 1] for n in range(1, len(text))]
    items = [ScoringItem(w, np.arange(len(w)) == len(w) - 1) for w in windows]
    nats = -np.concatenate(list(scorer_of(prompted).log_probs(items))).mean()
    assert losses[-1].loss == pytest.approx(nats, abs=1e-5)


def test_impossible_memories_are_refused(make_prompted: Make, shards: Shards) -> None:
    with pytest.raises(UserError, match="--context-lengths 8: can have at most 7"):
        by_memory(make_prompted("stream", length=LENGTH), shards, [8], 4.0)
    with pytest.raises(UserError, match="--context-lengths requires a causal model"):
        by_memory(make_prompted("encoder"), shards, [0], 4.0)
    with pytest.raises(UserError, match="too few for a memory of 4000"):
        by_memory(make_prompted("transformer_xl", length=LENGTH), shards, [4000], 4.0)


def test_evaluate_memory_saves_a_table(
    make_run: Callable[..., Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run, file = make_run("transformer_xl", length=LENGTH), tmp_path / "text.txt"
    file.write_text("The cat sat on the mat. The dog ran to the cold river.\n" * 8)
    words = ["evaluate", str(run), "--file", str(file), "--device", "cpu", "--context-lengths"]
    assert main.run([*words, "0,8,0,8,32"]) == 0
    saved = stored.read(run / "evaluations" / "evaluate-text.txt-memory.json")
    assert [row["memory"] for row in saved["rows"]] == [0, 8, 32]
    heading = next(line for line in capsys.readouterr().out.splitlines() if "perplexity" in line)
    assert "context" in heading and "memory" not in heading
    assert main.run([*words, "0;8"]) == 2
    assert "expected numbers of tokens, such as 0,64,128" in capsys.readouterr().err


def test_transformer_xl_generates_beyond_its_row_and_memory(make_prompted: Make) -> None:
    """Keys and values are cached: each token depends on all those before it."""
    prompted = make_prompted("transformer_xl", length=LENGTH)
    sampling, stops = Sampling(tokens=40, temperature=1.5), np.empty(0, np.int64)
    start = prompted.tokenizer.encode("the cat")
    (text,) = decode(prompted, [Start(None, start)], sampling, stops, scores=True)
    assert len(text.ids) == 40 > LENGTH + 16
    whole = np.concatenate([start, text.ids])
    item = ScoringItem(whole, np.arange(len(whole)) >= len(start))
    assert text.log_probs is not None
    np.testing.assert_allclose(
        text.log_probs, next(scorer_of(prompted).log_probs([item])), atol=1e-5
    )


def test_scoring_windows_have_the_length_of_a_row_and_its_memory(make_prompted: Make) -> None:
    prompted = make_prompted("transformer_xl", length=LENGTH)
    assert prompted.max_context == LENGTH + 16
    text = "the cat sat on the mat and the dog sat on the log"
    ids = np.concatenate([prompted.prompt_prefix, prompted.tokenizer.encode(text), prompted.eos])
    expected = next(scorer_of(prompted).log_probs([ScoringItem(ids, np.arange(len(ids)) > 0)]))
    np.testing.assert_allclose(score(prompted, text).log_probs, expected, atol=1e-5)


def test_xlnet_fills_and_scores_without_seeing_the_predicted_token(make_prompted: Make) -> None:
    prompted = make_prompted("xlnet", length=32)
    mask, every = prompted.vocab.id("[MASK]"), prompted.vocab.size

    def odds() -> float:
        (blank,) = fill(prompted, "the [MASK] sat on the mat.", every).blanks
        by_text = {candidate.text: candidate.probability for candidate in blank}
        return by_text["cat"] / by_text["dog"]

    before = odds()
    with torch.no_grad():  # the token in a blank is not seen
        prompted.model.backbone.embedding.token.weight[mask] += 1.0
    assert odds() == pytest.approx(before, rel=1e-4)
    scored = score(prompted, "the cat sat on the mat")
    assert len(scored.log_probs) == 6
    filled = fill(prompted, "the cat sat on the [MASK]", top=every)
    expected = next(c.probability for c in filled.blanks[0] if c.text == "mat")
    assert scored.log_probs[-1] == pytest.approx(np.log(expected), abs=1e-4)
    with pytest.raises(UserError, match=r"does not generate text.*models that can: causal"):
        generate(prompted, ["the cat"], GREEDY)
