"""The dial: its rules for every budget, machine and text, and what it makes of real ones."""

from __future__ import annotations

import itertools
import json
import lzma
import re
from dataclasses import is_dataclass, replace
from pathlib import Path
from typing import Any, cast

import numpy as np
import pyarrow as pa
import pytest

from foreword import prepare, pretrain
from foreword.cli.main import run
from foreword.data.text_files import ReadSettings
from foreword.errors import UserError
from foreword.nn.model import neural_settings
from foreword.nn.stack_settings import StackSettings
from foreword.planning import conditions, dial_sizes
from foreword.planning.conditions import dial_of_text, local_dial, text_bytes
from foreword.planning.dial import FAMILIES, Conditions, dial
from foreword.planning.laws import Measured
from foreword.runs.dry_run import dry_run
from foreword.runs.recipe import load_recipe
from foreword.runs.run_folder import read_recipe
from foreword.runs.sizes import count_parameters, least_memory
from foreword.settings import kinds

HOURS = (0.01, 0.1, 0.5, 1.0, 5.0, 24.0, 200.0)
SPEEDS = (1e10, 3.5e11, 1e13, 1e15)
TEXTS = (1e4, 1e6, 1e8, 1e11)
LAPTOP = Conditions("decoder", 1.0, 7e11, 1.2e8)
every_family = pytest.mark.parametrize("family", FAMILIES)


def chosen(conditions: Conditions) -> dict[str, Any]:
    return {choice.setting: choice.value for choice in dial(conditions).choices}


@pytest.mark.product(few=1)
@every_family
def test_every_choice_is_a_recipe_that_passes_its_checks(family: str) -> None:
    for hours, speed, text in itertools.product(HOURS, SPEEDS, TEXTS):
        made = dial(Conditions(family, hours, speed, text))
        recipe = made.recipe()
        for choice in made.choices:
            value: Any = recipe
            for name in choice.setting.split("."):
                value = getattr(value, name)
            assert (kinds.name_of(value) if is_dataclass(value) else value) == choice.value
            assert choice.reason
        assert (
            recipe.train.hours == hours
            or recipe.train.epochs == made.conditions.law.rules.most_epochs
        )
        if hours in (HOURS[0], HOURS[-1]):
            dry_run(recipe)


@pytest.mark.product
@every_family
@pytest.mark.parametrize("text", TEXTS)
@pytest.mark.parametrize("speed", SPEEDS)
def test_more_hours_never_lead_to_a_smaller_model(family: str, speed: float, text: float) -> None:
    many = [0.01 * 1.3**n for n in range(38)]
    sizes = [dial(Conditions(family, hours, speed, text)).size for hours in many]
    for less, more in itertools.pairwise(sizes):
        assert more.parameters >= less.parameters
        assert more.d_model >= less.d_model
        assert more.layers >= less.layers
        assert more.vocab >= less.vocab


@pytest.mark.product
@every_family
@pytest.mark.parametrize("memory", [10**9, 10**10, 10**11])
def test_no_model_exceeds_the_memory(family: str, memory: int) -> None:
    for hours, speed in itertools.product((0.5, 200.0), (1e10, 1e15)):
        recipe = dial(Conditions(family, hours, speed, 1e11, memory)).recipe()
        assert sum(least_memory(recipe).values()) < memory


@every_family
def test_the_costs_of_sizes_are_those_of_the_models(family: str) -> None:
    small, large = load_recipe(FAMILIES[family].small), load_recipe(FAMILIES[family].large)
    rules = FAMILIES[family].rules
    sizes = {size.d_model: size for size in dial_sizes.sizes(rules, small, large, 1e12)}
    start = sizes[neural_settings(small.model).d_model]
    assert start.parameters == pytest.approx(sum(count_parameters(small).values()), rel=0.02)
    for hours in (0.1, 10, 1000):
        made = dial(Conditions(family, hours, 1e13, 1e12))
        counted = sum(count_parameters(made.recipe()).values())
        assert made.size.parameters == pytest.approx(counted, rel=0.02)


@pytest.mark.parametrize(
    ("family", "hours"),
    [
        *((family, hours) for family in ("encoder", "decoder") for hours in (0.2, 0.3, 1.0)),
        *(("encoder_decoder", hours) for hours in (0.3, 1.0)),
    ],
)
def test_minutes_on_a_laptop_are_the_small_recipe(family: str, hours: float) -> None:
    made = dial(replace(LAPTOP, family=family, hours=hours)).recipe()
    small = load_recipe(FAMILIES[family].small)
    budget, optimizer = replace(small.train, hours=hours), small.optimizer
    if family != "decoder":  # the others want larger steps: docs/results/scaling.md
        times = (2 if family == "encoder" else 4) * (2 if hours == 1.0 else 1)
        budget = replace(budget, batch=times * small.train.batch)
        beta2 = max(0.95, round(optimizer.beta2**times, 4))  # type: ignore[attr-defined]
        optimizer = replace(optimizer, beta2=beta2)  # type: ignore[type-var]
    expected = replace(small, description=made.description, train=budget, optimizer=optimizer)
    assert made == expected


