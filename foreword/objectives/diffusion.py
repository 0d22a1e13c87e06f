"""Masked diffusion: predict tokens at any share of masking, as a generative model (LLaDA)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from torch import nn

from foreword.data.rng import RowRng
from foreword.nn.model import Backbone, Model, neural
from foreword.objectives._contract import Prediction, Term
from foreword.objectives._masking import candidates_of, in_place, mask_share
from foreword.types import Batch, Example, Hidden, Loss, Rows, Vocab


@dataclass(frozen=True)
class Diffusion(Term):
    """A share t of the tokens, between 0 and 100 %, becomes [MASK]; all of them are predicted.

        ids      [ 7  8  9  4  2]          [MASK] is 3
        inputs   [ 3  3  9  3  2]
        targets  [ 7  8  .  4  .]          . is not scored

    With layout `encoder`. Each row has a share of its own: of its n tokens 1, 2, ... or n are
    masked, every number equally likely, and which ones is random. A prediction has the weight 1/t,
    so that the weights of a row sum to n and the loss is nats per token of the text. Shares are
    spread evenly over rows of successive numbers (`RowRng.evenly`), as over a batch in MDLM; a row
    depends on its number and the seed alone.

    What the loss bounds: let the model write a text by choosing the masked position to fill next
    at random, and then its token from the model's distribution given all that is written so far.
    The text's probability is the mean, over all orders, of the product of its tokens'
    probabilities. The loss is the mean over orders of the negative logarithm of that product, which
    by Jensen's inequality is at least the negative logarithm of the mean. So it is an upper bound
    of the negative log-likelihood of that distribution, the reverse process in the limit of many
    steps, given the length of the text and its unmasked special tokens. Masking a random number of
    tokens and weighting by 1/t estimates it without bias. A sampler that fills the surest position
    first, or several at once, writes by another distribution, of which nothing is said.

    Attributes:
        end: a special token that is masked and predicted like the text's own, the packing's `eos`:
            only so does the model learn where texts end; "" for none.
        transform: BERT's dense layer, GELU and LayerNorm before the output layer.

    Also called: MDLM, absorbing-state discrete diffusion, LLaDA, any-order autoregressive.
    Reference: Sahoo et al. 2024; Shi et al. 2024; Nie et al. 2025, "Large language diffusion
    models"; for the identity of both views Hoogeboom et al. 2022, "Autoregressive diffusion
    models", section 3, and Ou et al. 2024.
    Differs from the papers: exactly t of a row is masked, not each token with probability t, which
    has the same expectation and less variance (Nie et al. 2025, equation 6); the probability of
    [MASK] is learned to be 0, not set to it, as in LLaDA.
    """

    end: str = ""
    transform: bool = True

    @property
    def predicts(self) -> Prediction:
        return Prediction("in_place", any_order=True)

    def corrupt(self, rows: Rows, rng: RowRng, vocab: Vocab) -> Example:
        """Return the masked inputs, and the targets with the weight 1/t at the same positions."""
        candidates = candidates_of(rows, vocab)
        if self.end:
            candidates |= (rows.ids == vocab.id(self.end)) & (rows.documents >= 0)
        chosen, weights = mask_share(candidates, rng)
        return in_place(rows, np.where(chosen, vocab.id("[MASK]"), rows.ids), weights)

    def heads(self, backbone: Backbone, vocab: Vocab) -> nn.ModuleDict:
        """Return the output layer with a bias per token, after BERT's transform."""
        head = neural(backbone).build_softmax_head(transform=self.transform, bias=True)
        return nn.ModuleDict({"token": head})

    def loss_from_states(self, model: Model, batch: Batch, hidden: Hidden) -> Loss:
        """Return the weighted cross-entropy of the masked tokens, in nats; the count is n."""
        return model.token_head.loss(hidden, batch)
