"""N-gram models on the command line: every verb."""

from __future__ import annotations

import itertools
import math
from pathlib import Path

import numpy as np
import pytest

import foreword
from foreword.cli.main import run as command
from foreword.errors import UserError
from foreword.evaluation.scorer import NgramScorer, ScoringItem, scorer_of
from foreword.models.ngram import table_of
from tests.cli.conftest import Refused, Told

TEXT = """\
the price of oil rose
the price of <unk> fell N %
today the price of oil fell
oil and <unk> rose today
the cat sat on the mat
"""
TEST = "today the price of <unk> rose\nthe mat fell\n"


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("ngrams")
    (folder / "text.txt").write_text(TEXT, encoding="utf-8")
    (folder / "test.txt").write_text(TEST, encoding="utf-8")
    text, test, run = (str(folder / name) for name in ("text.txt", "test.txt", "run"))
    words = ["pretrain", "ngram_ptb", "--set", "model.order=3", "--data", text, "--heldout", test]
    assert command([*words, "--out", run]) == 0
    return folder / "run"


def test_evaluate_counts_the_end_of_each_line(run: Path, told: Told) -> None:
    actual = told("evaluate", str(run), "--file", str(run.parent / "test.txt"))
    lines = TEST.splitlines()
    assert actual["rows"][0]["predictions"] == len(TEST.split()) + len(lines)
    loaded = foreword.load(run)
    vocab, table = loaded.tokenizer.vocab, table_of(loaded.module)
    ends = [[vocab.id("<s>")], [vocab.id("</s>")]]
    texts = [np.concatenate([ends[0], loaded.tokenizer.encode(line), ends[1]]) for line in lines]
    nats = -table.log_probs_of(np.concatenate(texts)).sum()
    expected = math.exp(nats / actual["rows"][0]["predictions"])
    assert actual["rows"][0]["perplexity"] == pytest.approx(expected)
    orders = actual["by_order"]
    assert [row["order"] for row in orders] == [1, 2, 3]
    assert orders[0]["n-grams in the model"] == len(set(TEXT.split())) + 2  # </s> and [UNK]
    pairs = {pair for line in TEXT.splitlines() for pair in neighbours(line)}
    asked = [pair for line in lines for pair in neighbours(line)]
    unseen = sum(pair not in pairs for pair in asked)
    assert orders[1]["never seen"] == pytest.approx(unseen / len(asked))


def neighbours(line: str) -> list[tuple[str, str]]:
    words = ["<s>", *line.split(), "</s>"]
    return list(itertools.pairwise(words))


def test_ngram_models_score_generate_report_and_resume(run: Path, told: Told) -> None:
    result = told("score", str(run), "the price of oil rose")
    assert (result["tokens"], result["ends"]) == (6, 1)
    test = ["--file", str(run.parent / "test.txt")]
    whole = told("score", str(run), *test)
    assert (whole["tokens"], whole["ends"]) == (len(TEST.split()) + 2, 2)
    measured = told("evaluate", str(run), *test)["rows"][0]
    assert whole["perplexity"] == pytest.approx(measured["perplexity"])
    written = told("generate", str(run), "today the price of", "--temperature", "0")
    assert set(written[0]["text"].split()) <= set(TEXT.split())
    assert foreword.load(run).generate("today the price of")
    assert command(["resume", str(run)]) == 0
    assert command(["report", str(run)]) == 0
    page = (run / "report.html").read_text(encoding="utf-8")
    assert "Trained offline on" in page and "never seen" in page


def test_the_scorer_gives_the_log_probabilities_of_the_table(run: Path) -> None:
    loaded = foreword.load(run)
    scorer = scorer_of(loaded.trained)
    assert isinstance(scorer, NgramScorer)
    start, end = (loaded.tokenizer.vocab.id(name) for name in ("<s>", "</s>"))
    ids = np.concatenate([[start], loaded.tokenizer.encode("the price of oil rose"), [end]])
    table = table_of(loaded.module)
    (nats,) = scorer.log_probs([ScoringItem(ids, np.arange(len(ids)) > 0)])
    assert nats == pytest.approx(table.log_probs_of(ids)[1:])
    assert nats == pytest.approx(loaded.score("the price of oil rose").log_probs)


def test_an_untrained_count_based_model_is_refused(run: Path, refused: Refused) -> None:
    error = refused("probe", str(run), "similarity", "--untrained")
    assert f"--untrained: {run} is a count-based model" in error


