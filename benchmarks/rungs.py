"""What each rung of the ladder costs in training and generation: tokens/s and sequential steps.

    python benchmarks/rungs.py TEXT...

Every rung is trained for a few steps on the text, as by `foreword pretrain`, and then generates
text. Rates are per second of CPU time on one thread, which other work on the machine disturbs less
than wall time. Count-based models and word vectors are trained offline, in one pass over the text.
The sequence-to-sequence models read pairs: 24 words of the text, and the next 24; their speed does
not depend on the words.

Sequential steps: how many layers must be computed one after the other, each from the one before.
In training on a row of L tokens a recurrent layer takes L of them, in either direction; a
Transformer or a window computes all positions of a layer at once. Pairs of a row are computed in
parallel, so there are as many steps as a pair has tokens, and one more for attention to the source.
In generation each token waits for the one before it in every neural rung.
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np
import torch

from foreword.cli._process import configure_process
from foreword.data.packing.parallel import ENDS
from foreword.data.prepared_text import PreparedText
from foreword.data.shards import Shards
from foreword.evaluation import decoding
from foreword.evaluation.loaded import load
from foreword.evaluation.sampling import Sampling
from foreword.models.elmo import ELMo
from foreword.models.seq2seq import Seq2Seq
from foreword.nn.model import neural_settings
from foreword.nn.recurrent import RecurrentSettings
from foreword.runs import run as running
from foreword.runs.offline import offline_backbone, offline_inputs
from foreword.runs.recipe import Recipe, load_recipe
from foreword.runs.stages import Silent
from foreword.types import Vocab

RUNGS = {
    "unigram": "ngram_1",
    "bigram": "ngram_2",
    "trigram": "ngram_3",
    "4-gram": "ngram_4",
    "5-gram": "ngram_5",
    "word2vec": "word2vec_mini",
    "fixed window": "fixed_window_mini",
    "RNN": "rnn_mini",
    "GRU": "gru_mini",
    "LSTM": "lstm_mini",
    "ELMo": "elmo_mini",
    "seq2seq": "seq2seq_mini_no_attention",
    "seq2seq, attention": "seq2seq_mini",
    "Transformer": "gpt2_mini",
    "Transformer-XL": "transformer_xl_mini",
}
WARM_STEPS = 2  # steps that are not timed
LENGTH = 128  # of a row
PROMPT = "the"
SIDE = 24  # words of each side of a pair


class Clock(Silent):
    """A reporter that records the seconds of CPU time and the tokens read after each step."""

    def __init__(self) -> None:
        super().__init__()
        self.seconds: list[float] = []
        self.tokens: list[int] = []

    def record(self, record: dict[str, Any], progress: float) -> None:
        """Record a step."""
        if record["kind"] == "train":
            self.seconds.append(time.process_time())
            self.tokens.append(record["tokens"])

    def samples(self) -> list[dict[str, str]]:
        """Return no samples."""
        return []

    @property
    def rate(self) -> float:
        """The tokens per second after the first steps."""
        seconds = self.seconds[-1] - self.seconds[WARM_STEPS - 1]
        return (self.tokens[-1] - self.tokens[WARM_STEPS - 1]) / seconds


@dataclass(frozen=True)
class Rung:
    """The measurements of a rung.

    Attributes:
        parameters: parameters of the model; the numbers of a count-based one.
        trained_tokens_per_second: tokens per second in training.
        row_steps: sequential steps in training on a row.
        generated_tokens_per_second: tokens per second in generation.
        token_steps: sequential steps in generating a token.
    """

    parameters: int
    trained_tokens_per_second: float
    row_steps: int
    generated_tokens_per_second: float
    token_steps: int


def measure(recipe: Recipe, texts: list[str], tokenizer: Path, folder: Path, tokens: int) -> Rung:
    """Train a rung for a few steps, and let it generate."""
    # All rungs share the tokenizer of the first.
    shared = str(tokenizer) if tokenizer.is_dir() else None
    running.start(recipe, running.Inputs(tuple(texts), shared), folder)
    clock = Clock()
    running.train_run(folder, clock)
    if shared is None:
        (folder / "tokenizer").rename(tokenizer)
        (folder / "tokenizer").symlink_to(tokenizer)
    # Measure the trained model.
    loaded = load(folder)
    shards = PreparedText.load(folder / "shards", verify=False).train
    trains_offline = recipe.model.trains_offline
    return Rung(
        loaded.trained.model.count_parameters(),
        _rate(lambda: _fit(recipe, shards, loaded.tokenizer.vocab))
        if trains_offline
        else clock.rate,
        row_steps(recipe, shards),
        _rate(lambda: _generate(loaded.trained, tokens)),
        getattr(recipe.model, "layers", 1),
    )


def row_steps(recipe: Recipe, shards: Shards) -> int:
    """Return the number of sequential steps in training on a row."""
    model = recipe.model
    if model.trains_offline:
        return 1
    if isinstance(model, Seq2Seq):
        pair = shards.tokens_total / len(shards) + ENDS  # the mean
        return round(pair) * model.layers + (model.attention.build(model.d_model) is not None)
    is_recurrent = isinstance(model, RecurrentSettings | ELMo)
    return (recipe.packing.length if is_recurrent else 1) * neural_settings(model).layers


def _fit(recipe: Recipe, shards: Shards, vocab: Vocab) -> int:
    """Train offline in one pass over the text, and return its tokens."""
    with tempfile.TemporaryDirectory() as folder:
        inputs = offline_inputs(recipe, shards, vocab, Path(folder))
        return offline_backbone(recipe.build(vocab)).fit(inputs).tokens


def _generate(prompted: Any, tokens: int) -> int:
    """Generate a text, and return its number of tokens."""
    start = decoding.starts_of(prompted, [PROMPT])
    (written,) = decoding.decode(prompted, start, Sampling(tokens=tokens), np.empty(0, np.int64))
    return len(written.ids)


def _rate(work: Callable[[], int]) -> float:
    work()
    began = time.process_time()
    done = work()
    return done / (time.process_time() - began)


def benchmark_recipe(recipe: str, vocab: int, steps: int) -> Recipe:
    """Return a recipe for a few steps, or for one pass over the text."""
    trains_offline = load_recipe(recipe).model.trains_offline
    settings = [
        f"tokenizer={{kind='bpe', vocab={vocab}}}",
        "train.epochs=1" if trains_offline else f"train.steps={steps + WARM_STEPS}",
        "train.evaluations=1",
        "train.heldout_rows=1",
        "train.checkpoints=1",
        "prepare.heldout=0.01",
        f"packing.length={LENGTH}",
    ]
    return load_recipe(recipe, settings)


def write_pairs(texts: list[str], stem: Path) -> str:
    """Write parallel text small of a plain one, as two files, and return one of them."""
    words = [word for text in texts for word in Path(text).read_text("utf-8").split()]
    starts = range(0, len(words) - 2 * SIDE + 1, 2 * SIDE)
    for language, at in (("en", 0), ("de", SIDE)):
        lines = [" ".join(words[start + at : start + at + SIDE]) for start in starts]
        stem.with_suffix(f".{language}").write_text("\n".join(lines) + "\n", encoding="utf-8")
    return str(stem.with_suffix(".en"))


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("texts", nargs="+", help="files to train on")
    parser.add_argument("--steps", type=int, default=12, help="training steps")
    parser.add_argument("--tokens", type=int, default=64, help="tokens to generate")
    parser.add_argument("--vocab", type=int, default=8_192, help="size of the shared tokenizer")
    arguments = parser.parse_args()
    configure_process()
    torch.set_num_threads(1)
    columns = ("rung", "parameters", "trains, tokens/s", f"steps a row of {LENGTH}")
    print("|", " | ".join((*columns, "generates, tokens/s", "steps a token")), "|")
    print("|---" * 6 + "|")
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        pairs = write_pairs(arguments.texts, folder / "pairs")
        for name, recipe in RUNGS.items():
            small = benchmark_recipe(recipe, arguments.vocab, arguments.steps)
            texts = [pairs] if small.model.reads_source else arguments.texts
            measured = measure(
                small, texts, folder / "tokenizer", folder / recipe, arguments.tokens
            )
            cells = (
                f"{measured.parameters:,}",
                f"{measured.trained_tokens_per_second:,.0f}",
                f"{measured.row_steps:,}",
            )
            row = (
                name,
                *cells,
                f"{measured.generated_tokens_per_second:,.0f}",
                f"{measured.token_steps}",
            )
            print("|", " | ".join(row), "|", flush=True)


if __name__ == "__main__":
    main()
