"""Tables of learned biases, which weight decay excludes like any bias."""

from __future__ import annotations

from torch import nn


class BiasTable(nn.Embedding):
    """Rows of biases: of a layer, of a bucket of distances, of the query stream's initial vector.

    It has two dimensions like a matrix, but nothing is multiplied by it.
    """
