"""Every verb accepts every tiny recipe or refuses it in one line."""

from __future__ import annotations

import json
import math
import random
from pathlib import Path

import pytest

from foreword import figures
from foreword.cli.main import run
from foreword.settings import config
from tests.train import runs

ENCODERS = {
    *("albert", "bert", "bigbird", "electra", "linformer", "longformer", "modern_encoder"),
    *("causal_first", "diffusion", "mask_decay", "modernbert", "roberta", "spanbert"),
}
CAUSAL = {
    *("fixed_window", "gpt1", "gpt2", "gpt3", "gru", "hybrid_decoder", "lstm", "modern_decoder"),
    *("rnn", "steps_decoder", "transformer_xl", "word2vec"),
}
NAMES = {name.removesuffix("_tiny") for name in config.RECIPES.names() if name.endswith("_tiny")}
COUNTED, TRANSLATORS, DENOISERS = {"ngram"}, {"seq2seq", "translator"}, {"t5", "ul2"}
OFFLINE = {"ngram", "word2vec"}  # these read the whole text a number of times
NEURAL = NAMES - COUNTED
DRAWN = {"electra", "ngram"}  # plots take long
# Which families can do what; the others are to refuse it.
CAN = {
    "fill": ENCODERS | DENOISERS | {"gpt_bert", "xlnet"},
    "generate": CAUSAL | COUNTED | TRANSLATORS | DENOISERS | {"diffusion", "elmo", "gpt_bert"},
    "score": NAMES,  # of a model with a source, beside one
    "translate": TRANSLATORS | DENOISERS,  # whatever answers a source
    "tune": NEURAL,
    "neighbours": NEURAL,
    "evaluate": NAMES,
    "report": NAMES,
    "export hf": {
        *("albert", "bert", "bigbird", "causal_first", "diffusion"),
        *("electra", "gpt1", "gpt2", "longformer"),
        *(
            "mask_decay",
            "modern_decoder",
            "modern_encoder",
            "modernbert",
            "roberta",
            "spanbert",
            "t5",
            "ul2",
            "xlnet",
        ),
    },
    "export arpa": COUNTED,
    "export word2vec": NEURAL,
}


def text(draws: random.Random, sentences: int) -> str:
    """Sentences of made-up words, some of them frequent."""
    syllables = [c + v for c in "bdfgklmnprstvz" for v in "aeiou"]
    words = ["".join(draws.choices(syllables, k=draws.randint(1, 4))) for _ in range(300)]
    weights = [1 / (n + 5) for n in range(len(words))]
    made = (draws.choices(words, weights, k=draws.randint(4, 12)) for _ in range(sentences))
    return " ".join(" ".join(sentence).capitalize() + "." for sentence in made)


@pytest.fixture(scope="module")
def places(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with all that the verbs are given."""
    folder, draws = tmp_path_factory.mktemp("tiny"), random.Random(1)
    sentences = text(draws, 600).split(". ")
    documents = [". ".join(sentences[n : n + 8]) + "." for n in range(0, len(sentences), 8)]
    (folder / "text.txt").write_text("\n\n".join(documents), encoding="utf-8")
    (folder / "line.txt").write_text(sentences[0] + "\n", encoding="utf-8")
    runs.write_translations(folder / "pairs")
    for name in ("train", "dev"):
        lines = [f"{draws.choice(sentences)}\t{'ab'[n % 2]}" for n in range(16)]
        (folder / f"{name}.tsv").write_text("\n".join(["text\tlabel", *lines]), encoding="utf-8")
    return folder


def commands(family: str, folder: Path) -> dict[str, list[str]]:
    """Each verb, asked of the run."""
    out, line = str(folder / family), (folder / "line.txt").read_text(encoding="utf-8").strip()
    word, rest = line.split(maxsplit=1)
    labelled = ["--train", str(folder / "train.tsv"), "--dev", str(folder / "dev.tsv")]
    exports = {
        f"export {form}": ["export", out, "--format", form, "--out", f"{out}.{form}"]
        for form in ("hf", "arpa", "word2vec")
    }
    source = ["--source", line] if family in TRANSLATORS | DENOISERS else []
    blank = "<extra_id_0>" if family in DENOISERS else "[MASK]"
    return {
        "fill": ["fill", out, f"{blank} {rest}"],
        "generate": ["generate", out, word, "--tokens", "4"],
        "score": ["score", out, line, *source],
        "translate": ["translate", out, "--source", str(folder / "line.txt"), "--tokens", "4"],
        "tune": ["tune", "--strategy=full", out, *labelled, "--seeds", "1", "--epochs", "1"],
        "neighbours": ["neighbours", out, word.lower(), "--top", "2"],
        "evaluate": ["evaluate", out],
        "report": ["report", out],
        **exports,
    }


def pretrain(family: str, folder: Path) -> list[str]:
    """The command, for a few steps and with an evaluation."""
    data = folder / ("pairs/train.en" if family in TRANSLATORS else "text.txt")
    settings = ["prepare.heldout=0.1", "tokenizer.vocab=400"]
    words = ["pretrain", f"{family}_tiny", "--data", str(data), "--out", str(folder / family)]
    if family not in TRANSLATORS:
        words += ["--documents", "paragraph"]
    if family not in OFFLINE:
        settings += ["train.batch=4", "train.evaluations=1", "train.heldout_rows=4"]
        words += ["--steps", "4"]  # of which the last one is in the last stage
    return [*words, *(word for setting in settings for word in ("--set", setting))]


def test_capabilities_name_known_families() -> None:
    assert all(families <= NAMES for families in CAN.values())


@pytest.mark.product(only=("bert", "gpt2"))
@pytest.mark.parametrize("family", sorted(NAMES))
def test_every_verb_accepts_or_refuses_a_tiny_recipe(
    family: str,
    places: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    if family not in DRAWN:
        empty = figures.Rendered(b'<svg viewBox="0 0 1 1"></svg>')
        monkeypatch.setattr(figures, "render", lambda *_: empty)
    assert run(pretrain(family, places)) == 0, capsys.readouterr().err
    log = (places / family / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
    losses = [r["loss"] for r in map(json.loads, log) if r["kind"] == "heldout"]
    assert losses
    assert all(map(math.isfinite, losses))
    capsys.readouterr()
    for what, words in commands(family, places).items():
        status, captured = run(words), capsys.readouterr()
        assert status == (0 if family in CAN[what] else 2), f"{what}: {captured.err}"
        assert "Traceback" not in captured.err
        if status:
            assert captured.out == ""
            assert [line for line in captured.err.splitlines() if line.startswith("foreword: ")]
