"""The book: what its pages show exists, its commands run, and the site builds without warnings."""

from __future__ import annotations

import functools
import importlib.util
import json
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from docutils import nodes

from foreword.cli.main import run
from foreword.settings import config

ROOT = Path(__file__).resolve().parents[1]
DOCS = ROOT / "docs"
CHAPTERS = sorted((DOCS / "book").glob("[0-9]*.md"))
PARTS = ("The smallest run", "What it gave", "What would refute it", "The code", "Exercises")
ANSWERS = 3


@functools.cache
def extension() -> Any:
    """Return what the book adds to Sphinx."""
    spec = importlib.util.spec_from_file_location("book", DOCS / "_ext" / "book.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def directives(name: str) -> list[str]:
    """Return what all chapters give a directive."""
    text = "".join(chapter.read_text(encoding="utf-8") for chapter in CHAPTERS)
    return re.findall(rf"^```\{{{name}\}} *(\S*)$", text, re.M)


@pytest.mark.parametrize("chapter", CHAPTERS, ids=lambda chapter: chapter.stem)
def test_a_chapter_has_its_parts(chapter: Path) -> None:
    text = chapter.read_text(encoding="utf-8")
    for part in PARTS:
        assert f"\n## {part}\n" in text
    assert text.count("```{solution}") >= ANSWERS
    for equation in re.findall(r"\$\$(.+?)\$\$", text, re.S):
        written = extension().mathml(nodes.math_block("", equation.strip()), is_block=True)
        assert written.startswith("<"), equation


def test_an_accented_letter_has_its_index_beside_it() -> None:
    written = extension().mathml(nodes.math("", r"\tilde x_t \text{ of }"), is_block=False)
    assert re.search(r"msub>\s*<\S*mover accent=.true.>.*mover><\S*mi>t<", written)
    assert "\N{NO-BREAK SPACE}of" in written


def test_claims_and_pictures_of_the_chapters_exist() -> None:
    assert set(directives("claim")) <= set(config.CLAIMS.names())
    assert all(map(extension().picture_file, directives("picture")))


def test_a_claim_shows_its_verdict_or_that_it_was_not_run(tmp_path: Path) -> None:
    book, results = extension(), tmp_path / "claims.csv"
    before = book.claim_html(book.claim_row("lstm_beats_rnn", results))
    assert "RNN less LSTM is above 0.01" in before
    assert "not run yet" in before
    columns = "claim,verdict,sentence,source,predicted,measured,number,low,high,seeds"
    row = 'lstm_beats_rnn,does not hold,A & B,C,D,"RNN 1.8 ± 0.1",0.0051,0.001,0.009,3'
    results.write_text(f"{columns}\n{row}\n", encoding="utf-8")
    after = book.claim_html(book.claim_row("lstm_beats_rnn", results))
    for shown in ("does-not-hold", "A &amp; B", "RNN 1.8 ± 0.1", "0.0051", "0.001 to 0.009"):
        assert shown in after


SMALLER = {  # in the words of a command
    r"\b(\w+)_mini\b": lambda found: smaller(found[1]),
    r"^pretrain (low_resource|\w+_mini)\b.*": r"\g<0> --set train.batch=2",
    r"tokenizer\.vocab=\d+|--vocab \d+": lambda found: re.sub(r"\d+", "600", found[0]),
    r"--flops \S+": "--steps 2",
    r"^(pretrain word2vec.*)--epochs \d+": r"\1--epochs 1",
    r"^(pretrain (?!word2vec).*)--epochs \d+": r"\1--steps 2",
    r"--epochs \d+": "--epochs 1",
    r"--scale \S+": "--scale 1e-7",
    r"--resamples \d+": "--resamples 5",
    r"^probe .*cloze.*": r"\g<0> --set limit=8",
    r"^probe .*memorisation$": r"\g<0> --set 'prefixes=[16]' --set passages=20",
    r"limit=50": "limit=2",
    r"--examples \d+": "--examples 8",
    r"canaries=\S+": r"\g<0> --set candidates=8",
    r"^tune ": "tune --epochs 1 --seeds 1 --set tune.calibrate=false ",
    r"^(claims run attention_is.*)": r"\1 --dry-run",
}
SKIPPED = (
    "claims table runs/length",  # of a dry run
    "scale run",  # no budget is small enough
    "plan --record",
    "serve",
)


def smaller(family: str) -> str:
    """Return the tiny recipe of a family, or the small one."""
    tiny = f"{family}_tiny"
    return tiny if tiny in config.RECIPES.names() else f"{family}_mini"


def write_texts(folder: Path) -> None:
    """Write what `make demo` writes, smaller."""
    folder.mkdir(parents=True)
    sentence = "The function returns a matrix of {} rows. "
    texts = ["".join(sentence.format(n * m) for m in range(20)) for n in range(600)]
    lines = [json.dumps({"text": text, "package": "a"}) for text in texts]
    (folder / "documents.jsonl").write_text("\n".join(lines), encoding="utf-8")
    rows = [json.dumps({"text": f"an array {n}", "label": "ab"[n % 2]}) for n in range(16)]
    for name in ("train", "test"):
        (folder / f"{name}.jsonl").write_text("\n".join(rows), encoding="utf-8")


def steps(chapter: Path) -> list[tuple[str, str]]:
    """Return the commands of a chapter at a tiny size and its Python, ("sh" or "python", text)."""
    text = chapter.read_text(encoding="utf-8").replace("\\\n", " ")
    found = []
    for language, block in re.findall(r"^```(sh|python)\n(.*?)^```", text, re.M | re.S):
        lines = [block] if language == "python" else block.splitlines()
        for line in lines:
            line = line.removeprefix("foreword ") if language == "sh" else line
            if language == "sh":
                for pattern, small in SMALLER.items():
                    line = re.sub(pattern, small, line)  # type: ignore[arg-type]
            found.append((language, line))
    return [one for one in found if not one[1].startswith(SKIPPED)]


@pytest.mark.full
@pytest.mark.parametrize("chapter", CHAPTERS, ids=lambda chapter: chapter.stem)
def test_the_commands_of_a_chapter_run(
    chapter: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    write_texts(tmp_path / "demo" / "text")
    shutil.copytree(DOCS / "results", tmp_path / "docs" / "results")  # laws are written there
    parts = steps(chapter)
    if any("demo/run" in part for _, part in parts):
        demo = "modern_encoder_tiny --data demo/text/documents.jsonl --steps 2 --out demo/run"
        assert run(["pretrain", *demo.split(), "--set", "tokenizer.vocab=600"]) == 0
    for language, part in parts:
        if language == "python":
            exec(part, {})  # noqa: S102
        else:
            assert run(shlex.split(part)) == 0, f"{part}\n{capsys.readouterr().err}"
    assert parts


@pytest.mark.full
def test_the_site_builds_without_warnings(tmp_path: Path) -> None:
    build = [sys.executable, "-m", "sphinx", "-q", "-W", "--keep-going", str(DOCS), str(tmp_path)]
    done = subprocess.run(build, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    page = (tmp_path / "book" / "01_ngrams.html").read_text(encoding="utf-8")
    for shown in ("<math", "<svg", '<details class="solution">', "source/foreword/ngrams/"):
        assert shown in page
    for link in re.findall(r'<(?:script|link|img)[^>]* (?:src|href)="([^"]+)"', page):
        assert "://" not in link  # it works without a network
