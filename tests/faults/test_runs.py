"""Whole runs with real faults, one per strategy and fault, and what can be said of their folders afterwards."""

from __future__ import annotations

import json
import shutil
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from streamproof.evidence import manifest
from streamproof.evidence.folder import RunFolder
from streamproof.evidence.journal import FailpointFired, Recovered
from streamproof.experiment.model import Experiment, FaultSpec
from streamproof.faults.spark import executors
from streamproof.load.spec import Source, Workload
from streamproof.run import runner, stages
from streamproof.testbed import embedded, listeners
from streamproof.testbed.embedded import Testbed
from streamproof.testbed.process import marked
from streamproof.verdict.anomaly import Anomaly
from streamproof.verdict.judge import judge
from tests.support.listening import Watched, is_loopback, watched

RECORDS = 6000
EXPECTED_FILES = (
    "experiment.yaml",
    "schedule.json",
    "journal.jsonl",
    "manifest.json",
    "sent/00000.parquet",
    "delivered/00000.parquet",
    "progress.jsonl",
    "reconciliation.parquet",
    "verdict.json",
    "expectations/results.json",
    "report.html",
    "logs/driver-1.log",
)


def _run(
    strategy: str,
    *faults: FaultSpec,
    expect: tuple[Anomaly, ...] = (),
    source: Source = Source.SYNTHETIC,
    batch_records: int | None = None,
) -> RunFolder:
    workload = Workload(source=source, records=RECORDS)
    given = {"expect": list(expect), "batch_records": batch_records}
    return runner.run(Experiment(name="test", strategy=strategy, workload=workload, faults=list(faults), seed=11, **given))


def _verdict(folder: RunFolder) -> dict[str, Any]:
    found: dict[str, Any] = folder.read_json(folder.verdict)
    return found


def _assert_passed(folder: RunFolder) -> dict[str, Any]:
    verdict = _verdict(folder)
    assert verdict["outcome"] == "PASSED", verdict["reason"]
    assert verdict["sent"]["acked"] == RECORDS
    assert all(check["passed"] for injection in verdict["injections"] for check in injection["evidence"])
    assert json.loads((folder.expectations / "results.json").read_text())["success"]
    assert not marked(STREAMPROOF_RUN=folder.name), "a driver outlived its run"
    return verdict


@pytest.fixture(scope="module")
def watched_run(testbed: Testbed) -> tuple[RunFolder, Watched]:
    """A run with three faults, one after the other, and what listened during it."""
    faults = [
        FaultSpec(fault="kill_executor", at=0.15),
        FaultSpec(fault="network_latency", at=0.35),
        FaultSpec(fault="add_partitions", at=0.5),
    ]
    with watched(testbed) as seen:
        return _run("two_phase_commit", *faults, source=Source.FLIGHTS, batch_records=400), seen


@pytest.fixture(scope="module")
def three_faults(watched_run: tuple[RunFolder, Watched]) -> RunFolder:
    return watched_run[0]


def test_what_listens_during_a_run_is_on_loopback_and_on_the_list_and_asks_for_what_the_list_says(
    watched_run: tuple[RunFolder, Watched],
) -> None:
    _, seen = watched_run
    assert seen.unlisted == {}
    assert all(is_loopback(host) for host in seen.hosts)
    assert 6066 not in {port for _, port in seen.kinds}, "the master of Spark would take jobs there"
    of_jobs = Counter(kind.name for (_, port), kind in seen.kinds.items() if port not in listeners.of_testbed(embedded.current()))
    of_a_job = (listeners.SPARK_RPC, listeners.SPARK_UI, listeners.PY4J_GATEWAY, listeners.PY4J_CALLBACKS)
    assert of_jobs.keys() == {kind.name for kind in of_a_job}
    assert of_jobs[listeners.SPARK_RPC.name] >= 4, "the driver's two, and one of each executor"


def test_two_phase_commit_is_exactly_once_through_a_killed_executor_latency_and_new_partitions(three_faults: RunFolder) -> None:
    verdict = _assert_passed(three_faults)
    looked_for = {"LOST", "DUPLICATED", "PHANTOM", "CORRUPTED", "REORDERED", "TORN", "OFFSET_AHEAD"}
    assert verdict["anomalies"] == dict.fromkeys(looked_for, 0)
    assert {check["check"].split(" executor")[0] for check in verdict["injections"][0]["evidence"]} >= {"the master dropped"}


def test_a_run_leaves_every_file_of_its_folder(three_faults: RunFolder) -> None:
    assert [name for name in EXPECTED_FILES if not (three_faults.path / name).is_file()] == []


def test_the_verdict_can_be_recomputed_from_the_folder_alone(three_faults: RunFolder) -> None:
    again = judge(three_faults, stages.run_spec(three_faults)).verdict.to_json()
    stored = _verdict(three_faults)
    volatile = {"stage_seconds"}
    assert {key: value for key, value in again.items() if key not in volatile} == {k: v for k, v in stored.items() if k not in volatile}