def test_rows_are_no_longer_than_documents_need() -> None:
    wide = replace(LAPTOP, family="encoder", hours=5000.0, text_bytes=1e13)
    made = {longest: dial(replace(wide, document_tokens=(9.0, longest))).size
            for longest in (20.0, 200.0, 1e5)}  # fmt: skip
    least = load_recipe(FAMILIES["encoder"].small).packing.length
    most = dial(wide).size.length
    assert [size.length for size in made.values()] == [least, 2 * least, most]
    assert most > 2 * least


def test_a_small_text_is_read_often_with_dropout_and_decay_but_not_for_ever() -> None:
    fresh, repeated, often = (chosen(replace(LAPTOP, text_bytes=b)) for b in (1e9, 2e7, 6e6))
    assert (fresh["model.dropout"], fresh["optimizer.decay"]) == (0, 0.1)
    for made in (repeated, often):  # docs/results/repeated.md
        assert (made["model.dropout"], made["optimizer.decay"]) == (0.1, 0.8)
    for family in ("encoder", "encoder_decoder"):  # as the recipe: other masks in each epoch
        made = chosen(replace(LAPTOP, family=family, text_bytes=6e6))
        assert (made["model.dropout"], made["optimizer.decay"]) == (0, 0.3)
    tiny, most = chosen(replace(LAPTOP, text_bytes=1e5)), LAPTOP.law.rules.most_epochs
    assert tiny["train.epochs"] == most
    encoder = dial(replace(LAPTOP, family="encoder", text_bytes=1e5)).choices[-1]
    assert encoder.value > most  # docs/results/scarce.md
    assert "docs/results/scarce.md" in encoder.reason
    assert "train.hours" not in tiny
    assert f"ends after {most:g} epochs" in dial(replace(LAPTOP, text_bytes=1e5)).summary
    assert "epochs" not in dial(LAPTOP).summary
    assert tiny["tokenizer.vocab"] < fresh["tokenizer.vocab"]


@pytest.mark.parametrize(
    ("text_bytes", "share"), [(1e5, 0.05), (1e6, 0.05), (1e7, 0.02), (3.9e7, 0.00513), (4e7, None)]
)
def test_more_is_held_out_of_little_text(text_bytes: float, share: float | None) -> None:
    made = dial(replace(LAPTOP, text_bytes=text_bytes))
    chosen = {one.setting: one.value for one in made.choices}
    assert chosen.get("prepare.heldout") == share
    assert made.recipe().prepare.heldout == (share or 0.005)


def test_wider_models_have_lower_rates_and_a_fast_device_larger_batches() -> None:
    small, wide = (chosen(replace(LAPTOP, hours=hours)) for hours in (1.0, 200.0))
    assert wide["model.d_model"] > small["model.d_model"]
    product = small["optimizer.lr"] * small["model.d_model"]
    assert wide["optimizer.lr"] * wide["model.d_model"] == pytest.approx(product, rel=0.01)
    narrow = {
        family: chosen(replace(LAPTOP, family=family, hours=0.02))["optimizer.lr"]
        for family in ("encoder", "decoder")
    }
    assert narrow == {"encoder": 0.012, "decoder": 0.004}  # at a width of 128; 0.006, 0.004 at 256
    seconds = Conditions("decoder", 0.01, 1e11, 1e11)  # too few for first embeddings from counts
    assert chosen(seconds)["optimizer.lr"] == 0.008
    slow, fast = (
        chosen(Conditions("decoder", 0.01, speed, 1e11))["train.batch"] for speed in (3e11, 8e14)
    )
    assert fast > 8 * slow


@pytest.mark.parametrize(
    ("vocab", "known", "each"), [(512, 0.0, 2), (2048, 0.0, 3), (65536, 0.0, 4), (512, 2.5, 2.5)]
)
def test_fewer_tokens_in_the_vocabulary_are_more_in_the_text(
    vocab: int, known: float, each: float
) -> None:
    made = dial(replace(LAPTOP, text_bytes=1e5, vocab=vocab, bytes_per_token=known))
    assert made.text_tokens == pytest.approx(1e5 / each)
    assert made.tokens == pytest.approx(16 * 1e5 / each)  # the most epochs of a decoder
    assert made.amounts.epochs == pytest.approx(16)


