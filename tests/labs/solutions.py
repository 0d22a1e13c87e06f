"""The answers of the shipped labs, computed; and of each part the wrong ones that have a hint."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

import foreword
from foreword.data.rng import RowRng
from foreword.evaluation.sampling import Sampling, distribution
from foreword.nn.init import shapes_only
from foreword.nn.masks import CausalMask, DocumentMask, PermutationMask, PrefixMask, WindowMask
from foreword.objectives.masked import Masked
from foreword.objectives.span_corruption import SpanCorruption
from foreword.runs.recipe import load_recipe
from foreword.testing import cases
from foreword.text import trace

Solution = dict[str, tuple[Any, ...]]  # by part: the right answer, then wrong ones
CPU = torch.device("cpu")


def ngrams() -> Solution:
    text = ["the cat sat", "the cat ate the fish", "a dog ate the cat", "the dog sat"]
    rows = [["<s>", *line.split(), "</s>"] for line in text]
    pairs = Counter(pair for row in rows for pair in pairwise(row))
    context = Counter(word for row in rows for word in row[:-1])
    before = Counter(second for _, second in pairs)
    after = Counter(first for first, _ in pairs)

    def likelihood(v: str, w: str) -> float:
        return pairs[v, w] / context[v]

    def kneser_ney(v: str, w: str, share: float | None = None) -> float:
        share = before[w] / len(pairs) if share is None else share
        return (max(pairs[v, w] - 0.75, 0) + 0.75 * after[v] * share) / context[v]

    sentence = list(pairwise(["<s>", *["the", "dog", "ate", "the", "fish"], "</s>"]))
    total = math.prod(kneser_ney(*pair) for pair in sentence)
    occurrences = Counter(word for row in rows for word in row[1:])
    words = ["cat", "dog", "sat", "the"]
    unigram = [occurrences[word] / occurrences.total() for word in words]
    likely = math.prod(likelihood(*pair) for pair in sentence)
    by_words = [kneser_ney("the", w, unigram[words.index(w)]) for w in ("cat", "sat")]
    counts = [pairs["the", "cat"], pairs["ate", "the"], pairs["<s>", "the"], context["the"]]
    return {
        "counts": (counts, [*counts[:2], 0, counts[3]]),
        "types": (len(pairs), pairs.total()),
        "likelihood": (likely, likely / likelihood("<s>", "the")),
        "contexts": ([before[word] for word in words], [occurrences[word] for word in words]),
        "kneser_ney": ([kneser_ney("the", "cat"), kneser_ney("the", "sat")], by_words),
        "perplexity": (total ** (-1 / 6), total ** (-1 / 5)),
    }


def bpe() -> Solution:
    words = {"sun": 6, "sung": 4, "sing": 5, "singing": 3, "ring": 7, "rings": 2}
    steps = trace.learn(words, 5)
    at_once = Counter[tuple[str, str]]()
    for word, count in words.items():
        for pair in dict.fromkeys(pairwise(word)):
            at_once[pair] += count
    all_pairs = Counter[tuple[str, str]]()
    for word, count in words.items():
        for pair in pairwise(word):
            all_pairs[pair] += count
    naive = [list(pair) for pair, _ in all_pairs.most_common(5)]
    last = steps[-1].words
    size = sum(len(word) * count for word, count in zip(last, words.values(), strict=True))
    return {
        "first_count": (steps[0].count, max(at_once.values())),
        "merges": ([list(step.pair) for step in steps], naive),
        "vocabulary": (steps[-1].vocab,),
        "corpus": (size, sum(map(len, last))),
        "unseen": (list(trace.segment("ringsung", steps)), ["r", "ing", "su", "ng"]),
    }


def subwords() -> Solution:
    inside = ["play", "er", "ers", "ed", "a", "b", "l", "e", "able", "s"]
    vocabulary = [*["un", "unpl", "play", "re", "plays", "r"], *(f"##{piece}" for piece in inside)]

    def wordpiece(word: str) -> list[str]:
        pieces: list[str] = []
        at = 0
        while at < len(word):
            ends = range(len(word), at, -1)
            fits = [end for end in ends if "##" * (at > 0) + word[at:end] in vocabulary]
            if not fits:
                return ["[UNK]"]
            pieces.append("##" * (at > 0) + word[at : fits[0]])
            at = fits[0]
        return pieces

    p = dict.fromkeys("hugs", 0.05) | {"hu": 0.05, "ug": 0.5, "hug": 0.02, "gs": 0.02}

    def ways(word: str) -> list[list[str]]:
        if not word:
            return [[]]
        starts = [word[:n] for n in range(1, len(word) + 1) if word[:n] in p]
        return [[piece, *rest] for piece in starts for rest in ways(word[len(piece) :])]

    def value(way: list[str]) -> float:
        return math.prod(p[piece] for piece in way)

    all_ways = ways("hugs")
    best = max(all_ways, key=value)
    words = ["unplayable", "replays", "players"]
    maybe = ["played", "unread", "playable", "replayed", "plush"]
    pairs = {
        ("q", "u"): (20, 20, 400),
        ("t", "h"): (500, 900, 600),
        ("z", "y"): (4, 5, 300),
        ("x", "e"): (3, 6, 2000),
    }
    score = max(pairs, key=lambda pair: pairs[pair][0] / (pairs[pair][1] * pairs[pair][2]))
    right = [wordpiece(word) for word in words]
    return {
        "wordpiece": (right, [["un", "##play", "##able"], *right[1:]]),
        "unknown": ([word for word in maybe if wordpiece(word) == ["[UNK]"]], ["plush"]),
        "segmentations": (len(all_ways),),
        "likeliest": (best, ["hug", "s"]),
        "probability": (sum(map(value, all_ways)), value(best)),
        "score": (list(score), ["t", "h"]),
    }


def rnn_gradients() -> Solution:
    w = torch.tensor(0.9, dtype=torch.float64, requires_grad=True)
    states = [torch.zeros((), dtype=torch.float64)]
    for x in (1, 0.5, -0.5, 0.25):
        states.append(torch.tanh(w * states[-1] + x))
    (through,) = torch.autograd.grad(states[4], states[1], retain_graph=True)
    (gradient,) = torch.autograd.grad((states[4] - 1) ** 2 / 2, w)
    last = ((states[4] - 1) * (1 - states[4] ** 2) * states[3]).item()
    return {
        "states": ([state.item() for state in states[1:]],),
        "through_time": (through.item(), 0.9**3),
        "gradient": (gradient.item(), last),
        "vanishing": (math.floor(math.log(0.01) / math.log(0.9)) + 1,),
        "gate": (math.floor(math.log(0.01) / math.log(0.99)) + 1,),
        "clipped": ([3 / 13, -4 / 13, 12 / 13], [1, -1, 1]),
    }


def masks() -> Solution:
    def rows(mask: Any, n: int) -> list[list[int]]:
        return [list(map(int, row)) for row in mask.dense(1, n, n, CPU)[0, 0].tolist()]

    def weights(scale: float) -> list[float]:
        query = torch.tensor([1.0, 0, 1, 0])
        keys = torch.tensor([[2.0, 0, 0, 0], [0, 2, 0, 0], [2, 0, 2, 0]])
        return list(torch.softmax(keys @ query / scale, 0).tolist())

    causal = rows(CausalMask(), 4)
    no_self = [[int(j < i) for j in range(4)] for i in range(4)]
    prefix = CausalMask() | PrefixMask(torch.tensor([[True, True, False, False, False]]))
    documents = torch.tensor([[0, 0, 1, 1, 1]])
    packed = CausalMask() & DocumentMask(documents, documents)
    order = torch.tensor([[1, 3, 0, 2]])
    window = sum(map(sum, rows(WindowMask(10), 1000)))
    return {
        "weights": (weights(2.0), weights(1.0)),
        "causal": (causal, no_self, [list(column) for column in zip(*causal, strict=True)]),
        "prefix": (rows(prefix, 5), rows(CausalMask(), 5)),
        "packed": (rows(packed, 5), rows(CausalMask(), 5)),
        "permutation": (
            rows(PermutationMask(order, includes_self=False), 4),
            rows(PermutationMask(order, includes_self=True), 4),
        ),
        "window": (window, 1000 * 21),
    }


def masking() -> Solution:
    batch, vocab = cases.rows([[100]] * 8), cases.vocab()
    example = Masked().corrupt(batch, RowRng(7, batch.numbers), vocab)
    assert example.source is not None
    chosen = example.weights == 1
    shown, true, mask = example.source.ids, example.target.ids, vocab.id("[MASK]")
    masked = (shown == mask) & chosen
    kept = (shown == true) & chosen
    fates = [int(part.sum()) for part in (masked, chosen & ~masked & ~kept, kept)]
    one = Masked()._choose(_row(batch, 2), RowRng(7, batch.numbers[2:3]).uniform(100), vocab)
    return {
        "per_row": ([int(chosen[0].sum()), int(chosen.sum())],),
        "first_row": (np.flatnonzero(chosen[0]).tolist(), np.flatnonzero(masked[0]).tolist()),
        "fates": (fates,),
        "alone": (bool((one[0] == chosen[2]).all()),),
        "share": (0.15 * 0.8, 0.15),
        "never": (0.85**10, 0.85),
    }


def _row(rows: Any, number: int) -> Any:
    return type(rows)(
        *(part[number : number + 1] for part in (rows.ids, rows.documents, rows.positions)),
        numbers=rows.numbers[number : number + 1],
    )


def spans() -> Solution:
    first, second, end = "<extra_id_0>", "<extra_id_1>", "</s>"
    source = ["we", "had", first, "the", "old", "house", second, "came", end]
    target = [first, "to", "leave", second, "before", "the", "storm", end]
    each = [
        "we",
        "had",
        first,
        second,
        "the",
        "old",
        "house",
        *(f"<extra_id_{n}>" for n in (2, 3, 4)),
    ]
    masked, number = SpanCorruption().counts(512)
    lengths = [512 - masked + number + 1, masked + number + 1]
    p = [0.2 * 0.8 ** (length - 1) for length in range(1, 11)]
    mean = sum(length * share for length, share in enumerate(p, 1)) / sum(p)
    return {
        "source": (source, [*each, "came", end]),
        "target": (target, target[:-1]),
        "restored": (["the", "small", "bird", "sings", "every", "morning"],),
        "lengths": (lengths, [512 - masked + 1, masked + 1]),
        "cost": (round(100 * sum(lengths) / 512),),
        "geometric": (mean, 5.0),
    }


def packing() -> Solution:
    sizes = [7, 3, 12, 5, 9, 2, 6, 4]

    def fit(order: list[int]) -> list[list[int]]:
        bins: list[list[int]] = []
        for size in order:
            room = next((row for row in bins if sum(row) + size <= 16), None)
            if room is None:
                bins.append([size])
            else:
                room.append(size)
        return bins

    ends = np.cumsum(sizes).tolist()
    starts = [0, *ends[:-1]]
    cut = [n for n in range(8) if starts[n] // 16 != (ends[n] - 1) // 16]
    inside = [min(end, 16) - start for start, end in zip(starts, ends, strict=True) if start < 16]
    pairs = sum(n * (n + 1) // 2 for n in inside)
    return {
        "padding": (1 - sum(sizes) / (8 * 16),),
        "first_fit": (fit(sorted(sizes, reverse=True)), fit(sizes)),
        "stream": (cut,),
        "positions": ([n for size in inside for n in range(size)], list(range(16))),
        "pairs": ([pairs, 16 * 17 // 2], [sum(n * n for n in inside), 256]),
        "speed": (8 * 16 / sum(sizes),),
    }


def electra() -> Solution:
    labels = [0, 0, 0, 0, 1, 0, 0, 1, 0, 0]
    logits = torch.tensor([-2.0, 0, -2, -2, 3, -2, -2, 0, -2, -2], dtype=torch.float64)
    each = nn.functional.binary_cross_entropy_with_logits(
        logits, torch.tensor(labels, dtype=torch.float64), reduction="none"
    )
    loss = each.mean().item()
    return {
        "labels": (labels, [0, 1, 0, 0, 1, 0, 0, 1, 0, 0]),
        "signals": ([round(0.15 * 128), 128],),
        "loss": (loss, each[[1, 4, 7]].mean().item()),
        "total": (3.2 + 50 * loss,),
        "replaced": (0.15 * 0.6, 0.15 * 0.4),
        "baseline": (1 - 0.15 * 0.6,),
    }


def sizes() -> Solution:
    settings = ["model.layers=6", "tokenizer.vocab=8192", "packing.length=512"]
    recipe = load_recipe("gpt2_mini", [*settings, "model.position.length=512"])
    with shapes_only():
        model = recipe.model.build(8192)
    counted = {name: p.numel() for name, p in model.named_parameters()}
    matrices = 12 * 256**2
    layer = matrices + 4 * 256 + 4 * 256 + 256 + 4 * 256
    embeddings = (8192 + 512) * 256
    total = embeddings + 6 * layer + 512
    assert total == sum(counted.values()), counted
    return {
        "embeddings": (embeddings,),
        "layer": (layer, matrices),
        "total": (total, total + 8192 * 256, total - 512),
        "shared": (total - 5 * layer,),
        "flops": (6.0 * total * 1e7,),
        "cache": (2 * 6 * 512 * 256 * 2, 6 * 512 * 256 * 2),
        "memory": (16 * total,),
    }


def scaling() -> Solution:
    n = np.array([1e5, 4e5, 1.6e6, 6.4e6, 2.56e7])
    loss = np.array([4.5, 3.7174, 3.1446, 2.7253, 2.4184])
    slope, height = np.polyfit(np.log(n), np.log(loss), 1)
    second, above = np.polyfit(np.log(n), np.log(loss - 1.58), 1)
    forecast = math.exp(above + second * math.log(1e9))
    best = math.sqrt(3e17 / 120)
    return {
        "line": (float(-slope), float(slope)),
        "forecast": (math.exp(height + slope * math.log(1e9)),),
        "curved": (float(-second),),
        "second_forecast": (1.58 + forecast, forecast),
        "optimum": ([best / 1e6, 20 * best / 1e6], [math.sqrt(3e17 / 6) / 1e6] * 2),
    }


WORDS = ["the sun", "a river", "my friend", "the old house", "no one"]
ACTS = ["shines", "waits for the rain", "sleeps", "knows the way", "sings at night"]


def resuming(folder: Path | None = None) -> Solution:
    loss, tokens = LOSS, 40 * 16 * 32
    if folder is not None:
        texts = [
            f"{WORDS[n % 5]} {ACTS[n * n % 5]} and {WORDS[n * 3 % 5]} {ACTS[n % 4]}."
            for n in range(2000)
        ]
        settings = ["tokenizer.vocab=400", "packing.length=32", "train.batch=16"]
        out = folder / "lab_run"
        run = foreword.pretrain(
            "gpt2_tiny", texts=texts, out=out, steps=40, settings=settings, progress=False
        )
        tokens = run.last["train"]["tokens"]
        found = foreword.evaluate(run, progress=False).loss
        assert found is not None
        loss = found
    draws = RowRng(3, np.array([41])).integers(100, 4)[0].tolist()
    together = RowRng(3, np.array([40, 41])).integers(100, 4)[1].tolist()
    return {
        "rows": ([12 * 32 + 16, 12 * 32 + 23], [11 * 32 + 16, 11 * 32 + 23]),
        "draws": (draws,),
        "again": (together,),
        "mean": ((2.0 * 30 + 4.0 * 10) / 40, 3.0),
        "tokens": (tokens, 40 * 16),
        "loss": (loss,),
    }


def sampling() -> Solution:
    logits = torch.tensor([[2.0, 1.5, 1.0, 0.0, -1.0]])

    def p(**settings: Any) -> list[float]:
        found = distribution(logits, Sampling(**{"temperature": 1.0, "top_k": 0} | settings))
        return list(found[0].tolist())

    def left(**settings: Any) -> int:
        return sum(value > 0 for value in p(**settings))

    shares = [0.75, 0.9, 0.95]
    within = [sum(np.cumsum(p()) < share) for share in shares]
    return {
        "softmax": (p(),),
        "cold": (p(temperature=0.5)[0], p(temperature=2.0)[0]),
        "top_k": (p(top_k=2)[0], p()[0]),
        "top_p": ([left(top_p=share) for share in shares], list(map(int, within))),
        "both": (left(temperature=2.0, top_k=4, top_p=0.6),),
        "search": (["xx", "yx"], ["xx", "xx"]),
    }


def metrics() -> Solution:
    candidate = ["the", "cat", "sat", "on", "the", "the", "mat"]
    reference = ["the", "cat", "is", "on", "the", "mat", "now", "please"]
    matches, precisions = [], []
    for n in (1, 2):
        ours, theirs = (
            Counter(zip(*(words[k:] for k in range(n)), strict=False))
            for words in (candidate, reference)
        )
        matches.append((ours & theirs).total())
        precisions.append(matches[-1] / ours.total())
    mean = math.sqrt(math.prod(precisions))
    kappa = (0.92 - (0.1 * 0.08 + 0.9 * 0.92)) / (1 - (0.1 * 0.08 + 0.9 * 0.92))
    spam, rest = 10 / 18, 2 * 87 / (92 + 90)
    return {
        "clipped": (matches, [matches[0] + 1, matches[1]]),
        "bleu": (mean * math.exp(1 - 8 / 7), mean),
        "names": ([0.5, 0.5, 0.5], [7 / 9, 7 / 9, 7 / 9]),
        "accuracy": ([0.92, 0.9],),
        "kappa": (kappa, (0.92 - 0.5) / 0.5),
        "macro_f1": ((spam + rest) / 2,),
    }


LOSS = 1.7431
SOLUTIONS: dict[str, Callable[[], Solution]] = {
    "bpe": bpe,
    "electra": electra,
    "masking": masking,
    "masks": masks,
    "metrics": metrics,
    "ngrams": ngrams,
    "packing": packing,
    "resuming": resuming,
    "rnn_gradients": rnn_gradients,
    "sampling": sampling,
    "scaling": scaling,
    "sizes": sizes,
    "spans": spans,
    "subwords": subwords,
}
