"""The scan: compare both histories in memory that does not grow with them, and collect what the checkers need.

Most of what a job delivers is right. The scan reads the histories range by range (``streamproof.verdict.scan.ranges``), two ranges at a
time. This fast pass clears nearly every record and counts it. The records that it cannot clear are *candidates*. The scan reads
every send and every copy of a candidate again and builds small histories from them. The checkers judge these small histories. What a
checker finds about a candidate there, it would also find in the whole histories, because the small ones hold everything that it looks at:

    every copy of a candidate, and every delivered record that was never sent
    REORDERED   all records with a candidate's key from its source partition
    TORN        all records of a candidate's batch, and all copies of a candidate's write set
    VANISHED    the records themselves, which the versions of the output name

A record that is due more than once is always a candidate: a job that splits records is judged with all its evidence in memory.

Some evidence does not fit into ranges: identities with large holes between them, an identity that was sent twice, intents that overlap,
Parquet files without statistics, overlapping micro-batches where TORN is asked for. The scan then compares the whole histories at once.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa

from streamproof.evidence import histories
from streamproof.evidence.clock import Clock
from streamproof.evidence.columns import array, flags, integers
from streamproof.evidence.expected import Expected
from streamproof.evidence.folder import RunFolder, read_json_lines
from streamproof.evidence.histories import DELIVERED, SENT, Evidence, read_evidence
from streamproof.evidence.journal import DriverReady
from streamproof.verdict.anomaly import Anomaly
from streamproof.verdict.checks.matching import Matching, match
from streamproof.verdict.checks.records import PartitionCount, Reconciliation, reconcile
from streamproof.verdict.scan.parts import Group, IdentityIndex, Intent, Parts
from streamproof.verdict.scan.ranges import Asked, Due, RangeResult, RangeScan, WriteSet, changed, passing, settling
from streamproof.verdict.timing import recovery
from streamproof.verdict.timing.recovery import Flow, Stamps

RANGE_SIZE = 1 << 22
SPARSE = 4
AT_ONCE = 2
Identities = tuple[np.ndarray, np.ndarray]
"""Producer and sequence of each of some records."""
NONE: Identities = np.zeros(0, np.int64), np.zeros(0, np.int64)


@dataclass(frozen=True)
class Scan:
    """The result. ``evidence`` and ``matched`` hold the candidates only, ``reconciliation`` and ``flow`` are about all records."""

    evidence: Evidence
    matched: Matching
    reconciliation: Reconciliation
    flow: Flow


def scan_histories(
    folder: RunFolder,
    asked: Collection[Anomaly],
    progress: Sequence[dict[str, Any]],
    ends: np.ndarray,
    kind: Stamps,
    also: Identities = NONE,
) -> Scan:
    """Compare what was sent with what was delivered. ``also`` are records that are candidates whatever the fast pass says. Raises
    EvidenceError when a file cannot be read, or holds what no run writes."""
    sent, delivered = Parts(folder.sent, SENT), Parts(folder.delivered, DELIVERED)
    intents = [(int(line["producer"]), int(line["first"]), int(line["count"])) for line in read_json_lines(folder.intents)]
    wanted = Asked(
        None if kind is Stamps.VISIBLE else ends,
        progress,
        Anomaly.OFFSET_AHEAD in asked,
        Anomaly.REORDERED in asked,
        Anomaly.TORN in asked,
        Clock.of(folder),
        Expected.of(folder),
    )
    scanned = _scan_ranges(sent, delivered, intents, wanted)
    if scanned is None:
        return _whole(folder, wanted.expected, ends, kind)
    index, result, _ = scanned
    others = index.of(*also)
    result.candidates.append(others[others >= 0])
    return _Candidates(folder, sent, delivered, intents, wanted.expected, *scanned).scan(ends, kind)


def _whole(folder: RunFolder, expected: Expected, ends: np.ndarray, kind: Stamps) -> Scan:
    evidence = read_evidence(folder)
    matched = match(evidence.sent, evidence.delivered)
    flow = recovery.flow(evidence.sent, evidence.sent_at, evidence.delivered, evidence.delivered_at, ends, kind)
    return Scan(evidence, matched, reconcile(matched, expected), flow)


def _scan_ranges(sent: Parts, delivered: Parts, intents: Sequence[Intent], asked: Asked) -> tuple[IdentityIndex, RangeResult, Due] | None:
    """The results of all ranges, added up; None when the evidence does not fit into ranges."""
    due = Due(asked.progress)
    plain = all(
        group.named and group.producers is not None and group.producers[0] >= 0 and group.sequences is not None for group in sent.groups
    )
    if not plain or (asked.torn and not due.plain) or any(producer < 0 or first < 0 for producer, first, _ in intents):
        return None
    if any(group.producers[1] > histories.MAX_PRODUCER for group in sent.groups if group.producers):
        return None
    index = IdentityIndex(sent.groups, intents)
    intended = sum(count for _, _, count in intents)
    if index.count > SPARSE * (sent.rows + intended) + RANGE_SIZE // 4:
        return None
    ranges = _joined(sorted(index.range(intent) for intent in intents if intent[2] > 0)) if intended > sent.rows else []
    if ranges is None:
        return None

    def scan_range(begin: int) -> RangeResult:
        range_scan = RangeScan(begin, min(begin + RANGE_SIZE, index.count), index, asked, due)
        range_scan.deliver(delivered)
        range_scan.send(sent)
        return range_scan.settle(ranges)

    total = RangeResult()
    begins = range(0, index.count, RANGE_SIZE)
    with ThreadPoolExecutor(AT_ONCE) as pool:
        for result in pool.map(scan_range, begins) if len(begins) > 1 else map(scan_range, begins):
            if result.unfit:
                return None
            _add(total, result)
    return index, total, due


def _joined(ranges: Sequence[tuple[int, int]]) -> list[tuple[int, int]] | None:
    """Ranges of indices, adjacent ones merged; None when two of them overlap."""
    joined: list[tuple[int, int]] = []
    for begin, end in ranges:
        if joined and begin < joined[-1][1]:
            return None
        if joined and begin == joined[-1][1]:
            joined[-1] = joined[-1][0], end
        else:
            joined.append((begin, end))
    return joined


def _add(total: RangeResult, result: RangeResult) -> None:
    total.candidates += result.candidates
    for partition, counted in result.accounts.items():
        total.accounts[partition] = total.accounts.get(partition, np.zeros(4, np.int64)) + counted
    total.written.merge(result.written)
    total.waits.merge(result.waits)
    total.untimed += result.untimed
    total.tangled |= result.tangled
    for lane, through in result.lanes.items():
        passing(total, lane, through)
    total.astray |= result.astray
    for key, output in result.dominant.items():
        settling(total, key, output)
    total.write_sets |= result.write_sets
    for write_set, count in result.held.items():
        total.held[write_set] = total.held.get(write_set, 0) + count
    for batch, count in result.due.items():
        total.due[batch] = total.due.get(batch, 0) + count


class _Candidates:
    """Builds small histories from the candidates, and adds their result to the counts of the ranges."""

    def __init__(
        self,
        folder: RunFolder,
        sent: Parts,
        delivered: Parts,
        intents: Sequence[Intent],
        expected: Expected,
        index: IdentityIndex,
        result: RangeResult,
        due: Due,
    ) -> None:
        self._folder, self._sent, self._delivered, self._intents, self._expected = folder, sent, delivered, intents, expected
        self._index, self._result, self._due = index, result, due
        self._named = _distinct(result.candidates)

    def scan(self, ends: np.ndarray, kind: Stamps) -> Scan:
        self._named = _distinct([self._named, *self._unclear()])
        evidence = self._evidence()
        matched = match(evidence.sent, evidence.delivered)
        reconciled = reconcile(matched, self._expected)
        copies = np.bincount(matched.send[matched.was_sent], minlength=len(evidence.sent))
        return Scan(
            evidence, matched, self._reconciliation(reconciled, evidence, copies), self._flow(evidence, matched, copies, ends, kind)
        )

    # --- more candidates ----------------------------------------------------------------------------------------------------------

    def _unclear(self) -> Iterator[np.ndarray]:
        """The indices of records whose order or batch the fast pass could not clear."""
        result = self._result
        torn = {write_set for write_set in result.write_sets if result.held.get(write_set, 0) != result.due.get(write_set[1], 0)}
        batches = np.array(sorted({batch for _, batch in torn}), np.int64)
        if result.tangled or result.astray or torn:
            columns = ["producer", "sequence", "partition", "offset", "key"]
            for group in self._sent.groups:
                for table in self._sent.chunks(group, columns):
                    partition, offset = integers(table["partition"]), integers(table["offset"])
                    chosen = np.isin(partition, list(result.tangled)) | _astray(table["key"], partition, result.astray)
                    if len(batches):
                        chosen |= (offset >= 0) & np.isin(self._due.batch(partition, offset), batches)
                    yield self._index.of(integers(table["producer"]), integers(table["sequence"]))[chosen]
        if torn:
            for group in self._delivered.groups:
                for table in self._delivered.chunks(group, ["producer", "sequence", "start", "batch"]):
                    indices = self._index.of(integers(table["producer"]), integers(table["sequence"]))
                    yield indices[(indices >= 0) & _of(table, torn)]

    # --- their evidence -----------------------------------------------------------------------------------------------------------

    def _evidence(self) -> Evidence:
        sent = self._rows(self._sent, lambda group: False)
        delivered = self._rows(self._delivered, self._index.beyond)
        settled = _distinct([self._index.of(integers(sent["producer"]), integers(sent["sequence"]))])
        return histories.evidence(self._folder, sent, delivered, self._intended(self._named[~_among(self._named, settled)]))

    def _intended(self, indices: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Producer and sequence of the indices that were intended, in the order of the intents."""
        if self._result.accounts.get(-1) is None or sum(count for _, _, count in self._intents) <= self._sent.rows or not len(indices):
            return np.zeros(0, np.int64), np.zeros(0, np.int64)
        ranges = [self._index.range(intent) for intent in self._intents if intent[2] > 0]
        parts = [indices[slice(*np.searchsorted(indices, borders))] for borders in ranges]
        return self._index.identities(np.concatenate([np.zeros(0, np.int64), *parts]))

    def _rows(self, parts: Parts, beyond: Any) -> pa.Table:
        """The rows of the candidates, and the rows without an index."""
        tables = []
        for group in parts.groups:
            strangers = beyond(group)
            if not strangers and not self._touches(group):
                continue
            for table in parts.chunks(group, parts.schema.names):
                indices = self._index.of(integers(table["producer"]), integers(table["sequence"]))
                if strangers:
                    named = flags(table["producer"].is_valid()) & flags(table["sequence"].is_valid())
                    indices = np.where(named, indices, -1)
                rows = np.flatnonzero(_among(indices, self._named) | (indices < 0))
                if len(rows):
                    tables.append(table.take(array(rows)).cast(parts.schema))
        return pa.concat_tables(tables) if tables else parts.schema.empty_table()

    def _touches(self, group: Group) -> bool:
        return any(
            np.searchsorted(self._named, begin) < np.searchsorted(self._named, end, "right") for begin, end in self._index.spans(group)
        )

    # --- about all records --------------------------------------------------------------------------------------------------------

    def _reconciliation(self, small: Reconciliation, evidence: Evidence, copies: np.ndarray) -> Reconciliation:
        """The findings are about candidates. The ranges counted the records with one copy; all others with copies are candidates."""
        named = {account.partition: account for account in small.partitions}
        accounts = []
        for partition, (acked, indeterminate, rejected, once) in sorted(self._result.accounts.items()):
            several = int(copies[(evidence.sent.partition == partition) & (copies > 1)].sum()) if partition in named else 0
            lost, duplicated = (named[partition].lost, named[partition].duplicated) if partition in named else (0, 0)
            counted = (int(acked), int(indeterminate), int(rejected), int(once) + several)
            accounts.append(PartitionCount(partition, *counted, lost, duplicated))
        return Reconciliation(
            small.findings,
            tuple(accounts),
            sum(account.acked for account in accounts),
            sum(account.indeterminate for account in accounts),
            sum(account.rejected for account in accounts),
            self._delivered.rows,
        )

    def _flow(self, evidence: Evidence, matched: Matching, copies: np.ndarray, ends: np.ndarray, kind: Stamps) -> Flow:
        """The ranges have the moments of records with one copy; the moments of the others come from the candidates."""
        several = np.zeros(len(matched.delivered), bool)
        several[matched.rows[matched.was_sent]] = copies[matched.send[matched.was_sent]] > 1
        delivered = replace(matched.delivered, identified=several)
        more = recovery.flow(evidence.sent, evidence.sent_at, delivered, evidence.delivered_at, ends, kind)
        written, _, records = self._result.written.all()
        sent, shown, waited = self._result.waits.all()
        visible = written if kind is Stamps.VISIBLE else recovery.decided(written, ends)
        return recovery.arranged(
            np.r_[written, more.written],
            np.r_[visible, more.visible],
            np.r_[records, more.records],
            np.r_[sent, more.sent],
            np.r_[shown, more.shown],
            np.r_[waited, more.waited],
            self._result.untimed + more.untimed,
        )


