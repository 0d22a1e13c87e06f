"""Predict with an exported average of candidates, without Foreword: this file is `predict.py` in its folder.

    python predict.py "a text" "another text"             # of a model of pairs: two texts for each
    from predict import Average; Average(".")(["a text"])   # pairs: Average(".")(firsts, seconds)

It requires Python 3.11 and numpy; for parts that are networks also onnxruntime and tokenizers. `parts.json` names the
parts: `counts` are n-grams, weighted and multiplied by a matrix; `graph` is a folder with a network.
"""  # noqa: E501

from __future__ import annotations

import json
import math
import re
import sys
import unicodedata
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np


def grams_of(text: str, about: dict[str, Any]) -> list[str]:
    """Return the n-grams of a text: of words, or of characters within words."""
    text, longest = text.lower(), int(about["longest"])
    if about["grams"] == "words":
        words = re.findall(about["word"], unicodedata.normalize("NFC", text.lower()))
        words = [word for word in words if len(word) > 1 or re.search(about["unspaced"], word)]
        sizes = range(1, longest + 1)
        return [" ".join(words[n : n + k]) for k in sizes for n in range(len(words) - k + 1)]
    grams = []
    for word in text.split():
        padded = f" {word} "
        for k in range(1, longest + 1):
            grams += [padded[n : n + k] for n in range(max(1, len(padded) - k + 1))]
            if k >= len(padded):  # a short word counts once
                break
    return grams


def grams_of_pair(text: str, pair: str | None, about: dict[str, Any]) -> list[str]:
    """Return the n-grams of a text; of a pair, marked by the texts that have them."""
    first = grams_of(text, about)
    if pair is None:
        return first
    second = grams_of(pair, about)
    marked = {"1": first, "2": second, "both": set(first) & set(second)}
    marked["one"] = set(first) ^ set(second)
    return [f"{mark} {gram}" for mark, grams in marked.items() for gram in grams]


class CountsPart:
    """Weighted counts of n-grams, and a linear map of them.

    Args:
        folder: a folder with `counts.json` and `counts.npz`.
    """

    def __init__(self, folder: Path) -> None:
        self.about = json.loads((folder / "counts.json").read_text(encoding="utf-8"))
        self.columns = {gram: n for n, gram in enumerate(self.about["vocabulary"])}
        arrays = np.load(folder / "counts.npz")
        self.scale, self.weights, self.bias = (arrays[n] for n in ("scale", "weights", "bias"))

    def __call__(self, text: str, pair: str | None) -> Any:
        """Return the outputs for a text or a pair."""
        counts = Counter(grams_of_pair(text, pair, self.about))
        known = {self.columns[gram]: n for gram, n in counts.items() if gram in self.columns}
        values = np.ones(len(known))
        columns = np.fromiter(known, np.int64, len(known))
        if self.about["weighting"] == "tf_idf":
            values = np.asarray([1 + math.log(n) for n in known.values()]) * self.scale[columns]
            values = values / max(float(np.linalg.norm(values)), 1e-12)
        return values @ self.weights[columns] + self.bias


class NetworkPart:
    """A network as an ONNX graph, with its tokenizer.

    Args:
        folder: a folder with `model.onnx`, `tokenizer.json` and `config.json`.
    """

    def __init__(self, folder: Path, *, int8: bool) -> None:
        import onnxruntime
        from tokenizers import Tokenizer

        self.tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
        config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
        self.tokenizer.enable_truncation(config["max_length"])
        graph = folder / ("model_int8.onnx" if int8 else "model.onnx")
        self.session = onnxruntime.InferenceSession(graph, providers=["CPUExecutionProvider"])
        self.inputs = [each.name for each in self.session.get_inputs()]

    def __call__(self, text: str, pair: str | None) -> Any:
        """Return the outputs for a text or a pair, which is cut to the most tokens."""
        encoded = self.tokenizer.encode(text) if pair is None else self.tokenizer.encode(text, pair)
        given = {
            "input_ids": encoded.ids,
            "attention_mask": [1] * len(encoded.ids),
            "token_type_ids": encoded.type_ids,
        }
        inputs = {name: np.asarray([given[name]], np.int64) for name in self.inputs}
        return np.asarray(self.session.run(None, inputs)[0], np.float64)[0]


class Average:
    """The average of the parts in a folder.

    Where a text may have several labels, `thresholds` has the probability from which each one is
    predicted.

    Args:
        int8: whether to read networks of 8 bits, if they were exported.
    """

    def __init__(self, folder: str | Path, *, int8: bool = False) -> None:
        root = Path(folder)
        about = json.loads((root / "parts.json").read_text(encoding="utf-8"))
        self.form, self.labels, self.parts = about["form"], about["labels"], about["parts"]
        self.of_pairs, self.apart = about["of_pairs"], about["apart"]
        self.thresholds = about.get("thresholds", [])
        graphs = {part["graph"] for part in self.parts if part["graph"]}
        self.networks = {name: NetworkPart(root / name, int8=int8) for name in graphs}
        for part in self.parts:
            if part["counts"]:
                part["read_counts"] = CountsPart(root / part["counts"])
            if part["linear"]:
                part["map"] = dict(np.load(root / part["linear"]))

    def __call__(self, texts: Sequence[str], pairs: Sequence[str] | None = None) -> Any:
        """Return the probability of each label, (texts, labels), or the number of each text."""
        seconds = [None] * len(texts) if pairs is None else list(pairs)
        return np.stack([self._of(*both) for both in zip(texts, seconds, strict=True)])

    def _of(self, text: str, pair: str | None) -> Any:
        mean: Any = 0.0
        computed = {name: self._computed(name, text, pair) for name in self.networks}
        for part in self.parts:
            outputs: Any = 0.0
            if part["graph"]:
                outputs = computed[part["graph"]]
                if part["linear"]:
                    outputs = outputs @ part["map"]["weights"] + part["map"]["bias"]
            if part["counts"]:
                outputs = outputs + part["read_counts"](text, pair)
            mean = mean + part["weight"] * self._shares(outputs / part["temperature"])
        return mean

    def _computed(self, name: str, text: str, pair: str | None) -> Any:
        """Return a network's outputs; of pairs perhaps also how those of both texts compare."""
        network = self.networks[name]
        together = network(text, pair)
        if pair is None or name not in self.apart:
            return together
        first, second = network(text, None), network(pair, None)
        return np.concatenate([together, np.abs(first - second), first * second])

    def _shares(self, outputs: Any) -> Any:
        if self.form == "classes":
            powers = np.exp(outputs - outputs.max())
            return powers / powers.sum()
        return 1 / (1 + np.exp(-outputs)) if self.form == "sets" else outputs


if __name__ == "__main__":
    average = Average(Path(__file__).parent)
    given = sys.argv[1:]
    both = (given[::2], given[1::2]) if average.of_pairs else (given,)
    for *line, shares in zip(*both, average(*both), strict=True):
        named = zip(average.labels, shares, strict=True) if average.labels else [("", *shares)]
        cells = [*line, *(f"{label} {share:.4f}".strip() for label, share in named)]
        sys.stdout.write("\t".join(cells) + "\n")
