"""Fine-tuning and its measures next to other people's code, with equal weights and examples.

    pip install trl peft seqeval torchmetrics rouge-score sacrebleu minicons
    python benchmarks/oracles.py DECODER ENCODER

Each line is a figure of theirs, ours, and the difference. DECODER and ENCODER are runs that export,
such as of modern_decoder_mini and modern_encoder_mini; they are tuned for a few steps, so that
nothing is equal to begin with.

- TRL: the loss of supervised fine-tuning on the same answers; the loss, margins and accuracy of
  direct preference optimization on the same pairs.
- peft: logits of the exported run with the exported adapter, of a classifier and of a chat model.
- minicons: log-likelihoods of sentences by the exported decoder; pseudo-log-likelihoods by the
  exported encoder, within words from left to right (Kauf & Ivanova 2023).
- seqeval, torchmetrics (SQuAD), rouge-score and sacrebleu: measures of random answers.
"""

from __future__ import annotations

import argparse
import itertools
import math
import os
import random
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

os.environ["HF_HUB_OFFLINE"] = "1"

import numpy as np
import torch

import foreword
from foreword.cli.main import run as command
from foreword.evaluation.passages import Passage, score_passages
from foreword.evaluation.text_metrics import text_scores
from foreword.nn.masks import CausalMask
from foreword.runs.run_folder import open_run
from foreword.tuning.entities import entity_scores
from foreword.tuning.tuned_model import load_tuned
from foreword.types import Batch

Line = tuple[str, float, float, float]
WORDS = (
    "the", "a", "old", "red", "house", "river", "walked", "slowly", "found", "bright", "cold",
    "morning", "King", "Paris", "3", "of", "to", "in",
)  # fmt: skip
IN_TRL: dict[str, Any] = {
    "bf16": False, "use_cpu": True, "report_to": [], "max_length": None,
    "per_device_eval_batch_size": 64, "disable_tqdm": True,
}  # fmt: skip
PIECES = "within_word_l2r"  # of minicons: a token's word is masked from it on
KEYS = {"loss": "loss", "margin": "rewards/margins", "accuracy": "rewards/accuracies"}  # of TRL
FAST: dict[str, Any] = {
    "seeds": 1,
    "epochs": 1,
    "device": "cpu",
    "precision": "fp32",
    "progress": False,
}


def sentence(rng: random.Random, most: int = 12) -> str:
    """Return a few random words."""
    return " ".join(rng.choices(WORDS, k=rng.randint(1, most)))


def sentences(decoder: str, encoder: str, work: Path) -> Iterator[Line]:
    """Yield the summed scores of sentences, of minicons and of ours."""
    from minicons import scorer

    rng = random.Random(1)
    # Joined words have several pieces.
    texts = [f"{sentence(rng)} {''.join(rng.sample(WORDS, 3))} {sentence(rng)}" for _ in range(200)]
    for run, name, kind, options in (
        (decoder, "log-likelihood", scorer.IncrementalLMScorer, {}),  # its tokenizer adds the start
        (encoder, "pseudo-log-likelihood", scorer.MaskedLMScorer, {"PLL_metric": PIECES}),
    ):
        out = work / f"{name}-exported"
        export(run, out)
        other = kind(str(out), "cpu")
        other.tokenizer.batch_encode_plus = other.tokenizer  # its name before transformers 5
        theirs = other.sequence_score(
            texts, reduction=lambda scores: scores.sum().item(), **options
        )
        passages = [Passage(text) for text in texts]
        ours = [score.nats for score in score_passages(open_run(run, "cpu"), passages)]
        distance = float(np.abs(np.subtract(theirs, ours)).max())
        yield f"minicons: {name}, sum of 200 sentences", sum(theirs), sum(ours), distance


