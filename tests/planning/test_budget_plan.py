"""`foreword plan`: laws are data, intervals have parts, forecasts are compared with results."""

from __future__ import annotations

import json
import math
import re
from dataclasses import fields, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import foreword
from foreword.errors import UserError
from foreword.planning import budget_plan, conditions, timed
from foreword.planning.dial import Conditions, dial
from foreword.planning.laws import COMMON, FOLDER, Expectation, Rules, laws
from foreword.runs.recipe import load_recipe
from foreword.scaling.law import Law
from foreword.settings import config

HOUR = Conditions("decoder", 1.0, 3e11, 1.2e8)


@pytest.fixture(scope="module")
def text(tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("text") / "text.jsonl"
    words = [f"{a}{b}{c}" for a in "bdfk" for b in "aeiou" for c in ("rt", "mble", "n")]
    lines = [" ".join(words[(7 * n + k * k + n * k) % 60] for k in range(60)) for n in range(900)]
    file.write_text("\n".join(json.dumps({"text": line}) for line in lines), encoding="utf-8")
    return file


@pytest.fixture(autouse=True)
def known_speed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(conditions, "matmul_flops_per_second", lambda *_: 3e11)
    monkeypatch.setattr(budget_plan, "tokens_per_second", lambda _: None)


def own_laws(folder: Path, rules: str = "", **changes: Any) -> str:
    law = {"E": 0.5, "A": 40.0, "B": 90.0, "alpha": 0.3, "beta": 0.3, "seed_noise": 0.01} | changes
    Law("decoder", unit="bits per byte", resampled=((0.5, 41.0, 90.0, 0.3, 0.3),), **law).save(
        folder / "decoder.toml"
    )
    (folder / f"{COMMON}.toml").write_text(rules, encoding="utf-8")
    return str(folder)


def test_a_law_of_ones_own_changes_sizes_and_losses(tmp_path: Path) -> None:
    shipped = dial(HOUR)
    few = dial(Conditions("decoder", 1.0, 3e11, 1.2e8, laws=own_laws(tmp_path)))
    (tmp_path / "b").mkdir()
    large = own_laws(tmp_path / "b", A=4e4, alpha=0.6)
    many = dial(Conditions("decoder", 1.0, 3e11, 1.2e8, laws=large))
    assert many.size.parameters > few.size.parameters
    assert str(shipped.expected) != str(few.expected) != str(many.expected)
    assert few.expected.seed is not None
    value, (low, high) = few.expected.value, few.expected.interval or (0, 0)
    assert low < value < high
    assert "decoder.toml" in few.choices[1].reason
    often = dial(replace(few.conditions, text_bytes=1e6)).expected
    assert often.value and often.interval and often.interval[1] > 1.14 * often.value
    assert few.recipe().optimizer.lr > many.recipe().optimizer.lr


@pytest.mark.parametrize(
    ("figure", "value", "given"),
    [
        ("bytes_per_token", 2, {"text_bytes": 1e6}),
        ("halving_bytes", 0, {"text_bytes": 1e6, "hours": 0.042}),
        ("whole_vocab", 512, {"text_bytes": 1e6, "hours": 0.042}),
        ("uses_per_token", 1000, {"text_bytes": 1e7}),
        ("least_vocab", 4096, {"text_bytes": 1e4}),
        ("vocab_exponent", 1.5, {"hours": 300.0, "text_bytes": 1e13}),
        ("widths", [1, 2], {"hours": 0.05}),
        ("small_flops", 2e15, {}),
        ("tokens_per_parameter", 1, {"hours": 30.0}),
        ("useful_epochs", 1, {"hours": 300.0}),
        ("memory_share", 0.01, {"memory": 10**9}),
        ("bytes_per_parameter", 2000, {"memory": 10**9}),
        ("repeated_epochs", 1000, {"text_bytes": 1e6}),
        ("repeated_decay", 0.9, {"text_bytes": 1e6}),
        ("repeated_dropout", 0.3, {"text_bytes": 1e6}),
        ("repeated_error", 0.3, {"text_bytes": 1e6}),
        ("most_epochs", 20, {"text_bytes": 1e5}),
        ("batch_tokens", 1e5, {}),
        ("layer_seconds", 1, {}),
        ("least_steps", 10**6, {}),
        ("most_warmup_steps", 10, {}),
        ("least_beta2", 0.9, {"hours": 3000.0, "text_bytes": 1e13}),
        ("vectors_hours", 1, {"hours": 0.3}),
        ("rate_exponent", 0.5, {"hours": 300.0, "text_bytes": 1e13}),
        ("narrow_keeps_rate", False, {"hours": 0.05}),
        ("margin", 1.0, {"hours": 1.33}),
    ],
)
def test_each_figure_of_the_rules_changes_the_plan(
    figure: str, value: Any, given: dict[str, Any], tmp_path: Path
) -> None:
    folders = (tmp_path / "plain", tmp_path / "changed")
    for folder in folders:
        folder.mkdir()
        line = f"rules.{figure} = {json.dumps(value)}\n" if folder == folders[1] else ""
        (folder / "decoder.toml").write_text(line, encoding="utf-8")
        if figure == "repeated_error":  # of laws alone
            own_laws(folder, line)
    plain, changed = (dial(replace(HOUR, laws=str(folder), **given)) for folder in folders)
    before, after = plain.expected.interval, changed.expected.interval
    assert (changed.recipe(), after) != (plain.recipe(), before)


def test_every_figure_names_where_it_is_from() -> None:
    common = config.read_toml(FOLDER / f"{COMMON}.toml")
    assert set(common["rules"]) == {f.name for f in fields(Rules)}
    for name, law in laws().items():
        own = config.read_toml(FOLDER / f"{name}.toml")
        named = {*common["rules"], *own} - {"small", "large", "rules", "measured", "sources", "law"}
        named -= {"speed_error"}  # beside `speed`
        named |= {"losses"} if law.measured.losses else set()
        if not any(law.scores.values()):
            named -= {"scores"}
        assert named <= set(law.sources), name
        for source in law.sources.values():
            file, _, heading = source.partition("#")
            text = (FOLDER.parents[2] / file).read_text(encoding="utf-8")
            titles = [re.sub(r"[^\w -]", "", line.lstrip("# ").lower()).replace(" ", "-")
                      for line in text.splitlines() if line.startswith("#")]  # fmt: skip
            assert not heading or heading in titles, source


def test_a_fitted_table_plans_its_families(text: Path, tmp_path: Path) -> None:
    rows = [
        {"family": family, "parameters": n, "tokens": c / 6 / n, "flops": c, "unit": unit,
         "loss": e + 40 / n**0.3 + 90 / (c / 6 / n) ** 0.3, "vocabulary": vocab}
        for family, e, unit, vocab in [
            ("decoder", 0.9, "bits per byte", 8192),
            ("lstm", 0.4, "bits per byte", 8192),
            ("encoder", 2.0, "nats per prediction", 512),
        ]
        for n in (4e5, 1e6, 3e6, 9e6) for c in (3e12, 1e13, 3e13)
    ]  # fmt: skip
    foreword.scale.fit(rows, tmp_path, resamples=20, text="Wikipedia")
    found = foreword.plan(text, hours=0.1, purpose="generate", laws=tmp_path).data()
    assert found["families"].keys() == {"decoder", "lstm", "ngram"}
    assert found["family"] == "lstm"
    assert "Wikipedia" in found["forecast"]["why"]
    law = laws(str(tmp_path))["encoder"]
    assert (law.unit, law.vocabulary) == ("nats per prediction", 512)


def test_steps_are_timed_where_they_are_short(
    text: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tiny = load_recipe("modern_decoder_tiny")
    monkeypatch.setattr(timed, "STEP_SECONDS", math.inf)
    speed, error = timed.tokens_per_second(tiny) or (0, 0)
    assert speed > 0 and 0 <= error < 2
    monkeypatch.setattr(timed, "STEP_SECONDS", 0.0)
    assert timed.tokens_per_second(tiny) is None
    speeds = []
    for speed in (2e4, 2e5):
        monkeypatch.setattr(budget_plan, "tokens_per_second", lambda _, speed=speed: (speed, 0.1))
        found = foreword.plan(text, hours=0.1, family="decoder", laws=own_laws(tmp_path))
        low, high = found.data()["forecast"]["machine"]
        assert low < found.data()["forecast"]["value"] < high
        assert "timed here on steps of" in str(found.tables()[0])
        speeds.append(found.data()["dial"]["flops_per_second"])
    assert speeds[1] > 5 * speeds[0]


def test_a_law_says_where_it_is_used_beyond_its_runs(tmp_path: Path) -> None:
    marks = ("hardly determined",)
    folder = own_laws(tmp_path, smallest_flops=1e13, largest_flops=1e15, marks=marks)
    for flops, said in ((1e11, "below its runs, from"), (1e14, ""), (1e17, "beyond its runs, up")):
        hours = flops / HOUR.flops
        why = dial(replace(HOUR, hours=hours, text_bytes=1e10, laws=folder)).expected.why
        assert said in why and ("its runs" in why) == bool(said)
        assert "marked: hardly determined" in why


def test_figures_of_ones_own_are_not_said_to_be_from_elsewhere(tmp_path: Path) -> None:
    losses = "measured.losses = [[1e12, 2.0], [1e13, 1.8], [1e14, 1.6]]\n"
    (tmp_path / "decoder.toml").write_text(losses)
    (tmp_path / "common.toml").write_text('rules.most_epochs = 20\nsources.speed = "mine"\n')
    (tmp_path / "lstm.toml").write_text("E = 0.5\nA = 40.0\nB = 90.0\nalpha = 0.3\nbeta = 0.3\n")
    tenth = replace(HOUR, hours=0.01, laws=str(tmp_path))
    expected = dial(tenth).expected
    assert expected.source == str(tmp_path / "decoder.toml")
    assert "on a text that it does not name, where 3 budgets" in expected.why
    epochs = dial(replace(tenth, hours=10, text_bytes=1e5)).choices[-1]
    assert epochs.value == 20 and str(tmp_path / "common.toml") in epochs.reason
    law = laws(str(tmp_path))["lstm"]
    assert law.law is not None and law.law.family == "lstm"
    assert law.sources["speed"] == "mine" and law.sources["rate_exponent"].startswith("docs/")
    (tmp_path / "decoder.toml").write_text("rules = 5\n")
    with pytest.raises(UserError, match=r"decoder\.toml: rules"):
        laws.__wrapped__(str(tmp_path))


def test_a_law_without_a_family_is_said_to_need_its_name(text: Path, tmp_path: Path) -> None:
    (tmp_path / "all.toml").touch()
    with pytest.raises(UserError, match=r"all\.toml, is to be named after its family"):
        foreword.plan(text, hours=1, family="decoder", laws=tmp_path)


def test_the_interval_of_the_speed_has_two_sides_at_the_last_budget_too() -> None:
    made = dial(replace(HOUR, hours=8e14 / HOUR.flops))
    low, high = budget_plan.with_error(made, 0.3).expected.machine or (0, 0)
    assert made.expected.value is not None
    assert low < made.expected.value - 0.001 and made.expected.value + 0.001 < high


def test_a_law_in_nats_keeps_its_vocabulary(tmp_path: Path) -> None:
    law = Law("encoder", 1.0, 40.0, 90.0, 0.3, 0.3, unit="nats per prediction")
    law.save(tmp_path / "encoder.toml")
    hours = Conditions("encoder", 500.0, 3e11, 1e10, laws=str(tmp_path))
    assert dial(hours).size.vocab == 16_384 < dial(replace(hours, laws="", hours=1e5)).size.vocab
    assert dial(hours).expected.value is not None


@pytest.mark.parametrize(
    ("hours", "chosen", "why"),
    [(0.02, "ngram", "suffices"), (0.4, "decoder", "lowest"), (24.0, "decoder", "not known")],
)
def test_counts_are_chosen_only_where_they_are_known_to_suffice(
    hours: float, chosen: str, why: str, text: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(conditions, "text_bytes", lambda *_: 2e7)
    monkeypatch.setattr(budget_plan, "text_bytes", lambda *_: 2e7)
    monkeypatch.setattr(conditions, "_with_supported_vocab", lambda made, *_: made)
    found = foreword.plan(text, hours=hours, purpose="generate")
    assert found.data()["family"] == chosen
    assert any(why in str(part) for part in found.tables())


@pytest.mark.parametrize(
    ("losses", "order"),
    [
        ({"ngram": 1.6, "lstm": None, "decoder": 1.5}, ["decoder", "lstm", "ngram"]),
        ({"ngram": 1.6, "lstm": None, "decoder": 1.7}, ["ngram", "decoder", "lstm"]),
        ({"ngram": 1.6, "lstm": None}, ["lstm", "ngram"]),
        ({"ngram": None, "decoder": 1.7}, ["decoder", "ngram"]),
    ],
)
def test_a_network_of_unknown_loss_comes_after_known_ones(
    losses: dict[str, float | None], order: list[str]
) -> None:
    plans: list[Any] = [
        SimpleNamespace(
            family=name,
            score=(),
            dial=None if name == "ngram" else name,
            expected=Expectation("bits per byte", "", loss),
        )
        for name, loss in losses.items()
    ]
    assert [plan.family for plan in budget_plan._ordered(plans)] == order


def test_families_are_chosen_by_what_theirs_scored(text: Path) -> None:
    for purpose in next(iter(laws().values())).purposes:
        assert [name for name, law in laws().items() if purpose in law.scores]
    found = foreword.plan(text, hours=0.1, purpose="classify")
    assert list(found.data()["families"]) == ["encoder", "encoder_decoder", "decoder"]
    assert "SST-2" in str(found.tables()[1])
    assert "tell" not in str(found.tables()[1])  # the encoder's interval is clear of the others'
    assert "does not tell it from" in str(
        foreword.plan(text, hours=0.1, purpose="answer").tables()[1]
    )


def test_a_plan_says_what_to_train_and_writes_it(text: Path, tmp_path: Path) -> None:
    out = tmp_path / "plan.toml"
    found = foreword.plan(text, hours=0.1, purpose="generate", out=out, laws=own_laws(tmp_path))
    content = found.data()
    assert content["family"] == "decoder"
    assert set(content["families"]) == {"decoder", "lstm", "ngram"}
    assert set(content["changes"]) == {"half the hours", "double the hours", "10 MB more text"}
    losses = {name: made["forecast"]["value"] for name, made in content["changes"].items()}
    assert losses["double the hours"] < losses["half the hours"]
    assert losses["10 MB more text"] < content["forecast"]["value"]  # little text, often read
    assert content["forecast"]["machine"] is not None
    assert load_recipe(str(out)).train.hours == 0.1 or load_recipe(str(out)).train.epochs


def test_gpus_of_the_list_are_faster_and_flops_need_no_speed(text: Path, tmp_path: Path) -> None:
    one, eight = (
        foreword.plan(text, hours=1, family="encoder", gpu="h100", gpus=n, price=2.5).data()
        for n in (1, 8)
    )
    assert eight["machine"]["speed"] == 8 * one["machine"]["speed"]
    assert one["machine"]["share"] == laws()["encoder"].rules.gpu_share
    out = tmp_path / "plan.toml"
    flops = foreword.plan(text, flops=1e12, family="decoder", laws=own_laws(tmp_path), out=out)
    assert flops.data()["forecast"]["machine"] is None
    assert load_recipe(str(out)).train.flops == 1e12
    assert set(flops.data()["changes"]) == {"half the FLOPs", "double the FLOPs", "10 MB more text"}
    # Budgets that GPUs compute in less than a minute are plans too.
    foreword.plan(text, flops=1e17, family="decoder", gpu="h100", gpus=8)


def test_what_a_plan_costs_is_data(text: Path) -> None:
    found = foreword.plan(text, hours=1, family="decoder", gpu="h100", gpus=8, price=2.5)
    plan, made = found.data(), found.data()["dial"]
    each = 4 - 0.5 * math.log2(8192 / plan["dial"]["vocab"])  # bytes of a token
    assert made["tokens"] == pytest.approx(16 * plan["dial"]["text_bytes"] / each)
    assert made["epochs"] == pytest.approx(16)
    assert made["parameters"] == 5_308_416 + (plan["dial"]["choices"][0]["value"] - 8192) * 256
    # 4 layers of 3.4 ms, in steps of 8 rows of 256, are longer than computing.
    assert made["seconds"] == pytest.approx(4 * 3.4e-3 * made["tokens"] / 2048)
    assert plan["dollars"] == pytest.approx(8 * 2.5 * made["seconds"] / 3600)
    assert plan["families"]["decoder"]["seconds"] == made["seconds"]
    settings, changes = map(str, found.tables()[:2])
    assert "'difference'" not in changes and "'expected loss': 'not known'" in changes
    assert "at least" in settings and "'foreword check' measures it" in settings
    assert "keep the device waiting: 1 would be as fast as 8" in settings
    smaller = foreword.plan(text, hours=1, family="decoder", gpu="memory_gb=0.1,bf16_tflops=65")
    assert "of 100.0 MB, so that fewer rows are computed at once" in str(smaller.tables()[0])


def test_memory_is_that_of_the_machine_planned_for(text: Path) -> None:
    def memory(**gpus: Any) -> int:
        found = foreword.plan(text, hours=1, family="encoder", **gpus).data()["memory"]
        assert isinstance(found, int)
        return found

    one, eight = memory(gpus=1), memory(gpus=8)
    single = memory(gpu="h100,bf16_tflops=0,fp32_tflops=989")
    assert eight < one < single


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"hours": 0.001}, "a minute"),
        ({"hours": 20_000.0}, "a year"),
        ({}, "give --hours"),
        ({"hours": 1.0, "flops": 1e15}, "--flops: cannot be combined with --hours"),
        ({"flops": 1e30}, r"1.0 × 10³⁰ FLOPs would take .* hours at .* FLOP/s; .* a year"),
        ({"flops": 1e8}, "tokens of the smallest model, less than one row of 128"),
        ({"hours": 1.0, "gpus": 4096}, r"\d+ rows \(encoder\) cannot be divided among 4,096 GPUs"),
        ({"hours": 1.0, "family": "encodr"}, "did you mean 'encoder'"),
        ({"hours": 1.0, "purpose": None}, "--for: say"),
        ({"hours": 1.0, "purpose": "generat"}, "did you mean 'generate'"),
        ({"hours": 1.0, "gpu": "tpu"}, r"give its numbers, as in memory_gb=.*gpus\.toml"),
        ({"hours": 1.0, "family": "decoder"}, "decoder does not fill; encoder, encoder_decoder do"),
        ({"hours": 1.0, "laws": "nowhere"}, "--laws: nowhere: no such folder"),
        ({"hours": 1.0, "laws": "tests"}, "holds none of common.toml, .*'foreword scale fit'"),
    ],
)
def test_bad_input_is_refused_in_a_line(
    text: Path, arguments: dict[str, Any], message: str
) -> None:
    with pytest.raises(UserError, match=message) as error:
        foreword.plan(text, **({"purpose": "fill"} | arguments))
    assert "\n" not in str(error.value)


