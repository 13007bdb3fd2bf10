"""Both histories compared in memory that does not grow with them, and what the checkers need to judge.

Most of what a job delivers is right. So the histories are read band by band (``streamproof.verdict.scan.ranges``), two at a time, which
tells of nearly every record that nothing is wrong with it, and counts it. The others are *suspects*: all that is known of them, every send
and every copy, is read again and becomes small histories, on which the checkers do what they do. What a checker says of a suspect there it
would say of it in the whole, because everything that it looks at comes along:

    every copy of a suspect, and everything that was delivered and that nobody sent
    REORDERED   all records of a suspect's key from its partition of the source
    TORN        all records of a suspect's batch, and all copies that say they are of a suspect's edition

Evidence that does not fit into bands is taken as a whole: identities with large holes between them, one that was sent twice, intents that
lie in each other, Parquet files without statistics, micro-batches that overlap where TORN is asked for.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa

from streamproof.evidence import histories
from streamproof.evidence.columns import array, flags, integers
from streamproof.evidence.folder import RunFolder, read_json_lines
from streamproof.evidence.histories import DELIVERED, SENT, Evidence, read_evidence
from streamproof.evidence.journal import DriverReady
from streamproof.verdict.anomaly import Anomaly
from streamproof.verdict.checks.matching import Matching, match
from streamproof.verdict.checks.records import PartitionCount, Reconciliation, reconcile
from streamproof.verdict.scan.parts import Group, Intent, Parts, Slots
from streamproof.verdict.scan.ranges import Asked, Band, Due, Edition, RangeResult, changed, passing, settling
from streamproof.verdict.timing import recovery
from streamproof.verdict.timing.recovery import Flow, Stamps

BAND = 1 << 22
SPARSE = 4
AT_ONCE = 2


@dataclass(frozen=True)
class Survey:
    """What two histories come to. ``evidence`` and ``matched`` hold the suspects alone, ``reconciliation`` and ``flow`` speak of all."""

    evidence: Evidence
    matched: Matching
    reconciliation: Reconciliation
    flow: Flow


def survey(folder: RunFolder, asked: Collection[Anomaly], progress: Sequence[dict[str, Any]], ends: np.ndarray, kind: Stamps) -> Survey:
    """Compare what was sent with what was delivered. Raises EvidenceError when a file cannot be read, or holds what no run writes."""
    sent, delivered = Parts(folder.sent, SENT), Parts(folder.delivered, DELIVERED)
    intents = [(int(line["producer"]), int(line["first"]), int(line["count"])) for line in read_json_lines(folder.intents)]
    wanted = Asked(
        None if kind is Stamps.VISIBLE else ends, progress, Anomaly.OFFSET_AHEAD in asked, Anomaly.REORDERED in asked, Anomaly.TORN in asked
    )
    scanned = _bands(sent, delivered, intents, wanted)
    if scanned is None:
        return _whole(folder, ends, kind)
    return _Suspects(folder, sent, delivered, intents, *scanned).survey(ends, kind)


def _whole(folder: RunFolder, ends: np.ndarray, kind: Stamps) -> Survey:
    evidence = read_evidence(folder)
    matched = match(evidence.sent, evidence.delivered)
    flow = recovery.flow(evidence.sent, evidence.sent_at, evidence.delivered, evidence.delivered_at, ends, kind)
    return Survey(evidence, matched, reconcile(matched), flow)


def _bands(sent: Parts, delivered: Parts, intents: Sequence[Intent], asked: Asked) -> tuple[Slots, RangeResult, Due] | None:
    """What the bands found, one added to the other; None when the evidence does not fit into any."""
    due = Due(asked.progress)
    plain = all(
        group.named and group.producers is not None and group.producers[0] >= 0 and group.sequences is not None for group in sent.groups
    )
    if not plain or (asked.torn and not due.plain) or any(producer < 0 or first < 0 for producer, first, _ in intents):
        return None
    if any(group.producers[1] > histories.MAX_PRODUCER for group in sent.groups if group.producers):
        return None
    slots = Slots(sent.groups, intents)
    intended = sum(count for _, _, count in intents)
    if slots.count > SPARSE * (sent.rows + intended) + BAND // 4:
        return None
    ranges = _joined(sorted(slots.range(intent) for intent in intents if intent[2] > 0)) if intended > sent.rows else []
    if ranges is None:
        return None

    def look(begin: int) -> RangeResult:
        band = Band(begin, min(begin + BAND, slots.count), slots, asked, due)
        band.deliver(delivered)
        band.send(sent)
        return band.settle(ranges)

    total = RangeResult()
    begins = range(0, slots.count, BAND)
    with ThreadPoolExecutor(AT_ONCE) as pool:
        for result in pool.map(look, begins) if len(begins) > 1 else map(look, begins):
            if result.unfit:
                return None
            _add(total, result)
    return slots, total, due


def _joined(ranges: Sequence[tuple[int, int]]) -> list[tuple[int, int]] | None:
    """Ranges of slots, those that follow each other made one; None when two have a slot in common."""
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
    total.suspects += result.suspects
    for partition, counted in result.accounts.items():
        total.accounts[partition] = total.accounts.get(partition, np.zeros(4, np.int64)) + counted
    total.written.merge(result.written)
    total.waits.merge(result.waits)
    total.tangled |= result.tangled
    for lane, through in result.lanes.items():
        passing(total, lane, through)
    total.astray |= result.astray
    for key, output in result.homes.items():
        settling(total, key, output)
    total.editions |= result.editions
    for edition, count in result.held.items():
        total.held[edition] = total.held.get(edition, 0) + count
    for batch, count in result.due.items():
        total.due[batch] = total.due.get(batch, 0) + count


class _Suspects:
    """From suspects to small histories, and from these to what is said of all."""

    def __init__(
        self, folder: RunFolder, sent: Parts, delivered: Parts, intents: Sequence[Intent], slots: Slots, result: RangeResult, due: Due
    ) -> None:
        self._folder, self._sent, self._delivered, self._intents = folder, sent, delivered, intents
        self._slots, self._result, self._due = slots, result, due
        self._named = _distinct(result.suspects)

    def survey(self, ends: np.ndarray, kind: Stamps) -> Survey:
        self._named = _distinct([self._named, *self._beside()])
        evidence = self._evidence()
        matched = match(evidence.sent, evidence.delivered)
        reconciled = reconcile(matched)
        copies = np.bincount(matched.send[matched.was_sent], minlength=len(evidence.sent))
        return Survey(
            evidence, matched, self._reconciliation(reconciled, evidence, copies), self._flow(evidence, matched, copies, ends, kind)
        )

    # --- who else is looked at ----------------------------------------------------------------------------------------------------

    def _beside(self) -> Iterator[np.ndarray]:
        """The slots of those whose order, or whose batch, is not plain to see."""
        result = self._result
        torn = {edition for edition in result.editions if result.held.get(edition, 0) != result.due.get(edition[1], 0)}
        batches = np.array(sorted({batch for _, batch in torn}), np.int64)
        if result.tangled or result.astray or torn:
            columns = ["producer", "sequence", "partition", "offset", "key"]
            for group in self._sent.groups:
                for table in self._sent.chunks(group, columns):
                    partition, offset = integers(table["partition"]), integers(table["offset"])
                    chosen = np.isin(partition, list(result.tangled)) | _astray(table["key"], partition, result.astray)
                    if len(batches):
                        chosen |= (offset >= 0) & np.isin(self._due.batch(partition, offset), batches)
                    yield self._slots.of(integers(table["producer"]), integers(table["sequence"]))[chosen]
        if torn:
            for group in self._delivered.groups:
                for table in self._delivered.chunks(group, ["producer", "sequence", "start", "batch"]):
                    slots = self._slots.of(integers(table["producer"]), integers(table["sequence"]))
                    yield slots[(slots >= 0) & _of(table, torn)]

    # --- all that is known of them ------------------------------------------------------------------------------------------------

    def _evidence(self) -> Evidence:
        sent = self._rows(self._sent, lambda group: False)
        delivered = self._rows(self._delivered, self._slots.beyond)
        settled = _distinct([self._slots.of(integers(sent["producer"]), integers(sent["sequence"]))])
        return histories.evidence(self._folder, sent, delivered, self._intended(self._named[~_among(self._named, settled)]))

    def _intended(self, slots: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Those of the slots that were intended, as producer and sequence, in the order of the intents."""
        if self._result.accounts.get(-1) is None or sum(count for _, _, count in self._intents) <= self._sent.rows or not len(slots):
            return np.zeros(0, np.int64), np.zeros(0, np.int64)
        ranges = [self._slots.range(intent) for intent in self._intents if intent[2] > 0]
        parts = [slots[slice(*np.searchsorted(slots, borders))] for borders in ranges]
        return self._slots.identities(np.concatenate([np.zeros(0, np.int64), *parts]))

    def _rows(self, parts: Parts, beyond: Any) -> pa.Table:
        """The rows of the suspects, and those without a slot in groups that may have some."""
        tables = []
        for group in parts.groups:
            strangers = beyond(group)
            if not strangers and not self._touches(group):
                continue
            for table in parts.chunks(group, parts.schema.names):
                slots = self._slots.of(integers(table["producer"]), integers(table["sequence"]))
                if strangers:
                    named = flags(table["producer"].is_valid()) & flags(table["sequence"].is_valid())
                    slots = np.where(named, slots, -1)
                rows = np.flatnonzero(_among(slots, self._named) | (slots < 0))
                if len(rows):
                    tables.append(table.take(array(rows)).cast(parts.schema))
        return pa.concat_tables(tables) if tables else parts.schema.empty_table()

    def _touches(self, group: Group) -> bool:
        return any(
            np.searchsorted(self._named, begin) < np.searchsorted(self._named, end, "right") for begin, end in self._slots.spans(group)
        )

    # --- what is said of all ------------------------------------------------------------------------------------------------------

    def _reconciliation(self, small: Reconciliation, evidence: Evidence, copies: np.ndarray) -> Reconciliation:
        """The findings are those of the suspects. Of records with one copy the bands counted it; those with more are all suspects."""
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
        """The bands have the moments of records with one copy; those with more come from the suspects."""
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
        )


