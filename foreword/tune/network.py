"""The network that is fine-tuned: a backbone under a head."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from foreword.nn.heads import TokenHead
from foreword.nn.model import Backbone, ModelSettings
from foreword.tune.scalar_mix import ScalarMix, require_layers
from foreword.tune.tasks._contract import Task
from foreword.types import Batch, Hidden


class Network(nn.Module):
    """A pretrained body under the head of a task.

    Args:
        backbone: reads rows of tokens.
        head: turns states (spots, d_model) into outputs (spots, outputs).
        token_head: pretraining's own, for a loss of language modelling beside the task's; or None.
        scalar_mix: makes the states that the head reads of those of all layers; None for the last
            one's.
    """

    def __init__(
        self,
        backbone: Backbone,
        head: nn.Module,
        token_head: TokenHead | None = None,
        scalar_mix: ScalarMix | None = None,
    ) -> None:
        super().__init__()
        self.backbone = backbone
        self.head = head
        self.token_head = token_head
        self.scalar_mix = scalar_mix

    def run_backbone(self, batch: Batch) -> Hidden:
        """The body's states; with those of each layer, where these are mixed."""
        hidden: Hidden = (
            self.backbone(batch) if self.scalar_mix is None else self.backbone.by_layer(batch)
        )
        return hidden

    def features(
        self, hidden: Hidden, rows: Tensor, columns: Tensor, lengths: Tensor | None
    ) -> Tensor:
        """What the head reads for each output, (layers, outputs, width) float32.

        Of the last layer alone, or of all where they are mixed.

        Args:
            hidden: what the body says.
            rows: row of each spot, (spots,).
            columns: its place in the row, (spots,).
            lengths: how many spots are averaged for each output, (outputs,); None where none are.

        Raises:
            UserError: the layers are to be mixed and cannot be.
        """
        layers = [hidden.states] if self.scalar_mix is None else require_layers(hidden.layers)
        found = [states[rows, columns].float() for states in layers]
        if lengths is not None:
            found = [torch.segment_reduce(f, "mean", lengths=lengths) for f in found]
        return found[0][None] if len(found) == 1 else torch.stack(found)

    def outputs(self, features: Tensor) -> Tensor:
        """The head's, (outputs, labels) float32, whatever the body computes in."""
        with torch.autocast(features.device.type, enabled=False):
            states = features[0] if self.scalar_mix is None else self.scalar_mix(features)
            found: Tensor = self.head(states)
        return found


def scalar_mix(task: Task, settings: ModelSettings) -> ScalarMix | None:
    """What mixes the layers of such a body, where the task asks for it."""
    return ScalarMix(settings.layers + 1) if task.mix_layers else None
