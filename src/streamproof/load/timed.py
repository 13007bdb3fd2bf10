"""The workload of a stateful pipeline: events in the order of their times, but for a disorder that is bounded, and some that come too late.

``flights`` are real ones of 2013, from a moment of the year that the seed picks; for a join the hourly weather of the three airports comes
between them. Each is sent in the order of its time, with these exceptions, drawn from the seed:

    one in five comes up to ``disorder_min`` late: the declared delay is to bridge that
    a share of ``late_share`` comes later than declared delay and disorder together, and by then is to be dropped

What each event says is written to ``events.parquet``: the results are computed again from that.
"""

from __future__ import annotations

import io
import json
import random
from collections.abc import Iterator

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv

from streamproof.evidence.events import EVENTS
from streamproof.evidence.folder import RunFolder
from streamproof.evidence.histories import write_table
from streamproof.load import nycflights
from streamproof.load.spec import Stateful, Workload

MINUTE_MS = 60_000
DISORDERED = 0.2
_FLIGHTS = ("time_hour", "minute", "origin", "dep_delay", "carrier", "flight")
_WEATHER = ("time_hour", "origin", "temp")
_NULLS = pyarrow.csv.ConvertOptions(null_values=["NA", ""], strings_can_be_null=True)


def events(workload: Workload, times: Stateful, seed: int, *, joins: bool) -> pa.Table:
    """The events in the order in which they are sent: the columns of ``events.parquet`` and the ``message_key`` of each. ``joins`` is
    whether the hourly weather comes between the flights."""
    table = _flights(to_the_hour=joins)
    if joins:
        table = pa.concat_tables([table, _weather()])
    table = table.take(pc.sort_indices(table, [("at", "ascending"), ("stream", "descending"), ("message_key", "ascending")]))
    rng = random.Random(f"timed:{seed}")
    begin = rng.randrange(max(table.num_rows - workload.records, 0) + 1)
    table = table.slice(begin, workload.records)
    order = np.argsort(np.asarray(table["at"].to_numpy()) + _lateness_ms(times, rng, table.num_rows), kind="stable")
    table = table.take(pa.array(order))
    return table.add_column(0, "sequence", pa.array(range(table.num_rows), pa.int64()))


def _lateness_ms(declared: Stateful, rng: random.Random, count: int) -> np.ndarray:
    """How much after its time each event is sent."""
    draws = np.random.default_rng(rng.getrandbits(64))
    late = draws.integers(0, max(declared.disorder_min, 1), count) * (draws.random(count) < DISORDERED)
    beyond = declared.delay_min + declared.disorder_min
    too_late = beyond + draws.integers(beyond, 2 * beyond + 1, count)
    return np.asarray(np.where(draws.random(count) < declared.late_share, too_late, late) * MINUTE_MS)


def write(folder: RunFolder, table: pa.Table) -> None:
    write_table(folder.events, table.select(EVENTS.names).cast(EVENTS))


def payloads(table: pa.Table) -> Iterator[tuple[str, bytes]]:
    """The events as (key, payload as JSON)."""
    for row in table.to_pylist():
        key, _ = row.pop("message_key"), row.pop("sequence")
        yield key, json.dumps(row, separators=(",", ":")).encode()


def _flights(*, to_the_hour: bool) -> pa.Table:
    flights = _read("flights.csv", _FLIGHTS)
    at = pc.cast(pc.cast(flights["time_hour"], pa.timestamp("ms", "UTC")), pa.int64())
    if not to_the_hour:
        at = pc.add(at, pc.multiply(pc.cast(flights["minute"], pa.int64()), MINUTE_MS))
    name = pc.binary_join_element_wise(flights["carrier"], pc.cast(flights["flight"], pa.string()), "")
    return _table(0, at, flights["origin"], pc.fill_null(pc.cast(flights["dep_delay"], pa.int64()), 0), name)


def _weather() -> pa.Table:
    weather = _read("weather.csv", _WEATHER)
    at = pc.cast(pc.cast(weather["time_hour"], pa.timestamp("ms", "UTC")), pa.int64())
    hundredths = pc.cast(pc.round(pc.multiply(pc.fill_null(weather["temp"], 0.0), 100.0)), pa.int64())
    return _table(1, at, weather["origin"], hundredths, weather["origin"])


def _table(stream: int, at: pa.ChunkedArray, key: pa.ChunkedArray, value: pa.ChunkedArray, message_key: pa.ChunkedArray) -> pa.Table:
    streams = pa.array(np.full(len(at), stream, np.int32))
    return pa.table({"stream": streams, "at": at, "key": key, "value": value, "message_key": message_key})


def _read(name: str, columns: tuple[str, ...]) -> pa.Table:
    return pyarrow.csv.read_csv(io.BytesIO(nycflights.read(name)), convert_options=_NULLS).select(columns)
