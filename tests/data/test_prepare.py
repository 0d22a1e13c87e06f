from __future__ import annotations

import errno
import gzip
import hashlib
import json
import os
import random
import signal
from collections import Counter
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from foreword.data import shard_builder, tokenize_documents
from foreword.data.holdout import SplitFiles
from foreword.data.packing.stream import Stream
from foreword.data.prepared_text import PreparedText
from foreword.data.shards import Shards
from foreword.data.text_files import ReadSettings
from foreword.data.write_shards import PrepareSettings, prepare
from foreword.errors import UserError
from foreword.text import sentences, utf8
from foreword.text.tokenizer import Tokenizer
from foreword.text.tokenizers.char import Char
from foreword.text.tokenizers.word import Word
from tests import forking

LETTERS = "abcdefghijklmnopqrstuvwxyz"


def make_texts(count: int, seed: int = 0) -> list[str]:
    """Texts of a few sentences each, all different."""
    draw = random.Random(seed)

    def sentence() -> str:
        words = ("".join(draw.choices(LETTERS, k=draw.randint(2, 7))) for _ in range(8))
        return " ".join(words).capitalize() + "."

    return [" ".join(sentence() for _ in range(draw.randint(1, 6))) for _ in range(count)]


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return Char().train([*make_texts(50), LETTERS.upper()])


def write(path: Path, texts: list[str]) -> Path:
    path.write_text("".join(json.dumps({"text": text}) + "\n" for text in texts), encoding="utf-8")
    return path


def decoded(shards: Shards, tokenizer: Tokenizer) -> list[str]:
    starts = shards.document_starts
    return [tokenizer.decode(shards.tokens[a:b].tolist()) for a, b in pairwise(starts)]


def run(
    tmp_path: Path, texts: list[str], tokenizer: Tokenizer, out: str = "out", **settings: Any
) -> PreparedText:
    path = write(tmp_path / "a.jsonl", texts)
    return prepare(SplitFiles.find([path]), tokenizer, tmp_path / out, PrepareSettings(**settings))


def fails(tmp_path: Path, texts: list[str], tokenizer: Tokenizer, **settings: Any) -> str:
    with pytest.raises(UserError) as caught:
        run(tmp_path, texts, tokenizer, **settings)
    assert not (tmp_path / "out" / "prepared.json").exists()
    assert not (tmp_path / "out" / ".part").exists()
    return str(caught.value)


