"""How fast a table of a lakehouse is drained, beside the library that is its second reader. ``python -m benchmarks.tables``.

A table of ``--records`` records in ``--files`` files is written once in each format. In each round it is drained (metadata, files, the
identity of each record, ``delivered/``) and read whole into Arrow by delta-rs or pyiceberg, which looks at no record. Ratios are taken
within a round, and their median is reported. Prints a table and writes ``build/bench-tables.json``: a list of {format, records,
drain_per_s, library, library_per_s, ratio}.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import deltalake
import pyarrow as pa
from pyiceberg.catalog.sql import SqlCatalog

from streamproof.evidence import identity
from streamproof.evidence.folder import RunFolder
from streamproof.jobs.job import Job
from streamproof.sinks.delta.table import DeltaTable
from streamproof.sinks.iceberg.metadata import path_of
from streamproof.sinks.iceberg.table import IcebergTable
from streamproof.sinks.lakehouse.table import LakeTable
from streamproof.testbed.embedded import Testbed

NOWHERE = cast(Testbed, None)
DRAIN_S = 600.0
NAMES = {"delta": "delta-rs", "iceberg": "pyiceberg"}
Made = tuple[LakeTable, Job, Callable[[], Any]]
"""A table, the job that it is of, and what reads it whole."""


class _ByItsMetadata(IcebergTable):
    """An Iceberg table without the testbed's catalog."""

    def __init__(self, metadata: Path) -> None:
        self._metadata = metadata

    def metadata(self, job: Job, testbed: Testbed) -> Path:
        return self._metadata


def rows(records: int) -> pa.Table:
    keys = [b"key-%d" % (number % 100) for number in range(records)]
    values = [identity.encode(0, number, b'{"n":%d,"text":"what a record holds"}' % number, keys[number]) for number in range(records)]
    return pa.table({"key": pa.array(keys, pa.binary()), "value": pa.array(values, pa.binary())})


def job(folder: Path, sink: str) -> Job:
    made = RunFolder.create(folder)
    found = Job(
        engine="none",
        name="bench",
        folder=str(made.path),
        sink=sink,
        bootstrap="127.0.0.1:1",
        input_topic="in",
        output_topic="out",
        batch_records=1,
        transaction_timeout_ms=1,
    )
    found.files.mkdir(parents=True)
    return found


def delta(folder: Path, pieces: list[pa.Table]) -> Made:
    made = job(folder / "delta", "delta")
    for piece in pieces:
        deltalake.write_deltalake(made.files, piece, mode="append")
    return DeltaTable(), made, lambda: deltalake.DeltaTable(made.files).to_pyarrow_table()


def iceberg(folder: Path, pieces: list[pa.Table]) -> Made:
    made = job(folder / "iceberg", "iceberg")
    catalog = SqlCatalog("lake", uri=f"sqlite:///{folder}/catalog.db", warehouse=f"file://{made.files}")
    catalog.create_namespace("bench")
    table = catalog.create_table("bench.delivered", schema=pieces[0].schema)
    for piece in pieces:
        table.append(piece)
    return _ByItsMetadata(path_of(table.metadata_location)), made, lambda: table.scan().to_arrow()


def measured(name: str, made: Made, records: int, rounds: int) -> dict[str, Any]:
    table, of, read_whole = made

    def drain() -> int:
        return int(table.drain(of.run, of, NOWHERE, DRAIN_S)["records"])

    def read() -> int:
        return len(read_whole())

    drain()  # what is compiled is compiled
    rates: dict[str, list[float]] = {"drain": [], "read": []}
    for number in range(rounds):
        for which, work in [("drain", drain), ("read", read)][:: 1 if number % 2 else -1]:
            begun = time.monotonic()
            if (found := work()) != records:
                raise RuntimeError(f"{found} of {records} records were found")
            rates[which].append(records / (time.monotonic() - begun))
    return {
        "format": name,
        "records": records,
        "drain_per_s": round(statistics.median(rates["drain"])),
        "library": NAMES[name],
        "library_per_s": round(statistics.median(rates["read"])),
        "ratio": round(statistics.median(one / other for one, other in zip(rates["drain"], rates["read"], strict=True)), 2),
    }


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.tables", description=__doc__)
    parser.add_argument("--records", type=int, default=1_000_000)
    parser.add_argument("--files", type=int, default=20)
    parser.add_argument("--rounds", type=int, default=5)
    asked = parser.parse_args()
    whole, step = rows(asked.records), -(-asked.records // asked.files)
    pieces = [whole.slice(first, step) for first in range(0, asked.records, step)]
    results = []
    for name, make in (("delta", delta), ("iceberg", iceberg)):
        with tempfile.TemporaryDirectory() as folder:
            results.append(measured(name, make(Path(folder), pieces), asked.records, asked.rounds))
    print("format      records   drained/s   read/s by               ratio")
    for result in results:
        peer = f"{result['library']} {result['library_per_s']:,}"
        print(f"{result['format']:8} {result['records']:>10,} {result['drain_per_s']:>11,}   {peer:22}  {result['ratio']}")
    out = Path("build/bench-tables.json")
    out.parent.mkdir(exist_ok=True)
    out.write_text(json.dumps(results, indent=1))


if __name__ == "__main__":
    main()
