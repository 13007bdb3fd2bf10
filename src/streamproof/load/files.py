"""Input of a user's own: the rows of a file, each sent as a JSON object. ``.jsonl`` and ``.ndjson`` hold one in each line; of ``.csv`` and
``.parquet`` each row becomes one, with its columns as fields. A ``.parquet`` file of ``streamproof record`` is sent as it was recorded. A
``.json`` file is a JSON Schema, by which rows are made (:mod:`streamproof.load.made`).

A missing value and a number that is none are ``null``; what JSON has no form for (times, decimals, bytes) is text.
"""

from __future__ import annotations

import itertools
import json
import math
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from streamproof.evidence.locations import Kind, Location
from streamproof.load import avro_values, made, recorded
from streamproof.load.recorded import Recorded
from streamproof.shown import shown

if TYPE_CHECKING:
    import pyarrow as pa

LINES = frozenset({".jsonl", ".ndjson"})
SCHEMA = ".json"
READABLE = (*sorted(LINES), ".csv", ".parquet", SCHEMA)
BATCH_ROWS = 10_000
Event = tuple[str, bytes] | Recorded
"""Key and payload as JSON; or a record that was recorded."""


class NotReadable(ValueError):
    """The file is not there, has no such format, or holds something else than it should. The message names it."""


def count(path: Path, key: str | None) -> int:
    """How many records the file has. Reads all of it; raises NotReadable for the first that could not be sent."""
    return sum(1 for _ in events(path, key))


def endless(path: Path) -> bool:
    """Whether there are as many records as one wants: they are made by a schema."""
    return path.suffix == SCHEMA


def events(path: Path, key: str | None, avro: Path | None = None, seed: int = 0) -> Iterator[Event]:
    """Key and payload of each row, in the file's order. A row without a key of its own has its number as key. With ``avro`` each row is
    written as Avro by the schema in that file. By ``seed`` those are chosen that are made, without end."""
    if path.suffix not in READABLE:
        raise NotReadable(f"{path}: expected a file whose name ends with one of {', '.join(READABLE)}")
    if not path.is_file():
        raise NotReadable(f"{path}: there is no such file")
    if path.suffix == ".parquet" and _recorded(path):
        if key is not None:
            raise NotReadable(f"{path} was recorded, its records have keys of their own: leave out `key`, which is {key}")
        if avro is not None:
            raise NotReadable(f"{path} was recorded, its values are sent as they are: leave out `avro`, which is {avro}")
        yield from _records(path)
        return
    rows = _made(path, seed) if endless(path) else _lines(path) if path.suffix in LINES else _rows(path)
    write = None if avro is None else _writer(avro)
    for number, row in enumerate(rows, 1):
        if write is not None:
            yield Recorded(_key(path, number, row, key).encode(), _written(path, number, row, write))
            continue
        row = {name: _plain(value) for name, value in row.items()}
        yield (
            _key(path, number, row, key),
            json.dumps(row, separators=(",", ":"), ensure_ascii=False, default=str, allow_nan=False).encode(),
        )


def _made(path: Path, seed: int) -> Iterator[dict[str, Any]]:
    try:
        yield from made.rows(path, seed)
    except made.DoesNotFit as error:
        raise NotReadable(str(error)) from error


def _recorded(path: Path) -> bool:
    import pyarrow as pa

    try:
        return recorded.is_recording(path)
    except (pa.ArrowException, OSError) as error:
        raise NotReadable(f"{path} cannot be read: {' '.join(str(error).split())}") from error


def _records(path: Path) -> Iterator[Recorded]:
    import pyarrow as pa

    try:
        for number, each in enumerate(recorded.read(path), 1):
            if each.value is None:
                raise NotReadable(
                    f"{path}: record {number} (offset {each.partition}/{each.offset}) has no value: it cannot be told from none"
                )
            yield each
    except (pa.ArrowException, OSError, KeyError) as error:
        raise NotReadable(f"{path} cannot be read: {' '.join(str(error).split())}") from error


