"""The newest run of each cell as metrics in OpenMetrics' text form, for Prometheus.

Every metric is a gauge and carries the cell as labels: ``pipeline``, ``strategy``, ``guarantee``, ``faults``. A run that was stopped counts
only where there is no other. What was not measured has no sample: a recovery time that is missing is not zero.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from prometheus_client import CollectorRegistry
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.openmetrics.exposition import generate_latest
from prometheus_client.registry import Collector

from streamproof.history.changes import Kind
from streamproof.history.matrix import Entry, matrix
from streamproof.history.record import Run
from streamproof.verdict.decide import RunOutcome

CELL = ("pipeline", "strategy", "guarantee", "faults")
# What it says, and its labels beside the cell's.
METRICS: dict[str, tuple[str, tuple[str, ...]]] = {
    "streamproof_run_outcome": ("1 for the outcome that the newest run has, 0 for the others", ("outcome",)),
    "streamproof_run_anomalies": ("Records that show an anomaly", ("anomaly",)),
    "streamproof_run_recovery_seconds": ("Until the first output after a fault, of several faults the worst", ()),
    "streamproof_run_caught_up_seconds": ("Until the backlog of a fault was gone, of several faults the worst", ()),
    "streamproof_run_output_records_per_second": ("Output in a phase of the run", ("phase",)),
    "streamproof_run_duration_seconds": ("From the run's begin until it gave the testbed back", ()),
    "streamproof_run_timestamp_seconds": ("When the run began, in seconds since 1970", ()),
    "streamproof_cell_change": ("1 for what the newest run changed, 0 for the others", ("change",)),
    "streamproof_cell_runs": ("Runs that the history knows", ()),
}


def metrics(runs: Sequence[Run]) -> str:
    """The text, which ends with ``# EOF``."""
    registry = CollectorRegistry()
    registry.register(_Cells(runs))
    text: bytes = generate_latest(registry)  # type: ignore[no-untyped-call]
    return text.decode()


class _Cells(Collector):
    def __init__(self, runs: Sequence[Run]) -> None:
        self._entries = [entry for square in matrix(runs).squares.values() for entry in square.entries]

    def collect(self) -> Iterable[GaugeMetricFamily]:
        families = {name: GaugeMetricFamily(name, about, labels=[*CELL, *labels]) for name, (about, labels) in METRICS.items()}
        for entry in self._entries:
            cell = [getattr(entry.cell, label) for label in CELL]
            for name, labels, value in _samples(entry):
                families[name].add_metric([*cell, *labels], value)
        return families.values()


def _samples(entry: Entry) -> Iterator[tuple[str, list[str], float]]:
    run = entry.newest
    for outcome in RunOutcome:
        yield "streamproof_run_outcome", [outcome], float(run.outcome is outcome)
    for anomaly, count in run.anomalies.items():
        yield "streamproof_run_anomalies", [anomaly], count
    if run.recovery_s is not None:
        yield "streamproof_run_recovery_seconds", [], run.recovery_s
    if run.caught_up_s is not None:
        yield "streamproof_run_caught_up_seconds", [], run.caught_up_s
    for phase, rate in run.records_per_s.items():
        if rate is not None:
            yield "streamproof_run_output_records_per_second", [phase], rate
    yield "streamproof_run_duration_seconds", [], run.duration_s
    yield "streamproof_run_timestamp_seconds", [], run.began_at.timestamp()
    if entry.change is not None:
        for kind in Kind:
            yield "streamproof_cell_change", [kind], float(entry.change.kind is kind)
    yield "streamproof_cell_runs", [], len(entry.runs)
