"""Faults of single messages in whole runs: each shows its evidence on the real server, and costs no record where the job promises so."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import psycopg
import pytest

from streamproof.evidence.folder import RunFolder
from streamproof.evidence.journal import InjectionFailed, MessagesRead
from streamproof.experiment.model import Experiment
from streamproof.faults import FAULTS
from streamproof.run import healing, runner
from streamproof.testbed.embedded import Testbed
from streamproof.testbed.messages import Rule, read_trace
from streamproof.testbed.process import wait_until

END, PREPARED = {"message": "EndTxn"}, {"message": "COMMIT PREPARED"}
FORWARD = {"engine": "command", "command": ["{python}", "pipelines/forward.py"], "promises": "at-least-once"}
TRANSACTIONS = {
    **FORWARD,
    "command": ["{python}", "pipelines/forward.py", "--transactions"],
    "promises": "exactly-once",
    "transactions": True,
}
Faults = list[tuple[str, dict[str, Any]]]
STRATEGIES: dict[str, tuple[str, Faults]] = {
    "two_phase_commit": (
        "two_phase_commit",
        [("lose_answer", END), ("drop_request", END), ("hold_message", {**END, "seconds": 1}), ("late_request", END)],
    ),
    "offset_in_transaction": (
        "offset_in_transaction",
        [("lose_answer", END), ("late_request", END), ("lose_answer", {"message": "TxnOffsetCommit"}), ("error_answer", END)],
    ),
    "postgres_two_phase_commit": (
        "postgres_two_phase_commit",
        [
            ("lose_answer", PREPARED),
            ("drop_request", PREPARED),
            ("lose_answer", {"message": "PREPARE TRANSACTION"}),
            ("delay_answer", {**PREPARED, "delay_ms": 300, "times": 2}),
        ],
    ),
    "postgres_ledger": (
        "postgres_ledger",
        [
            ("lose_answer", {"message": "COMMIT"}),
            ("error_answer", {"message": "COMMIT"}),
            ("hold_message", {"message": "COPY", "seconds": 1}),
        ],
    ),
}


def _run(faults: Faults, records: int = 6000, **fields: Any) -> tuple[RunFolder, dict[str, Any]]:
    """A run that meets the faults one after the other."""
    specs = [
        {"fault": name, "at": round(0.1 + number * 0.7 / len(faults), 2), "parameters": parameters}
        for number, (name, parameters) in enumerate(faults)
    ]
    workload = {"source": "synthetic", "records": records, "partitions": 2}
    found = Experiment.model_validate(
        {"name": "messages", "workload": workload, "faults": specs, "seed": 9, "batch_records": records // 40, "timeout_s": 270, **fields}
    )
    folder = runner.run(found)
    verdict: dict[str, Any] = folder.read_json(folder.verdict)
    return folder, verdict


def _took_effect(verdict: dict[str, Any], count: int) -> None:
    wanting = [check for injection in verdict["injections"] for check in injection["evidence"] if not check["passed"]]
    assert not wanting, wanting
    assert len(verdict["injections"]) == count
    assert all(injection["evidence"] for injection in verdict["injections"])


def test_messages_of_a_job_of_any_kind_are_struck_and_traced(testbed: Testbed) -> None:
    faults: Faults = [("lose_answer", {**END, "nth": 2}), ("hold_message", {**END, "side": "answer", "seconds": 1})]
    folder, verdict = _run(faults, job=TRANSACTIONS)
    assert verdict["outcome"] == "PASSED", verdict["reason"]
    _took_effect(verdict, 2)
    assert not any(verdict["anomalies"].values()), verdict["anomalies"]
    (read,) = folder.journal.all(MessagesRead)
    assert set(read.links) == {"kafka-driver", "kafka-executors"}
    trace = list(read_trace(folder.messages))
    assert {"Produce", "TxnOffsetCommit", "EndTxn"} <= {message.message for message in trace if message.direction == "request"}
    assert testbed.messages.state().links == (), "afterwards the proxies lead straight again"


def test_what_a_dead_runner_left_held_goes_on_once_it_is_healed(testbed: Testbed, tmp_path: Path) -> None:
    testbed.read_messages({"postgres"})
    testbed.messages.arm(Rule("left", "SELECT", "hold", side="answer"))
    answers: list[Any] = []
    with psycopg.connect(testbed.pipeline_postgres, autocommit=True) as client:
        thread = threading.Thread(target=lambda: answers.append(client.execute("SELECT 1").fetchone()))
        thread.start()
        wait_until("the answer to be held", lambda: testbed.messages.state().held, 30)
        folder = RunFolder.create(tmp_path / "run")
        for _ in range(2):
            assert [check.passed for check in FAULTS["hold_message"].heal(testbed, folder, {"rule": "left"})] == [True]
        thread.join(30)
    assert answers == [(1,)]
    healing.heal_all()
    assert testbed.messages.state().links == ()


@pytest.mark.slow
@pytest.mark.parametrize("name", list(STRATEGIES))
def test_an_exactly_once_strategy_survives_what_happens_to_its_messages(testbed: Testbed, name: str) -> None:
    strategy, faults = STRATEGIES[name]
    _, verdict = _run(faults, records=8000, strategy=strategy)
    assert verdict["outcome"] == "PASSED", verdict["reason"]
    _took_effect(verdict, len(faults))
    assert not any(verdict["anomalies"].values()), verdict["anomalies"]


@pytest.mark.slow
def test_a_lost_answer_to_an_offset_commit_costs_an_at_least_once_job_nothing(testbed: Testbed) -> None:
    faults: Faults = [
        ("lose_answer", {"message": "OffsetCommit"}),
        ("drop_request", {"message": "Produce", "topic": "output"}),
        ("error_answer", {"message": "Produce", "topic": "output"}),
        ("delay_request", {"message": "Produce", "topic": "output", "delay_ms": 300, "times": 3}),
    ]
    _, verdict = _run(faults, job=FORWARD)
    assert verdict["outcome"] == "PASSED", verdict["reason"]
    _took_effect(verdict, len(faults))


@pytest.mark.slow
def test_a_message_that_never_comes_is_named_with_those_that_came(testbed: Testbed) -> None:
    folder, verdict = _run([("lose_answer", {"message": "EndTxn"})], job=FORWARD)
    assert verdict["outcome"] == "INCONCLUSIVE", verdict["reason"]
    (failed,) = folder.journal.all(InjectionFailed)
    assert "a EndTxn: not within 60 s. Meanwhile the job sent" in failed.error
    assert "Produce" in failed.error