def _distinct(parts: Sequence[np.ndarray]) -> np.ndarray:
    indices = np.sort(np.concatenate([np.zeros(0, np.int64), *parts]))  # np.unique and np.isin hash, which takes ten times as long
    return np.asarray(indices[changed(indices)])


def _among(indices: np.ndarray, sought: np.ndarray) -> np.ndarray:
    """Which indices are among the ``sought`` ones. ``sought`` ascends."""
    return np.asarray(np.r_[sought, -1][np.searchsorted(sought, indices)] == indices)


def _astray(keys: pa.ChunkedArray, partition: np.ndarray, astray: Collection[tuple[str, int]]) -> np.ndarray:
    """Which rows have one of these keys, from its partition."""
    if not astray:
        return np.zeros(len(partition), bool)
    encoded = keys.combine_chunks()
    encoded = encoded if pa.types.is_dictionary(encoded.type) else encoded.dictionary_encode()
    numbers = {name: number for number, name in enumerate(encoded.dictionary.to_pylist())}
    pairs = [(numbers[name], of) for name, of in astray if name in numbers]
    codes = integers(pa.chunked_array([encoded.indices]))
    width = max([of for _, of in pairs], default=0) + 1
    wanted = np.array([number * width + of for number, of in pairs], np.int64)
    return (codes >= 0) & (partition >= 0) & (partition < width) & np.isin(codes * width + partition, wanted)


def _of(table: pa.Table, write_sets: Collection[WriteSet]) -> np.ndarray:
    """Which copies belong to one of these write sets."""
    start, batch = integers(table["start"]), integers(table["batch"])
    changes = changed(start, batch)
    named = [pair in write_sets for pair in zip(start[changes].tolist(), batch[changes].tolist(), strict=True)]
    return np.repeat(np.array(named, bool), np.diff(np.r_[changes, len(start)]))


def read_flow(folder: RunFolder) -> Flow:
    """The flow of a run. Raises EvidenceError naming the file when its evidence is missing or cannot be read."""
    progress = list(read_json_lines(folder.progress))
    ends = recovery.ends(folder.journal.all(DriverReady), progress)
    return scan_histories(folder, (), progress, ends, recovery.stamps(folder.read_json(folder.drain))).flow
