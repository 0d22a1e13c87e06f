"""Cleaning from files to files: what is left, what is said, and how it resumes."""

from __future__ import annotations

import os
import signal
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("datatrove")
pytest.importorskip("py3langid")

import foreword
from foreword.cleaning.recipe import load_cleaning
from foreword.cleaning.run import tasks_of
from foreword.data.read_documents import read_documents
from foreword.disk import stored
from foreword.errors import UserError
from tests import damage as damages
from tests import forking
from tests.cleaning.texts import korean, near, prose, write
from tests.data.archives import record

ARTICLES = 40


@pytest.fixture(scope="module")
def planted(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Forty articles, ten nearly and five exactly repeated, one too short, three in Korean."""
    articles = [prose(seed) for seed in range(ARTICLES)]
    texts = [*articles, *map(near, articles[:10]), *articles[10:15], "Too short.", *[""] * 2]
    return write(
        tmp_path_factory.mktemp("planted") / "planted.jsonl", [*texts, *map(korean, range(3))]
    )


@pytest.fixture(scope="module")
def cleaned(planted: Path, tmp_path_factory: pytest.TempPathFactory) -> Any:
    out = tmp_path_factory.mktemp("cleaned") / "out"
    return foreword.clean(planted, out, workers=1, settings=["clean.part=3000"], progress=False)


def texts_in(folder: Path) -> list[str]:
    return [document.text for document in read_documents([folder])]


def test_planted_duplicates_are_found_and_nothing_else(cleaned: Any) -> None:
    steps = {step["kind"]: step for step in cleaned.report["steps"]}
    dropped = {
        kind: sum(d["documents"] for d in s["dropped"].values()) for kind, s in steps.items()
    }
    assert dropped["exact_duplicates"] == 5
    assert dropped["near_duplicates"] == 10
    assert steps["gopher_quality"]["dropped"]["short doc"]["documents"] == 1
    left = texts_in(cleaned.texts)
    originals = {prose(seed) for seed in range(ARTICLES)}
    assert len(left) == ARTICLES + 3
    assert sum(text in originals or text in set(map(near, originals)) for text in left) == ARTICLES


@pytest.mark.parametrize("damage", damages.ANY)
def test_damaged_text_is_not_read_in_silence(
    damage: str, planted: Path, cleaned: Any, tmp_path: Path
) -> None:
    out = damages.copied(cleaned.texts.parent, tmp_path / "out")
    (file,) = (out / "texts").iterdir()
    damages.damage(file, damage)
    with pytest.raises(UserError, match=f"damaged: texts/{file.name} "):
        texts_in(out / "texts")
    if damage not in ("flipped", "zeros"):  # of which only reading can tell
        with pytest.raises(
            UserError, match=f"{file.name} is missing or cut short; delete .* again"
        ):
            foreword.clean(planted, out, settings=["clean.part=3000"], progress=False)


def test_amounts_add_up_from_step_to_step(cleaned: Any) -> None:
    steps = cleaned.report["steps"]
    assert cleaned.report["read"]["documents"] == ARTICLES + 19
    assert cleaned.report["read"]["empty_documents"] == 2
    for step, following in zip(steps, [*steps[1:], {"read": cleaned.report["kept"]}], strict=True):
        assert step["kept"] == following["read"]
        for unit in ("documents", "bytes", "words"):
            lost = sum(size[unit] for size in step["dropped"].values())
            assert step["read"][unit] == step["kept"][unit] + lost


def test_other_languages_pass_english_rules_and_it_is_said(cleaned: Any) -> None:
    assert {*map(korean, range(3))} < {*texts_in(cleaned.texts)}
    assert "gopher quality judges en alone; passed without being judged: ko 3" in cleaned.notes
    assert "ko" in repr(cleaned) or "not judged" in repr(cleaned)


def test_a_language_that_a_rule_drops_is_noted(tmp_path: Path) -> None:
    texts = [korean(seed) for seed in range(20)]
    settings = {"clean.steps[1].languages": []}
    result = foreword.clean(
        texts=texts, out=tmp_path / "out", settings=settings, workers=1, progress=False
    )
    assert "gopher quality dropped 100.0 % of 20 documents in ko" in result.notes
    assert "nothing is left: every document was dropped" in result.notes
    assert not list(result.texts.iterdir())


def test_a_large_group_of_duplicates_is_noted(cleaned: Any) -> None:
    *others, step = cleaned.report["steps"]
    assert step["largest_group"] == 2 and not any("group" in note for note in cleaned.notes)
    report = {**cleaned.report, "steps": [*others, {**step, "largest_group": 20}]}
    result = replace(cleaned, report=report)
    assert "kept one text of a group of 20, 37.7 % of all" in " ".join(result.notes)


def test_the_page_shows_samples_of_what_was_dropped(cleaned: Any) -> None:
    page = cleaned.page.read_text("utf-8")
    for text in (
        "Too short.",
        "short doc",
        "Groups of duplicates",
        "kept of duplicates",
        "Copies that these settings find",
    ):
        assert text in page
    for step in (0, 3):
        groups: dict[str, list[str]] = {}
        for sample in cleaned.report["steps"][step]["samples"]:
            groups.setdefault(sample["key"], []).append(sample["note"])
        notes = [sorted(notes) for notes in groups.values()]
        assert notes == [["dropped", "kept of duplicates"]] * 4


def test_cleaned_text_is_reused_and_other_work_refused(cleaned: Any, planted: Path) -> None:
    options: Any = {"workers": 1, "progress": False}
    again = foreword.clean(planted, cleaned.out, settings=["clean.part=3000"], **options)
    assert again.reused and again.report["kept"] == cleaned.report["kept"]
    with pytest.raises(UserError, match="other sources or by other steps"):
        foreword.clean(planted, cleaned.out, recipe="c4", **options)
    with pytest.raises(UserError, match="is not empty"):
        foreword.clean(planted, planted.parent, **options)


def test_lines_are_changed_by_c4_and_counted(tmp_path: Path) -> None:
    texts = [f"Home | About\n{prose(n)}\n[edit]" for n in range(3)]
    asks = f"{prose(3)}\nMail jane@mail.example.org &amp; accept all cookies, dear."
    lines = write(tmp_path / "a.jsonl", [*texts, asks])
    result = foreword.clean(lines, tmp_path / "out", recipe="c4", workers=1, progress=False)
    step = result.report["steps"][2]
    assert texts_in(result.texts) == [*(prose(n) for n in range(3)), asks]
    assert result.notes == [
        "texts left that look like HTML: 1 (the step html treats them)",
        "texts left that ask about cookies: 1",
        "texts left that contain e-mail addresses: 1 (the step personal treats them)",
    ]
    assert step["changed"] == 3
    assert step["details"]["lines removed: no terminal punc"] == 6
    assert "Home | About" in result.page.read_text("utf-8")


def test_files_are_shared_by_tasks_whatever_the_processes(tmp_path: Path) -> None:
    files = [tmp_path / f"{n}.txt" for n in range(5)]
    for file, size in zip(files, (10, 10, 10, 45, 1000), strict=True):
        file.write_bytes(b"a" * size)
    tasks = [[(part.file.name, part.number, part.of) for part in t] for t in tasks_of(files, 25)]
    assert tasks[:2] == [[("0.txt", 0, 1), ("1.txt", 0, 1)], [("2.txt", 0, 1)]]
    assert tasks[2:4] == [[("3.txt", 0, 2)], [("3.txt", 1, 2)]]
    assert len(tasks) == 4 + 16


@pytest.mark.full
def test_parquet_is_text_too(planted: Path, tmp_path: Path) -> None:
    settings = {"clean.format": "parquet", "clean.steps[0]": "language", "clean.samples": 0}
    result = foreword.clean(planted, tmp_path / "out", settings=settings, workers=1, progress=False)
    assert [file.suffix for file in result.texts.iterdir()] == [".parquet"]
    assert len(texts_in(result.texts)) == result.report["kept"]["documents"]
    assert not any(step["samples"] for step in result.report["steps"])


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--recipe", "gophre"], "did you mean 'gopher'"),
        (["--set", "clean.steps[1].min_wrods=3"], "did you mean 'min_words'"),
        (["--set", "clean.steps[1].min_words=-3"], "min_words: must be a whole number"),
        (["--set", "clean.steps[9].min_words=3"], "there are 4, counted from 0"),
        (["--set", "clean.steps[0].kind=decontaminate"], "clean.steps[0].files: required"),
        (["--field", "body"], "no field 'body'"),
        (["--target", "de"], "parallel text"),
    ],
)
def test_a_mistake_is_one_line(
    words: list[str], message: str, planted: Path, tmp_path: Path, capsys: Any
) -> None:
    from foreword.cli.main import run

    out = tmp_path / "out"
    assert run(["clean", str(planted), "--out", str(out), "--workers", "1", "--quiet", *words]) == 2
    error = capsys.readouterr().err
    assert message in error and error.count("\n") == 1


def test_a_missing_package_is_named(planted: Path, tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.setattr("foreword.cleaning.run.PACKAGES", ("datatrove", "py3langidd"))
    with pytest.raises(UserError, match=r"requires py3langidd: pip install 'foreword\[data\]'"):
        foreword.clean(planted, tmp_path / "out", progress=False)
    assert not (tmp_path / "out").exists()


def result_of(out: Path) -> dict[str, bytes]:
    return {str(f.relative_to(out)): f.read_bytes() for f in sorted(out.rglob("*")) if f.is_file()}


@pytest.mark.full
@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_cleaning_killed_at_any_moment_ends_with_the_same_bytes(
    planted: Path, cleaned: Any, tmp_path: Path
) -> None:
    out, output = tmp_path / "out", tmp_path / "output"
    words = ["clean", str(planted), "--out", str(out), "--workers", "1", "--quiet"]
    words += ["--set", "clean.part=3000"]
    work = out / ".work"
    for reached in ("read/00002.json", "step-00/found", "step-03/texts", "step-03/removed"):
        command = forking.start_into(words, output)
        forking.wait_until(lambda name=reached: (work / name).exists(), 60)  # type: ignore[misc]
        assert command.end() == -signal.SIGKILL, output.read_text()
    assert forking.run(words, output) == 0, output.read_text()
    assert result_of(out) == result_of(cleaned.out)
    assert stored.read(out / "clean.json")["kept"] == cleaned.report["kept"]


def test_files_without_text_are_refused_in_one_line(tmp_path: Path) -> None:
    for name in ("a.txt", "b.jsonl"):
        (tmp_path / name).touch()
    assert len(tasks_of(sorted(tmp_path.iterdir()), 1000)) == 1
    with pytest.raises(UserError, match="contains no text"):
        foreword.clean(tmp_path, tmp_path.parent / "cleaned", workers=1, progress=False)


def test_a_result_inside_its_source_is_refused(tmp_path: Path) -> None:
    write(tmp_path / "a.jsonl", [prose(0)])
    with pytest.raises(UserError, match="read again as part of"):
        foreword.clean(tmp_path, tmp_path / "out", workers=1, progress=False)
    assert not (tmp_path / "out").exists()


def test_a_recipe_extends_a_shipped_one_of_cleaning(tmp_path: Path) -> None:
    (tmp_path / "mine.toml").write_text('extends = "gopher"\n[clean]\nsamples = 1\n')
    recipe = load_cleaning(str(tmp_path / "mine.toml"))
    assert recipe.clean.samples == 1
    assert recipe.clean.steps == load_cleaning("gopher").clean.steps


def test_archives_are_cleaned_by_one_task_each_and_left_pages_noted(tmp_path: Path) -> None:
    pytest.importorskip("resiliparse")
    story = "".join(f"<p>{prose(n)}</p>" for n in range(3))
    (tmp_path / "a.warc").write_bytes(
        b"".join([record(story), record(story), record("x", type_="image/png")])
    )
    result = foreword.clean(
        tmp_path / "a.warc",
        tmp_path / "out",
        settings=["clean.part=100", "clean.steps[1].min_words=1"],
        workers=1,
        progress=False,
    )
    assert (result.report["read"]["documents"], result.report["kept"]["documents"]) == (2, 1)
    assert "pages of web archives were not read: 1 of type image/png" in result.notes
