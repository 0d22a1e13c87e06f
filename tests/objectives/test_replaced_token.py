from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from scipy import stats
from sklearn.metrics import roc_auc_score
from torch import Tensor
from torch.nn import functional as F

from foreword.data.rng import RowRng
from foreword.data.shard_writer import ShardWriter
from foreword.data.shards import Shards
from foreword.errors import UserError
from foreword.models.encoder_decoder import EncoderDecoder
from foreword.models.transformer import Transformer
from foreword.nn.init import initialise
from foreword.nn.model import Model
from foreword.nn.positions.learned import Learned
from foreword.objectives._generator import generator_settings
from foreword.objectives.masked import Masked
from foreword.objectives.replaced_token import ReplacedToken, ordered_pairs
from foreword.runs.recipe import load_recipe
from foreword.runs.setup import training_feed
from foreword.settings import kinds
from foreword.testing.objectives import corrupt
from foreword.train.feed import counted
from foreword.types import Batch, Rows, UniformDraws

from ..contracts.cases import FIRST, SEED, SIZE, Case, rows, select_rows, vocab

CASE = Case("replaced_token", "encoder", "transformer")
MASK = vocab().id("[MASK]")


def build(**settings: Any) -> Model:
    """Build a model wide enough for a generator of a quarter of its width."""
    settings_of_model = Transformer(d_model=32, layers=2, heads=4, dropout=0.0, init_std=0.2,
        attention_dropout=0.0, segments=2, normalise_embedding=True)  # fmt: skip
    backbone = settings_of_model.build(SIZE)
    model = Model(backbone, ReplacedToken(**settings).heads(backbone, vocab()))
    initialise(model, SEED)
    return model


def gradients(model: Model, loss: Tensor) -> dict[str, Tensor]:
    model.zero_grad(set_to_none=True)
    loss.backward()
    return {n: p.grad.clone() for n, p in model.named_parameters() if p.grad is not None}


def own(model: Model) -> list[str]:
    """The names of the generator's own parameters: the embeddings bear the backbone's names."""
    names = [n for n, _ in model.named_parameters()]
    return [n for n in names if n.startswith(("heads.generator.", "heads.token."))]


# -- what is read ----------------------------------------------------------------------------------


def test_the_generator_reads_a_cloze() -> None:
    given = rows([[60, 40], [100]] * 20)
    example, cloze = corrupt(ReplacedToken(), given), Masked(mask=0.85, random=0.0)
    expected = corrupt(cloze, given)
    assert example.source is not None
    assert expected.source is not None
    assert np.array_equal(example.source.ids, expected.source.ids)
    assert np.array_equal(example.weights, expected.weights)
    share = (example.source.ids == MASK).sum() / example.weights.sum()
    assert share == pytest.approx(0.85, abs=0.05)


def test_uniform_draws_are_uniform_and_mark_padding() -> None:
    given = rows([[200], [100]] * 20)
    uniform_draws = corrupt(ReplacedToken(), given).require(UniformDraws).draws
    assert uniform_draws.dtype == np.float32
    assert np.array_equal(uniform_draws < 0, given.documents < 0)
    assert uniform_draws.max() < 1
    assert stats.kstest(uniform_draws[uniform_draws >= 0], "uniform").pvalue > 0.01


def skewed(given: Rows) -> Rows:
    """The same with four ordinary tokens of their own in each row, the first half of it."""
    number = given.ids - FIRST
    few = np.where(number % 8 < 3, 0, number % 4) + 4 * (given.numbers[:, None] % 10)
    return replace(given, ids=np.where(number < 0, given.ids, FIRST + few))


