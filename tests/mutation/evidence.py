"""A run's evidence as columns, to be changed and written down as a folder; and the truth about it."""

from __future__ import annotations

import itertools
import json
import shutil
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from streamproof.evidence import expected, histories, manifest
from streamproof.evidence.folder import RunFolder
from streamproof.evidence.second_reading import Stretch

if TYPE_CHECKING:
    from tests.mutation.versions import Versions

ACKED, REJECTED, INDETERMINATE = "ACKED", "REJECTED", "INDETERMINATE"
BEGUN_MS = 1_767_225_600_000
BATCH_MS = 100
MARGIN_MS = 1000
INJECTION = "kill_executor-1"
Named = tuple[str, int | None, int | None]
Columns = dict[str, np.ndarray]


@dataclass
class Evidence:
    """``sent`` and ``delivered`` have the columns of the files, -1 for null (keys are numbers, outcomes words). ``truth`` is what a checker
    must find: (anomaly, producer, sequence), or (TORN, start, batch)."""

    guarantee: str
    promises: frozenset[str]
    sent: Columns
    delivered: Columns
    progress: list[dict[str, Any]]
    intents: list[tuple[int, int, int]] = field(default_factory=list)
    truth: Counter[Named] = field(default_factory=Counter)
    complete: bool = True
    cuts: int = 1
    """In how many files each history lies."""
    spoilt: str | None = None
    """What is wrong with the files themselves: a run with such evidence must not be judged at all."""
    unjudged: bool = False
    """Whether a promise cannot be judged on all records."""
    lived: tuple[int, int] | None = None
    """When the run was created and its drain ended, in ms, where that is said."""
    steps: list[dict[str, Any]] = field(default_factory=list)
    """The lines of the journal about the clock."""

    @property
    def twice(self) -> list[tuple[int, int]]:
        """What the clock showed twice."""
        return [(milliseconds(step["since"]), milliseconds(step["until"])) for step in self.steps if step["step_ms"] < 0]

    spoil: Callable[[RunFolder], None] | None = None
    """Damages the files after the drain made their manifest."""
    only_checkers: bool = False
    """Whether only they look at what is spoilt."""
    injected_ms: int | None = None
    """When a fault was injected, where there was one."""
    reread: Callable[[RunFolder], None] | None = None
    """Writes what a second reader read, where there was one: these ``stretches``."""
    stretches: tuple[Stretch, ...] = ()
    only_suites: bool = False
    """Whether only they can see what is wrong."""
    expected: np.ndarray | None = None
    """How often each record is due, by its sequence, where that is not once."""
    versions: Versions | None = None
    """What its versions showed, of an output that keeps some."""

    def copy(self) -> Evidence:
        return Evidence(
            self.guarantee,
            self.promises,
            dict(self.sent),
            dict(self.delivered),
            [{**line, "from": dict(line["from"]), "until": dict(line["until"])} for line in self.progress],
            list(self.intents),
            Counter(self.truth),
            self.complete,
            self.cuts,
            self.spoilt,
            self.unjudged,
            self.lived,
            list(self.steps),
            self.spoil,
            self.only_checkers,
            self.injected_ms,
            self.reread,
            self.stretches,
            self.only_suites,
            self.expected,
            self.versions,
        )

    # --- rows ---

    @property
    def ids(self) -> np.ndarray:
        return _ids(self.delivered)

    @property
    def sent_ids(self) -> np.ndarray:
        return _ids(self.sent)

    def rows_of(self, records: Iterable[int]) -> np.ndarray:
        """The delivered rows of these rows of ``sent``."""
        return np.flatnonzero(np.isin(self.ids, self.sent_ids[list(records)]))

    def id_of(self, record: int) -> tuple[int, int]:
        return int(self.sent["producer"][record]), int(self.sent["sequence"][record])

    def was_sent(self, producer: int, sequence: int) -> bool:
        return bool(((self.sent["producer"] == producer) & (self.sent["sequence"] == sequence)).any())

    def once(self) -> np.ndarray:
        """The rows of ``sent`` that were ACKED, and delivered just once."""
        ids, counts = np.unique(self.ids, return_counts=True)
        return np.flatnonzero((self.sent["outcome"] == ACKED) & np.isin(self.sent_ids, ids[counts == 1]))

    def keep(self, mask: np.ndarray) -> None:
        self.delivered = {name: column[mask] for name, column in self.delivered.items()}

    def add(self, rows: np.ndarray, **changed: Any) -> None:
        """Deliver these rows again, at the end of their partitions, with some columns changed."""
        more = {name: column[rows].copy() for name, column in self.delivered.items()}
        for name, value in changed.items():
            more[name][:] = value
        self._place(more)

    def deliver(self, producer: int, sequence: int, crc: int = 1) -> None:
        """Deliver one record that is no copy of another, behind all others."""
        last = {name: column[-1:].copy() for name, column in self.delivered.items()}
        last["producer"][:], last["sequence"][:], last["crc"][:] = producer, sequence, crc
        self._place(last)

    def _place(self, more: Columns) -> None:
        more["delivered_at"] = more["delivered_at"] + 5000
        for number in np.unique(more["partition"]):
            here = np.flatnonzero(more["partition"] == number)
            end = self.delivered["offset"][self.delivered["partition"] == number].max(initial=-1)
            more["offset"][here] = end + 1 + np.arange(len(here))
        self.delivered = {name: np.concatenate([column, more[name]]) for name, column in self.delivered.items()}

    def set(self, side: Columns, name: str, rows: Any, value: Any) -> None:
        """Change some rows of a column; what other pieces of evidence share of it stays."""
        column = side[name].copy()
        column[rows] = value
        side[name] = column

    def unsettle(self, records: np.ndarray) -> None:
        """The generator was killed: that these were to be sent was written down, what became of them was not."""
        rows = [self.id_of(record) for record in range(len(self.sent_ids))]
        self.intents = [(*identity, 1) for identity in [*rows, *self.intended_only()]]
        mask = np.ones(len(self.sent_ids), bool)
        mask[records] = False
        self.sent = {name: column[mask] for name, column in self.sent.items()}

    # --- truth ---

    def must(self, anomaly: str, *records: int) -> None:
        for record in records:
            self.truth[anomaly, *self.id_of(record)] += 1

    def must_be_torn(self, rows: np.ndarray) -> None:
        """These rows of whole write sets are about to go: what remains of such a write set is torn."""
        if "atomic" not in self.promises:
            return
        acked = np.isin(self.ids, self.sent_ids[self.sent["outcome"] == ACKED])
        gone = np.zeros(len(self.ids), bool)
        gone[rows] = True
        write_set = self.delivered["start"] << 32 | self.delivered["batch"]
        for each in np.unique(write_set[gone & acked]):
            if (~gone & (write_set == each)).any():
                self.truth["TORN", int(each >> 32), int(each & 0xFFFF_FFFF)] = 1

    def lose(self, records: Iterable[int]) -> None:
        """Take every copy of these ACKED records away."""
        chosen = list(records)
        rows = self.rows_of(chosen)
        self.must_be_torn(rows)
        for record in chosen:
            self.truth.pop(("DUPLICATED", *self.id_of(record)), None)
        self.must("LOST", *chosen)
        mask = np.ones(len(self.ids), bool)
        mask[rows] = False
        self.keep(mask)

    # --- how much there is ---

    def intended_only(self) -> list[tuple[int, int]]:
        """The records that were to be sent and have no row. Where there are as many rows as records were to be sent, there are none."""
        if sum(count for _, _, count in self.intents) <= len(self.sent_ids):
            return []
        rows = {self.id_of(record) for record in range(len(self.sent_ids))}
        intended = {(producer, first + at) for producer, first, count in self.intents for at in range(count)}
        return sorted(intended - rows)

    def outcomes(self) -> Counter[str]:
        return Counter({INDETERMINATE: len(self.intended_only())}) + Counter(self.sent["outcome"].tolist())

    def output_after_the_fault(self) -> bool:
        """Whether the first copy of a record that was sent came after the fault. So it is where there was no fault, and it is not denied
        where the time of some record is unknown."""
        if self.injected_ms is None:
            return True
        since, until = self.lived or (0, 1 << 62)
        known = {*(self.id_of(record) for record in range(len(self.sent_ids))), *self.intended_only()}
        first: dict[tuple[int, int], int | None] = {}
        copies = zip(*(self.delivered[name].tolist() for name in ("producer", "sequence", "delivered_at")), strict=True)
        for producer, sequence, at in copies:
            if (producer, sequence) in known:
                before = first.get((producer, sequence))
                believed = at if since - MARGIN_MS <= at <= until + MARGIN_MS else None
                first[producer, sequence] = min((time for time in (before, believed) if time is not None), default=None)
        times = [time for time in first.values() if time is not None]
        return len(times) < len(first) or max(times, default=-1) >= self.injected_ms

    def marks(self) -> list[int]:
        """When the phases begin: steady has the first commit and the first ACKED record, recovery the last of both."""
        commits = sorted(milliseconds(line["committed_at"]) for line in self.progress) or [0]
        sends = np.sort(self.sent["sent_at"][self.sent["outcome"] == ACKED]).tolist() or [0]
        return [0, max(commits[0], sends[0]) + 1, min(commits[-1] - 1, sends[-1]), 4_000_000_000_000]

    def every_phase_shows_something(self) -> bool:
        """Whether each has a commit, which may be what the next one began with, and an ACKED record that was sent in it."""
        commits = np.array([milliseconds(line["committed_at"]) for line in self.progress], np.int64)
        sends, marks = self.sent["sent_at"][self.sent["outcome"] == ACKED], self.marks()
        return all(
            ((commits > begin) & (commits <= end)).any() and ((sends >= begin) & (sends < end)).any()
            for begin, end in itertools.pairwise(marks)
        )

    # --- the folder ---

    def _source_ends(self) -> dict[str, int]:
        """Where the source ends: behind every record that it acknowledged, also behind one whose offset nobody knows."""
        highest = int(self.sent["offset"].max(initial=-1))
        acked = Counter(self.sent["partition"][self.sent["outcome"] == ACKED].tolist())
        return {str(number): max(highest + 1, acked[number]) for number in np.unique(self.sent["partition"]).tolist()}

    def write(self, path: Path) -> RunFolder:
        folder = RunFolder(path)
        _write(folder.sent, _sent_table(self.sent), self.cuts)
        _write(folder.delivered, _delivered_table(self.delivered), self.cuts)
        folder.intents.write_text("".join(json.dumps({"producer": p, "first": f, "count": c}) + "\n" for p, f, c in self.intents))
        folder.progress.write_text("".join(json.dumps(line) + "\n" for line in self.progress))
        ended = {"ended_at": stamp(self.lived[1])} if self.lived else {}
        end = {str(number): int(self.delivered["offset"].max()) + 1 for number in np.unique(self.delivered["partition"])}
        drain = {"complete": self.complete, "reason": None if self.complete else "cut", "stamps": "written", **ended}
        folder.drain.write_text(json.dumps({**drain, "end_offsets": end, "records": len(self.ids)}))
        folder.source.write_text(json.dumps({"end_offsets": self._source_ends()}))
        shutil.rmtree(folder.delivered_again, ignore_errors=True)
        folder.expected.unlink(missing_ok=True)
        if self.expected is not None:
            expected.write(folder, self.expected)
        if self.reread is not None:
            self.reread(folder)
        shutil.rmtree(folder.versions, ignore_errors=True)
        if self.versions is not None:
            self.versions.write(folder, self.delivered)
        manifest.write(folder)
        self._write_journal(folder)
        if self.spoil is not None:
            self.spoil(folder)
        return folder

    def _write_journal(self, folder: RunFolder) -> None:
        outcomes, marks = self.outcomes(), [stamp(at) for at in self.marks()]
        finished = {name.lower(): outcomes[name] for name in (ACKED, REJECTED, INDETERMINATE)}
        phases = zip(("steady", "impact", "recovery", "done"), marks, strict=True)
        created = [{"at": stamp(self.lived[0]), "event": "run_created", "run": "run", "seed": 1}] if self.lived else []
        lines: list[dict[str, Any]] = [*created, *self.steps, *({"at": at, "event": "phase", "phase": name} for name, at in phases)]
        lines.append({"at": marks[-1], "event": "load_finished", **finished})
        if self.injected_ms is not None:
            fault = {"at": stamp(self.injected_ms), "injection": INJECTION, "fault": "kill_executor"}
            moments = ("injection_started", "injection_injected", "injection_evidence", "injection_healed")
            lines += [{**fault, "event": event, "checks": [{"check": "it is gone", "passed": True}]} for event in moments]
            lines.append({"at": marks[-1], "event": "phase", "phase": "done"})
        folder.journal.path.write_text("".join(json.dumps(line) + "\n" for line in lines))