def test_the_tokens_of_prepared_text_are_those_counted(text: Path, tmp_path: Path) -> None:
    shards = prepare(text, tmp_path / "shards", settings={"vocab": 300}, progress=False)
    conditions = replace(LAPTOP, hours=0.01)
    made = dial_of_text(conditions, [str(shards.folder)])
    assert made.text_tokens == pytest.approx(shards.prepared.counts["train"].tokens)


@every_family
def test_waiting_for_steps_takes_no_longer_than_the_hours(family: str) -> None:
    """A fast device waits 3.4 ms for each layer of a step; a plan of an hour takes an hour."""
    busy = 0
    for hours, speed in itertools.product((0.1, 0.3, 1.0, 3.0, 10.0), (1e14, 3e14, 1e15, 3e15)):
        made = dial(Conditions(family, hours, speed, 1e13))
        assert made.computing <= 3600.1 * hours
        # Batches of powers of two, rounded to whole rows.
        assert made.seconds <= 3600 * hours * (1 + 1 / made.rows)
        busy += any("device waiting" in choice.reason for choice in made.choices)
    assert busy or "encoder" in family  # whose batches are large


def test_a_budget_in_flops_plans_the_same_on_any_machine() -> None:
    slow, fast = (
        dial(Conditions("decoder", 1e14 / speed / 3600, 2e3 * speed, 1e10, is_in_flops=True))
        for speed in (1e9, 1e14)
    )
    assert slow.choices == fast.choices
    assert slow.choices[-1].setting == "train.flops"
    assert slow.recipe().train.flops == slow.choices[-1].value == pytest.approx(slow.flops)
    assert slow.recipe().train.hours is None and "1e+17 FLOPs and" in slow.title
    assert fast.seconds > 10 * fast.computing


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"is_in_flops": True}, r"320 would need 3.7 × 10¹⁵ FLOPs"),
        ({}, r"320 would need 3 h"),
        ({"hours": 100.0, "text_bytes": 1e7}, r"320 would need 1\d\.\d MB of text"),
        ({"hours": 100.0, "memory": 3 * 10**8}, r"320 would need 3\d\d\.\d MB of memory"),
        ({"hours": 1e6, "flops_per_second": 1e17, "text_bytes": 1e15}, "the largest"),
    ],
)
def test_the_width_says_what_a_larger_model_needs(changes: dict[str, Any], reason: str) -> None:
    choices = {one.setting: one.reason for one in dial(replace(LAPTOP, **changes)).choices}
    assert re.search(reason, choices["model.d_model"])


@pytest.mark.parametrize("family", [name for name in FAMILIES if FAMILIES[name].measured.losses])
def test_the_expected_loss_lies_within_its_interval_and_falls_with_the_budget(family: str) -> None:
    measured, margin = FAMILIES[family].measured, FAMILIES[family].rules.margin
    budgets = [flops for flops, _ in measured.losses]
    assert budgets == sorted(budgets)
    grid = [budgets[0] * (budgets[-1] / budgets[0]) ** (n / 20) for n in range(21)]
    losses = []
    for flops in grid:
        loss, low, high = measured.interpolated(flops, margin)  # type: ignore[misc]
        assert low < loss < high < 1.4 * low
        losses.append(loss)
    assert losses == sorted(losses, reverse=True)
    for flops, loss in measured.losses:
        assert measured.interpolated(flops, margin)[0] == pytest.approx(loss)  # type: ignore[index]
    assert measured.interpolated(budgets[0] / 2, margin) is None
    assert measured.interpolated(budgets[-1] * 2, margin) is None


def test_losses_on_a_power_law_are_expected_without_error() -> None:
    measured = Measured(losses=tuple((c, 100 * c**-0.1) for c in (1e12, 1e13, 4e14)))
    assert measured.error == pytest.approx(0, abs=1e-12)
    assert measured.interpolated(5e13, 1.5)[0] == pytest.approx(100 * 5e13**-0.1)  # type: ignore[index]
    bent = Measured(losses=((1e12, 4.0), (1e13, 3.0), (1e14, 1.0)))
    assert bent.error == pytest.approx(1 / 3)  # 2 by the neighbours, where 3 was measured