def preferences(decoder: str, work: Path) -> Iterator[Line]:
    """Yield the figures of answers and of preferences between them, of TRL and of ours."""
    import datasets
    import transformers
    import trl

    # Tune on answers, then on preferences; export both models.
    rng = random.Random(1)
    chats = [{"prompt": sentence(rng), "completion": sentence(rng)} for _ in range(64)]
    rows = [
        {"prompt": sentence(rng), "chosen": sentence(rng), "rejected": sentence(rng, 20) + " end"}
        for _ in range(64)
    ]
    sft = foreword.tune(decoder, chats, chats, task="chat", out=work / "sft", name="sft", **FAST)
    tuned = foreword.tune(
        sft.out, rows, rows, task="prefer", out=work / "policy", name="policy", lr=1e-3, **FAST
    )
    ours = tuned.rows[0]
    for name, run in (("reference", sft.out), ("policy", tuned.out)):
        export(run, work / f"{name}-hf")
    models = [
        transformers.AutoModelForCausalLM.from_pretrained(work / f"{name}-hf", dtype=torch.float32)
        for name in ("policy", "reference")
    ]
    tokenizer = transformers.AutoTokenizer.from_pretrained(work / "policy-hf")
    tokenizer.pad_token = tokenizer.pad_token or tokenizer.eos_token
    # The loss on answers alone.
    asked = [
        {
            "prompt": [{"role": "user", "content": chat["prompt"]}],
            "completion": [{"role": "assistant", "content": chat["completion"]}],
        }
        for chat in chats
    ]
    answers = datasets.Dataset.from_list(asked)
    trainer = trl.SFTTrainer(
        models[1], args=trl.SFTConfig(str(work / "trl-sft"), completion_only_loss=True, **IN_TRL),
        train_dataset=answers, eval_dataset=answers, processing_class=tokenizer,
    )  # fmt: skip
    our_loss = math.log(sft.rows[0]["perplexity"])
    yield line("TRL, SFT: loss on answers", trainer.evaluate()["eval_loss"], our_loss)
    # The loss, margin and accuracy of preferences.
    said = [
        {
            "prompt": [{"role": "user", "content": row["prompt"]}],
            "chosen": [{"role": "assistant", "content": row["chosen"]}],
            "rejected": [{"role": "assistant", "content": row["rejected"]}],
        }
        for row in rows
    ]
    settings = trl.DPOConfig(str(work / "trl"), beta=0.1, **IN_TRL)
    data = datasets.Dataset.from_list(said)
    trainer = trl.DPOTrainer(
        models[0], ref_model=models[1], args=settings, train_dataset=data, eval_dataset=data,
        processing_class=tokenizer,
    )  # fmt: skip
    theirs = trainer.evaluate()
    for name, key in (
        ("loss", "loss"),
        ("margin", "rewards/margins"),
        ("accuracy", "rewards/accuracies"),
    ):
        yield line(f"TRL, DPO: {name}", theirs[f"eval_{key}"], ours[name])


def adapters(run: str, task: str, work: Path) -> Iterator[Line]:
    """Yield the greatest logits of a model tuned by LoRA, of peft and ours, for some texts."""
    import peft
    import transformers

    rng = random.Random(2)
    texts = [sentence(rng) for _ in range(32)]
    train: Any = [(text, "ab"[n % 2]) for n, text in enumerate(texts)]
    if task == "chat":
        train = [{"prompt": text, "completion": sentence(rng)} for text in texts]
    tuned = foreword.tune(
        run, train, train, task=task, strategy="lora", lr=1e-2, out=work / f"lora-{task}",
        name=f"lora-{task}", **FAST,
    )  # fmt: skip
    base, out = work / f"base-{task}", work / f"adapter-{task}"
    export(run, base)
    export(tuned.out, out, "--adapter", run)
    config = transformers.AutoConfig.from_pretrained(out)
    if task == "classify":
        model = transformers.AutoModelForSequenceClassification.from_pretrained(
            base, config=config, dtype=torch.float32
        )
    else:
        model = transformers.AutoModelForCausalLM.from_pretrained(base, dtype=torch.float32)
        model.resize_token_embeddings(config.vocab_size, mean_resizing=False)
    adapted = peft.PeftModel.from_pretrained(model, out).eval()
    tokenizer = transformers.AutoTokenizer.from_pretrained(out)
    ours, theirs = [], []
    with torch.no_grad():
        for text in texts:
            if task == "classify":
                ids = tokenizer(text, return_tensors="pt")
                ours.append(load_tuned(tuned.out, "cpu").outputs([text])[0])
                theirs.append(adapted(**ids).logits[0].numpy())
            else:
                said = [{"role": "user", "content": text}]
                ids = tokenizer.apply_chat_template(
                    said, add_generation_prompt=True, return_tensors="pt", return_dict=True
                )
                ours.append(next_logits(tuned.out, ids["input_ids"]))
                theirs.append(adapted(**ids).logits[0].numpy()[:, : ours[-1].shape[1]])
    distance = max(float(np.abs(a - b).max()) for a, b in zip(ours, theirs, strict=True))
    largest = [max(float(np.abs(one).max()) for one in some) for some in (theirs, ours)]
    yield f"peft, LoRA, {task}: logits (the greatest)", largest[0], largest[1], distance