def contents(folder: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


# -- what is written ---------------------------------------------------------------------------


@pytest.mark.parametrize("in_sentences", [True, False])
def test_shards_decode_to_the_text(
    tmp_path: Path, tokenizer: Tokenizer, in_sentences: bool
) -> None:
    texts = make_texts(400)
    prepared = run(tmp_path, texts, tokenizer, heldout=0.1, sentences=in_sentences)
    train, heldout = decoded(prepared.train, tokenizer), decoded(prepared.heldout, tokenizer)
    assert 15 < len(heldout) < 80
    assert [text for text in texts if text in set(train)] == train, "the order stays"
    assert sorted(train + heldout) == sorted(texts)
    for name, kept, shards in (
        ("train", train, prepared.train),
        ("heldout", heldout, prepared.heldout),
    ):
        counts = prepared.counts[name]
        assert counts.documents == len(kept) == len(shards)
        assert counts.bytes == sum(len(text.encode()) for text in kept)
        assert counts.tokens == shards.tokens_total == sum(map(len, kept))
        pieces = [sentences.split(text) if in_sentences else [text] for text in kept]
        assert counts.sequences == len(shards.sequence_lengths) == sum(map(len, pieces))
    counts = prepared.counts["heldout"]
    assert prepared.bytes_per_token() == 1.0
    assert prepared.bytes_per_token(ends=True) == counts.bytes / (counts.tokens + len(heldout))
    assert Tokenizer.load(prepared.tokenizer).fingerprint == tokenizer.fingerprint


@pytest.mark.parametrize("in_sentences", [True, False])
def test_a_long_document_in_parts_has_the_tokens_of_the_whole(
    tmp_path: Path, tokenizer: Tokenizer, monkeypatch: pytest.MonkeyPatch, in_sentences: bool
) -> None:
    texts = [" ".join(make_texts(200)), "한글. And more. " * 100, *make_texts(5)]
    settings = {"heldout": 0, "sentences": in_sentences, "workers": 1}
    whole = run(tmp_path, texts, tokenizer, "whole", **settings)
    monkeypatch.setattr(utf8, "_BLOCK", 101)
    monkeypatch.setattr(tokenize_documents, "_PART", 400)
    monkeypatch.setattr(tokenize_documents, "_TEXTS", 7)
    parts = run(tmp_path, texts, tokenizer, "parts", **settings)
    assert contents(parts.folder) == contents(whole.folder)
    assert (len(whole.train.sequence_lengths) > len(texts)) is in_sentences


def test_unknown_tokens_are_counted(tmp_path: Path, tokenizer: Tokenizer) -> None:
    prepared = run(tmp_path, ["한글 text", "and more text"], tokenizer, heldout=0)
    assert prepared.counts["train"].unknown == 2


def test_shards_do_not_depend_on_the_workers(
    tmp_path: Path, tokenizer: Tokenizer, monkeypatch: pytest.MonkeyPatch
) -> None:
    texts = make_texts(300)
    here = run(tmp_path, texts, tokenizer, "here", heldout=0.1)
    monkeypatch.setattr(shard_builder, "_SMALL", 0)
    monkeypatch.setattr(shard_builder, "_BATCH", 2000)
    there = run(tmp_path, texts, tokenizer, "there", heldout=0.1, workers=2)
    assert contents(here.folder) == contents(there.folder)
    monkeypatch.setattr("foreword.data.tokenize_documents._LONG", 100)
    mixed = run(tmp_path, texts, tokenizer, "mixed", heldout=0.1, workers=2)
    assert contents(mixed.folder) == contents(here.folder)


def test_progress_reaches_the_end(tmp_path: Path, tokenizer: Tokenizer) -> None:
    path = write(tmp_path / "a.jsonl", make_texts(2000))
    seen: list[tuple[int, int]] = []
    prepare(
        SplitFiles.find([path]), tokenizer, tmp_path / "out", progress=lambda *now: seen.append(now)
    )
    assert seen == sorted(seen)
    assert len(seen) > 1
    assert seen[-1] == (path.stat().st_size,) * 2


# -- what is held out --------------------------------------------------------------------------


def test_the_hash_of_the_text_is_that_of_its_documents(
    tmp_path: Path, tokenizer: Tokenizer
) -> None:
    texts = make_texts(40)
    expected = hashlib.blake2b("".join(f"{text}\0" for text in texts).encode(), digest_size=16)
    plain = run(tmp_path, texts, tokenizer)
    assert plain.manifest["text_blake2b"] == expected.hexdigest()
    # Of other files, another tokenizer and another split with the same documents.
    file = tmp_path / "text.jsonl.gz"
    file.write_bytes(gzip.compress(write(tmp_path / "text.jsonl", texts).read_bytes()))
    words = Word().train(texts)
    settings = PrepareSettings(heldout=0.3)
    other = prepare(SplitFiles.find([str(file)]), words, tmp_path / "other", settings)
    assert other.manifest["text_blake2b"] == expected.hexdigest()
    assert other.fingerprint != plain.fingerprint
    less = run(tmp_path, texts[1:], tokenizer, "less")
    assert less.manifest["text_blake2b"] != expected.hexdigest()


def test_copies_land_on_the_same_side(tmp_path: Path, tokenizer: Tokenizer) -> None:
    texts = make_texts(200)
    prepared = run(tmp_path, texts + texts[::-1], tokenizer, heldout=0.2)
    train, heldout = decoded(prepared.train, tokenizer), decoded(prepared.heldout, tokenizer)
    assert not set(train) & set(heldout)
    assert len(heldout) == 2 * len(set(heldout))
    more = run(tmp_path, make_texts(50, seed=1) + texts, tokenizer, heldout=0.2)
    assert set(heldout) <= set(decoded(more.heldout, tokenizer)), "more text moves nothing"


@pytest.mark.parametrize("in_sentences", [True, False])
def test_at_least_one_of_a_few_documents_is_held_out(
    tmp_path: Path, tokenizer: Tokenizer, in_sentences: bool
) -> None:
    texts = make_texts(40)
    prepared = run(tmp_path, texts, tokenizer, heldout=1e-9, sentences=in_sentences)
    (held,) = decoded(prepared.heldout, tokenizer)
    assert decoded(prepared.train, tokenizer) == [text for text in texts if text != held]
    again = run(tmp_path, [*texts[::-1], held], tokenizer, heldout=1e-9, sentences=in_sentences)
    assert decoded(again.heldout, tokenizer) == [held, held]
    assert again.counts["heldout"].bytes == 2 * len(held)


@pytest.mark.product(few=4)
@pytest.mark.parametrize("in_sentences", [True, False])
@pytest.mark.parametrize("copies", [1, 2])
@pytest.mark.parametrize("share", [1e-9, 0.1, 0.999999])
def test_the_end_of_a_single_document_is_held_out(
    tmp_path: Path, tokenizer: Tokenizer, in_sentences: bool, copies: int, share: float
) -> None:
    text = " ".join(make_texts(30)) + " 한"
    prepared = run(tmp_path, [text] * copies, tokenizer, heldout=share, sentences=in_sentences)
    known = text.replace("한", "")
    kept, held = decoded(prepared.train, tokenizer), decoded(prepared.heldout, tokenizer)
    assert len(kept) == len(held) == copies
    assert kept[0] + held[0] == known
    assert len(sentences.split(held[0])) >= 1
    assert (0.1 <= len(held[0]) / len(known) < 0.13) if share == 0.1 else held[0]
    counts = prepared.counts
    assert counts["train"].bytes + counts["heldout"].bytes == copies * len(text.encode())
    assert (counts["train"].unknown, counts["heldout"].unknown) == (0, copies)
    assert counts["heldout"].tokens == prepared.heldout.tokens_total
    if not in_sentences:
        assert len(prepared.train.sequence_lengths) == copies


def test_a_long_document_is_not_held_out_whole(tmp_path: Path, tokenizer: Tokenizer) -> None:
    texts = [" ".join(make_texts(20, seed)) for seed in range(3)]
    prepared = run(tmp_path, texts, tokenizer, heldout=0.01)
    assert len(prepared.train) == 3
    assert 0.005 < prepared.counts["heldout"].tokens / sum(map(len, texts)) < 0.05


def test_a_single_sentence_cannot_be_split(tmp_path: Path, tokenizer: Tokenizer) -> None:
    assert "--heldout 0" in fails(tmp_path, ["a single sentence"], tokenizer)
    prepared = run(tmp_path, ["a single sentence"], tokenizer, heldout=0)
    assert len(prepared.heldout) == 0
    assert decoded(prepared.train, tokenizer) == ["a single sentence"]
    assert PreparedText.load(prepared.folder).counts == prepared.counts


def test_given_heldout_text_is_held_out(tmp_path: Path, tokenizer: Tokenizer) -> None:
    texts, apart = make_texts(30), make_texts(10, seed=1)
    data = write(tmp_path / "a.jsonl", texts)
    held = write(tmp_path / "b.jsonl", [*apart, texts[0]])
    out = tmp_path / "out"
    prepared = prepare(
        SplitFiles.find([data], heldout=[held]), tokenizer, out, PrepareSettings(heldout=0.3)
    )
    assert decoded(prepared.train, tokenizer) == texts, "all of it"
    assert decoded(prepared.heldout, tokenizer) == [*apart, texts[0]]
    assert prepared.counts["heldout"].documents == 11
    again = prepare(
        SplitFiles.find([data], heldout=[held]), tokenizer, out, PrepareSettings(heldout=0.1)
    )
    assert again.reused, "the share has no meaning then"
    fingerprints = {
        prepared.fingerprint,
        prepare(SplitFiles.find([data]), tokenizer, out).fingerprint,
    }
    write(held, apart)
    changed = prepare(SplitFiles.find([data], heldout=[held]), tokenizer, out)
    assert len({*fingerprints, changed.fingerprint}) == 3
    assert changed.manifest["text"] == prepared.manifest["text"]


@pytest.mark.parametrize("in_sentences", [True, False])
def test_blank_lines_are_documents_with_blank_lines(tmp_path: Path, in_sentences: bool) -> None:
    """As published figures of WikiText count them: an end to each line."""
    text, held = tmp_path / "wiki.train.tokens", tmp_path / "wiki.valid.tokens"
    text.write_text(" \n = Title = \n \n one two \n")
    held.write_text("\n three\n")
    read = ReadSettings(documents="line", blank_lines=True)
    settings = PrepareSettings(sentences=in_sentences)
    words = Word(split="whitespace", min_count=1).train(["= Title = one two three"])
    prepared = prepare(SplitFiles.find([text], read, [held]), words, tmp_path / "out", settings)
    assert decoded(prepared.train, words) == ["", "= Title =", "", "one two"]
    assert decoded(prepared.heldout, words) == ["", "three"]
    assert prepared.manifest["read"]["counts"]["empty_documents"] == 0
    packed = Stream(3).open(prepared.train, words.vocab, 1, 1)
    assert packed.tokens_per_epoch == 5 + 4
    assert packed.rows(np.arange(1)).ids[0, 0] == words.vocab.id("</s>")
    counts = prepare(SplitFiles.find([text], read), words, tmp_path / "by_chance", settings).counts
    assert counts["heldout"].tokens > 0, "a blank line alone holds nothing out"
    with pytest.raises(ValueError, match="blank_lines: requires documents=line"):
        ReadSettings(blank_lines=True)


def test_impossible_heldout_text_is_refused(tmp_path: Path, tokenizer: Tokenizer) -> None:
    data = write(tmp_path / "a.jsonl", make_texts(3))
    empty = tmp_path / "empty.txt"
    empty.write_text("\n\n")
    for held, message in (
        ([tmp_path / "x" / ".." / "a.jsonl"], "is in both --data and --heldout"),
        ([empty], "contains no text to hold out"),
        ([tmp_path / "nowhere.txt"], "no such file"),
    ):
        (tmp_path / "x").mkdir(exist_ok=True)
        with pytest.raises(UserError, match=message):
            prepare(SplitFiles.find([data], heldout=held), tokenizer, tmp_path / "out")
        assert not (tmp_path / "out" / "prepared.json").exists()


# -- again -------------------------------------------------------------------------------------


def test_shards_of_unchanged_text_are_reused(tmp_path: Path, tokenizer: Tokenizer) -> None:
    texts = make_texts(30)
    first = run(tmp_path, texts, tokenizer)
    stamp = (first.folder / "train.bin").stat().st_mtime_ns
    second = run(tmp_path, texts, tokenizer, workers=3)
    assert (first.reused, second.reused) == (False, True)
    assert (first.folder / "train.bin").stat().st_mtime_ns == stamp
    assert second.fingerprint == first.fingerprint


def test_shards_are_made_again_after_any_change(tmp_path: Path, tokenizer: Tokenizer) -> None:
    texts = make_texts(30)
    path = write(tmp_path / "a.jsonl", texts)
    out = tmp_path / "out"
    other = Char().train([LETTERS])
    fingerprints = {prepare(SplitFiles.find([path]), tokenizer, out).fingerprint}
    for settings, read, used in (
        (PrepareSettings(heldout=0.3), None, tokenizer),
        (PrepareSettings(sentences=False), None, tokenizer),
        (None, ReadSettings(errors="replace"), tokenizer),
        (None, None, other),
    ):
        prepared = prepare(SplitFiles.find([path], read), used, out, settings)
        assert not prepared.reused
        fingerprints.add(prepared.fingerprint)
    stamp = path.stat()
    write(path, [texts[0].replace("a", "b"), *texts[1:]])  # of the same size and age
    os.utime(path, ns=(stamp.st_atime_ns, stamp.st_mtime_ns))
    prepared = prepare(SplitFiles.find([path]), tokenizer, out)
    assert not prepared.reused
    fingerprints.add(prepared.fingerprint)
    assert len(fingerprints) == 6


def test_damage_is_found_and_repaired(tmp_path: Path, tokenizer: Tokenizer) -> None:
    texts = make_texts(30)
    prepared = run(tmp_path, texts, tokenizer)
    before = contents(prepared.folder)
    path = prepared.folder / "train.bin"
    data = bytearray(path.read_bytes())
    data[5] ^= 1
    path.write_bytes(data)
    with pytest.raises(UserError, match=r"train\.bin: changed since it was written"):
        PreparedText.load(prepared.folder)
    assert not run(tmp_path, texts, tokenizer).reused
    assert contents(prepared.folder) == before


@pytest.mark.parametrize("text", ["", "{", "[]", "{}", '{"format": 99, "counts": {}, "files": {}}'])
def test_a_broken_manifest_is_refused(tmp_path: Path, tokenizer: Tokenizer, text: str) -> None:
    prepared = run(tmp_path, make_texts(30), tokenizer)
    (prepared.folder / "prepared.json").write_text(text)
    with pytest.raises(UserError, match=r"prepared\.json.*prepare the text again"):
        PreparedText.load(prepared.folder)


# -- what goes wrong ---------------------------------------------------------------------------


def test_a_user_error_leaves_the_shards_unchanged(tmp_path: Path, tokenizer: Tokenizer) -> None:
    prepared = run(tmp_path, make_texts(30), tokenizer)
    before = contents(prepared.folder)
    path = tmp_path / "a.jsonl"
    path.write_text(path.read_text() + "{broken\n")
    with pytest.raises(UserError, match=r"a\.jsonl:31: not JSON"):
        prepare(SplitFiles.find([path]), tokenizer, prepared.folder)
    assert contents(prepared.folder) == before


def test_a_full_disk_is_reported_in_one_line(
    tmp_path: Path, tokenizer: Tokenizer, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr("foreword.data.shard_writer._Hashed.write", full)
    message = fails(tmp_path, make_texts(30), tokenizer)
    assert "No space left on device" in message
    assert str(tmp_path / "out") in message


def test_a_folder_that_cannot_be_made_is_refused(tmp_path: Path, tokenizer: Tokenizer) -> None:
    path = write(tmp_path / "a.jsonl", make_texts(3))
    with pytest.raises(UserError, match="is a file; choose another --out"):
        prepare(SplitFiles.find([path]), tokenizer, path)


def test_text_that_changes_while_read_is_refused(tmp_path: Path, tokenizer: Tokenizer) -> None:
    path = write(tmp_path / "a.jsonl", make_texts(30))

    def change(_: int, __: int) -> None:
        os.utime(path, ns=(1, 1))

    with pytest.raises(UserError, match="changed while it was read"):
        prepare(SplitFiles.find([path]), tokenizer, tmp_path / "out", progress=change)


KILLED = """
import signal, sys
from foreword.data import shard_builder, tokenize_documents
from foreword.data.holdout import SplitFiles
from foreword.data.write_shards import prepare
from foreword.text.tokenizer import Tokenizer

def stop_at(event, args):
    if event == "os.rename" and str(args[1]) == sys.argv[4]:
        print("here", flush=True)
        signal.pause()

if __name__ == "__main__":  # and not in its workers
    sys.addaudithook(stop_at)
    shard_builder._SMALL = 0
    prepare(SplitFiles.find([sys.argv[1]]), Tokenizer.load(sys.argv[2]), sys.argv[3])
"""


@pytest.mark.product(few=1)
@pytest.mark.parametrize("name", [".part/train.bin", "train.bin", "tokenizer", "prepared.json"])
def test_shards_are_whole_after_a_kill_at_any_moment(
    tmp_path: Path, tokenizer: Tokenizer, name: str
) -> None:
    path = write(tmp_path / "a.jsonl", make_texts(30))
    out = tmp_path / "out"
    before = prepare(SplitFiles.find([path]), tokenizer, out)
    write(path, make_texts(60))
    tokenizer.save(tmp_path / "tokenizer")
    words = [str(path), str(tmp_path / "tokenizer"), str(out), str(out / name)]
    program, output = tmp_path / "killed.py", tmp_path / "output"
    program.write_text(KILLED)
    process = forking.start_into(words, output, module=str(program))
    forking.wait_until(lambda: "here\n" in output.read_text())
    assert process.end() == -signal.SIGKILL, output.read_text()
    if name == ".part/train.bin":  # nothing was touched yet
        assert PreparedText.load(out).fingerprint == before.fingerprint
    else:
        with pytest.raises(UserError, match="no finished token shards"):
            PreparedText.load(out)
    prepared = prepare(SplitFiles.find([path]), tokenizer, out)
    assert not prepared.reused
    assert prepared.counts["train"].documents + prepared.counts["heldout"].documents == 60
    assert sorted(path.name for path in out.iterdir()) == [
        ".lock",
        "heldout.bin",
        "heldout.idx",
        "prepared.json",
        "tokenizer",
        "train.bin",
        "train.idx",
    ]


def test_a_smaller_share_of_the_text_is_part_of_a_larger_one(
    tmp_path: Path, tokenizer: Tokenizer
) -> None:
    texts = make_texts(200)
    made = {
        share: run(tmp_path, texts, tokenizer, str(share), heldout=0.1, train_share=share)
        for share in (0.1, 0.5, 1.0)
    }
    train = {share: set(decoded(one.train, tokenizer)) for share, one in made.items()}
    assert train[0.1] < train[0.5] < train[1.0]
    assert len(train[0.1]) == pytest.approx(0.1 * len(train[1.0]), abs=10)
    heldout = {tuple(decoded(one.heldout, tokenizer)) for one in made.values()}
    assert len(heldout) == 1
    left = made[0.5].manifest["read"]["counts"]["left"]
    assert sum(left.values()) == len(train[1.0]) - len(train[0.5])
    assert "train_share" not in made[1.0].manifest["settings"]  # as before there were shares


def test_a_share_of_the_text_may_be_repeated_until_it_is_half_of_it(
    tmp_path: Path, tokenizer: Tokenizer
) -> None:
    texts = make_texts(200)
    plain, repeated = (
        run(tmp_path, texts, tokenizer, str(share), heldout=0.1, train_share=0.5, repeated=share)
        for share in (1.0, 0.1)
    )
    counts = Counter(decoded(repeated.train, tokenizer))
    assert set(counts) == set(decoded(plain.train, tokenizer))
    often = [count for count in counts.values() if count > 1]
    assert set(often) == {10}
    assert len(often) == pytest.approx(0.1 * len(counts), abs=5)
    assert decoded(repeated.heldout, tokenizer) == decoded(plain.heldout, tokenizer)
    assert repeated.manifest["fingerprint"] != plain.manifest["fingerprint"]
