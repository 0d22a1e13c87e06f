"""The columns of labelled text, and how a row of a table becomes an example."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import astuple, dataclass, replace
from typing import Any

from foreword.disk import stored
from foreword.errors import UserError
from foreword.tables.examples import Labelled

LONGEST = 1 << 24  # characters of a cell or a line: five times the longest novels
PREDICTION = "prediction"  # the column that predictions are written to


@dataclass(frozen=True)
class Columns:
    """The columns of text, label, second text and group; but for `text` "" if there is none.

    Each is a name, or a number from 0 in a file without a header.
    """

    text: str = "text"
    label: str = "label"
    pair: str = ""
    group: str = ""

    @property
    def are_numbers(self) -> bool:
        """Whether the columns are numbers.

        Raises:
            UserError: some are numbers and some are names.
        """
        is_number = [name.isdecimal() for name in astuple(self) if name]
        if any(is_number) and not all(is_number):
            given = (self.text, self.pair, self.label, self.group)
            names = ", ".join(f"'{name}'" for name in given if name)
            raise UserError(
                f"--text, --pair, --label: {names}: all by name, or all by number where the file "
                "has no header"
            )
        return all(is_number)


ReadExample = Callable[[Mapping[str, Any], Columns, str], Labelled | None]


def example_of(row: Mapping[str, Any], columns: Columns, source: str) -> Labelled | None:
    """Return the example of a row, without a label if it has none; None if a text is missing.

    Args:
        row: values by column.
        columns: which columns hold what.
        source: where the row came from.

    Raises:
        UserError: a value is neither text nor a number.
    """
    text, label = text_of(row.get(columns.text), source), label_of(row.get(columns.label), source)
    pair = text_of(row.get(columns.pair), source) if columns.pair else None
    if not text.strip() or (pair is not None and not pair.strip()):
        return None
    return Labelled(text, label.strip(), pair, source)


def labels_example(row: Mapping[str, Any], columns: Columns, source: str) -> Labelled | None:
    """Return the example of a row, whose label may be a list: it is then written as JSON."""
    value = row.get(columns.label)
    if not isinstance(value, list | tuple):
        return example_of(row, columns, source)
    example = example_of(row, replace(columns, label=""), source)
    label = stored.to_json([label_of(item, source) for item in value])
    return example and example._replace(label=label)


def text_of(value: Any, where: str) -> str:
    """Return a cell as text: booleans as in JSON, None and nan (pandas' missing value) as ""."""
    if value is None or value != value:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str | int | float):
        if isinstance(value, str) and len(value) >= LONGEST:
            raise too_long(where)
        return str(value)
    first = value[0] if isinstance(value, list) and value else value
    is_answer = isinstance(first, Mapping) and {"text", "answer_start"} <= set(first)
    hint = "; --task span and text_to_text read answers in SQuAD's layout" if is_answer else ""
    raise UserError(f"{where}: expected text or a number, got {type(value).__name__}{hint}")


def too_long(where: str) -> UserError:
    """Return the error for a cell or a line that no model could read."""
    return UserError(
        f"{where}: a cell of more than {LONGEST:,} characters; split the text into rows"
    )


def label_of(value: Any, where: str) -> str:
    """Return a label as text; whole numbers lose their decimals, so 1.0 becomes 1."""
    is_whole = isinstance(value, float) and value.is_integer()
    return text_of(int(value) if is_whole else value, where)
