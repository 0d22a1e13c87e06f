"""Every command of docs/guides/ runs, at a tiny size."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path

import pytest

import foreword
from foreword.cli.main import run
from tests import shelf

GUIDES = Path(__file__).resolve().parents[1] / "docs" / "guides"
NAMES = sorted(file.stem for file in GUIDES.glob("*.md") if file.stem != "index")
TINY = {
    "encoder": "modern_encoder_tiny",
    "low_resource_encoder": "modern_encoder_tiny",
    "encoder_decoder": "t5_tiny",
    "bert_base": "bert_tiny",
    "roberta_base": "roberta_tiny",
    "ngram_5": "ngram_tiny",
}
SMALL = ["--set", "tokenizer.vocab=400", "--set", "packing.length=16"]
TUNE = {"--epochs": "1", "--seeds": "1", "--folds": "2"}
COUNTS = ["--set", 'tune.strategy.candidates=["word_counts"]']
GRID = """
[[cells]]
recipe = "gpt2_tiny"
set = { tokenizer = { vocab = 400 }, packing = { length = 16 } }
"""


def words_of(command: str) -> list[str]:
    """Return the arguments of a command line, at a tiny size and without Ray."""
    # Cleaning leaves nothing of such text.
    words = shlex.split(command.replace("cleaned/texts", "notes"))[1:]
    verb = words[0]
    if "--ray" in words:
        del words[words.index("--ray") : words.index("--ray") + 2]
    if verb == "pretrain":
        words[1] = TINY.get(words[1], words[1])
        for option in ("--hours", "--steps"):
            if option in words:
                words[words.index(option) : words.index(option) + 2] = ["--steps", "2"]
        words += [] if "--from" in words or "--tokenizer" in words else SMALL
    if verb == "check" and "--gpus" not in words:
        words[1] = TINY[words[1]]
        words += SMALL
    if verb == "tune":
        for option, value in TUNE.items():
            if option in words:
                words[words.index(option) + 1] = value
            elif option != "--folds" and not (option == "--seeds" and "--folds" in words):
                words += [option, value]
        if "--examples" in words:
            words[words.index("--examples") + 1] = "6"
        chosen = {"--strategy", "--compare", "text_to_text"}
        words += [] if chosen & set(words) else COUNTS
        words += ["--set", "adapt.train.steps=2"] if "--unlabelled" in words else []
    if verb == "compare":
        words[words.index("--flops") + 1] = "1e9"
    if "--vocab" in words:
        words[words.index("--vocab") + 1] = "300"
    return words


def make(folder: Path) -> None:
    """Write texts, labels and models as the guides have them."""
    folder.mkdir()
    lines = [f"Paris is the capital number {n}. The cat sat on mat {n + 1}." for n in range(150)]
    for name in ("notes", "texts", "books", "articles"):
        (folder / name).mkdir()
        (folder / name / "a.txt").write_text("\n\n".join(lines), encoding="utf-8")
    rows = [f"{kind} film number {n},{kind}" for n in range(6) for kind in ("good", "bad")]
    for name in ("train", "dev", "labels", "test"):
        text = "\n".join(["text,label", *(f"{name} a {row}" for row in rows)])
        (folder / f"{name}.csv").write_text(text + "\n", encoding="utf-8")
    more = "\n".join(["text", *(f"a film of {n} cats" for n in range(200))])
    (folder / "more.csv").write_text(more + "\n", encoding="utf-8")
    for name in ("train", "dev", "new"):
        words = [("Ada", "NOUN"), ("wrote", "VERB"), (f"{name}s", "NOUN")]
        named = ["Ada B-PER", "wrote O", f"{name}s O"]
        (folder / f"{name}.conll").write_text(("\n".join(named) + "\n\n") * 6, encoding="utf-8")
        tree = [f"{n}\t{w}\t_\t{t}\t_\t_\t_\t_\t_\t_" for n, (w, t) in enumerate(words, 1)]
        (folder / f"{name}.conllu").write_text(("\n".join(tree) + "\n\n") * 6, encoding="utf-8")
    for name in ("pairs", "pairs_dev"):
        pairs = [{"text": f"The {name} {n} is long.", "label": f"long {n}"} for n in range(8)]
        text = "".join(json.dumps(pair) + "\n" for pair in pairs)
        (folder / f"{name}.jsonl").write_text(text, encoding="utf-8")
    (folder / "grid.toml").write_text(GRID, encoding="utf-8")
    books = foreword.pretrain(
        "roberta_tiny",
        str(folder / "books"),
        folder / "runs" / "books",
        steps=2,
        settings=SMALL[1::2],
    )
    for name in ("published_encoder", "my_model"):
        foreword.export(books, folder / name)


@pytest.mark.full
@pytest.mark.parametrize("name", NAMES)
def test_the_commands_of_a_guide_run(
    name: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    shelf.copied("guides", make, tmp_path)
    monkeypatch.chdir(tmp_path)
    text = (GUIDES / f"{name}.md").read_text(encoding="utf-8")
    done = 0
    for language, block in re.findall(r"^```(sh|python)\n(.*?)^```", text, re.M | re.S):
        if language == "python":
            exec(compile(block, name, "exec"), {})  # noqa: S102
            continue
        for command in block.splitlines():
            assert run(words_of(command)) == 0, f"{command}\n{capsys.readouterr().err}"
            done += 1
    assert done


def test_the_index_names_every_guide_and_each_is_short() -> None:
    index = (GUIDES / "index.md").read_text(encoding="utf-8")
    for name in NAMES:
        assert f"]({name}.md)" in index
        assert len((GUIDES / f"{name}.md").read_text(encoding="utf-8").splitlines()) <= 75