def test_a_text_smaller_than_a_row_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "text.txt"
    file.write_text("A few words.", encoding="utf-8")
    with pytest.raises(UserError, match="less than one row"):
        foreword.plan(file, hours=1, family="encoder")


def test_forecasts_stand_beside_results(tmp_path: Path) -> None:
    for name, result in (("a", 1.7), ("b", 2.0), ("c", None)):
        forecast = {"unit": "bits per byte", "value": 1.72, "interval": [1.69, 1.75]}
        folder = tmp_path / name
        folder.mkdir()
        (folder / "run.json").write_text(json.dumps({"forecast": forecast | {"result": result}}))
        (folder / "recipe.toml").touch()
    found = foreword.plan(record=tmp_path)
    assert found.data()["coverage"] == 0.5
    assert [run["inside"] for run in found.data()["runs"]] == [True, False, None]
    with pytest.raises(UserError, match="no such folder"):
        foreword.plan(record=tmp_path / "none")


def test_a_run_notes_its_forecast_first_and_its_result_last(
    text: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from foreword.planning import forecast
    from foreword.planning.laws import Expectation

    monkeypatch.setattr(
        forecast, "forecast_of", lambda _: Expectation("bits per byte", "", 3.0, (2, 4))
    )
    tiny = {"model.layers": 1, "tokenizer.vocab": 380, "train.evaluations": 1}
    run = foreword.pretrain(
        "gpt2_tiny", text, tmp_path / "run", steps=1, settings=tiny, progress=False
    )
    noted = json.loads((tmp_path / "run" / "run.json").read_text(encoding="utf-8"))["forecast"]
    assert noted["interval"] == [2.0, 4.0]
    assert noted["result"] == pytest.approx(run.last["heldout"]["bits_per_byte"])
    assert re.match("2 of|0 of|1 of", str(foreword.plan(record=run).tables()[1]["coverage"]))


def test_a_model_to_tag_learns_to_predict_the_next_token_first(text: Path, tmp_path: Path) -> None:
    plans = {}
    for purpose in ("tag", "classify"):
        out = tmp_path / f"{purpose}.toml"
        found = foreword.plan(text, hours=0.5, purpose=purpose, family="encoder", out=out)
        plans[purpose] = found.data(), load_recipe(str(out))
    (tag, staged), (classify, plain) = plans.values()
    assert [(one.share, one.objective) for one in staged.stages or ()] == [(0.7, "causal")]
    assert plain.stages is None
    assert replace(staged, stages=None) == plain
    # Losses were measured of one objective throughout.
    assert tag["forecast"]["value"] is None and "in stages" in tag["forecast"]["why"]
    assert classify["forecast"]["value"] or "in stages" not in classify["forecast"]["why"]