def test_a_replacement_has_the_part_of_speech_of_its_token(tmp_path: Path) -> None:
    treebank = tmp_path / "words.conllu"
    tagged = [("the", "DET"), ("Cat", "NOUN"), ("ran", "VERB"), ("a", "DET"), ("ran", "NOUN"),
              ("dog", "NOUN"), ("ran", "VERB")]  # fmt: skip
    lines = [f"{n}\t{w}\t_\t{t}" + "\t_" * 6 for n, (w, t) in enumerate(tagged, 1)]
    treebank.write_text("\n".join(lines) + "\n\n", encoding="utf-8")
    words = ["the", "a", "cat", "dog", "ran", "elsewhere", "nowhere", "##s", "##ing"]
    is_special = np.arange(FIRST + len(words)) < FIRST
    many = replace(
        vocab(),
        size=len(is_special),
        is_special=is_special,
        starts_word=~is_special & (np.arange(len(is_special)) < FIRST + 7),
        spellings=tuple(b"" for _ in range(FIRST)) + tuple(w.strip("#").encode() for w in words),
        counts=np.arange(len(is_special)) * 100,
    )
    given = np.tile(FIRST + np.arange(len(words)), (60, 10))
    documents = np.zeros_like(given)
    positions = np.broadcast_to(np.arange(given.shape[1]), given.shape)
    row = Rows(given, documents, positions, np.arange(60))
    objective = ReplacedToken(replacements="part_of_speech", tags=str(treebank))
    example = objective.corrupt(row, RowRng(1, row.numbers), many)
    assert example.source is not None
    groups = [{"the", "a"}, {"cat", "dog"}, {"ran"}, {"elsewhere", "nowhere"}, {"##s", "##ing"}]
    group_of = {word: n for n, group in enumerate(groups) for word in group}
    kinds_of = np.array([-1] * FIRST + [group_of[word] for word in words])
    changed = example.source.ids != given
    assert (kinds_of[example.source.ids] == kinds_of[given]).all()
    assert {words[n - FIRST] for n in given[changed]} == {*words} - {"ran"}
    elsewhere = replace(objective, tags=str(tmp_path / "other.conllu"))
    with pytest.raises(UserError, match=r"objective\.tags: .*other\.conllu: "):
        elsewhere.corrupt(row, RowRng(1, row.numbers), many)


@pytest.mark.parametrize("replacements", ["unigram", "uniform"])
def test_replacements_without_a_generator_follow_their_distribution(replacements: str) -> None:
    given = skewed(rows([[100]] * 300))
    words = replace(vocab(), counts=np.bincount(given.ids.ravel(), minlength=SIZE))
    objective = ReplacedToken(replacements=replacements)  # type: ignore[arg-type]
    example = objective.corrupt(given, RowRng(SEED, given.numbers), words)
    assert example.source is not None
    chosen = example.weights > 0
    assert np.array_equal(example.source.ids[~chosen], given.ids[~chosen])
    actual = np.bincount(example.source.ids[chosen] - FIRST, minlength=SIZE - FIRST)
    ordinary = given.ids[given.ids >= FIRST] - FIRST
    frequency = np.bincount(ordinary, minlength=SIZE - FIRST) / len(ordinary)
    expected = frequency if replacements == "unigram" else np.full(SIZE - FIRST, 1 / (SIZE - FIRST))
    assert actual[expected == 0].sum() == 0
    seen = expected > 0
    assert stats.chisquare(actual[seen], actual.sum() * expected[seen]).pvalue > 0.01
    # They say nothing of the row: of ten alphabets one is the row's own.
    mine = (example.source.ids - FIRST) // 4 == given.numbers[:, None] % 10
    assert mine[chosen].mean() == pytest.approx(0.1, abs=0.02)


def test_the_frequencies_are_those_of_the_text_trained_on(tmp_path: Path) -> None:
    """Of two documents, the long one's tokens are drawn in rows of the short one."""
    with ShardWriter(tmp_path / "train", SIZE) as writer:
        for token, length in ((FIRST, 60), (FIRST + 1, 180)):
            writer.add(np.full(length, token), np.array([length]), np.array([1]))
    recipe = load_recipe(
        "electra_mini_unigram", ["packing.length=60", "packing.bos=", "packing.eos="]
    )
    feed = training_feed(recipe, Shards.open(tmp_path / "train"), vocab())
    assert feed.vocab.counts is not None
    assert feed.vocab.counts[FIRST : FIRST + 3].tolist() == [60, 180, 0]
    batch = feed.batch(np.arange(400), 1)
    replacements = batch.ids[batch.weights > 0]
    assert (replacements == FIRST + 1).mean() == pytest.approx(0.75, abs=0.02)
    short = batch.targets[:, 0] == FIRST
    assert 0 < short.sum() < 400
    assert (batch.ids[short][batch.weights[short] > 0] == FIRST + 1).mean() > 0.7


# -- the two models --------------------------------------------------------------------------------


@pytest.mark.parametrize(("share", "width", "heads"), [(0.25, 64, 1), (0.5, 128, 2), (1.0, 256, 4)])
def test_a_generator_is_a_share_of_the_model(share: float, width: int, heads: int) -> None:
    settings = Transformer(d_model=256, heads=4, layers=3, d_ff=1000)
    small = generator_settings(settings, share)
    assert (small.d_model, small.heads, small.layers) == (width, heads, 3)
    assert small.d_ff == 1000 * share
    assert small.embedding_width == 256


