"""Reading the histories in ranges says what reading them whole says, and keeps nothing of what is plainly right."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest

from streamproof.evidence import histories as history
from streamproof.evidence.folder import EvidenceError, RunFolder
from streamproof.verdict.checks.commits import passed
from streamproof.verdict.guarantee import Guarantee, Promise
from streamproof.verdict.judge import RunSpec, judge
from streamproof.verdict.scan import scan
from streamproof.verdict.scan.ranges import Due
from tests.mutation import clean as made
from tests.mutation import legal
from tests.mutation.damage import DAMAGES
from tests.mutation.evidence import Evidence
from tests.support.histories import SPEC, Story, clean

EVERYTHING = RunSpec("run", "x", "kafka_to_kafka", "strategy", Guarantee.EXACTLY_ONCE, (), (), 1, promises=frozenset(Promise))


def judged(folder: RunFolder) -> Any:
    try:
        judgement = judge(folder, EVERYTHING)
    except EvidenceError as error:
        return str(error)
    flow = scan.read_flow(folder)
    at = np.linspace(flow.visible.min(), flow.visible.max(), 20).astype(np.int64) if len(flow.visible) else np.zeros(0, np.int64)
    return judgement.verdict.to_json(), judgement.table.to_pylist(), flow.backlog(at).tolist()


def test_a_small_batch_between_such_as_nobody_reported_is_told_by_its_offsets() -> None:
    progress: list[dict[str, Any]] = [
        {"batch": 0, "start": 1, "committed_at": "2026-01-01T00:00:00+00:00", "from": None, "until": {"0": 310}},
        {"batch": 3, "start": 1, "committed_at": "2026-01-01T00:00:01+00:00", "from": {"0": 1158}, "until": {"0": 1159}},
    ]
    offset = np.array([309, 310, 1157, 1158, 1159])
    assert Due(progress).batch(np.zeros(5, np.int64), offset).tolist() == [0, -1, -1, 3, -1]


def in_ranges_and_whole(folder: RunFolder, monkeypatch: pytest.MonkeyPatch, range_size: int) -> tuple[Any, Any]:
    with monkeypatch.context() as patch:
        patch.setattr(scan, "RANGE_SIZE", range_size)
        one = judged(folder)
    with monkeypatch.context() as patch:
        patch.setattr(scan, "_scan_ranges", lambda *_: None)
        return one, judged(folder)


def in_small_groups(folder: RunFolder, rng: np.random.Generator) -> RunFolder:
    """The files again, in groups of a few rows."""
    for path in [*history.files(folder.sent), *history.files(folder.delivered)]:
        pq.write_table(pq.read_table(path), path, row_group_size=int(rng.integers(3, 60)))
    return folder


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("kind", DAMAGES)
def test_a_damaged_history_is_judged_alike_in_ranges_and_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str, seed: int
) -> None:
    rng = np.random.default_rng([seed, list(DAMAGES).index(kind)])
    for _ in range(50):
        evidence: Evidence = made.make(rng, str(rng.choice(made.MADE)))
        if DAMAGES[kind](evidence, rng):
            break
    else:
        pytest.skip("no history could be damaged so")
    one, other = in_ranges_and_whole(in_small_groups(evidence.write(tmp_path), rng), monkeypatch, int(rng.integers(5, 200)))
    assert one == other


@pytest.mark.parametrize("seed", range(60))
def test_a_legal_history_is_judged_alike_in_ranges_and_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int) -> None:
    rng = np.random.default_rng(seed)
    evidence, _ = legal.history(rng)
    one, other = in_ranges_and_whole(in_small_groups(evidence.write(tmp_path), rng), monkeypatch, int(rng.integers(5, 200)))
    assert one == other


def _scan(folder: RunFolder) -> scan.Scan:
    story = Story()
    ends = np.array([1], np.int64)
    return scan.scan_histories(folder, EVERYTHING.asked, story.progress, ends, scan.Stamps.WRITTEN)


def test_of_a_clean_history_nothing_is_kept(tmp_path: Path) -> None:
    found = _scan(Story().write(tmp_path))
    assert (len(found.evidence.sent), len(found.evidence.delivered)) == (0, 0)
    assert (found.reconciliation.acked, found.reconciliation.delivered, found.reconciliation.findings) == (60, 60, ())


def test_of_a_damaged_history_what_is_damaged_is_kept(tmp_path: Path) -> None:
    story = Story()
    story.histories.drop([(0, 7)])
    story.histories.double([(0, 20)])
    found = _scan(story.write(tmp_path))
    assert {(0, 7), (0, 20)} <= set(zip(found.evidence.sent.producer.tolist(), found.evidence.sent.sequence.tolist(), strict=True))
    assert len(found.evidence.sent) < 40, "the batch of the first, and the key of the second"


@pytest.mark.parametrize("far", [5_000_000, 1 << 44])
def test_identities_with_large_holes_between_them_are_taken_whole(tmp_path: Path, far: int) -> None:
    histories = clean(10)
    histories.sent = [replace(row, sequence=row.sequence * far) for row in histories.sent]
    histories.delivered = [replace(copy, sequence=(copy.sequence or 0) * far) for copy in histories.delivered]
    histories.drop([(0, 3 * far)])
    folder = Story(histories).write(tmp_path)
    assert len(_scan(folder).evidence.sent) == 10
    assert judge(folder, SPEC).verdict.to_json()["anomalies"]["LOST"] == 1


def test_an_identity_that_was_sent_twice_is_named_from_ranges_too(tmp_path: Path) -> None:
    story = Story()
    story.histories.sent.append(story.histories.sent[5])
    with pytest.raises(EvidenceError, match="sent one identity twice"):
        judge(story.write(tmp_path), SPEC)


def test_when_an_offset_was_passed_over_is_the_earliest_report_of_its_partition() -> None:
    def line(second: int, **until: int) -> dict[str, Any]:
        return {"committed_at": f"2026-01-01T00:00:{second:02d}+00:00", "until": {name[1:]: end for name, end in until.items()}}

    ends, times = passed([line(10, p0=5, p2=3), line(20, p0=9), line(15, p0=7, p2=4)])
    begun = times.min() - 10_000

    def at(partition: int, offset: int) -> int | None:
        found = int(times[np.searchsorted(ends, (partition << 44) + offset, "right")])
        return (found - begun) // 1000 if found < 1 << 60 else None

    assert [at(0, offset) for offset in (0, 4, 5, 6, 7, 8, 9)] == [10, 10, 15, 15, 20, 20, None]
    assert [at(1, 0), at(2, 0), at(2, 2), at(2, 3), at(2, 4), at(3, 0)] == [None, 10, 10, 15, None, None]
