"""Cleaned JSON lines as Parquet."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
from pyarrow import json, parquet

from foreword.disk import atomic

SCHEMA = pa.schema(
    {
        "text": pa.string(),
        "source": pa.string(),
        "language": pa.string(),
        "language_probability": pa.float64(),
    }
)
BLOCK = 16 << 20  # bytes decoded at once


def to_parquet(folder: Path) -> None:
    """Replace each file of JSON lines in a folder by one of Parquet."""
    for file in sorted(folder.glob("*.jsonl.zst")):
        options = json.ParseOptions(explicit_schema=SCHEMA)
        target = file.with_name(f"{file.name.removesuffix('.jsonl.zst')}.parquet")
        with (
            pa.input_stream(str(file), compression="zstd") as lines,
            atomic.writing(target, "wb") as raw,
            parquet.ParquetWriter(raw, SCHEMA, compression="zstd") as writer,
        ):
            reader = json.open_json(lines, json.ReadOptions(block_size=BLOCK), options)
            for batch in reader:
                writer.write_batch(batch)
        file.unlink()
