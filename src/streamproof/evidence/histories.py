"""The two histories that a verdict compares, as columns: what was sent, and what was delivered.

Files and columns:
    ``sent/*.parquet``       producer, sequence, partition, offset?, key, crc, outcome, sent_at
    ``delivered/*.parquet``  producer?, sequence?, crc?, partition, offset, batch?, attempt?, start?, delivered_at
A question mark is a null: an offset is known only of an ACKED record; a delivered record without an identity that can be read has null
producer and sequence, one that contradicts the checksum it carries has a null crc.
``partition``/``offset`` are of the source topic in the first, of the output topic in the second.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from streamproof.evidence.clock import Clock
from streamproof.evidence.columns import flags, integers
from streamproof.evidence.folder import SCHEMA_VERSION, EvidenceError, RunFolder, read_json_lines
from streamproof.evidence.outcome import Outcome

MAX_PRODUCER = 0xFFFF
_STAMP = pa.timestamp("ms", tz="UTC")
_METADATA = {b"schema_version": str(SCHEMA_VERSION).encode()}

SENT = pa.schema(
    [
        ("producer", pa.int32()),
        ("sequence", pa.int64()),
        ("partition", pa.int32()),
        ("offset", pa.int64()),
        ("key", pa.string()),
        ("crc", pa.uint32()),
        ("outcome", pa.string()),
        ("sent_at", _STAMP),
    ],
    metadata=_METADATA,
)
SENT_WRITTEN = SENT.append(pa.field("sha256", pa.int64()))
"""What is written: with the digest that the second judge alone reads."""
DELIVERED = pa.schema(
    [
        ("producer", pa.int32()),
        ("sequence", pa.int64()),
        ("crc", pa.uint32()),
        ("partition", pa.int32()),
        ("offset", pa.int64()),
        ("batch", pa.int64()),
        ("attempt", pa.int32()),
        ("start", pa.int32()),
        ("delivered_at", _STAMP),
    ],
    metadata=_METADATA,
)


@dataclass(slots=True)
class SentRow:
    """One record that was sent. Its outcome is INDETERMINATE until the broker says otherwise. ``sha256`` is for the second judge alone."""

    producer: int
    sequence: int
    partition: int
    offset: int | None
    key: str
    crc: int
    sent_at: datetime
    outcome: Outcome = Outcome.INDETERMINATE
    sha256: int | None = None


def write_sent(path: Path, rows: Iterable[SentRow]) -> None:
    write_table(path, sent_table(list(rows)))


def sent_table(rows: Sequence[SentRow]) -> pa.Table:
    """These rows as a table of ``sent/``, with the digest that the second judge reads."""
    columns = {name: [getattr(row, name) for row in rows] for name in SENT_WRITTEN.names}
    columns["outcome"] = [str(outcome) for outcome in columns["outcome"]]
    return pa.table(columns, schema=SENT_WRITTEN)


def write_delivered(path: Path, columns: Mapping[str, Any]) -> None:
    write_table(path, pa.table(dict(columns), schema=DELIVERED))


class DeliveredFile:
    """A file of ``delivered/`` that is written a group of rows at a time.

    Its encodings are made for being read fast: what counts up is kept as differences, what repeats as numbers of a dictionary. That leaves
    some five bytes of a record, and to compress these would save little and cost most of the time that a check takes.
    """

    def __init__(self, path: Path) -> None:
        self.records = 0
        self._writer = pq.ParquetWriter(path, DELIVERED, **FAST)

    def write(self, rows: pa.Table) -> None:
        self._writer.write_table(rows)
        self.records += len(rows)

    def close(self) -> None:
        self._writer.close()


FAST: dict[str, Any] = {
    "compression": "none",
    "use_dictionary": ["producer", "partition", "key", "outcome", "batch", "attempt", "start"],
    "column_encoding": dict.fromkeys(("sequence", "offset", "sent_at", "delivered_at"), "DELTA_BINARY_PACKED"),
}


def write_table(path: Path, table: pa.Table) -> None:
    """Replace ``path`` with ``table`` as Parquet. Until it is whole it has a name that no reader looks for."""
    temporary = path.with_name(f".{path.name}.part")
    pq.write_table(table, temporary, compression="zstd")
    temporary.rename(path)


def files(directory: Path) -> list[Path]:
    """The files of ``sent/`` or ``delivered/`` in their order. Hidden ones are not evidence: their writers did not finish them."""
    return sorted(path for path in directory.glob("*.parquet") if not path.name.startswith("."))


@dataclass(frozen=True)
class Sent:
    """What was sent, columns of equal length. ``offset`` is -1 where unknown; ``acked`` and ``rejected`` are masks, what is neither is
    INDETERMINATE."""

    producer: np.ndarray
    sequence: np.ndarray
    partition: np.ndarray
    offset: np.ndarray
    crc: np.ndarray
    acked: np.ndarray
    rejected: np.ndarray

    def __len__(self) -> int:
        return len(self.producer)


@dataclass(frozen=True)
class Delivered:
    """What was delivered, columns of equal length. ``identified`` is False where no identity could be read; its ids are then -1.
    ``crc`` is -1 where the record contradicts the checksum that it carries.
    ``batch``, ``attempt`` and ``start`` are -1 where the strategy does not say."""

    producer: np.ndarray
    sequence: np.ndarray
    crc: np.ndarray
    partition: np.ndarray
    offset: np.ndarray
    identified: np.ndarray
    batch: np.ndarray
    attempt: np.ndarray
    start: np.ndarray

    def __len__(self) -> int:
        return len(self.producer)


def read_sent(folder: RunFolder) -> Sent:
    """Read ``sent/``. Records that were intended but have no row are added as INDETERMINATE (partition and offset -1, any checksum fits).

    Raises EvidenceError when a file cannot be read, or holds a record without an identity.
    """
    return _sent(folder, _read(folder.sent, SENT))


def _sent(folder: RunFolder, table: pa.Table) -> Sent:
    sent = _settled(folder, table)
    ranges = [(int(intent["producer"]), int(intent["first"]), int(intent["count"])) for intent in read_json_lines(folder.intents)]
    if sum(count for _, _, count in ranges) <= len(sent):
        return sent
    producers = np.concatenate([np.full(count, producer, np.int64) for producer, _, count in ranges])
    sequences = np.concatenate([np.arange(first, first + count, dtype=np.int64) for _, first, count in ranges])
    missing = ~np.isin(producers << 48 | sequences, sent.producer << 48 | sent.sequence)
    return _with(sent, producers[missing], sequences[missing])


def _settled(folder: RunFolder, table: pa.Table) -> Sent:
    """What has a row."""
    if table["producer"].null_count or table["sequence"].null_count:
        raise EvidenceError(f"{folder.sent} holds a record without producer or sequence: the workload sends none")
    return Sent(
        integers(table["producer"]),
        integers(table["sequence"]),
        integers(table["partition"]),
        integers(table["offset"]),
        integers(table["crc"]),
        flags(pc.equal(table["outcome"], Outcome.ACKED)),
        flags(pc.equal(table["outcome"], Outcome.REJECTED)),
    )


def _with(sent: Sent, producers: np.ndarray, sequences: np.ndarray) -> Sent:
    """``sent`` and behind it records of which only the intent is known."""
    unknown, no = np.full(len(producers), -1, np.int64), np.zeros(len(producers), bool)
    return Sent(
        np.concatenate([sent.producer, producers]),
        np.concatenate([sent.sequence, sequences]),
        np.concatenate([sent.partition, unknown]),
        np.concatenate([sent.offset, unknown]),
        np.concatenate([sent.crc, unknown]),
        np.concatenate([sent.acked, no]),
        np.concatenate([sent.rejected, no]),
    )


def read_delivered(folder: RunFolder) -> Delivered:
    """Read ``delivered/``. Raises EvidenceError when a file cannot be read."""
    return _delivered(_read(folder.delivered, DELIVERED))


def _delivered(table: pa.Table) -> Delivered:
    # A producer that is not known is -1 here, which in a key of 64 bits cannot be told from producer 65535.
    identified = flags(table["producer"].is_valid()) & flags(table["sequence"].is_valid())
    columns = {name: integers(table[name]) for name in ("producer", "sequence", "crc", "partition", "offset", "batch", "attempt", "start")}
    return Delivered(**columns, identified=identified)


def read_sent_at(folder: RunFolder) -> np.ndarray:
    """When each record of ``sent/`` was sent, in ms since the epoch: the rows that :func:`read_sent` begins with."""
    return _milliseconds(_read(folder.sent, _only(SENT, "sent_at"))["sent_at"])


@dataclass(frozen=True)
class Evidence:
    """Both histories with their times, in ms since the epoch; ``delivered_at`` is UNKNOWN where it is not believed. ``sent_at`` and
    ``keys`` belong to the rows that are in ``sent/``, with which ``sent`` begins. A key is a number here, -1 where there is none."""

    sent: Sent
    sent_at: np.ndarray
    keys: np.ndarray
    delivered: Delivered
    delivered_at: np.ndarray


def read_evidence(folder: RunFolder) -> Evidence:
    """Read ``sent/`` and ``delivered/``, each file once. Raises EvidenceError when one cannot be read, or holds what no run writes."""
    sent, delivered = _read(folder.sent, SENT), _read(folder.delivered, DELIVERED)
    return _evidence(folder, sent, _sent(folder, sent), delivered)


def evidence(folder: RunFolder, sent: pa.Table, delivered: pa.Table, unsettled: tuple[np.ndarray, np.ndarray]) -> Evidence:
    """Evidence of these rows of the files, and of records (producer, sequence) that were intended and have no row."""
    return _evidence(folder, sent, _with(_settled(folder, sent), *unsettled), delivered)


def _evidence(folder: RunFolder, table: pa.Table, sent: Sent, delivered: pa.Table) -> Evidence:
    keys = pa.chunked_array([table["key"].combine_chunks().dictionary_encode().indices])
    return Evidence(sent, _milliseconds(table["sent_at"]), integers(keys), _delivered(delivered), _times(folder, delivered["delivered_at"]))


def _times(folder: RunFolder, column: pa.ChunkedArray) -> np.ndarray:
    if column.null_count:
        raise EvidenceError(f"{folder.delivered} holds a record without delivered_at: every drain gives one")
    return Clock.of(folder).believed(_milliseconds(column))


def _only(schema: pa.Schema, column: str) -> pa.Schema:
    return pa.schema([schema.field(column)])


def _milliseconds(column: pa.ChunkedArray) -> np.ndarray:
    return integers(column.cast(pa.int64()))


def _read(directory: Path, schema: pa.Schema) -> pa.Table:
    tables = []
    for path in files(directory):
        try:
            tables.append(pq.read_table(path, columns=schema.names).select(schema.names).cast(schema))
        except (OSError, pa.ArrowException, KeyError) as error:
            raise EvidenceError(f"{path} cannot be read as evidence: {error}") from error
    return pa.concat_tables(tables) if tables else schema.empty_table()