def test_a_third_of_base_gives_the_widths_of_the_paper() -> None:
    small = generator_settings(Transformer(d_model=768, heads=12), 0.3333)
    assert (small.d_model, small.heads, small.ff_width) == (256, 4, 1024)


def test_generator_and_discriminator_share_embeddings() -> None:
    model = build()
    ours, theirs = model.backbone, model.heads["generator"]
    assert theirs is not ours
    for name in ("token", "segment", "norm"):
        assert getattr(theirs.embedding, name) is getattr(ours.embedding, name)
    assert theirs.get_submodule("stack.position") is ours.get_submodule("stack.position")
    assert model.token_head.weight is ours.embedding.token.weight
    assert not any(".embedding.token" in n or "position" in n for n in own(model))


def test_a_generator_needs_a_transformer() -> None:
    backbone = EncoderDecoder(d_model=24, heads=2, layers=1, position=Learned(8)).build(SIZE)
    with pytest.raises(UserError, match=r"model\.kind: .* 'transformer'"):
        ReplacedToken().heads(backbone, vocab())


def test_uniform_replacements_need_no_generator() -> None:
    model = build(replacements="uniform")
    assert set(model.heads) == {"replaced"}
    assert ReplacedToken(replacements="uniform").token_backbone(model) is model.backbone


# -- the loss --------------------------------------------------------------------------------------


def test_the_loss_is_that_of_the_paper() -> None:
    """Against a loop over the tokens, with the logits of all positions."""
    model, batch = build(), CASE.batch(rows([[20, 12], [25]]))
    loss = ReplacedToken().loss(model, batch)
    logits = model.token_head(model.heads["generator"](batch).states)
    shown, nats = batch.ids.clone(), torch.zeros(())
    original = torch.where(batch.weights > 0, batch.targets, batch.ids)
    for row, position in batch.weights.nonzero().tolist():
        p = logits[row, position].softmax(-1)
        nats = nats - p[batch.targets[row, position]].log()
        draw = batch.require(UniformDraws).draws[row, position]
        shown[row, position] = int((p.cumsum(0) <= draw).sum())
    states = model.backbone(replace(batch, ids=shown)).states
    predicted = model.heads["replaced"](states)[..., 0]
    is_replaced, is_text = (
        shown != original,
        torch.from_numpy(rows([[20, 12], [25]]).documents >= 0),
    )
    detected = F.binary_cross_entropy_with_logits(predicted[is_text], is_replaced[is_text].float())
    torch.testing.assert_close(loss.total / loss.count, nats / batch.weights.sum() + 50 * detected)
    components = {name: (a / b).item() for name, (a, b) in loss.components.items()}
    right = ((predicted > 0) == is_replaced)[is_text].float().mean()
    assert components["accuracy"] == pytest.approx(right.item())
    assert components["recall"] == pytest.approx((predicted > 0)[is_replaced].float().mean().item())
    assert components["discriminator"] == pytest.approx(detected.item(), rel=1e-5)
    assert components["generator"] == pytest.approx((nats / batch.weights.sum()).item(), rel=1e-5)


def test_the_auc_is_that_of_scikit_learn() -> None:
    """Row by row, weighted by the pairs of each; a row without replacements has none."""
    rng = np.random.default_rng(0)
    scores = rng.normal(size=(6, 40)).round(1)  # with ties
    is_text = rng.random((6, 40)) < 0.9
    is_replaced = is_text & (rng.random((6, 40)) < np.array([[0.1, 0.3, 0.5, 0.0, 0.9, 0.2]]).T)
    expected, pairs = 0.0, 0
    for row, text, replaced in zip(scores, is_text, is_replaced, strict=True):
        number = int(replaced.sum() * (text & ~replaced).sum())
        if number:
            expected += number * roc_auc_score(replaced[text], row[text])
            pairs += number
    in_order, count = ordered_pairs(
        torch.tensor(scores), torch.tensor(is_replaced), torch.tensor(is_text & ~is_replaced)
    )
    assert count.item() == pairs > 0
    assert in_order.item() == pytest.approx(expected)


def test_the_auc_is_among_the_components_of_the_loss() -> None:
    model, batch = build(), CASE.batch(rows([[20, 12], [25]]))
    with torch.no_grad():  # a discriminator that scores all tokens alike
        model.heads["replaced"][2].weight.zero_()
    in_order, pairs = ReplacedToken().loss(model, batch).components["auc"]
    assert pairs > 0
    assert in_order / pairs == 0.5


