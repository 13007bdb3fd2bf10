"""The drain of the output topic: everything that was delivered, as a read-committed reader sees it, to the end.

The end is each partition's high watermark *and* its last stable offset: while the second is behind the first, a transaction is open
and part of the output is not decided. A drain that cannot reach the end says so; LOST is then not known. Once it is reached it is looked at
again: what somebody wrote meanwhile is read too.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import numpy as np
import pyarrow as pa

from streamproof.evidence import histories, identities, locations
from streamproof.evidence.columns import array
from streamproof.evidence.folder import EvidenceError, RunFolder
from streamproof.evidence.identity import checksum
from streamproof.evidence.locations import ENVELOPE, Kind, Location
from streamproof.sinks import origins
from streamproof.sinks.delivered import Delivered
from streamproof.sinks.kafka.fetch import Fetcher, Piece
from streamproof.sinks.kafka.record_batches import Batch, Records, committed, decode
from streamproof.sinks.origin import HEADER
from streamproof.testbed.kafka import Cluster
from streamproof.verdict.timing.recovery import Stamps

DECODERS = 2
IN_MEMORY = 8  # pieces that wait to be decoded, or to be written
STABLE_S = 75.0
READS = 4  # what came while the output was read is read too, but not for ever


def drain(folder: RunFolder, bootstrap: str, topic: str, timeout_s: float, location: Location = ENVELOPE) -> dict[str, Any]:
    """Write ``delivered/`` and ``delivered/drain.json``; returns the latter. ``location`` is where a record keeps its identity.

    Repeating it starts over; what an earlier one found is kept until all of the new is there. Raises EvidenceError when there is no
    such topic.
    """
    begun = time.monotonic()
    cluster, delivered = Cluster(bootstrap), None
    read: dict[int, int] = {}
    reason: str | None = f"the output still grew when it was read for the {READS}th time"
    for _ in range(READS):
        ends, unstable = _stable_end(cluster, topic, begun + min(timeout_s, STABLE_S))
        delivered = delivered or Delivered(folder)
        if ends == read:
            reason = unstable
            break
        missing, read = _read(cluster, topic, read, ends, delivered, begun + timeout_s, location), ends
        if missing or unstable:
            reason = unstable or f"partitions {missing} were not read to their end within {timeout_s:.0f} s"
            break
    assert delivered is not None
    return delivered.settle(reason, read, Stamps.WRITTEN, {str(partition): end for partition, end in sorted(read.items())})


def _stable_end(cluster: Cluster, topic: str, deadline: float) -> tuple[dict[int, int], str | None]:
    """The output's end, once no open transaction lies before it; else the end that is stable, and why it is not the last.

    Raises EvidenceError when there is no such topic: what is not there cannot be read to its end.
    """
    while True:
        stable = cluster.end_offsets(topic, committed=True)
        last = cluster.end_offsets(topic)
        if not stable or not last:
            raise EvidenceError(
                f"kafka at {cluster.bootstrap} has no topic {topic}: the run was not prepared, or was restored already. "
                "What was drained before is kept."
            )
        behind = sorted(partition for partition, end in last.items() if stable[partition] < end)
        if not behind:
            return last, None
        if time.monotonic() > deadline:
            return stable, f"an open transaction holds back partitions {behind}"
        time.sleep(0.1)


def _read(
    cluster: Cluster,
    topic: str,
    begins: Mapping[int, int],
    ends: Mapping[int, int],
    delivered: Delivered,
    deadline: float,
    location: Location,
) -> list[int]:
    """Read every partition from where it was read before to its end. Returns those that were not.

    While the next answer is on its way the last ones are decoded; their rows are written in the order in which they came.
    """
    with Fetcher(cluster, topic, ends, begins) as fetcher, ThreadPoolExecutor(DECODERS) as decoders, ThreadPoolExecutor(1) as writer:
        decoding: deque[Future[dict[str, pa.Array]]] = deque()
        writing: deque[Future[None]] = deque()
        for piece in fetcher.pieces(deadline):
            batches, behind = committed(piece.data.data, piece.aborted)
            if behind is not None:
                fetcher.advance(piece.partition, behind)
            if batches:
                decoding.append(decoders.submit(_columns, piece, batches, ends[piece.partition], location))
            while len(decoding) > IN_MEMORY:
                writing.append(writer.submit(delivered.write, decoding.popleft().result()))
            while len(writing) > IN_MEMORY:
                writing.popleft().result()
        writing.extend(writer.submit(delivered.write, columns.result()) for columns in decoding)
        for written in writing:
            written.result()
        return fetcher.unread()


def _columns(piece: Piece, batches: Sequence[Batch], end: int, location: Location) -> dict[str, pa.Array]:
    """The rows of ``delivered/`` for what lies before ``end``."""
    records = decode(piece.data, batches, HEADER.encode())
    if records.offset[-1] >= end:
        records = records.some(records.offset < end)
    if location.kind is Kind.ENVELOPE:
        decoded = identities.decode(records.data, records.value, records.value_size, records.key, records.key_size)
        identity_of = {
            "producer": array(decoded.producer, ~decoded.present),
            "sequence": array(decoded.sequence, ~decoded.present),
            "crc": array(decoded.crc, ~decoded.intact),
        }
    else:
        identity_of = _placed(records, decode(piece.data, batches, location.header.encode()) if location.header else records, location)
    origin_of = zip(("start", "batch", "attempt"), origins.decode(records.data, records.header, records.header_size), strict=True)
    return {
        **identity_of,
        "partition": array(np.full(len(records), piece.partition, np.int32)),
        "offset": array(records.offset),
        **{name: array(numbers, numbers < 0) for name, numbers in origin_of},
        "delivered_at": array(records.timestamp_ms).cast(histories.DELIVERED.field("delivered_at").type),
    }


def _placed(records: Records, with_header: Records, location: Location) -> dict[str, pa.Array]:
    """The identities of records that keep them in a location of their own; ``with_header`` are the same records (or some more behind them),
    with the header that holds them."""
    found: list[locations.Found] = []
    crc: list[int | None] = []
    for row in range(len(records)):
        key = _bytes(records.data, records.key[row], records.key_size[row])
        value = _bytes(records.data, records.value[row], records.value_size[row])
        header = _bytes(with_header.data, with_header.header[row], with_header.header_size[row]) if location.header else None
        found.append(locations.decode(location, key, value, header))
        crc.append(checksum(key, value or b"") if location.whole else 0)
    return {
        "producer": pa.array([one and one[0] for one in found], pa.int32()),
        "sequence": pa.array([one and one[1] for one in found], pa.int64()),
        "crc": pa.array([one if found[row] else None for row, one in enumerate(crc)], pa.uint32()),
    }


def _bytes(data: np.ndarray, at: int, size: int) -> bytes | None:
    return None if size < 0 else data[at : at + size].tobytes()
