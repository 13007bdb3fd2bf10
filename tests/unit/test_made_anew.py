"""An input topic that was made anew: its records have places of their own in the evidence, and blame names who made it."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from streamproof.engines.spark.driver import ProgressLog
from streamproof.evidence.folder import RunFolder, read_json_lines
from streamproof.evidence.journal import InjectionInjected
from streamproof.evidence.made_anew import MadeAnew
from streamproof.verdict.blame import Timeline


def test_a_topic_that_is_the_first_one_counts_as_kafka_does(tmp_path: Path) -> None:
    topic = MadeAnew.of(RunFolder.create(tmp_path / "run"))
    assert topic == MadeAnew()
    assert topic.placed({0: 7}) == topic.committed({0: 7}, 3) == {0: 7}


def test_the_records_of_the_new_topic_lie_behind_those_of_the_old_one(tmp_path: Path) -> None:
    folder = RunFolder.create(tmp_path / "run")
    MadeAnew({0: 100, 1: 90}, after_batch=4).write(folder)
    topic = MadeAnew.of(folder)
    assert topic.placed({0: 0, 1: 5}) == {0: 100, 1: 95}
    assert topic.committed({"0": 100}, 4) == {"0": 100}, "a batch of the topic before"
    assert topic.committed({"0": 20}, 5) == {"0": 120}


@dataclass
class Report:
    """A progress report of Spark, as the driver gets it."""

    batchId: int  # noqa: N815
    begin: int
    end: int

    @property
    def json(self) -> str:
        source = {"startOffset": {"in": {"0": self.begin}}, "endOffset": {"in": {"0": self.end}}}
        at = {"timestamp": "2026-01-01T00:00:00.000Z", "durationMs": {"triggerExecution": 10}}
        return json.dumps({"batchId": self.batchId, "numInputRows": 0, "sources": [source], **at})


def test_the_batch_that_goes_over_into_the_new_topic_begins_in_the_old_one(tmp_path: Path) -> None:
    log = ProgressLog(tmp_path / "progress.jsonl", 2, MadeAnew({0: 100}, after_batch=4))
    log.update([Report(5, 90, 20), Report(6, 20, 35)])
    lines = [(line["from"], line["until"], line["rows"]) for line in read_json_lines(tmp_path / "progress.jsonl")]
    assert lines == [({"0": 90}, {"0": 120}, 30), ({"0": 120}, {"0": 135}, 15)]


def test_what_the_new_topic_held_below_the_checkpoints_offsets_is_blamed_on_who_made_it() -> None:
    lines: list[dict[str, Any]] = [
        {"batch": 4, "start": 1, "from": {"0": 80}, "until": {"0": 90}, "committed_at": "2026-01-01T00:00:01+00:00"},
        {"batch": 5, "start": 2, "from": {"0": 90}, "until": {"0": 120}, "committed_at": "2026-01-01T00:00:09+00:00"},
        {"batch": 6, "start": 2, "from": {"0": 120}, "until": {"0": 135}, "committed_at": "2026-01-01T00:00:10+00:00"},
    ]
    target = {"below": {"0": 100}, "made_anew": {"0": 100}}
    event = InjectionInjected(injection="recreate_input-1", target=target, at="2026-01-01T00:00:05+00:00")
    timeline = Timeline(lines, [event])
    assert [timeline.taken_for_read(0, offset) for offset in (85, 95, 100, 119, 120)] == [None, None, *["recreate_input-1"] * 2, None]
    assert [timeline.expired(0, offset) for offset in (85, 95, 100)] == [None, "recreate_input-1", None]