def test_an_exported_arpa_file_is_imported_equal(
    run: Path, told: Told, refused: Refused, tmp_path: Path
) -> None:
    file, again, test = tmp_path / "lm.arpa", tmp_path / "again", run.parent / "test.txt"
    assert command(["export", str(run), "--format", "arpa", "--out", str(file)]) == 0
    head = file.read_text(encoding="utf-8").split("\\2-grams:")[0]
    names = [line.split("\t")[1] for line in head.splitlines() if "\t" in line]
    assert sorted(names) == sorted({*TEXT.split(), "[UNK]", "<s>", "</s>"})
    assert command(["import", str(file), "--format", "arpa", "--out", str(again)]) == 0
    one, other = (
        told("evaluate", str(path), "--file", str(test))["rows"][0] for path in (run, again)
    )
    assert other["perplexity"] == pytest.approx(one["perplexity"], rel=1e-5)
    assert "already exists" in refused("export", str(run), "--format", "arpa", "--out", str(file))


def test_an_arpa_file_written_by_hand_is_imported(
    told: Told, refused: Refused, tmp_path: Path
) -> None:
    """Written by hand; its `<unk>` is KenLM's unknown word."""
    file = tmp_path / "theirs.arpa"
    file.write_text(
        "\\data\\\nngram 1=4\nngram 2=2\n\n\\1-grams:\n-1\t<unk>\n-99\t<s>\t-0.5\n-0.5\t</s>\n"
        "-0.3\ta\t-0.2\n\n\\2-grams:\n-0.1\t<s> a\n-0.4\ta </s>\n\n\\end\\\n",
        encoding="utf-8",
    )
    run = tmp_path / "run"
    assert command(["import", str(file), "--format", "arpa", "--out", str(run)]) == 0
    (tmp_path / "text.txt").write_text("a\nnever a\n", encoding="utf-8")
    actual = told("evaluate", str(run), "--file", str(tmp_path / "text.txt"))
    expected = (-0.1 - 0.4) + (-0.5 - 1 - 0.3 - 0.4)  # `never` backs off from <s>
    assert actual["rows"][0]["loss"] == pytest.approx(-expected * math.log(10) / 5)
    text = file.read_text(encoding="utf-8").replace("unk", "UNK")
    file.write_text(
        text.replace("\ta", "\ta\u00a0b").replace("> a", "> a\u00a0b"), encoding="utf-8"
    )
    actual = told("import", str(file), "--format", "arpa", "--out", f"{run}-again")
    assert actual["notes"] == [
        "words that never occur, since text is split at white space and normalised to "
        "composed letters (NFC): 1"
    ]
    broken = tmp_path / "broken.arpa"
    broken.write_text(text[:-7], encoding="utf-8")
    message = refused("import", str(broken), "--format", "arpa", "--out", f"{run}2")
    assert "cut short" in message
    broken.write_text(
        "\\data\\\nngram 1=2\n\n\\1-grams:\n-1\t<s>\n-1\t</s>\n\n\\end\\\n", encoding="utf-8"
    )
    message = refused("import", str(broken), "--format", "arpa", "--out", f"{run}2")
    assert message.endswith("broken.arpa: has no words")
    assert not Path(f"{run}2").exists()


def test_mistakes_are_reported_in_one_line(
    run: Path, capsys: pytest.CaptureFixture[str], refused: Refused, tmp_path: Path
) -> None:
    out = str(tmp_path / "out")
    expected = "--format: no kind 'arpb'; did you mean 'arpa'"
    assert expected in refused("export", str(run), "--format", "arpb", "--out", out)
    assert "no hidden states" in refused_to_encode(run)
    for asked in (
        ["neighbours", str(run), "oil"],
        ["probe", str(run), "analogies"],
        ["export", str(run), "--format", "word2vec", "--out", out],
    ):
        assert "an n-gram model has no word vectors; use word2vec" in refused(*asked)
    pairs = tmp_path / "pairs.tsv"
    pairs.write_text("text\tlabel\n" + "a b\tx\nb a\ty\n" * 4, encoding="utf-8")
    tune = [
        "tune",
        "--strategy=full",
        str(run),
        "--task",
        "classify",
        "--train",
        str(pairs),
        "--dev",
        str(pairs),
    ]
    assert "no weights to train further" in refused(*tune)
    start = ["pretrain", "gpt2_tiny", "--from", str(run), "--data", str(run.parent / "text.txt")]
    assert "no weights to train further" in refused(*start, "--out", out)
    check = ["check", "ngram_tiny", "--data", str(run.parent / "text.txt")]
    assert "has no steps to estimate by" in refused(*check)
    text = str(run.parent / "text.txt")
    words = ["pretrain", "ngram_ptb", "--set", "model.order=40", "--data", text, "--out", out]
    assert command(words) == 2
    assert "model.order: 40 words, but" in capsys.readouterr().err.splitlines()[-1]
    assert not Path(out).exists()


def refused_to_encode(run: Path) -> str:
    with pytest.raises(UserError) as caught:
        foreword.load(run).encode("the price")
    return str(caught.value)
