"""How a job comes back after a fault, measured from the run's folder alone: pure functions over times.

*Output* is a record that was sent, from the moment at which a ``read_committed`` reader can see its first copy; a second copy is no new
output, a record that nobody sent is none. When that moment is depends on the sink, and ``delivered/drain.json`` says what the drain's
``delivered_at`` is worth, under ``stamps``:

    visible  the moment itself. PostgreSQL: the server's own time of the commit, also of a COMMIT PREPARED (of a row that was updated:
             the first). A folder that is listed: when the file was finished.
    written  the moment at which it was written; it could be read later. Kafka: a record carries the time at which a broker appended
             it (the output topic's ``message.timestamp.type`` is LogAppendTime: a job that sets times of its own changes nothing), and
             may wait for the end of its transaction. Files that a log names wait for the log.
             Such a record counts from the end of the micro-batch that went on when it was made, or from a start of the driver whose
             query runs (what earlier starts left is finished or undone by then), whichever came first. That is never too early, but
             for the moment in which a broker carries a commit out, and late by at most what remained of the batch.

Of each injection, from the moment at which it was injected:

    first_output_s   until the first output that was made after it: what was under way then is no sign of recovery
    caught_up_s      until its backlog is gone: until every record that was sent before it was healed is output
    backlog_records  how many of these were waiting when it was healed
    longest_gap_s    the longest time without output that touches the time from the injection until it was caught up

A record waits, and belongs to the *backlog*, from when it was sent until it is output; only records that were ACKED, and not those that
are LOST: nobody waits for them, the verdict counts them. All stamps are the clock of one machine, in ms.

A time that lies before the run was created, or after its drain had ended, is not believed (``streamproof.evidence.clock``). When that of
a single record is unknown, nothing of this is measured.

Results of a stateful job are no records that were sent: of such a job a record is output once the micro-batch that read it is committed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

import numpy as np

from streamproof.evidence.clock import NEVER, UNKNOWN
from streamproof.evidence.files import milliseconds
from streamproof.evidence.folder import EvidenceError
from streamproof.evidence.histories import Delivered, Sent
from streamproof.evidence.journal import DriverReady, Event

_SHIFT = 48


class Stamps(StrEnum):
    """What ``delivered_at`` is the time of."""

    VISIBLE = "visible"
    WRITTEN = "written"


@dataclass(frozen=True)
class Flow:
    """A run's records in time, in ms since the epoch. ``written`` and ``visible`` have a row for the ``records`` that were delivered then,
    in the order of ``visible``; ``sent`` and ``shown`` one for the ``waited`` of these that were ACKED: when they were sent, when they
    were output. The ``untimed`` records that were delivered at an unknown time are in none of them."""

    written: np.ndarray
    visible: np.ndarray
    records: np.ndarray
    sent: np.ndarray
    shown: np.ndarray
    waited: np.ndarray
    untimed: int = 0

    @property
    def moments(self) -> np.ndarray:
        """When there was new output, each moment once; none when that was not measured."""
        return np.unique(self.visible) if not self.untimed else self.visible[:0]

    def backlog(self, at: np.ndarray) -> np.ndarray:
        """How many records were waiting at each of these moments."""
        return np.asarray(_until(self.sent, self.waited, at) - _until(self.shown, self.waited, at))


def _until(times: np.ndarray, counts: np.ndarray, at: np.ndarray) -> np.ndarray:
    """How many there are up to each moment."""
    order = np.argsort(times, kind="stable")
    return np.asarray(np.r_[0, np.cumsum(counts[order])][np.searchsorted(times[order], at, "right")])


@dataclass(frozen=True)
class Recovery:
    """What one injection cost, in seconds; None where it was not injected, or what was measured never came."""

    first_output_s: float | None = None
    caught_up_s: float | None = None
    backlog_records: int | None = None
    longest_gap_s: float | None = None


def stamps(drain: dict[str, Any]) -> Stamps:
    """What the drain says of its stamps; one that says nothing is taken for the later of both."""
    try:
        return Stamps(drain.get("stamps", Stamps.WRITTEN))
    except ValueError as error:
        raise EvidenceError(f"drain.json: stamps is {drain['stamps']!r}, expected one of {', '.join(Stamps)}") from error


def ends(events: Sequence[Event], progress: Sequence[dict[str, Any]]) -> np.ndarray:
    """The moments at which all that was written before is decided: ends of micro-batches, and starts of the driver that are ready."""
    at = [line["committed_at"] for line in progress] + [event.at for event in events if isinstance(event, DriverReady)]
    return np.unique(np.array([milliseconds(stamp) for stamp in at], np.int64))


def flow(sent: Sent, sent_at: np.ndarray, delivered: Delivered, delivered_at: np.ndarray, ends: np.ndarray, kind: Stamps) -> Flow:
    """Match the histories. ``sent_at`` has a row for each record that has one in ``sent/``, which are the first rows of ``sent``."""
    key = sent.producer << _SHIFT | sent.sequence
    order = np.argsort(key, kind="stable")
    ordered = key[order]
    rows = np.flatnonzero(delivered.identified)
    wanted = delivered.producer[rows] << _SHIFT | delivered.sequence[rows]
    place = np.minimum(np.searchsorted(ordered, wanted), max(len(key) - 1, 0))
    was_sent = ordered[place] == wanted if len(key) else np.zeros(len(rows), bool)
    send, at = order[place[was_sent]], delivered_at[rows[was_sent]]
    first = np.full(len(sent), NEVER, np.int64)
    np.minimum.at(first, send, at)
    untimed = int((first == UNKNOWN).sum())
    seen = np.flatnonzero((first != NEVER) & (first != UNKNOWN))
    written = first[seen]
    visible = written if kind is Stamps.VISIBLE else decided(written, ends)
    waited = sent.acked[seen] & (seen < len(sent_at))
    counts = np.ones(len(seen), np.int64)
    return arranged(written, visible, counts, sent_at[seen[waited]], visible[waited], counts[waited], untimed)


def arranged(
    written: np.ndarray,
    visible: np.ndarray,
    records: np.ndarray,
    sent: np.ndarray,
    shown: np.ndarray,
    waited: np.ndarray,
    untimed: int = 0,
) -> Flow:
    """A flow with its rows in order."""
    earliest = np.argsort(visible, kind="stable")
    return Flow(written[earliest], visible[earliest], records[earliest], sent, shown, waited, untimed)


def decided(written: np.ndarray, ends: np.ndarray) -> np.ndarray:
    """The first of ``ends`` that is not before each moment; the moment itself after the last of them."""
    if not len(ends):
        return written
    following = np.searchsorted(ends, written, "left")
    return np.where(following < len(ends), ends[np.minimum(following, len(ends) - 1)], written)


def recovery(flow: Flow, injected: int | None, healed: int | None) -> Recovery:
    """What an injection cost that happened at ``injected`` and was healed at ``healed``; None for what did not happen."""
    if injected is None or flow.untimed:
        return Recovery()
    after = flow.visible[flow.written >= injected]
    first = _seconds(int(after.min()) - injected) if len(after) else None
    if healed is None:
        return Recovery(first, longest_gap_s=longest_gap(flow.moments, injected))
    before = flow.sent <= healed
    left = flow.shown[before]
    caught_up = max(int(left.max(initial=injected)), injected)
    gap = longest_gap(flow.moments, injected, caught_up)
    return Recovery(first, _seconds(caught_up - injected), int(flow.waited[before][left > healed].sum()), gap)


def longest_gap(moments: np.ndarray, since: int | None = None, until: int | None = None) -> float | None:
    """The longest time between two moments that followed each other, of those that touch the time from ``since`` to ``until``."""
    earlier, later = moments[:-1], moments[1:]
    touching = (later > (since if since is not None else -NEVER)) & (earlier < (until if until is not None else NEVER))
    return _seconds(int((later - earlier)[touching].max())) if touching.any() else None


def throughput(flow: Flow, begun: int, ended: int) -> tuple[int | None, float | None]:
    """The records that became output from ``begun`` until before ``ended``, and how many that is a second.

    How long a job takes to start is no part of its rate: the time counts from the run's first output on, and what comes after it.
    None when that leaves no time, or no output; two times None when it was not measured.
    """
    if flow.untimed:
        return None, None
    records = _between(flow, begun, ended)
    opened = int(flow.visible[0]) if len(flow.visible) else ended
    counted = _between(flow, opened + 1, ended) if opened >= begun else records
    milliseconds = ended - max(begun, opened)
    return records, round(counted * 1000 / milliseconds, 1) if counted and milliseconds > 0 else None


def _between(flow: Flow, begun: int, ended: int) -> int:
    """How many records became output from ``begun`` until before ``ended``."""
    low, high = np.searchsorted(flow.visible, [begun, ended], "left")
    return int(flow.records[low:high].sum())


def _seconds(milliseconds: int) -> float:
    return round(milliseconds / 1000, 3)
