"""Losses by memory against one forward pass over all the text, and refusals."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from torch.nn import functional as F

from foreword import stored
from foreword.cli import main
from foreword.data.shards import Shards
from foreword.data.write_shards import PrepareSettings, prepare
from foreword.errors import UserError
from foreword.evaluate.context import by_memory
from foreword.evaluate.decoding import Start, decode, generate
from foreword.evaluate.filling import fill
from foreword.evaluate.prompting import PromptedModel
from foreword.evaluate.sampling import GREEDY, Sampling
from foreword.evaluate.scorer import ScoringItem, scorer_of
from foreword.evaluate.scoring import score
from foreword.nn.masks import CausalMask
from foreword.text.tokenizer import Tokenizer
from foreword.types import Batch

LENGTH = 8
Make = Callable[..., PromptedModel]


@pytest.fixture
def shards(tokenizer: Tokenizer, tmp_path: Path) -> Shards:
    """Some 120 tokens: a single lane."""
    file = tmp_path / "text.txt"
    file.write_text("The cat sat on the mat. The dog ran to the cold river.\n" * 8)
    return prepare([str(file)], tokenizer, tmp_path / "shards", PrepareSettings(heldout=0.0)).train


def in_one_pass(prompted: PromptedModel, shards: Shards) -> tuple[float, int]:
    """Nats per token of the whole text, read as one row, and how many tokens that is."""
    text = torch.from_numpy(np.asarray(shards.tokens, dtype=np.int64))
    stop = (len(text) + 1) // LENGTH * LENGTH  # one document and its </s>, cut to whole rows
    text = torch.cat([text, torch.tensor([prompted.vocab.id("</s>")])])[None, :stop]
    places = torch.arange(stop - 1)[None]
    states = prompted.run_backbone(Batch(text[:, :-1], places, CausalMask())).states
    return float(F.cross_entropy(prompted.logits(states)[0], text[0, 1:])), stop - 1


def test_a_memory_of_everything_is_one_long_row(make_prompted: Make, shards: Shards) -> None:
    prompted = make_prompted("transformer_xl", length=LENGTH)
    wanted, tokens = in_one_pass(prompted, shards)
    few, much = by_memory(prompted, shards, [4, tokens - LENGTH + 1], 4.0)
    assert few.predictions == much.predictions == tokens
    assert much.loss == pytest.approx(wanted, abs=1e-5)
    assert few.loss != pytest.approx(wanted, abs=1e-3)
    assert by_memory(prompted, shards, [4], 4.0) == [few]  # nothing is left of the other length


def test_without_a_memory_text_is_read_again(make_prompted: Make, shards: Shards) -> None:
    prompted = make_prompted("stream", length=LENGTH)
    found = by_memory(prompted, shards, [0, 3, LENGTH - 1], 4.0)
    _, tokens = in_one_pass(prompted, shards)
    assert {one.predictions for one in found} == {tokens}
    # With all but one token read again, each token is predicted from just the row before it.
    text = np.append(np.asarray(shards.tokens, dtype=np.int64), prompted.vocab.id("</s>"))
    text = text[: tokens + 1]
    windows = [text[max(0, n - LENGTH) : n + 1] for n in range(1, len(text))]
    items = [ScoringItem(w, np.arange(len(w)) == len(w) - 1) for w in windows]
    nats = -np.concatenate(list(scorer_of(prompted).log_probs(items))).mean()
    assert found[-1].loss == pytest.approx(nats, abs=1e-5)


def test_what_cannot_be_measured_is_refused(make_prompted: Make, shards: Shards) -> None:
    with pytest.raises(UserError, match="--memory 8: can have at most 7"):
        by_memory(make_prompted("stream", length=LENGTH), shards, [8], 4.0)
    with pytest.raises(UserError, match="--memory requires a causal model"):
        by_memory(make_prompted("encoder"), shards, [0], 4.0)
    with pytest.raises(UserError, match="too few for a memory of 4000"):
        by_memory(make_prompted("transformer_xl", length=LENGTH), shards, [4000], 4.0)


def test_the_command_keeps_a_table(
    make_run: Callable[..., Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run, file = make_run("transformer_xl", length=LENGTH), tmp_path / "text.txt"
    file.write_text("The cat sat on the mat. The dog ran to the cold river.\n" * 8)
    words = ["evaluate", str(run), "--file", str(file), "--device", "cpu", "--memory"]
    assert main.run([*words, "0,8,0,8,32"]) == 0
    saved = stored.read(run / "evaluations" / "evaluate-text.txt-memory.json")
    assert [row["memory"] for row in saved["rows"]] == [0, 8, 32]
    assert main.run([*words, "0;8"]) == 2
    assert "expected numbers of tokens, such as 0,64,128" in capsys.readouterr().err


def test_transformer_xl_writes_beyond_its_row_and_memory(make_prompted: Make) -> None:
    """Its keys and values are kept: each token is given all those before, however many."""
    prompted = make_prompted("transformer_xl", length=LENGTH)
    sampling, stops = Sampling(tokens=40, temperature=1.5), np.empty(0, np.int64)
    start = prompted.tokenizer.encode("the cat")
    (written,) = decode(prompted, [Start(None, start)], sampling, stops)
    assert len(written.ids) == 40 > LENGTH + 16
    whole = np.concatenate([start, written.ids])
    item = ScoringItem(whole, np.arange(len(whole)) >= len(start))
    np.testing.assert_allclose(
        written.log_probs, next(scorer_of(prompted).log_probs([item])), atol=1e-5
    )


def test_a_score_reads_rows_with_their_memory(make_prompted: Make) -> None:
    prompted = make_prompted("transformer_xl", length=LENGTH)
    assert prompted.reach == LENGTH + 16
    text = "the cat sat on the mat and the dog sat on the log"
    ids = np.concatenate([prompted.opening, prompted.tokenizer.encode(text), prompted.eos])
    wanted = next(scorer_of(prompted).log_probs([ScoringItem(ids, np.arange(len(ids)) > 0)]))
    np.testing.assert_allclose(score(prompted, text).log_probs, wanted, atol=1e-5)


def test_xlnet_fills_and_scores_what_it_does_not_see(make_prompted: Make) -> None:
    prompted = make_prompted("xlnet", length=32)
    mask, every = prompted.vocab.id("[MASK]"), prompted.vocab.size

    def odds() -> float:
        (blank,) = fill(prompted, "the [MASK] sat on the mat.", every).blanks
        found = {candidate.text: candidate.probability for candidate in blank}
        return found["cat"] / found["dog"]

    before = odds()
    with torch.no_grad():  # whatever stands in a blank, nothing of it is seen
        prompted.model.backbone.embedding.token.weight[mask] += 1.0
    assert odds() == pytest.approx(before, rel=1e-4)
    found = score(prompted, "the cat sat on the mat")
    assert len(found.log_probs) == 6
    hidden = fill(prompted, "the cat sat on the [MASK]", top=every)
    wanted = next(c.probability for c in hidden.blanks[0] if c.text == "mat")
    assert found.log_probs[-1] == pytest.approx(np.log(wanted), abs=1e-4)
    with pytest.raises(UserError, match="does not generate text"):
        generate(prompted, ["the cat"], GREEDY)
