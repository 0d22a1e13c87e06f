"""The columns of a table of runs: the options of `foreword scale fit` that name them."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class RunColumns:
    """The names of the columns; "" for the usual name, if the table has it.

    Attributes:
        parameters: column of the parameters; default: parameters.
        tokens: column of the tokens; default: tokens.
        flops: column of the training FLOPs; default: flops.
        loss: column of the loss; default: loss.
        family: column of the family; default: family.
        seed: column of the seed, which tells repeats apart; default: seed.
        checkpoint: column that tells the measurements of a run apart; default: checkpoint.
        run: column of the run's name; default: run.
        score: column of a task's score, which is forecast from the loss; default: score.
        tokenizer: column of the tokenizer; default: tokenizer.
        vocabulary: column of its number of tokens, for the law's file; default: vocabulary.
        loss_unit: column of the loss's unit, for the law's file; default: unit.
        parameters_without_embeddings: column of a second count, which gets a law too; default:
            parameters_without_embeddings.
        unigram: column of the loss of token frequencies alone, at which runs are left out; default:
            unigram.
        unique_tokens: column of the unique tokens, for laws of repeated text; default:
            unique_tokens.
        epochs: column of the epochs, instead of unique tokens; default: epochs.
    """

    parameters: str = ""
    tokens: str = ""
    flops: str = ""
    loss: str = ""
    family: str = ""
    seed: str = ""
    checkpoint: str = ""
    run: str = ""
    score: str = ""
    tokenizer: str = ""
    vocabulary: str = ""
    loss_unit: str = ""
    parameters_without_embeddings: str = ""
    unigram: str = ""
    unique_tokens: str = ""
    epochs: str = ""
