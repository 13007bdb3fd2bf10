"""Records of a topic that was recorded: a Parquet file with key, value, headers and time of each, as they are.

    key        binary, null for none
    value      binary, null for none
    headers    list<struct<name: string, value: binary>>
    timestamp  int64, milliseconds since the epoch, null for none
    partition, offset   where the record was

The schema's metadata says that it is such a file. ``streamproof record`` writes one, ``workload: {file: …}`` sends it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pyarrow as pa

MARK = b"streamproof.recorded"
BATCH_ROWS = 10_000
Headers = tuple[tuple[str, bytes | None], ...]


@dataclass(frozen=True)
class Recorded:
    """A record as it was, or is to be sent."""

    key: bytes | None
    value: bytes | None
    headers: Headers = ()
    timestamp_ms: int | None = None
    partition: int = 0
    offset: int = 0


def _schema() -> pa.Schema:
    import pyarrow as pa

    header = pa.struct([("name", pa.string()), ("value", pa.binary())])
    fields = [("key", pa.binary()), ("value", pa.binary()), ("headers", pa.list_(header)), ("timestamp", pa.int64())]
    return pa.schema([*fields, ("partition", pa.int32()), ("offset", pa.int64())], metadata={MARK: b"1"})


def write(path: Path, records: Sequence[Recorded]) -> None:
    import pyarrow as pa
    import pyarrow.parquet

    columns = {
        "key": [each.key for each in records],
        "value": [each.value for each in records],
        "headers": [[{"name": name, "value": value} for name, value in each.headers] for each in records],
        "timestamp": [each.timestamp_ms for each in records],
        "partition": [each.partition for each in records],
        "offset": [each.offset for each in records],
    }
    pyarrow.parquet.write_table(pa.table(columns, schema=_schema()), path, compression="zstd")


def is_recording(path: Path) -> bool:
    """Whether a Parquet file holds a recorded topic. Raises ArrowException when it is no Parquet file."""
    import pyarrow.parquet

    return MARK in (pyarrow.parquet.read_schema(path).metadata or {})


def read(path: Path) -> Iterator[Recorded]:
    """Raises ArrowException when the file cannot be read."""
    import pyarrow.parquet

    with pyarrow.parquet.ParquetFile(path) as file:
        for batch in file.iter_batches(BATCH_ROWS):
            for row in batch.to_pylist():
                headers = tuple((header["name"], header["value"]) for header in row["headers"] or ())
                yield Recorded(row["key"], row["value"], headers, row["timestamp"], row["partition"], row["offset"])
