"""Faults beyond the outages of servers, several to a run: each shows its evidence on the real component, heals, and costs no record."""

from __future__ import annotations

import os
import signal
from typing import Any

import pyarrow.parquet as pq
import pytest

from streamproof import settings
from streamproof.engines.spark.job import OnLostDecision
from streamproof.engines.spark.spec import profile
from streamproof.evidence.folder import RunFolder, read_json_lines
from streamproof.evidence.journal import DecisionLost
from streamproof.experiment import model, random_plan
from streamproof.experiment.model import Experiment, FaultSpec
from streamproof.faults import FAULTS
from streamproof.load.spec import Source, Workload
from streamproof.run import runner
from streamproof.testbed import embedded, spark
from streamproof.testbed.embedded import Testbed
from streamproof.testbed.process import process_record, remembered, wait_until
from streamproof.verdict.anomaly import Anomaly
from streamproof.verdict.verdict import Verdict
from tests.support.checkout import ROOT

BATCHES = 40
POSTGRES = {"link": "postgres"}
Specs = dict[str, dict[str, Any]]
RUNS: dict[str, tuple[str, int, Specs]] = {
    "python-worker": ("two_phase_commit", 12_000, {"kill_python_worker": {}, "expire_records": {}}),
    "links": (
        "two_phase_commit",
        20_000,
        {"network_latency": {"jitter_ms": 40}, "bandwidth": {}, "slicer": {}, "slow_close": {}, "limit_data": {}},
    ),
    "links-of-postgres": (
        "postgres_two_phase_commit",
        12_000,
        {"network_latency": POSTGRES, "bandwidth": POSTGRES, "slicer": POSTGRES, "slow_close": POSTGRES},
    ),
    "spark": ("two_phase_commit", 20_000, {"kill_worker": {}, "kill_master": {}, "lose_last_commit": {}, "kill_executor": {}}),
    "zombies": ("two_phase_commit", 12_000, {"pause_executor": {}, "pause_worker": {}}),
    "kafka": ("two_phase_commit", 12_000, {"stop_kafka": {}, "fence_transaction": {}, "lose_last_commit": {}}),
    "offsets": ("offset_in_transaction", 12_000, {"fence_transaction": {}, "lose_last_commit": {}, "expire_records": {}}),
    "memory": ("two_phase_commit", 12_000, {"exhaust_memory": {}}),
    "disk": ("two_phase_commit", 12_000, {"full_disk": {}}),
    "source": ("two_phase_commit", 20_000, {"late_records": {}, "burst": {"size": 4}, "skewed_key": {}, "duplicate_at_source": {}}),
    "postgres": ("postgres_two_phase_commit", 12_000, {"stop_postgres": {}, "lose_last_commit": {}}),
}


def _run(strategy: str, records: int, faults: Specs, expect: tuple[Anomaly, ...] = (), **fields: Any) -> dict[str, Any]:
    """The verdict of a run that meets the faults one after the other."""
    step = 0.75 / len(faults)
    specs = [
        FaultSpec(fault=name, at=round(0.1 + number * step, 2), parameters=parameters)
        for number, (name, parameters) in enumerate(faults.items())
    ]
    workload = Workload(source=Source.SYNTHETIC, records=records)
    found = Experiment(
        name="catalogue",
        strategy=strategy,
        workload=workload,
        faults=specs,
        expect=list(expect),
        seed=9,
        batch_records=records // BATCHES,
        timeout_s=270,
        **fields,
    )
    folder = runner.run(found)
    verdict: dict[str, Any] = folder.read_json(folder.verdict)
    return verdict


@pytest.mark.slow
@pytest.mark.parametrize("name", list(RUNS))
def test_a_fault_takes_effect_heals_and_costs_no_record(testbed: Testbed, name: str) -> None:
    for fault in RUNS[name][2]:
        if (reason := FAULTS[fault].prevented()) is not None:
            pytest.skip(f"{fault}: {reason}")
    verdict = _run(*RUNS[name])
    assert verdict["outcome"] == "PASSED", verdict["reason"]
    assert not any(verdict["anomalies"].values()), verdict["anomalies"]
    assert len(verdict["injections"]) == len(RUNS[name][2])
    assert all(check["passed"] for injection in verdict["injections"] for check in injection["evidence"])
    assert set(embedded.status().values()) == {"up"}
    assert spark.registered(testbed.spark)
    assert all(testbed.proxies.toxics(proxy) == {} for proxy in testbed.links)


@pytest.mark.slow
def test_a_lost_commit_is_written_again_by_a_job_that_relies_on_the_checkpoint(testbed: Testbed) -> None:
    """The negative control of ``lose_last_commit``."""
    verdict = _run("checkpoint", 8000, {"lose_last_commit": {}}, (Anomaly.DUPLICATED,))
    assert verdict["outcome"] == "PASSED", verdict["reason"]
    folder = RunFolder(settings.runs() / verdict["run"])
    lost = verdict["injections"][0]["target"]["batch"]
    (rows,) = {line["rows"] for line in read_json_lines(folder.progress) if line["batch"] == lost}
    assert verdict["anomalies"][Anomaly.DUPLICATED] == rows, "the whole batch, and nothing but it"
    assert FAULTS["lose_last_commit"].provokes(profile("checkpoint"), {}) == [Anomaly.DUPLICATED]