def _writer(avro: Path) -> Callable[[dict[str, Any]], bytes]:
    try:
        return avro_values.writer(avro)
    except avro_values.DoesNotFit as error:
        raise NotReadable(str(error)) from error


def _written(path: Path, number: int, row: dict[str, Any], write: Callable[[dict[str, Any]], bytes]) -> bytes:
    try:
        return write(row)
    except avro_values.DoesNotFit as error:
        raise NotReadable(f"{path}: record {number} does not fit the schema: {error}") from error


def check(path: Path, key: str | None, location: Location, avro: Path | None = None, seed: int = 0) -> None:
    """Raises NotReadable for the first record into whose value the identity cannot be placed. Of made ones only the first are checked."""
    in_value = location.kind in (Kind.ENVELOPE, Kind.JSON, Kind.COLUMNS)
    most = made.VALIDATED if endless(path) else None
    for number, event in enumerate(itertools.islice(events(path, key, avro, seed), most), 1):
        if isinstance(event, Recorded) and in_value and not _is_object(event.value):
            raise NotReadable(
                f"{path}: record {number} (offset {event.partition}/{event.offset}): expected a JSON object, where the identity is placed, "
                f"came {shown(event.value)}; say in `identity` that the job keeps it in a `header` or as its `key`"
            )


def _is_object(value: bytes | None) -> bool:
    try:
        return isinstance(json.loads(value or b""), dict)
    except (ValueError, RecursionError):
        return False


def _key(path: Path, number: int, row: dict[str, Any], key: str | None) -> str:
    if key is None:
        return str(number)
    if row.get(key) is None:
        raise NotReadable(f"{path}: record {number} has no {key} for its key; it has: {', '.join(row)}")
    return str(row[key])


def _lines(path: Path) -> Iterator[dict[str, Any]]:
    with path.open("rb") as file:
        for number, line in enumerate(file, 1):
            if not line.strip():
                continue
            try:
                found = json.loads(line, parse_constant=lambda _: None)
            except (ValueError, RecursionError) as error:
                raise NotReadable(f"{path}: line {number} is not JSON: {error}") from error
            if not isinstance(found, dict):
                raise NotReadable(f"{path}: line {number}: expected an object, came {shown(found)}")
            yield found


def _rows(path: Path) -> Iterator[dict[str, Any]]:
    import pyarrow as pa

    try:
        for batch in _batches(path):
            yield from batch.to_pylist()
    except (pa.ArrowException, OSError) as error:
        raise NotReadable(f"{path} cannot be read: {' '.join(str(error).split())}") from error


def _batches(path: Path) -> Iterator[pa.RecordBatch]:
    import pyarrow.csv
    import pyarrow.parquet

    if path.suffix == ".csv":
        with pyarrow.csv.open_csv(path, convert_options=pyarrow.csv.ConvertOptions(strings_can_be_null=True)) as reader:
            yield from reader
        return
    with pyarrow.parquet.ParquetFile(path) as file:
        yield from file.iter_batches(BATCH_ROWS)


def _plain(value: Any) -> Any:
    """A value as JSON can hold it."""
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, list):
        return [_plain(each) for each in value]
    if isinstance(value, dict):
        return {name: _plain(each) for name, each in value.items()}
    return value.hex() if isinstance(value, bytes) else value


def objects(events: Iterable[Event]) -> list[str]:
    """The records as JSON objects. Raises NotReadable for the first that is none: SQL over its fields could not be evaluated."""
    found = []
    for number, event in enumerate(events, 1):
        value = event.value if isinstance(event, Recorded) else event[1]
        try:
            whole = isinstance(json.loads(value or b""), dict)
        except ValueError:
            whole = False
        if value is None or not whole:
            raise NotReadable(f"record {number} is not a JSON object, so no SQL can name its fields: {shown(value)}")
        found.append(value.decode())
    return found