def milliseconds(at: str) -> int:
    return round(datetime.fromisoformat(at).timestamp() * 1000)


def stamp(at_ms: int) -> str:
    return datetime.fromtimestamp(at_ms / 1000, UTC).isoformat(timespec="milliseconds")


def _ids(columns: Columns) -> np.ndarray:
    known = (columns["producer"] >= 0) & (columns["sequence"] >= 0)
    return np.where(known, columns["producer"] << 48 | columns["sequence"], np.int64(-(1 << 62)))


def _sent_table(columns: Columns) -> pa.Table:
    names = {name: np.maximum(column, 0) if column.dtype.kind == "i" else column for name, column in columns.items()}
    arrays = []
    for column in histories.SENT:
        if column.name == "key":
            arrays.append(pa.array([None if key < 0 else f"k{key}" if key else "" for key in columns["key"].tolist()], pa.string()))
        elif column.name == "outcome":
            arrays.append(pa.array(columns["outcome"].tolist(), pa.string()))
        else:
            arrays.append(pa.array(names[column.name], mask=columns[column.name] < 0).cast(column.type))
    return pa.Table.from_arrays(arrays, schema=histories.SENT)


def _delivered_table(columns: Columns) -> pa.Table:
    arrays = [pa.array(np.maximum(columns[each.name], 0), mask=columns[each.name] < 0).cast(each.type) for each in histories.DELIVERED]
    return pa.Table.from_arrays(arrays, schema=histories.DELIVERED)


def _write(directory: Path, table: pa.Table, cuts: int) -> None:
    directory.mkdir(parents=True, exist_ok=True)
    for old in directory.glob("*.parquet"):
        old.unlink()
    size = -(-max(len(table), 1) // cuts)
    for number in range(cuts):
        path = directory / f"{number:05d}.parquet"
        pq.write_table(table.slice(number * size, size), path, compression="none", write_statistics=False, use_dictionary=False)
