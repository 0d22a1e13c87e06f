"""Which tokens of a sentence attend to which, in each layer and head."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from foreword.errors import UserError
from foreword.evaluation.attention_weights import AttentionWeights, attention_weights
from foreword.probes._contract import Finding, ProbedModel, Row
from foreword.probes._marks import MAX_RUNS, title
from foreword.types import Array

DIGITS = 4  # of the weights in the details
PANEL, TOKEN = (1.3, 4.0), 0.12  # width of a panel at least and at most, and of a token, in inches
FONT = (3.0, 7.0)  # points of a token's label at least, or none is shown, and at most


@dataclass(frozen=True)
class Attention:
    """The attention weights of a sentence: a map for each layer and head.

    A row of a map is a token that attends, a column one that is attended to; the weights of a row
    sum to 1. They are those of self-attention, in an encoder-decoder of its encoder, with position
    biases and masks, window and BigBird included. Recurrent models have none, and Linformer's
    belong to no single token.

    The table sums up each head: the mean entropy of its rows in nats (0 attends to one token alone)
    and how far it looks, in tokens; and the mean weight on the token itself, the one before, the
    one after, and special tokens.

    Attributes:
        sentence: the text.

    Also called: attention maps, attention heatmap.
    Reference: Vaswani et al. 2017, section 3.2; Clark et al. 2019, section 3.
    Differs from the papers: nothing is said of why a weight is high; attention weights show what
    is mixed, not what decides (Jain & Wallace 2019).
    """

    reads_text: ClassVar[bool] = False

    sentence: str

    def measure(self, models: Sequence[ProbedModel]) -> Finding:
        """Measure the weights of each model.

        Raises:
            UserError: a model has no self-attention, or the sentence is empty or too long.
        """
        if not self.sentence.strip():
            raise UserError("probe.sentence: is empty")
        weights = [attention_weights(probed.trained, self.sentence) for probed in models]
        rows: list[Row] = []
        details: list[Row] = []
        for probed, of_model in zip(models, weights, strict=True):
            for layer, heads in enumerate(of_model.layers, 1):
                for head, matrix in enumerate(heads, 1):
                    labels = {"run": probed.label, "layer": layer, "head": head}
                    rows.append(labels | _summary(matrix, of_model.is_special))
                    details += [labels | row for row in _written(matrix, of_model.tokens)]
        labels_of = [probed.label for probed in models]
        return Finding(
            title=f"attention weights: {self.sentence}",
            rows=rows,
            details=details,
            notes=[
                "means over the tokens that attend: entropy in nats, distance in tokens, and the "
                "weight on the token itself, the one before, the one after, and special tokens",
                "weights: of each token in turn",
            ],
            plot=lambda figure: _plot(figure, labels_of, weights),
        )


def _summary(weights: Array, is_special: Array) -> dict[str, float]:
    """Return what a head attends to, from its weights (length, length)."""
    weights = weights.astype(np.float64)
    count = len(weights)
    at = np.arange(count)
    logs = np.log(np.where(weights > 0, weights, 1))
    figures = {
        "entropy": -(weights * logs).sum(1).mean(),
        "distance": (weights * np.abs(at[:, None] - at)).sum(1).mean(),
        "itself": np.trace(weights) / count,
        "before": np.trace(weights, -1) / max(1, count - 1),
        "after": np.trace(weights, 1) / max(1, count - 1),
        "special": weights[:, is_special].sum(1).mean(),
    }
    return {name: float(value) for name, value in figures.items()}


def _written(weights: Array, tokens: Sequence[str]) -> list[dict[str, Any]]:
    """Return a record for each token that attends."""
    return [
        {"token": token, "weights": " ".join(f"{w:.{DIGITS}f}" for w in row.tolist())}
        for token, row in zip(tokens, weights, strict=True)
    ]


def _plot(figure: Any, labels: Sequence[str], weights: Sequence[AttentionWeights]) -> None:
    """Plot a grid of maps: a row for each layer of each run, a column for each head."""
    runs = list(zip(labels, weights, strict=True))[:MAX_RUNS]
    columns = max(len(heads) for _, of_model in runs for heads in of_model.layers)
    tokens = max(len(of_model.tokens) for _, of_model in runs)
    size = float(np.clip(TOKEN * tokens, *PANEL))
    font = min(FONT[1], 0.9 * 72 * size / tokens)
    height = sum(len(of_model.layers) for _, of_model in runs)
    figure.set_size_inches(1.2 + size * columns + 0.2, 1.6 + (size + 0.25) * height)
    row = 0
    for label, of_model in runs:
        names = of_model.tokens if font >= FONT[0] else ()
        for layer, heads in enumerate(of_model.layers, 1):
            for head, matrix in enumerate(heads, 1):
                axes = figure.add_subplot(height, columns, row * columns + head)
                axes.imshow(np.sqrt(matrix), cmap="Blues", vmin=0.0, vmax=1.0, aspect="equal")
                axes.set_title(f"layer {layer}, head {head}", fontsize=7)
                axes.tick_params(length=0, labelsize=font)
                axes.set_xticks([])
                axes.set_yticks([])
                if head == 1:
                    axes.set_yticks(range(len(names)), names)
                    axes.set_ylabel(label, fontsize=8)
                if layer == len(of_model.layers):
                    axes.set_xticks(range(len(names)), names, rotation=90)
            row += 1
    figure.suptitle(title("Attention by layer and head", len(labels)), fontsize=10)
    figure.supxlabel("attended to; a row of a map sums to 1, darker is more", fontsize=8)