def test_a_loss_is_expected_only_where_one_was_measured() -> None:
    for family in ("encoder", "decoder", "encoder_decoder"):
        nine_minutes = replace(LAPTOP, hours=0.15, family=family)
        assert re.match(r"\d\.\d\d .* \(\d\.\d\d to ", str(dial(nine_minutes).expected))
        for other in (replace(nine_minutes, hours=50.0), replace(nine_minutes, text_bytes=1e5)):
            assert str(dial(other).expected).startswith("none has been measured")
    other = replace(LAPTOP, hours=0.2, family="encoder", vocab=8_192)
    assert str(dial(other).expected).endswith("with this vocabulary, but with 16,384")


@pytest.mark.parametrize(
    ("family", "hours", "line"),
    [
        ("encoder", 0.02, "as good for 1,000 labels or fewer: models of 2.9 × 10¹⁴ FLOPs brought"),
        ("encoder", 100.0, ""),  # where nothing was measured
        ("decoder", 0.02, "a table of n-grams, which takes seconds, is expected to have 1.8"),
        ("lstm", 0.02, "a table of n-grams, which takes seconds, is expected to have 1.8"),
    ],
)
def test_it_says_beforehand_where_counting_is_as_good(family: str, hours: float, line: str) -> None:
    made = dial(Conditions(family, hours, 3e11, 8e6))
    assert line in made.counting
    assert bool(made.counting) == bool(line)
    assert made.facts["counting"] == (made.counting or None)
    # What was measured is of classes, and of the loss of what is generated.
    of = "classify" if family == "encoder" else "generate"
    for purpose in ("classify", "generate", "tag", "fill", "answer"):
        said = dial(replace(made.conditions, purpose=purpose)).counting
        assert said == (made.counting if purpose == of else "")


@pytest.mark.parametrize(
    ("flops", "labels", "said"),
    [(1e13, 200, "for 300 labels or fewer"), (1e13, 5_000, ""), (1e15, 200, "")],
)
def test_counting_suffices_for_as_few_labels_as_were_measured(
    flops: float, labels: int, said: str
) -> None:
    line = FAMILIES["encoder"].counting_suffices(flops, labels)
    assert said in line
    assert bool(line) == bool(said)
    assert not line or line.endswith("(docs/results/worth_it.md)")


def test_the_tokens_expected_of_twelve_minutes_are_about_those_that_were_made() -> None:
    made = {"encoder": 5_902, "decoder": 3_861}  # of the small recipe's size, 2,048 tokens each
    for family, steps in made.items():
        expected = dial(replace(LAPTOP, hours=0.2, family=family)).tokens
        assert 0.7 < expected / (2_048 * steps) < 1.4


# On this machine, with real text.