@pytest.mark.slow
@pytest.mark.parametrize("strategy", ["checkpoint", "offset_commit"])
def test_what_a_topic_held_that_is_deleted_and_made_again_is_seen_as_lost(testbed: Testbed, strategy: str) -> None:
    """It was acknowledged, and the job goes on as if nothing had been."""
    verdict = _run(strategy, 8000, {"recreate_topic": {}})
    (injection,) = verdict["injections"]
    assert verdict["outcome"] == "FAILED", verdict["reason"]
    assert all(check["passed"] for check in injection["evidence"])
    assert verdict["anomalies"][Anomaly.LOST] >= injection["target"]["held"]
    assert verdict["anomalies"][Anomaly.PHANTOM] == verdict["anomalies"][Anomaly.CORRUPTED] == 0


TIMEOUT_S = 8


@pytest.mark.slow
@pytest.mark.parametrize("strategy", ["two_phase_commit", "offset_in_transaction"])
def test_a_transaction_whose_time_was_over_is_done_again(testbed: Testbed, strategy: str) -> None:
    verdict = _run(strategy, 8000, {"time_out_transaction": {}}, transaction_timeout_s=TIMEOUT_S)
    (injection,) = verdict["injections"]
    assert verdict["outcome"] == "PASSED", verdict["reason"]
    assert all(check["passed"] for check in injection["evidence"])
    assert not any(verdict["anomalies"].values()), verdict["anomalies"]


@pytest.mark.slow
def test_what_was_decided_and_timed_out_is_lost_and_nothing_else(testbed: Testbed) -> None:
    """The hole of every two-phase commit over Kafka's transactions."""
    lenient = {"transaction_timeout_s": TIMEOUT_S, "on_lost_decision": OnLostDecision.GO_ON}
    verdict = _run("two_phase_commit", 8000, {"time_out_transaction": {"decided": True}}, **lenient)
    folder = RunFolder(settings.runs() / verdict["run"])
    lost = folder.journal.all(DecisionLost)
    (batch,) = {event.batch for event in lost}
    (rows,) = {line["rows"] for line in read_json_lines(folder.progress) if line["batch"] == batch}
    assert verdict["outcome"] == "FAILED", verdict["reason"]
    assert all(check["passed"] for injection in verdict["injections"] for check in injection["evidence"])
    assert {kind: count for kind, count in verdict["anomalies"].items() if count} == {Anomaly.LOST: rows}
    assert any("that the broker had aborted, and went on" in note for note in verdict["notes"])
    blame = [row["blame"] for row in pq.read_table(folder.reconciliation).to_pylist() if row["anomaly"] == Anomaly.LOST]
    assert all(f"batch {batch} was decided, and the broker had aborted its transactions" in said for said in blame if said)


@pytest.mark.slow
def test_a_job_that_must_not_pass_over_a_lost_decision_ends_and_says_which(testbed: Testbed) -> None:
    verdict = _run("two_phase_commit", 8000, {"time_out_transaction": {"decided": True}}, transaction_timeout_s=TIMEOUT_S)
    assert verdict["outcome"] == "ERROR"
    assert "was decided to commit, but the broker answers" in verdict["reason"]
    assert set(embedded.status().values()) == {"up"}


# --- healing what a dead runner left --------------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("role", ["spark-master", "spark-worker-1"])
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSTOP], ids=lambda number: number.name)
def test_what_a_dead_runner_left_of_spark_is_healed_from_the_journal(testbed: Testbed, role: str, number: signal.Signals, tmp_path) -> None:  # type: ignore[no-untyped-def]
    handle = remembered(role, embedded.folder())
    process = handle.process() if handle else None
    assert process is not None
    target = {"role": "", "servers": [{"server": role, **process_record(process)}]}
    os.kill(process.pid, number)
    wait_until(f"{role} not to answer", lambda: not spark.registered(testbed.spark), 30)
    fault = FAULTS["pause_worker" if number == signal.SIGSTOP else "kill_master"]
    for _ in range(2):
        assert [check.passed for check in fault.heal(testbed, RunFolder.create(tmp_path / "run"), target)] == [True]
    assert set(embedded.status().values()) == {"up"}


PLAIN = model.load(ROOT / "tests/zoo/decision_after_commit/repaired.yaml").without_faults("plain", 6000, batch_records=150, seed=3)


@pytest.mark.slow
@pytest.mark.parametrize("fault", [name for name in random_plan.drawable(PLAIN) if name != "add_partitions"])
def test_a_job_that_is_one_process_meets_each_fault_that_chance_may_draw_for_it(testbed: Testbed, fault: str) -> None:
    """New partitions are left out: a client of Kafka looks for them every five minutes."""
    verdict = Verdict.read(runner.run(Experiment.model_validate({**PLAIN.model_dump(by_alias=True), "faults": [{"fault": fault}]})))
    assert verdict.outcome == "PASSED", verdict.reason
