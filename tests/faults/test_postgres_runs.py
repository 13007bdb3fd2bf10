"""Whole runs that deliver to PostgreSQL, with real faults. Its strategies are crashed at each of their steps by the sweep."""

from __future__ import annotations

from typing import Any

import pytest

from streamproof.engines.spark.registry import STRATEGIES
from streamproof.evidence.folder import RunFolder
from streamproof.evidence.journal import Recovered
from streamproof.experiment.model import Experiment, FaultSpec
from streamproof.jobs.failpoint import Action
from streamproof.load.spec import Source, Workload
from streamproof.run import runner
from streamproof.sinks.postgres import tables as output
from streamproof.sinks.postgres.tables import Tables
from streamproof.testbed.embedded import Testbed
from streamproof.testbed.process import marked

RECORDS = 20_000
POSTGRES = [name for name, strategy in STRATEGIES.items() if strategy.sink == "postgres"]
QUICK = "postgres_two_phase_commit"


def _run(strategy: str, *faults: FaultSpec, records: int = RECORDS) -> RunFolder:
    workload = Workload(source=Source.SYNTHETIC, records=records)
    return runner.run(Experiment(name="test", strategy=strategy, workload=workload, faults=list(faults), seed=11))


def _assert_exactly_once(folder: RunFolder, testbed: Testbed, records: int = RECORDS) -> dict[str, Any]:
    verdict: dict[str, Any] = folder.read_json(folder.verdict)
    assert verdict["outcome"] == "PASSED", verdict["reason"]
    assert not any(verdict["anomalies"].values()), verdict["anomalies"]
    assert verdict["delivered"] == verdict["sent"]["acked"] == records
    assert all(check["passed"] for injection in verdict["injections"] for check in injection["evidence"])
    assert not marked(STREAMPROOF_RUN=folder.name), "a driver outlived its run"
    _assert_nothing_is_left(folder, testbed)
    return verdict


def _assert_nothing_is_left(folder: RunFolder, testbed: Testbed) -> None:
    schema = Tables(f"sp-{folder.name}").schema
    with output.connect(testbed.direct_postgres, autocommit=True) as connection:
        assert output.prepared(connection, "") == []
        assert connection.execute("SELECT count(*) FROM pg_namespace WHERE nspname = %s", [schema]).fetchone() == (0,)


@pytest.mark.slow
def test_a_cut_link_neither_loses_nor_doubles_a_record(testbed: Testbed) -> None:
    _assert_exactly_once(_run(QUICK, FaultSpec(fault="cut_postgres", at=0.3), records=6000), testbed, 6000)


@pytest.mark.slow
@pytest.mark.parametrize("strategy", POSTGRES)
def test_a_killed_executor_and_a_cut_link_neither_lose_nor_double_a_record(testbed: Testbed, strategy: str) -> None:
    _assert_exactly_once(_run(strategy, FaultSpec(fault="kill_executor", at=0.25), FaultSpec(fault="cut_postgres", at=0.5)), testbed)


@pytest.mark.slow
def test_a_driver_that_is_killed_while_a_task_has_prepared_leaves_no_open_transaction(testbed: Testbed) -> None:
    fault = FaultSpec(fault="crash_at_step", parameters={"step": "after_prepare", "action": Action.KILL_DRIVER})
    folder = _run("postgres_two_phase_commit", fault, records=6000)
    _assert_exactly_once(folder, testbed, 6000)
    recovered = [event for event in folder.journal.all(Recovered) if event.start == 2]
    assert recovered, "the second start finds what was prepared"
    assert recovered[0].details["rolled_back"] >= 1
