"""Foreword pretrains language models of every classic family on your own text.

    import foreword

    foreword.show("recipes")                                  # what can be trained
    run = foreword.pretrain("bert_mini", "books/", "runs/books", hours=1)
    run.load().fill("The old man went to [MASK].").blanks[0]  # candidates, likeliest first
    foreword.evaluate(run).loss                               # nats, on text it has not seen

    tuned = foreword.tune(run, "train.tsv", "dev.tsv")        # or DataFrames, or (text, label)
    foreword.predict(tuned, "new.csv", out="predicted.csv")   # or a DataFrame, or a list of texts

The functions are verbs of the command line, with the same names, arguments and errors:

    show        recipes, families and kinds, with the meaning of each setting
    clean       text without duplicates and what is not prose, and what each step dropped
    prepare     text to token shards, once for many runs
    pretrain    a model from a recipe and text; resume continues a run
    tune        fine-tune a pretrained model on labelled text; tune_suite on the tasks of GLUE
    predict     labels, numbers or texts of a fine-tuned model, for texts or a file
    evaluate    the loss on held-out text, next to counting; evaluate_tuned scores on labelled text
    compare     several recipes at one budget
    probe       the inside of models, or their answers to a suite such as LAMBADA
    load        a trained model: fill, generate, score, encode, predict
    fill        the blanks of a text; generate continues one; neighbours of words, by their vectors
    export      a model for other software; import_ reads one
    report      one HTML page of a run or a comparison; demo shows all stages in minutes

These verbs have no function yet; run them as `foreword VERB`: check, drift, translate, score (of a
file), tokenizer.

A mistake raises `foreword.UserError`, whose message says what is wrong, where, and how to fix it.
Results show themselves in a console and in a notebook, and stand for their folders in other calls.
"""

# Nothing is imported here: under `python -m foreword` it would be looked for in the current folder
# first, which `foreword.__main__` has yet to take off the path.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from foreword.api.compare import compare
    from foreword.api.evaluate_tuned import evaluate_tuned
    from foreword.api.load import load
    from foreword.api.predict import predict
    from foreword.api.prepare import prepare
    from foreword.api.pretrain import pretrain, resume
    from foreword.api.tune import tune
    from foreword.api.tune_suite import tune_suite
    from foreword.errors import TrainingStoppedError, UserError
    from foreword.verbs._contract import function
    from foreword.verbs.clean import Clean
    from foreword.verbs.demo import Demo
    from foreword.verbs.evaluate import Evaluate
    from foreword.verbs.export import Export
    from foreword.verbs.fill import Fill
    from foreword.verbs.generate import Generate
    from foreword.verbs.import_ import Import
    from foreword.verbs.neighbours import Neighbours
    from foreword.verbs.probe import Probe
    from foreword.verbs.report import Report
    from foreword.verbs.show import Show
    from foreword.version import __version__ as __version__

    clean = function(Clean)
    demo = function(Demo)
    evaluate = function(Evaluate)
    export = function(Export)
    fill = function(Fill)
    generate = function(Generate)
    import_ = function(Import)
    neighbours = function(Neighbours)
    probe = function(Probe)
    report = function(Report)
    show = function(Show)

__all__ = [
    "TrainingStoppedError", "UserError", "clean", "compare", "demo", "evaluate", "evaluate_tuned",
    "export", "fill", "generate", "import_", "load", "neighbours", "predict", "prepare", "pretrain",
    "probe", "report", "resume", "show", "tune", "tune_suite",
]  # fmt: skip


def __getattr__(name: str) -> object:
    """Import a public name when it is first used, so that `import foreword` stays light."""
    if name not in [*__all__, "__version__"]:
        raise AttributeError(f"module 'foreword' has no attribute '{name}'")
    import importlib

    from foreword.settings import kinds

    if name == "__version__":
        value: object = importlib.import_module("foreword.version").__version__
    elif name.rstrip("_") in kinds.names("verbs"):
        from foreword.verbs._contract import function

        value = function(kinds.load("verbs", name.rstrip("_")))
    else:
        kind = "errors" if name.endswith("Error") else "api"
        file = kind if kind == "errors" else f"api.{'pretrain' if name == 'resume' else name}"
        value = getattr(importlib.import_module(f"foreword.{file}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
