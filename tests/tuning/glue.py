"""A tiny GLUE in the original layouts, with the quirks of each file."""

from __future__ import annotations

from pathlib import Path

from tests.tuning.runs import reviews

MNLI_LABELS = ("entailment", "neutral", "contradiction")
STS = "index\tgenre\tfilename\tyear\told_index\tsource1\tsource2\tsentence1\tsentence2"
MNLI = (
    "index\tpromptID\tpairID\tgenre\tsentence1_binary_parse\tsentence2_binary_parse\t"
    "sentence1_parse\tsentence2_parse\tsentence1\tsentence2"
)
MRPC = "#1 ID\t#2 ID\t#1 String\t#2 String"


def rows_of(task: str, count: int, seed: int, *, is_test: bool = False) -> list[str]:
    """The lines of a file of a task, its header first if it has one."""
    examples = reviews(count, seed)
    texts = [e.text for e in examples]
    ones = ["1" if e.label == "good" else "0" for e in examples]
    two = ["entailment" if one == "1" else "not_entailment" for one in ones]
    lines = []
    for n, (text, one) in enumerate(zip(texts, ones, strict=True)):
        other = texts[n - 1]
        lines.append(
            {
                "CoLA": f"{n}\t{text}" if is_test else f'gj04\t{one}\t*\t"{text}',
                "SST-2": f"{n}\t{text}" if is_test else f"{text} \t{one}",
                "MRPC": f"{n if is_test else one}\t7\t8\t{text}\t{other}",
                "STS-B": f"{n}\tmain\tf\t2012\t1\tnone\tnone\t{text}\t{other}"
                + ("" if is_test else f"\t{5 * int(one) - 0.5 * int(one)}"),
                "QQP": f"{n}\t{text}\t{other}" if is_test else f"{n}\t1\t2\t{text}\t{other}\t{one}",
                "MNLI": f"{n}\t1\t1e\tfiction\t( a )\t( b )\t( A )\t( B )\t{text}\t{other}"
                + ("" if is_test else f"\t{MNLI_LABELS[n % 3]}\t{MNLI_LABELS[n % 3]}"),
                "QNLI": f"{n}\t{text}\t{other}" + ("" if is_test else f"\t{two[n]}"),
                "RTE": f"{n}\t{text}\t{other}" + ("" if is_test else f"\t{two[n]}"),
                "WNLI": f"{n}\t{text}\t{other}" + ("" if is_test else f"\t{one}"),
            }[task]
        )
    heads = {
        "CoLA": "index\tsentence" if is_test else "",
        "SST-2": "index\tsentence" if is_test else "sentence\tlabel",
        "MRPC": f"index\t{MRPC}" if is_test else f"\ufeffQuality\t{MRPC}",
        "STS-B": STS if is_test else f"{STS}\tscore",
        "QQP": "id\tquestion1\tquestion2"
        if is_test
        else "id\tqid1\tqid2\tquestion1\tquestion2\tis_duplicate",
        "MNLI": MNLI if is_test else f"{MNLI}\tlabel1\tgold_label",
        "QNLI": "index\tquestion\tsentence" + ("" if is_test else "\tlabel"),
        "RTE": "index\tsentence1\tsentence2" + ("" if is_test else "\tlabel"),
        "WNLI": "index\tsentence1\tsentence2" + ("" if is_test else "\tlabel"),
    }
    return [heads[task], *lines] if heads[task] else lines


def write(folder: Path, task: str, train: int = 40, dev: int = 12, test: int = 4) -> Path:
    """Write the files of a task; return its folder."""
    names = {"train": (train, 1), "dev": (dev, 2), "test": (test, 3)}
    if task == "MNLI":
        names = {
            "train": (train, 1),
            "dev_matched": (dev, 2),
            "dev_mismatched": (dev, 4),
            "test_matched": (test, 3),
            "test_mismatched": (test, 5),
        }
    place = folder / task
    place.mkdir(parents=True)
    for name, (count, seed) in names.items():
        lines = rows_of(task, count, seed, is_test=name.startswith("test"))
        (place / f"{name}.tsv").write_text("\n".join([*lines, ""]), encoding="utf-8")
    return place
