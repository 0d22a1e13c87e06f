"""The network that is fine-tuned: a backbone with the head of a task."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from foreword.nn.heads import TokenHead
from foreword.nn.model import ModelSettings, NeuralBackbone
from foreword.tuning.scalar_mix import ScalarMix, require_layers
from foreword.tuning.tasks._contract import Task
from foreword.types import Batch, Hidden


class Network(nn.Module):
    """A pretrained backbone with the head of a task.

    Args:
        backbone: the pretrained backbone.
        head: turns pooled states (outputs, d_model) into outputs (outputs, labels).
        token_head: the output layer of pretraining, for a language-model loss beside the task's;
            or None.
        scalar_mix: the head reads this mixture of all layers; the last layer if None.
    """

    def __init__(
        self,
        backbone: NeuralBackbone,
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
        """Return the backbone's states, with those of each layer if they are mixed."""
        hidden: Hidden = (
            self.backbone(batch) if self.scalar_mix is None else self.backbone.by_layer(batch)
        )
        return hidden

    def features(
        self, hidden: Hidden, rows: Tensor, columns: Tensor, lengths: Tensor | None
    ) -> Tensor:
        """Return the head's input for each output, (layers, outputs, width) float32.

        `layers` is 1, the last layer, unless the layers are mixed.

        Args:
            hidden: the backbone's states.
            rows: the row of each pooled position, (pooled,).
            columns: the column of each, (pooled,).
            lengths: how many positions are averaged for each output, (outputs,); None if each
                position has an output of its own.

        Raises:
            UserError: the layers are to be mixed and cannot be.
        """
        layers = [hidden.states] if self.scalar_mix is None else require_layers(hidden.layers)
        features = [states[rows, columns].float() for states in layers]
        if lengths is not None:
            features = [torch.segment_reduce(f, "mean", lengths=lengths) for f in features]
        return features[0][None] if len(features) == 1 else torch.stack(features)

    def outputs(self, features: Tensor) -> Tensor:
        """Return the head's outputs, (outputs, labels) float32, whatever the backbone's dtype."""
        with torch.autocast(features.device.type, enabled=False):
            states = features[0] if self.scalar_mix is None else self.scalar_mix(features)
            outputs: Tensor = self.head(states)
        return outputs


def scalar_mix(task: Task, settings: ModelSettings) -> ScalarMix | None:
    """Return a scalar mix of the layers of such a backbone; None if the task has none."""
    return ScalarMix(settings.layers + 1) if task.mix_layers else None
