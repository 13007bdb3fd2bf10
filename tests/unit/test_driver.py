"""What the driver reports of micro-batches: each that passed over records once, and no idle trigger."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from streamproof.engines.spark.driver import ProgressLog
from streamproof.evidence.folder import read_json_lines


@dataclass
class Report:
    """As much of Spark's StreamingQueryProgress as is read."""

    batchId: int  # noqa: N815 - Spark's name
    json: str


def report(batch: int, begin: dict[str, int] | None, end: dict[str, int], rows: int) -> Report:
    offsets = [None if each is None else {"topic": each} for each in (begin, end)]
    found: dict[str, Any] = {"batchId": batch, "numInputRows": rows, "timestamp": "2026-01-01T00:00:00.000Z", "durationMs": {}}
    return Report(batch, json.dumps({**found, "sources": [{"startOffset": offsets[0], "endOffset": offsets[1]}]}))


def lines(tmp_path: Path, *reports: Report) -> list[tuple[int, int, dict[str, int]]]:
    progress = ProgressLog(tmp_path / "progress.jsonl", 1)
    for each in reports:
        progress.update([each])
    progress.update(list(reports))
    return [(line["batch"], line["rows"], line["until"]) for line in read_json_lines(tmp_path / "progress.jsonl")]


def test_each_batch_is_reported_once_and_idle_triggers_are_not(tmp_path: Path) -> None:
    found = lines(tmp_path, report(0, None, {"0": 5}, 5), report(1, {"0": 5}, {"0": 5}, 0), report(1, {"0": 5}, {"0": 9, "1": 2}, 6))
    assert found == [(0, 5, {"0": 5}), (1, 6, {"0": 9, "1": 2})]


def test_a_replay_that_reads_nothing_because_its_batch_is_committed_still_passes_over_it(tmp_path: Path) -> None:
    assert lines(tmp_path, report(4, {"0": 10}, {"0": 30}, 0)) == [(4, 20, {"0": 30})]


def test_the_first_batch_of_a_checkpoint_counts_what_it_read_wherever_it_began(tmp_path: Path) -> None:
    assert lines(tmp_path, report(0, None, {"0": 1000}, 250)) == [(0, 250, {"0": 1000})]


def test_a_line_that_a_killed_driver_left_half_written_costs_that_line_alone(tmp_path: Path) -> None:
    path = tmp_path / "progress.jsonl"
    lines(tmp_path, report(0, None, {"0": 5}, 5), report(1, {"0": 5}, {"0": 9}, 4))
    path.write_bytes(path.read_bytes()[:-30])
    assert [found[0] for found in lines(tmp_path, report(2, {"0": 9}, {"0": 20}, 11))] == [0, 2]