def _tampered(folder: RunFolder, tmp_path: Path, change: Any) -> dict[str, Any]:
    copy = tmp_path / folder.name
    shutil.copytree(folder.path, copy)
    path = copy / "delivered" / "00000.parquet"
    changed = change(pq.read_table(path))
    pq.write_table(changed, path)
    drain = copy / "delivered" / "drain.json"
    drain.write_text(json.dumps({**json.loads(drain.read_text()), "records": len(changed), "end_offsets": {}}))
    manifest.write(RunFolder(copy))
    judgement = judge(RunFolder.open(copy), stages.run_spec(RunFolder.open(copy)))
    return {**judgement.verdict.to_json(), "records": [row for row in judgement.table.to_pylist() if row["row"] == "record"]}


def test_a_delivered_row_that_is_removed_is_one_lost_record_by_name(three_faults: RunFolder, tmp_path: Path) -> None:
    removed = pq.read_table(three_faults.delivered / "00000.parquet").slice(1234, 1).to_pylist()[0]
    found = _tampered(three_faults, tmp_path, lambda table: pa.concat_tables([table.slice(0, 1234), table.slice(1235)]))
    assert found["outcome"] == "FAILED"
    assert found["anomalies"]["LOST"] == 1
    assert (found["records"][0]["producer"], found["records"][0]["sequence"]) == (removed["producer"], removed["sequence"])
    assert f"record {removed['producer']}/{removed['sequence']}" in found["records"][0]["blame"]


def _with_one_again(table: pa.Table) -> pa.Table:
    """Its second copy lies behind all others."""
    again = pa.array([pc.max(table["offset"]).as_py() + 1], pa.int64())
    return pa.concat_tables([table, table.slice(77, 1).set_column(table.schema.get_field_index("offset"), "offset", again)])


def test_a_delivered_row_that_is_doubled_is_one_duplicated_record(three_faults: RunFolder, tmp_path: Path) -> None:
    found = _tampered(three_faults, tmp_path, _with_one_again)
    assert found["outcome"] == "FAILED"
    assert found["anomalies"]["DUPLICATED"] == 1


@pytest.mark.slow
def test_checkpoint_is_at_least_once_when_an_executor_is_killed(testbed: Testbed, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(executors, "LOOK_S", 0.0)  # its tasks are short: an executor is held until it has one
    verdict = _assert_passed(_run("checkpoint", FaultSpec(fault="kill_executor")))
    assert verdict["anomalies"]["LOST"] == 0


@pytest.mark.slow
def test_offset_commit_duplicates_a_batch_when_the_driver_dies_before_the_offsets(testbed: Testbed) -> None:
    fault = FaultSpec(fault="crash_at_step", parameters={"step": "after_output"})
    folder = _run("offset_commit", fault, expect=(Anomaly.DUPLICATED,))
    verdict = _assert_passed(folder)
    fired = folder.journal.all(FailpointFired)[0]
    assert verdict["driver_starts"] == 2
    assert verdict["anomalies"]["LOST"] == 0
    assert verdict["anomalies"]["DUPLICATED"] > 0
    blame = [row["blame"] for row in pq.read_table(folder.reconciliation).to_pylist() if row["anomaly"] == "DUPLICATED"]
    assert f"batch {fired.batch} attempt 0 of start 1" in blame[0]
    assert "of start 2" in blame[0]


@pytest.mark.slow
def test_a_logged_decision_survives_the_driver(testbed: Testbed) -> None:
    folder = _run("two_phase_commit", FaultSpec(fault="crash_at_step", parameters={"step": "between_commits"}))
    _assert_passed(folder)
    fired, recovered = folder.journal.all(FailpointFired)[0], folder.journal.all(Recovered)[0]
    assert recovered.details["finished_batches"] == [fired.batch]


@pytest.mark.slow
def test_an_undecided_batch_leaves_no_trace_of_its_first_attempt(testbed: Testbed) -> None:
    folder = _run("two_phase_commit", FaultSpec(fault="crash_at_step", parameters={"step": "before_decision"}))
    _assert_passed(folder)
    recovered = folder.journal.all(Recovered)[0]
    assert recovered.details["finished_batches"] == []
    assert recovered.details["aborted_transactions"]


def test_new_partitions_are_read_and_no_toxic_stays(three_faults: RunFolder, testbed: Testbed) -> None:
    grown = _verdict(three_faults)["injections"][2]["target"]
    partitions = {row["partition"] for row in pq.read_table(three_faults.reconciliation).to_pylist() if row["row"] == "partition"}
    assert partitions == set(range(grown["after"]))
    assert all(testbed.proxies.toxics(name) == {} for name in testbed.links)
