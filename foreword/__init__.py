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
    check       what a run would cost in memory and time, and a decoded batch
    plan        family, size and training for some hours and a text, and the loss to expect
    clean       text without duplicates and what is not prose, and what each step dropped
    prepare     text to token shards, once for many runs
    pretrain    a model from a recipe and text; resume continues a run
    tune        fine-tune a pretrained model on labelled text; tune_suite on the tasks of GLUE
    predict     labels, numbers or texts of a fine-tuned model, for texts or a file
    evaluate    the loss on held-out text, next to counting; evaluate_tuned scores on labelled text
    compare     several recipes at one budget
    drift       what fine-tuning changed, and how flat the loss is around it
    probe       the inside of models, or their answers to a suite such as LAMBADA
    load        a trained model: fill, generate, score, encode, predict
    fill        the blanks of a text; generate continues one; score tells its probability
    neighbours  of words, by their vectors; translate a file, and score it against a reference
    export      a model for other software; import_ reads one
    report      one HTML page of a run or a comparison; demo shows all stages in minutes
    serve       models over HTTP, for OpenAI's clients and others; app opens a page that shows them

The commands of `foreword tokenizer` are functions of `foreword.tokenizer`: train, show, trace. So
are those of `foreword scale`, run and fit, of `foreword claims`, run and table, and of
`foreword lab`, check, make and show.

A mistake raises `foreword.UserError`, whose message says what is wrong, where, and how to fix it.
Results show themselves in a console and in a notebook, and stand for their folders in other calls.
"""

# Nothing is imported here: under `python -m foreword` it would be looked for in the current folder
# first, which `foreword.__main__` has yet to take off the path.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import SimpleNamespace

    from foreword.errors import TrainingStoppedError, UserError
    from foreword.verbs._contract import function
    from foreword.verbs._load import load
    from foreword.verbs.app import App
    from foreword.verbs.check import Check
    from foreword.verbs.clean import Clean
    from foreword.verbs.compare import Compare
    from foreword.verbs.demo import Demo
    from foreword.verbs.drift import Drift
    from foreword.verbs.evaluate import Evaluate
    from foreword.verbs.evaluate_tuned import EvaluateTuned
    from foreword.verbs.export import Export
    from foreword.verbs.fill import Fill
    from foreword.verbs.generate import Generate
    from foreword.verbs.import_ import Import
    from foreword.verbs.neighbours import Neighbours
    from foreword.verbs.plan import Plan
    from foreword.verbs.predict import Predict
    from foreword.verbs.prepare import Prepare
    from foreword.verbs.pretrain import Pretrain
    from foreword.verbs.probe import Probe
    from foreword.verbs.report import Report
    from foreword.verbs.resume import Resume
    from foreword.verbs.score import Score
    from foreword.verbs.serve import Serve
    from foreword.verbs.show import Show
    from foreword.verbs.translate import Translate
    from foreword.verbs.tune import Tune
    from foreword.verbs.tune_suite import TuneSuite
    from foreword.version import __version__ as __version__

    app = function(App)
    check = function(Check)
    clean = function(Clean)
    compare = function(Compare)
    demo = function(Demo)
    drift = function(Drift)
    evaluate = function(Evaluate)
    evaluate_tuned = function(EvaluateTuned)
    export = function(Export)
    fill = function(Fill)
    generate = function(Generate)
    import_ = function(Import)
    neighbours = function(Neighbours)
    plan = function(Plan)
    predict = function(Predict)
    prepare = function(Prepare)
    pretrain = function(Pretrain)
    probe = function(Probe)
    report = function(Report)
    resume = function(Resume)
    score = function(Score)
    serve = function(Serve)
    show = function(Show)
    claims: SimpleNamespace
    lab: SimpleNamespace
    scale: SimpleNamespace
    tokenizer: SimpleNamespace
    translate = function(Translate)
    tune = function(Tune)
    tune_suite = function(TuneSuite)

__all__ = [
    "TrainingStoppedError", "UserError", "app", "check", "claims", "clean", "compare", "demo",
    "drift", "evaluate", "evaluate_tuned", "export", "fill", "generate", "import_", "lab", "load",
    "neighbours", "plan", "predict", "prepare", "pretrain", "probe", "report", "resume", "scale",
    "score", "serve", "show", "tokenizer", "translate", "tune", "tune_suite",
]  # fmt: skip


def __getattr__(name: str) -> object:
    """Import a public name when it is first used, so that `import foreword` stays light."""
    if name not in [*__all__, "__version__"]:
        raise AttributeError(f"module 'foreword' has no attribute '{name}'")
    import importlib

    if name == "__version__":
        value: object = importlib.import_module("foreword.version").__version__
    elif name.endswith("Error") or name == "load":
        file = "verbs._load" if name == "load" else "errors"
        value = getattr(importlib.import_module(f"foreword.{file}"), name)
    else:
        from foreword.verbs._contract import functions

        value = functions(name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
