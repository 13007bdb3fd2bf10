"""Outages: a server is killed or paused, a link is cut. Each shows its evidence on the real component, heals, and costs no record."""

from __future__ import annotations

import os
import signal

import psutil
import pytest

from streamproof.evidence.folder import RunFolder
from streamproof.experiment.model import Experiment, FaultSpec
from streamproof.faults import FAULTS
from streamproof.load.spec import Source, Workload
from streamproof.run import runner
from streamproof.testbed import embedded
from streamproof.testbed.embedded import Testbed
from streamproof.testbed.process import remembered

RECORDS = 4000
ROLES = [
    ("cut_kafka", "executors", "two_phase_commit"),
    ("cut_kafka", "driver", "offset_commit"),
    ("black_hole_kafka", "driver", "two_phase_commit"),
    ("black_hole_kafka", "executors", "offset_in_transaction"),
    ("reset_kafka", "driver", "two_phase_commit"),
    ("reset_kafka", "executors", "checkpoint"),
    ("network_latency", "driver", "two_phase_commit"),
    ("network_latency", "executors", "postgres_two_phase_commit"),
]
CASES = [
    ("kill_driver", "offset_in_transaction"),
    ("kill_kafka", "two_phase_commit"),
    ("pause_kafka", "offset_in_transaction"),
    ("cut_kafka", "two_phase_commit"),
    ("black_hole_kafka", "two_phase_commit"),
    ("reset_kafka", "offset_in_transaction"),
    ("kill_postgres", "postgres_two_phase_commit"),
    ("pause_postgres", "postgres_ledger"),
    ("cut_postgres", "postgres_two_phase_commit"),
    ("black_hole_postgres", "postgres_upsert"),
]


@pytest.mark.slow
@pytest.mark.parametrize(("fault", "strategy"), CASES)
def test_an_outage_takes_effect_heals_and_costs_no_record(testbed: Testbed, fault: str, strategy: str) -> None:
    workload = Workload(source=Source.SYNTHETIC, records=RECORDS)
    folder = runner.run(Experiment(name="outage", strategy=strategy, workload=workload, faults=[FaultSpec(fault=fault, at=0.3)], seed=9))
    verdict = folder.read_json(folder.verdict)
    assert verdict["outcome"] == "PASSED", verdict["reason"]
    assert all(check["passed"] for injection in verdict["injections"] for check in injection["evidence"])
    assert set(embedded.status().values()) == {"up"}


@pytest.mark.slow
@pytest.mark.parametrize(("fault", "role", "strategy"), ROLES)
def test_driver_and_executors_are_hit_one_without_the_other(testbed: Testbed, fault: str, role: str, strategy: str) -> None:
    parameters = {"role": role, **({"jitter_ms": 40} if fault == "network_latency" else {})}
    workload, fault_spec = Workload(source=Source.SYNTHETIC, records=RECORDS), FaultSpec(fault=fault, at=0.3, parameters=parameters)
    folder = runner.run(Experiment(name="role", strategy=strategy, workload=workload, faults=[fault_spec], seed=9))
    verdict = folder.read_json(folder.verdict)
    assert verdict["outcome"] == "PASSED", verdict["reason"]
    checks = {check["check"]: check for check in verdict["injections"][0]["evidence"]}
    assert all(check["passed"] for check in checks.values())
    (other,) = {"kafka-driver", "kafka-executors"} - {f"kafka-{role}"}
    assert f"only connections of the {role} lead through the broken proxy" in checks
    assert any(f"through {other} nothing is felt" == check or f"each probe through {other} was answered" in check for check in checks)
    assert set(embedded.status().values()) == {"up"}


@pytest.mark.parametrize("role", ["kafka", "postgres"])
def test_a_server_that_a_dead_runner_left_paused_is_woken_from_the_journal(testbed: Testbed, role: str, tmp_path) -> None:  # type: ignore[no-untyped-def]
    handle = remembered(role, embedded.folder())
    assert handle is not None
    server = psutil.Process(handle.pid)
    target = {"role": "", "servers": [{"server": role, "pid": handle.pid, "created": server.create_time()}]}
    for process in [server, *server.children(recursive=True)]:
        os.kill(process.pid, signal.SIGSTOP)
    fault = FAULTS[f"pause_{role}"]
    checks = fault.heal(testbed, RunFolder.create(tmp_path / "run"), target)
    assert [check.passed for check in checks] == [True]
    assert server.status() != psutil.STATUS_STOPPED
    assert fault.heal(testbed, RunFolder.create(tmp_path / "run"), target)[0].passed, "healing may be repeated"
