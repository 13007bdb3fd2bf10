"""Time and memory of the expectation suites' queries over large histories. ``python -m benchmarks.suites --sizes 1,10,50``.

For each size a run's folder is made, without any testbed: records in four partitions, a thousand keys, micro-batches of 250,000. Five
records are missing and five are there twice, and just these must be found. Then, in a process of its own, its database is opened and every
anomaly that exactly-once forbids is named, as the step ``expect`` does before it compares; with ``--promises`` those of order and atomicity
too. Prints a table: seconds, the most that the process had resident, the size of the database.
"""

from __future__ import annotations

import argparse
import json
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.oracle import BATCH, DAMAGED, KEYS, PARTITIONS, _progress, _sent_at
from streamproof.evidence import histories
from streamproof.evidence.folder import RunFolder
from streamproof.suites.expectations import database
from tests.support.checkout import ROOT

FORBIDDEN = ("lost", "duplicated", "phantom", "corrupted", "offset_ahead")
PROMISED = ("reordered", "torn")
WRITTEN_MS = 400


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--sizes", default="1", help="millions of records, several separated by commas (default 1)")
    parser.add_argument("--promises", action="store_true", help="order and atomicity too")
    parser.add_argument("--measure", type=Path, help=argparse.SUPPRESS)  # the folder: in the process that is measured
    options = parser.parse_args()
    if options.measure:
        print(json.dumps(_measure(RunFolder(options.measure), FORBIDDEN + PROMISED * options.promises)))
        return 0
    print("| records | seconds | records/s | MiB resident | MiB of database |\n|---:|---:|---:|---:|---:|", flush=True)
    for size in (int(float(size) * 1_000_000) for size in options.sizes.split(",")):
        with tempfile.TemporaryDirectory(prefix="bench-suites-") as directory:
            folder = RunFolder.create(Path(directory) / "run")
            _fill(folder, size)
            command = [sys.executable, "-m", "benchmarks.suites", "--measure", str(folder.path), *["--promises"] * options.promises]
            done = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, text=True, check=True)
        result = json.loads(done.stdout.splitlines()[-1])
        expected = {"lost": DAMAGED, "duplicated": DAMAGED, "phantom": 0, "corrupted": 0, "offset_ahead": 0}
        assert {name: result["named"][name] for name in expected} == expected, result
        rate = size / result["seconds"]
        print(f"| {size:,} | {result['seconds']:.1f} | {rate:,.0f} | {result['mib']:,} | {result['database_mib']:,} |", flush=True)
    return 0


def _measure(folder: RunFolder, anomalies: tuple[str, ...]) -> dict[str, Any]:
    scratch = folder.path / ".judging"
    scratch.mkdir()
    begun = time.monotonic()
    with database.building(folder.path, scratch / "run.duckdb", database.settings(scratch / "spill"), anomalies) as connection:
        counts = {name: connection.execute(f"SELECT count(*) FROM {name}").fetchall()[0][0] for name in anomalies}
    seconds = time.monotonic() - begun
    size = (scratch / "run.duckdb").stat().st_size >> 20
    shutil.rmtree(scratch)
    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10
    return {"seconds": seconds, "named": counts, "mib": most, "database_mib": size}


def _fill(folder: RunFolder, size: int) -> None:
    rng = np.random.default_rng(size)
    lost, doubled = rng.choice(size, 2 * DAMAGED, replace=False).reshape(2, DAMAGED)
    sent = pq.ParquetWriter(folder.sent / "00000.parquet", histories.SENT, **histories.FAST)
    delivered = histories.DeliveredFile(folder.delivered / "00000.parquet")
    reached = np.zeros(PARTITIONS, np.int64)
    written = np.zeros(PARTITIONS, np.int64)
    for batch, first in enumerate(range(0, size, BATCH)):
        sequence = np.arange(first, min(first + BATCH, size))
        key, crc = rng.integers(0, KEYS, len(sequence)), rng.integers(0, 1 << 32, len(sequence))
        since, partition = reached.copy(), (key % PARTITIONS).astype(np.int32)
        offset = _placed(partition, reached)
        rows = {
            "producer": np.zeros(len(sequence), np.int32),
            "sequence": sequence,
            "partition": partition,
            "offset": offset,
            "key": pa.DictionaryArray.from_arrays(pa.array(key.astype(np.int32)), [f"k{number}" for number in range(KEYS)]).cast(
                pa.string()
            ),
            "crc": crc.astype(np.uint32),
            "outcome": pa.array(["ACKED"] * len(sequence)),
            "sent_at": pa.array(_sent_at(sequence)).cast(histories.SENT.field("sent_at").type),
        }
        sent.write_table(pa.table(rows, schema=histories.SENT), row_group_size=1 << 17)
        copies = 1 + np.isin(sequence, doubled).astype(np.int64) - np.isin(sequence, lost)
        delivered.write(_output(batch, np.repeat(np.arange(len(sequence)), copies), sequence, partition, crc, written))
        _progress(folder, batch, sequence, since, reached)
    sent.close()
    delivered.close()
    folder.drain.write_text(json.dumps({"complete": True, "reason": None, "stamps": "written"}))


def _output(batch: int, at: np.ndarray, sequence: np.ndarray, partition: np.ndarray, crc: np.ndarray, written: np.ndarray) -> pa.Table:
    """What one micro-batch delivers: the records ``at`` these places, in their partitions."""
    offset = _placed(partition[at], written)
    written += 1  # the end of a transaction takes an offset
    columns = {"batch": np.full(len(at), batch), "attempt": np.zeros(len(at), np.int32), "start": np.ones(len(at), np.int32)}
    rows = {
        "producer": np.zeros(len(at), np.int32),
        "sequence": sequence[at],
        "crc": crc[at].astype(np.uint32),
        "partition": partition[at],
        "offset": offset,
        **columns,
        "delivered_at": pa.array(_sent_at(sequence[at]) + WRITTEN_MS).cast(histories.DELIVERED.field("delivered_at").type),
    }
    return pa.table(rows, schema=histories.DELIVERED)


def _placed(partition: np.ndarray, reached: np.ndarray) -> np.ndarray:
    """The next offset of each record's partition; ``reached`` goes on behind them."""
    offset = np.zeros(len(partition), np.int64)
    for number in range(PARTITIONS):
        here = partition == number
        offset[here] = reached[number] + np.arange(here.sum())
        reached[number] += here.sum()
    return offset


if __name__ == "__main__":
    sys.exit(main())
