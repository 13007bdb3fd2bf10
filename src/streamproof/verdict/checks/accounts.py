"""The accounts of a run: numbers of which two pieces of evidence must give the same.

    the load     as many records were to be sent as the experiment says; the journal's ``load_finished`` counts what ``sent/`` holds
    the drain    ``drain.json`` counts what ``delivered/`` holds, and ``payloads/`` of a stateful job; no record lies behind the end
                 to which it read
    read twice   ``ranges.json`` counts what ``delivered_again/`` holds, and each record lies in a range that it names
    places       no two ACKED records have one place (partition and offset) in the source, no two delivered ones have one in the output
    outcomes     each is ACKED, REJECTED or INDETERMINATE
    faults       the schedule has the faults of the experiment
    batches      the micro-batches of a stateful job follow each other without a gap

Where they differ the evidence is damaged, and a run with damaged evidence is not judged. The files are read in pieces, so memory does not
grow with them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from streamproof.evidence.batches import Batch
from streamproof.evidence.columns import integers
from streamproof.evidence.folder import EvidenceError, RunFolder, read_json_lines
from streamproof.evidence.journal import LoadFinished, fault_of
from streamproof.evidence.outcome import Outcome
from streamproof.verdict.checks.places import LOW, SHIFT, Places, packed, pieces, places_of
from streamproof.verdict.checks.records import Reconciliation

AT_ONCE = 1 << 22
"""How many places are sorted at a time, where they do not ascend already."""
_MIX = np.int64(0x9E3779B1)


def check_sent(folder: RunFolder, spans: Mapping[str, tuple[int, int]]) -> dict[str, int]:
    """How many ACKED records were sent in each phase. ``spans`` has the begin and the end of each phase, in ms.

    Raises EvidenceError for an outcome that is none, and for two ACKED records at one place.
    """
    in_phase, ascent = dict.fromkeys(spans, 0), _Ascent()
    for table in pieces(folder.sent, ["partition", "offset", "outcome", "sent_at"]):
        acked = _acked(folder, table["outcome"])
        at = integers(table["sent_at"].cast(pa.timestamp("ms", tz="UTC")).cast(pa.int64()))[acked]
        for phase, (begin, end) in spans.items():
            in_phase[phase] += int(((at >= begin) & (at < end)).sum())
        ascent.add(*_known_places(table, acked))
    if not ascent.ascending:
        _no_place_twice(folder.sent, ascent.rows, lambda: _acked_places(folder))
    return in_phase


def check_delivered(folder: RunFolder, drain: Mapping[str, Any]) -> None:
    """Raises EvidenceError where ``delivered/`` is not what the drain says of it."""
    ascent = _Ascent()
    for partition, offset in places_of(folder.delivered):
        ascent.add(partition, offset)
    if ascent.rows != drain["records"]:
        raise EvidenceError(f"{folder.drain} says {drain['records']} records, {folder.delivered} holds {ascent.rows}")
    ends = drain.get("end_offsets") or {}
    for number, last in ascent.highest.items() if ends else ():
        end = ends.get(str(number), 0)
        if last >= end:
            raise EvidenceError(f"{folder.drain} says that partition {number} ends at {end}, {folder.delivered} has an offset {last} of it")
    if not ascent.ascending:
        _no_place_twice(folder.delivered, ascent.rows, lambda: places_of(folder.delivered))


def check_results(folder: RunFolder, drain: Mapping[str, Any], results: int) -> None:
    """Raises EvidenceError where ``payloads/`` does not hold as many results of a stateful job as were drained."""
    if results != drain["records"]:
        raise EvidenceError(f"{folder.drain} says {drain['records']} records, {folder.payloads} holds {results}")


def check_load(folder: RunFolder, finished: LoadFinished | None, sent: Reconciliation, records: int | None) -> None:
    """Raises EvidenceError where the journal, ``sent/`` and the experiment do not count the same. ``records`` are the experiment's."""
    if finished is not None:
        counts = (("ACKED", finished.acked, sent.acked), ("REJECTED", finished.rejected, sent.rejected))
        for outcome, said, there in (*counts, ("INDETERMINATE", finished.indeterminate, sent.indeterminate)):
            if said != there:
                raise EvidenceError(f"{folder.journal.path} says that {said} records are {outcome}, {folder.sent} holds {there}")
    if records is not None and folder.intents.exists() and (intended := _intended(folder)) != records:
        raise EvidenceError(f"{folder.experiment} has {records} records, {folder.intents} has {intended}")


