"""Learned biases that are picked by number: weight decay leaves them alone, as it does biases."""

from __future__ import annotations

from torch import nn


class BiasTable(nn.Embedding):
    """Biases in rows: of a layer, of a bucket of distances, of what a query knows of its token.

    They have two dimensions, as a matrix has, and nothing is multiplied by them.
    """