@pytest.fixture
def slow(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine on which the smallest model is right."""
    monkeypatch.setattr(conditions, "matmul_flops_per_second", lambda *_: 1e9)


@pytest.fixture(scope="module")
def text(tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("text") / "text.txt"
    words = [f"{a}{b}{c}" for a in "bdfk" for b in "aeiou" for c in ("rt", "mble")]
    lines = [" ".join(words[(7 * n + k * k) % 40] for k in range(9)) + "." for n in range(6_000)]
    file.write_text("\n".join(map(str.capitalize, lines)), encoding="utf-8")
    return file


def test_the_vocabulary_is_one_that_the_text_supports(text: Path, slow: None) -> None:
    made = local_dial("decoder", 0.01, [str(text)])
    vocab = next(one for one in made.choices if one.setting == "tokenizer.vocab")
    assert vocab.value < dial(replace(made.conditions, vocab=None)).size.vocab
    assert "the most that this text supports" in vocab.reason
    tokenizer = made.recipe().tokenizer.train([text.read_text(encoding="utf-8")])
    assert tokenizer.vocab.size == vocab.value


def test_a_script_of_many_letters_gets_a_larger_vocabulary(tmp_path: Path, slow: None) -> None:
    file = tmp_path / "text.txt"
    letters = [chr(0xAC00 + n) for n in range(700)]
    lines = ["".join(letters[(n * k) % 700] for k in range(1, 30)) for n in range(400)]
    file.write_text("\n".join(lines), encoding="utf-8")
    made = local_dial("encoder", 0.01, [str(file)])
    assert "the least that this text supports" in made.choices[0].reason
    assert made.size.vocab > 700


@pytest.mark.parametrize("suffixes", [[".txt"], [".jsonl"], [".jsonl.gz"], [".txt", ".jsonl.gz"]])
def test_the_size_of_a_long_text_is_known_from_its_beginning(
    suffixes: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import gzip

    for n in range(20):
        suffix = suffixes[n * len(suffixes) // 20]
        lines = [f"Number {17 * k + n} is not number {29 * k}." for k in range(300)]
        texts = [json.dumps({"text": line}) for line in lines] if "jsonl" in suffix else lines
        data = "\n".join(texts).encode()
        (tmp_path / f"{n}{suffix}").write_bytes(gzip.compress(data) if "gz" in suffix else data)
    whole = text_bytes([str(tmp_path)], ReadSettings())
    monkeypatch.setattr(conditions, "SAMPLE_BYTES", whole / 5)
    assert text_bytes([str(tmp_path)], ReadSettings()) == pytest.approx(whole, rel=0.1)


@pytest.mark.parametrize("suffix", ["gz", "xz", "zst"])
def test_what_is_decompressed_ahead_is_hardly_counted_as_read(
    suffix: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rng, whole = np.random.default_rng(1), 4_000_000
    plain = "\n".join(rng.bytes(100).hex() for _ in range(whole // 200)).encode()
    if suffix == "xz":
        data = lzma.compress(plain, preset=0)
    else:
        codec = pa.Codec({"gz": "gzip", "zst": "zstd"}[suffix])
        data = codec.compress(plain, asbytes=True)
    (tmp_path / f"text.txt.{suffix}").write_bytes(data)
    monkeypatch.setattr(conditions, "SAMPLE_BYTES", whole / 3)
    read = ReadSettings(documents="line")
    assert text_bytes([str(tmp_path)], read) == pytest.approx(whole, rel=0.15)


def test_a_run_holds_plain_values_and_what_they_came_from(
    text: Path, tmp_path: Path, slow: None
) -> None:
    settings = {"model.layers": 1, "train.batch": 2, "train.evaluations": 1}
    result = pretrain(
        "decoder", text, tmp_path / "run", hours=2e-4, settings=settings, progress=False,
        documents="line",
    )  # fmt: skip
    assert result.is_done
    recipe = read_recipe(tmp_path / "run")
    assert cast(StackSettings, recipe.model).layers == 1  # --set overrules
    assert recipe.read.documents == "line"
    noted = json.loads((tmp_path / "run" / "run.json").read_text(encoding="utf-8"))["dial"]
    assert noted["family"] == "decoder"
    assert noted["flops_per_second"] == 1e9
    assert {"setting", "value", "reason"} == set(noted["choices"][0])


@pytest.mark.full
def test_check_explains_each_choice(
    text: Path, slow: None, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["check", "encoder", "--data", str(text), "--hours", "0.01", "--rows", "0", "--quiet"]
    assert run([*words, "--set", "model.d_ff=64", "--json"]) == 0
    shown = json.loads(capsys.readouterr().out)
    assert [one["setting"] for one in shown["dial"]["choices"]][:2] == [
        "tokenizer.vocab",
        "model.d_model",
    ]
    assert shown["dial"]["expected_loss"].startswith("none has been measured")
    assert run([*words, "--set", "model.d_ff=64"]) == 0
    printed = capsys.readouterr().out
    assert "model.d_model" in printed
    assert "--set; the dial has 192" in printed
    assert "none has been measured" in printed
    assert "for the dial's own values" in " ".join(printed.split())


@pytest.mark.parametrize(
    ("budget", "message"),
    [
        ({}, "give --hours, as in --hours 1"),
        ({"steps": 5}, "give --hours, not --steps"),
        ({"settings": {"train.steps": 5}}, "give --hours, not --steps"),
    ],
)
def test_without_hours_a_dial_is_refused(
    budget: dict[str, Any], message: str, text: Path, tmp_path: Path
) -> None:
    with pytest.raises(UserError, match=message):
        pretrain("encoder", text, tmp_path / "run", progress=False, **budget)
    assert not list(tmp_path.iterdir())


@pytest.mark.full
def test_a_recipe_file_of_that_name_is_named_by_its_path(
    text: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    small = load_recipe("gpt2_tiny", ["model.layers=1", "tokenizer.vocab=380", "packing.length=8"])
    (tmp_path / "decoder.toml").write_text(small.dumps(), encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    pretrain("decoder.toml", text, "run", steps=1, progress=False)
    assert read_recipe(tmp_path / "run").family == "GPT-2"
    with pytest.raises(UserError, match="give --hours"):
        pretrain("decoder", text, "other", steps=1, progress=False)


def test_a_model_to_start_from_is_refused(text: Path, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="--from gives one"):
        pretrain("encoder", text, tmp_path / "run", hours=1, from_=tmp_path, progress=False)


@pytest.mark.full
def test_show_explains_a_dial_and_the_kinds_of_its_name(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert run(["show", "decoder", "--json"]) == 0
    page = json.loads(capsys.readouterr().out)
    assert page["dial"] == "decoder"
    assert len(page["examples"]) == 4
    assert page["kinds"][0]["folder"] == "layouts"
