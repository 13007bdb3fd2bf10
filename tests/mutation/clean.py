"""Histories without a fault in them: made from a seed, or read from the folder of a real run."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import yaml

from streamproof.evidence import histories
from streamproof.evidence.folder import RunFolder, read_json_lines
from tests.mutation import versions
from tests.mutation.evidence import ACKED, BATCH_MS, BEGUN_MS, INDETERMINATE, REJECTED, Columns, Evidence, stamp

KINDS: dict[str, tuple[str, frozenset[str]]] = {
    "two_phase_commit": ("exactly-once", frozenset({"atomic", "ordered"})),
    "offset_in_transaction": ("exactly-once", frozenset({"ordered"})),
    "postgres_two_phase_commit": ("exactly-once", frozenset({"atomic"})),
    "postgres_ledger_single": ("exactly-once", frozenset({"atomic"})),
    "postgres_ledger": ("exactly-once", frozenset()),
    "postgres_upsert": ("exactly-once", frozenset()),
    "file_sink": ("exactly-once", frozenset()),
    "file_sink_listed": ("at-least-once", frozenset()),
    "checkpoint": ("at-least-once", frozenset()),
    "delta_sink": ("exactly-once", frozenset({"monotonic"})),
    "iceberg_foreach_append": ("at-least-once", frozenset({"monotonic"})),
    "offset_commit": ("at-least-once", frozenset()),
    "at_most_once": ("at-most-once", frozenset()),
}
"""What each strategy promises, written down here once more: what is tested must not say what it is tested by."""
MADE = (
    "two_phase_commit",
    "offset_in_transaction",
    "postgres_ledger",
    "checkpoint",
    "at_most_once",
    "delta_sink",
    "iceberg_foreach_append",
)
KEEPS_VERSIONS = frozenset({"delta_sink", "iceberg_foreach_append"})
NAMES_NO_BATCH = KEEPS_VERSIONS | {"checkpoint"}


def make(rng: np.random.Generator, strategy: str) -> Evidence:
    """A clean history of 40 to 300 records: some producers, keys and partitions, 4 to 8 micro-batches, here and there a restart, partitions
    that were added half way, gaps between the offsets of the output, sends that are not decided, refused ones, records without a key."""
    count, partitions, batches = int(rng.integers(40, 300)), int(rng.integers(1, 5)), int(rng.integers(4, 9))
    sent = _sent(rng, count, partitions, batches)
    log = np.flatnonzero(sent["place"] >= 0)
    batch = np.full(count, -1)
    until: dict[int, dict[str, int]] = {number: {} for number in range(batches)}
    for partition in np.unique(sent["partition"][log]):
        here = log[sent["partition"][log] == partition]
        ends = np.sort(rng.integers(0, len(here) + 1, batches))
        ends[-1] = len(here)
        batch[here] = np.searchsorted(ends, np.arange(len(here)), "right")
        for number, end in enumerate(ends):
            if end > 0 or number == batches - 1:
                until[number][str(partition)] = int(end)
    start_of = 1 + np.cumsum(rng.random(batches) < 0.15)
    progress = []
    for number in range(batches):
        begin = until[number - 1] if number else {}
        progress.append(
            {
                "batch": number,
                "start": int(start_of[number]),
                "rows": int((batch == number).sum()),
                "committed_at": stamp(BEGUN_MS + (number + 1) * BATCH_MS),
                "from": dict(begin),
                "until": dict(until[number]),
            }
        )
    delivered = _delivered(rng, sent, log, batch, start_of, partitions)
    guarantee, promises = KINDS[strategy]
    columns = {name: column for name, column in sent.items() if name != "place"}
    intents = [(int(p), 0, int((sent["producer"] == p).sum())) for p in np.unique(sent["producer"])]
    found = Evidence(guarantee, promises, columns, delivered, progress, intents)
    if strategy in KEEPS_VERSIONS:
        found.versions = versions.made(rng)
    if strategy in NAMES_NO_BATCH:
        for name in ("start", "batch", "attempt"):
            found.delivered[name] = np.full(len(log), -1)
    return found


def _sent(rng: np.random.Generator, count: int, partitions: int, batches: int) -> Columns:
    producers = int(rng.integers(1, 4))
    producer = np.sort(rng.integers(0, producers, count))
    sequence = np.arange(count) - np.searchsorted(producer, producer)
    if rng.random() < 0.1:  # the largest identities that there are
        producer = producer + (0xFFFF - producers + 1)
        sequence = sequence + (0xFFFF_FFFF_FFFF - count)
    key = rng.integers(0, int(rng.integers(1, 15)), count)
    key[rng.random(count) < rng.choice([0.0, 0.1])] = -1
    width = np.where(np.arange(count) < count // 2, partitions, partitions + int(rng.integers(0, 3)))
    partition = np.where(key < 0, rng.integers(0, 100, count), key) % width
    outcome = np.full(count, ACKED, dtype=object)
    share = float(rng.choice([0.0, 0.03]))
    outcome[rng.random(count) < share] = INDETERMINATE
    outcome[rng.random(count) < share] = REJECTED
    absent = (outcome == REJECTED) | ((outcome == INDETERMINATE) & (rng.random(count) < 0.5))
    place = np.full(count, -1)
    for number in np.unique(partition):
        here = np.flatnonzero((partition == number) & ~absent)
        place[here] = np.arange(len(here))
    crc = rng.integers(0, 1 << 32, count)
    crc[rng.random(count) < 0.02] = 0  # the checksum of an empty payload
    offset = np.where(outcome == ACKED, place, -1)
    at = BEGUN_MS + np.arange(count) * (batches * BATCH_MS) // count
    return {
        "producer": producer,
        "sequence": sequence,
        "partition": partition,
        "offset": offset,
        "key": key,
        "crc": crc,
        "outcome": outcome,
        "sent_at": at,
        "place": place,
    }


def _delivered(
    rng: np.random.Generator, sent: Columns, log: np.ndarray, batch: np.ndarray, start_of: np.ndarray, partitions: int
) -> Columns:
    """What is in the log, batch by batch, the tasks of a batch one after the other in an order of their own."""
    turn = rng.permutation(int(sent["partition"].max()) + 1)
    rows = log[np.lexsort((sent["place"][log], turn[sent["partition"][log]], batch[log]))]
    output = np.where(sent["key"][rows] < 0, sent["partition"][rows], sent["key"][rows] * 7) % partitions
    gaps = int(rng.choice([0, 1, 3]))  # a transaction's end takes an offset, an aborted one many
    offset = np.zeros(len(rows), np.int64)
    for number in range(partitions):
        here = np.flatnonzero(output == number)
        offset[here] = np.arange(len(here)) + gaps * batch[rows[here]]
    return {
        "producer": sent["producer"][rows],
        "sequence": sent["sequence"][rows],
        "crc": sent["crc"][rows],
        "partition": output,
        "offset": offset,
        "batch": batch[rows],
        "attempt": rng.integers(0, 2, len(rows)),
        "start": start_of[batch[rows]],
        "delivered_at": BEGUN_MS + batch[rows] * BATCH_MS + rng.integers(0, 90, len(rows)),
    }


def read(path: Path) -> Evidence | None:
    """The history of a real run that passed and shows no anomaly, or None."""
    folder = RunFolder(path)
    try:
        verdict = json.loads(folder.verdict.read_text())
        strategy = yaml.safe_load(folder.experiment.read_text())["strategy"]
    except (OSError, ValueError, KeyError):
        return None
    if verdict["outcome"] != "PASSED" or any(verdict["anomalies"].values()) or strategy not in KINDS.keys() - KEEPS_VERSIONS:
        return None
    guarantee, promises = KINDS[strategy]
    sent = _columns(folder.sent, histories.SENT)
    keys = {key: number for number, key in enumerate(dict.fromkeys(sent["key"].tolist()), 1)}
    sent["key"] = np.array([keys[key] for key in sent["key"].tolist()])
    if strategy == "checkpoint":
        promises = frozenset()
    intents = [(line["producer"], line["first"], line["count"]) for line in read_json_lines(folder.intents)]
    needed = ("batch", "start", "rows", "committed_at", "from", "until")
    progress: list[dict[str, Any]] = [{name: line[name] for name in needed} for line in read_json_lines(folder.progress)]
    return Evidence(guarantee, promises, sent, _columns(folder.delivered, histories.DELIVERED), progress, intents)


def _columns(directory: Path, schema: pa.Schema) -> Columns:
    table = pa.concat_tables([pq.read_table(path, columns=schema.names).cast(schema) for path in histories.files(directory)])
    return {
        each.name: table[each.name].to_numpy()
        if pa.types.is_string(each.type)
        else np.asarray(table[each.name].cast(pa.int64()).fill_null(-1).to_numpy(), np.int64)
        for each in schema
    }


def runs(folder: Path, most: int) -> Iterator[Evidence]:
    """At most ``most`` histories of real runs, small ones, of as many strategies as there are."""
    found: dict[str, int] = {}
    for path in sorted(folder.glob("*/"), reverse=True):
        if sum(found.values()) >= most:
            return
        try:
            strategy = str(json.loads((path / "verdict.json").read_text())["strategy"])
        except (OSError, ValueError, KeyError):
            continue
        if found.get(strategy, 0) >= max(1, most // 8):
            continue
        evidence = read(path)
        if evidence is not None and len(evidence.ids) <= 3000:
            found[strategy] = found.get(strategy, 0) + 1
            yield evidence