def next_logits(run: Path, ids: torch.Tensor) -> Any:
    """Return the logits of a causal model, (length, vocab) float32."""
    prompted = open_run(run, "cpu")
    batch = Batch(ids, torch.arange(ids.shape[1])[None], CausalMask())
    return prompted.logits(prompted.run_backbone(batch).states)[0].numpy()


def export(run: str | Path, out: Path, *options: str) -> None:
    """Export a model.

    Raises:
        SystemExit: it cannot be exported.
    """
    if command(["export", str(run), "--out", str(out), *options, "--json"]):
        raise SystemExit(f"{run}: not exported")


def measures() -> Iterator[Line]:
    """Yield the measures of random answers, of other libraries and of ours."""
    import sacrebleu
    from rouge_score.rouge_scorer import RougeScorer
    from seqeval.metrics import f1_score, precision_score, recall_score
    from torchmetrics.text import SQuAD

    # Entities: labels that begin, go on and end in any order.
    rng = random.Random(3)
    names = ["O", "O", "B-per", "I-per", "B-loc", "I-loc"]
    right = [rng.choices(names, k=rng.randint(1, 30)) for _ in range(2000)]
    given = [[rng.choice([n, n, rng.choice(names)]) for n in one] for one in right]
    ours = entity_scores(right, given)
    for name, score in (("f1", f1_score), ("precision", precision_score), ("recall", recall_score)):
        yield line(f"seqeval: {name} of entities", score(right, given), ours[f"entity_{name}"])
    # Answers to questions, with articles, punctuation and capitals.
    odd = ["The", "a", "an", "U.S.", "(Paris)", "Paris,", "été", "", "12%", "o'clock"]
    answers = [" ".join(rng.choices([*WORDS, *odd], k=rng.randint(0, 6))) for _ in range(2000)]
    references = [  # each with a word: of what has none, 1.1 and 2.0 of the script differ
        [" ".join(["red", *rng.choices([*one.split(), *odd], k=rng.randint(0, 5))]) for _ in "ab"]
        for one in answers
    ]
    squad = SQuAD()
    squad.update(
        [{"prediction_text": a, "id": str(n)} for n, a in enumerate(answers)],
        [
            {"answers": {"answer_start": [0] * len(some), "text": some}, "id": str(n)}
            for n, some in enumerate(references)
        ],
    )
    theirs = {name: float(value) / 100 for name, value in squad.compute().items()}
    scores = text_scores("answer", answers, references)
    yield line("torchmetrics, SQuAD: F1 of words", theirs["f1"], scores["answer_f1"])
    yield line("torchmetrics, SQuAD: exact match", theirs["exact_match"], scores["exact_match"])
    # Summaries and translations, with several references.
    answers = [sentence(rng, 20) for _ in range(500)]
    references = [[sentence(rng, 20), f"{one} {sentence(rng)}"] for one in answers]
    scorer = RougeScorer(["rouge1", "rouge2", "rougeL"], use_stemmer=False)
    found = [scorer.score_multi(r, a) for a, r in zip(answers, references, strict=True)]
    for name, score in text_scores("rouge", answers, references).items():
        theirs_mean = float(np.mean([one[name].fmeasure for one in found]))
        yield line(f"rouge-score: {name}", theirs_mean, score)
    columns: Sequence[Any] = list(map(list, zip(*references, strict=True)))
    scores = text_scores("bleu", answers, references)
    yield line("sacrebleu: BLEU", sacrebleu.corpus_bleu(answers, columns).score, scores["bleu"])
    yield line("sacrebleu: chrF", sacrebleu.corpus_chrf(answers, columns).score, scores["chrf"])


def line(name: str, theirs: float, ours: float) -> Line:
    """Return a figure of theirs, ours, and the difference."""
    return name, float(theirs), float(ours), abs(float(theirs) - float(ours))


def main() -> None:
    """Print a table in Markdown."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("decoder")
    parser.add_argument("encoder")
    options = parser.parse_args()
    print("| | theirs | ours | greatest difference |\n|---|---|---|---|", flush=True)
    with tempfile.TemporaryDirectory() as folder:
        work = Path(folder)
        # Copies, since tuning writes its scores into the run.
        decoder, encoder = (
            str(shutil.copytree(run, work / name))
            for name, run in (("decoder", options.decoder), ("encoder", options.encoder))
        )
        lines = (
            measures(),
            sentences(decoder, encoder, work),
            preferences(decoder, work),
            adapters(encoder, "classify", work),
            adapters(decoder, "chat", work),
        )
        for name, theirs, ours, distance in itertools.chain(*lines):
            print(f"| {name} | {theirs:.6g} | {ours:.6g} | {distance:.1g} |", flush=True)


if __name__ == "__main__":
    main()