def _distinct(parts: Sequence[np.ndarray]) -> np.ndarray:
    slots = np.sort(np.concatenate([np.zeros(0, np.int64), *parts]))  # np.unique and np.isin hash, which takes ten times as long
    return np.asarray(slots[changed(slots)])


def _among(slots: np.ndarray, sought: np.ndarray) -> np.ndarray:
    """Which slots are among those that are ``sought``, which ascend."""
    return np.asarray(np.r_[sought, -1][np.searchsorted(sought, slots)] == slots)


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


def _of(table: pa.Table, editions: Collection[Edition]) -> np.ndarray:
    """Which copies say that they are of one of these editions."""
    start, batch = integers(table["start"]), integers(table["batch"])
    changes = changed(start, batch)
    named = [pair in editions for pair in zip(start[changes].tolist(), batch[changes].tolist(), strict=True)]
    return np.repeat(np.array(named, bool), np.diff(np.r_[changes, len(start)]))


def read_flow(folder: RunFolder) -> Flow:
    """The flow of a run. Raises EvidenceError naming the file when its evidence is missing or cannot be read."""
    progress = list(read_json_lines(folder.progress))
    ends = recovery.ends(folder.journal.all(DriverReady), progress)
    return survey(folder, (), progress, ends, recovery.stamps(folder.read_json(folder.drain))).flow