def test_the_discriminator_can_learn_to_correct_too() -> None:
    """From the row with replacements, at the chosen positions, by an output layer of its own."""
    model, batch = build(correction=2.0), CASE.batch(rows([[20, 12], [25]]))
    objective = ReplacedToken(correction=2.0)
    loss = objective.loss(model, batch)
    replaced = model.token_head.sample(model.heads["generator"](batch), batch)
    ids = torch.where(batch.weights > 0, batch.targets, batch.ids)
    shown = replace(batch, ids=ids.masked_scatter(batch.weights > 0, replaced))
    expected = model.heads["correction"].loss(model.backbone(shown), batch)  # type: ignore[operator]
    corrected, count = loss.components["correction"]
    torch.testing.assert_close(corrected, expected.total)
    assert count == batch.weights.sum()
    alone = ReplacedToken().loss(model, batch)
    torch.testing.assert_close(loss.total, alone.total + 2 * corrected)
    learned = gradients(model, loss.total)
    assert learned["backbone.stack.blocks.0.feedforward.up.weight"].any()
    for name, gradient in gradients(model, alone.total).items():
        if name in own(model):
            torch.testing.assert_close(learned[name], gradient)


def test_correction_needs_a_generator() -> None:
    with pytest.raises(ValueError, match=r"^correction: requires replacements='generator'"):
        ReplacedToken(correction=1.0, replacements="unigram")


def test_a_sampled_original_is_not_a_replacement() -> None:
    model, batch = build(), CASE.batch(rows([[30]] * 2))
    with torch.no_grad():  # sure of one token, which is the right one everywhere
        model.token_head.bias[FIRST] = 1e4
    ids = torch.where(batch.ids >= FIRST, FIRST, batch.ids)
    batch = replace(batch, ids=ids, targets=torch.full_like(batch.targets, FIRST))
    loss = ReplacedToken().loss(model, batch)
    assert loss.components["recall"][1] == 0
    assert loss.components["generator"][0] == 0


def test_the_generator_learns_nothing_from_the_discriminator() -> None:
    batch = CASE.batch(rows([[30]] * 4))
    model = build()
    actual = gradients(model, ReplacedToken(weight=50.0).loss(model, batch).total)
    alone = model.token_head.loss(model.heads["generator"](batch), batch).total
    expected = gradients(model, alone)
    assert len(own(model)) > 20
    for name in own(model):
        torch.testing.assert_close(actual[name], expected[name])


def test_the_embeddings_learn_from_both_losses() -> None:
    batch = CASE.batch(rows([[30]] * 4))
    model = build()
    both = gradients(model, ReplacedToken().loss(model, batch).total)
    one = gradients(model, model.token_head.loss(model.heads["generator"](batch), batch).total)
    half = gradients(model, ReplacedToken(weight=25.0).loss(model, batch).total)
    for name in ("backbone.embedding.token.weight", "backbone.stack.position.table.weight"):
        assert one[name].any()
        torch.testing.assert_close(
            both[name] - one[name], 2 * (half[name] - one[name]), atol=1e-3, rtol=1e-3
        )
        assert (both[name] - one[name]).any()


def test_the_discriminator_learns_in_a_step_without_generated_tokens() -> None:
    model, batch = build(), CASE.batch(rows([[30]] * 2))
    batch = replace(batch, weights=torch.zeros_like(batch.weights))
    loss = ReplacedToken(weight=50.0).loss(model, batch)
    detected, count = loss.components["discriminator"]
    torch.testing.assert_close(loss.total, 50 * detected)
    assert loss.count == count > 0


def test_each_term_is_divided_by_its_own_count() -> None:
    """Rows of unequal text and unequal shares: neither count is a multiple of the other."""
    model, objective = build(), ReplacedToken()
    given = rows([[30], [9, 2, 2], [12], [3, 3, 3, 3]])
    whole = objective.loss(model, CASE.batch(given))
    pieces = [CASE.batch(select_rows(given, slice(n, n + 1))) for n in range(4)]
    batches: list[Batch] = [b.to("cpu") for b in counted(objective, pieces)]
    shares = {float(b.weights.sum() / (b.require(UniformDraws).draws >= 0).sum()) for b in pieces}
    assert len(shares) > 1
    losses = [objective.loss(model, batch) for batch in batches]
    total = sum(loss.total for loss in losses) / sum(loss.count for loss in losses)
    torch.testing.assert_close(total, whole.total / whole.count)


def test_replaced_token_cannot_be_a_term_of_a_sum() -> None:
    cls = kinds.load("objectives", "sum")
    with pytest.raises(ValueError, match="cannot be a term"):
        cls(terms=(ReplacedToken(),))