def check_faults(folder: RunFolder, planned: Sequence[str], faults: Sequence[str] | None) -> None:
    """Raises EvidenceError where the schedule has other faults than the experiment. ``planned`` are injections, each named by its fault."""
    if faults is None:
        return
    scheduled, asked = Counter(map(fault_of, planned)), Counter(faults)
    for fault in sorted(asked | scheduled):
        if asked[fault] != scheduled[fault]:
            raise EvidenceError(
                f"{folder.schedule} is damaged evidence: the experiment has {fault} {asked[fault]} times, "
                f"the schedule {scheduled[fault]} times"
            )


def check_batches(path: Path, batches: Sequence[Batch]) -> None:
    """Raises EvidenceError naming a micro-batch that is not there. A start that begins with an empty checkpoint counts from 0 again."""
    last = -1
    for batch in batches:
        if batch.number > last + 1:
            raise EvidenceError(f"{path} is damaged evidence: batch {last + 1} is missing, batch {batch.number} follows batch {last}")
        last = batch.number


def _intended(folder: RunFolder) -> int:
    """How many sequences were to be sent, by whichever producer."""
    ranges = sorted((int(line["first"]), int(line["first"]) + int(line["count"])) for line in read_json_lines(folder.intents))
    count = reached = 0
    for begin, end in ranges:
        count += max(end - max(begin, reached), 0)
        reached = max(reached, end)
    return count


# --- pieces of the histories ----------------------------------------------------------------------------------------------------------


def _acked_places(folder: RunFolder) -> Iterator[Places]:
    for table in pieces(folder.sent, ["partition", "offset", "outcome"]):
        yield _known_places(table, _acked(folder, table["outcome"]))


def _known_places(table: pa.Table, acked: np.ndarray) -> Places:
    """The places of the ACKED records that have one."""
    partition, offset = integers(table["partition"]), integers(table["offset"])
    known = acked & (offset >= 0)
    return (partition, offset) if known.all() else (partition[known], offset[known])


def _acked(folder: RunFolder, column: pa.ChunkedArray) -> np.ndarray:
    """Which are ACKED. Raises EvidenceError for a word that is no outcome."""
    encoded = column.combine_chunks()
    encoded = encoded if pa.types.is_dictionary(encoded.type) else encoded.dictionary_encode()
    words = encoded.dictionary.to_pylist()
    used = [words[number] for number in pc.unique(encoded.indices).drop_null().to_pylist()]
    strange = [None] if encoded.null_count else [word for word in used if word not in list(Outcome)]
    if strange:
        raise EvidenceError(f"{folder.sent} is damaged evidence: the outcome {strange[0]!r} is none of {', '.join(Outcome)}")
    known = np.array([word == Outcome.ACKED for word in words], bool)
    return np.asarray(known[integers(pa.chunked_array([encoded.indices]))])


# --- places that are there twice ------------------------------------------------------------------------------------------------------


class _Ascent:
    """Whether the offsets of each partition ascend, so that no place is there twice; and the highest of each."""

    def __init__(self) -> None:
        self.rows, self.ascending = 0, True
        self.highest: dict[int, int] = {}

    def add(self, partition: np.ndarray, offset: np.ndarray) -> None:
        self.rows += len(partition)
        if not len(partition):
            return
        key = packed(partition, offset)
        if not (np.diff(partition) >= 0).all():
            order = np.argsort(partition.astype(np.uint16) if int(partition.max()) < 1 << 16 else partition, kind="stable")
            partition, key = partition[order], key[order]
        borders = np.flatnonzero(np.r_[True, np.diff(partition) != 0])
        self.ascending &= bool((np.diff(key) > 0).all())
        for number, first, last in zip(partition[borders], key[borders], np.maximum.reduceat(key, borders), strict=True):
            before = self.highest.get(int(number), -1)
            self.ascending &= int(first) & LOW > before
            self.highest[int(number)] = max(before, int(last) & LOW)


def _no_place_twice(directory: Path, rows: int, places: Callable[[], Iterator[Places]]) -> None:
    parts = -(-rows // AT_ONCE)
    for part in range(parts):
        ordered = np.sort(np.concatenate([_chosen(packed(partition, offset), part, parts) for partition, offset in places()]))
        again = np.flatnonzero(ordered[1:] == ordered[:-1])
        if len(again):
            partition, offset = divmod(int(ordered[again[0]]), 1 << SHIFT)
            raise EvidenceError(f"{directory} holds two records at one place: partition {partition}, offset {offset}")


def _chosen(key: np.ndarray, part: int, parts: int) -> np.ndarray:
    """The keys of one part: about as many in each, and equal ones in the same."""
    return key if parts == 1 else np.asarray(key[(key * _MIX >> 16) % parts == part])
