"""Faults of single messages: what an experiment may ask for, and what the trace of a run says its client did next. No server is asked."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from pydantic import ValidationError

from streamproof.evidence.folder import RunFolder
from streamproof.experiment.model import Experiment
from streamproof.faults import FAULTS
from streamproof.faults.messages.error_answer import code
from streamproof.faults.messages.message_fault import MessageFault, next_step, traced
from streamproof.testbed.messages import Message, Place, read_trace

LOOP = {"engine": "command", "command": ["{python}", "forward.py"], "promises": "at-least-once"}
OF_MESSAGES = [name for name, fault in FAULTS.items() if isinstance(fault, MessageFault)]


def experiment(fault: str, parameters: dict[str, Any], **fields: Any) -> Experiment:
    job = {} if "strategy" in fields else {"job": LOOP}
    return Experiment.model_validate({"faults": [{"fault": fault, "parameters": parameters}], "seed": 1, **job, **fields})


def test_there_is_a_fault_for_each_action() -> None:
    assert set(OF_MESSAGES) == {
        "hold_message",
        "lose_answer",
        "drop_request",
        "refuse_messages",
        "late_request",
        "delay_request",
        "delay_answer",
        "error_answer",
    }


@pytest.mark.parametrize("cut", [0, 1, 20])
def test_the_trace_is_read_from_a_whole_line(tmp_path: Path, cut: int) -> None:
    """Where it ended as the fault was injected, a line may just have been written in part."""
    folder = RunFolder.create(tmp_path / "run")
    kept = {"at_ns": 1, "monotonic_ns": 1, "link": "kafka", "protocol": "kafka", "connection": 1, "client_port": 1, "direction": "request"}
    lines = [json.dumps({**kept, "number": number, "message": "Produce"}) + "\n" for number in range(3)]
    folder.messages.parent.mkdir(parents=True, exist_ok=True)
    folder.messages.write_text("".join(lines))
    run: Any = SimpleNamespace(folder=folder, testbed=SimpleNamespace(messages=SimpleNamespace(state=lambda: None)))
    expected = [1, 2] if cut == 0 else [2]
    assert [message.number for message in traced(run, {"traced_bytes": len(lines[0]) + cut})] == expected
    assert [message.number for message in traced(run, {"traced_bytes": 0})] == [0, 1, 2]


@pytest.mark.parametrize("name", OF_MESSAGES)
def test_a_run_reads_the_messages_of_the_server_that_they_go_to(name: str) -> None:
    fault = FAULTS[name]
    for message, server in (("EndTxn", "kafka"), ("COMMIT PREPARED", "postgres")):
        parameters = fault.parameters_model.model_validate({"message": message})
        assert fault.reads(parameters) == {server}
        assert fault.needs(parameters) == {f"the link to {server}"}
        assert fault.outside(parameters) == (None if server == "kafka" else frozenset())


@pytest.mark.parametrize(
    ("fault", "parameters", "says"),
    [
        ("lose_answer", {"message": "Prodouce"}, "Input should be 'Produce'"),
        ("lose_answer", {"message": "COMMIT"}, "lose_answer: a job with 'forward' has no link to postgres"),
        ("lose_answer", {"message": "EndTxn", "role": "executors"}, "has no executors: leave `role` out"),
        ("lose_answer", {"message": "EndTxn", "sql": "x"}, "EndTxn has no sql: leave it out"),
        ("lose_answer", {"message": "COMMIT", "topic": "output"}, "COMMIT has no topic: leave it out"),
        ("lose_answer", {"nth": 0}, "greater than or equal to 1"),
        ("lose_answer", {"message": "COMMIT", "sql": "("}, "expected a regular expression"),
        ("late_request", {"message": "EndTxn", "until": "COMMIT"}, "expected a message to the same server as EndTxn, came COMMIT"),
    ],
)
def test_a_message_that_cannot_be_meant_is_refused(fault: str, parameters: dict[str, Any], says: str) -> None:
    with pytest.raises(ValidationError, match=says.replace("(", r"\(")):
        experiment(fault, parameters)


def test_driver_and_executors_share_their_way_to_postgresql() -> None:
    with pytest.raises(ValidationError, match="driver and executors share their way to PostgreSQL: leave `role` out"):
        experiment("lose_answer", {"message": "COMMIT", "role": "executors"}, strategy="postgres_ledger")


def test_two_faults_of_messages_to_one_server_do_not_overlap() -> None:
    faults = [{"fault": "lose_answer"}, {"fault": "hold_message", "overlaps": True}]
    with pytest.raises(ValidationError, match="each needs the link to kafka for itself"):
        Experiment.model_validate({"job": LOOP, "faults": faults, "seed": 1})


def test_an_error_is_one_that_the_client_of_the_message_knows() -> None:
    assert [code("Produce", kind) for kind in ("retriable", "fatal")] == ["6", "29"]
    assert [code("EndTxn", kind) for kind in ("retriable", "fatal")] == ["51", "53"]
    assert [code("OffsetCommit", kind) for kind in ("retriable", "fatal")] == ["14", "30"]
    assert [code("COMMIT", kind) for kind in ("retriable", "fatal")] == ["40001", "57P01"]


# --- what comes next ------------------------------------------------------------------------------------------------------------------


def message(at_ms: int, name: str, direction: Any = "request", connection: int = 1, number: int = 1, **fields: Any) -> Message:
    return Message(
        at_ns=at_ms * 10**6,
        monotonic_ns=at_ms * 10**6,
        link="kafka-driver",
        protocol="kafka",
        connection=connection,
        client_port=1,
        number=number,
        direction=direction,
        message=name,
        client_id=fields.pop("client_id", "job"),
        **fields,
    )


STRUCK = message(10, "EndTxn", transactional_id="t")


@pytest.mark.parametrize(
    ("trace", "expected"),
    [
        ([STRUCK], None),
        ([STRUCK, message(9, "Produce"), message(12, "Produce", client_id="another")], None),
        (
            [STRUCK, message(12, "InitProducerId", connection=2), message(13, "Produce", connection=2)],
            "it sent InitProducerId, Produce",
        ),
        (
            [
                STRUCK,
                message(12, "EndTxn", connection=2, transactional_id="other"),
                message(30, "EndTxn", connection=2, number=4, transactional_id="t"),
                message(31, "EndTxn", "answer", connection=2, number=4, transactional_id="t", errors=(0,)),
            ],
            "EndTxn again over another connection, 20 ms later, answered error 0",
        ),
        (
            [STRUCK, message(15, "EndTxn", number=2, transactional_id="t")],
            "EndTxn again over the same connection, 5 ms later, no answer so far",
        ),
    ],
)
def test_what_a_client_did_next_is_read_from_the_trace(trace: list[Message], expected: str | None) -> None:
    assert next_step(trace, STRUCK, answered=False) == expected


def test_the_next_message_of_a_client_that_has_its_answer_is_no_retry() -> None:
    trace = [STRUCK, message(15, "EndTxn", number=2, transactional_id="t")]
    assert next_step(trace, STRUCK, answered=True) == "it sent EndTxn"


def test_a_trace_is_read_but_for_a_line_that_is_cut_off(tmp_path: Path) -> None:
    line = {
        "at_ns": 1,
        "monotonic_ns": 2,
        "link": "kafka-driver",
        "protocol": "kafka",
        "connection": 3,
        "client_port": 4,
        "number": 5,
        "direction": "answer",
        "message": "Produce",
        "errors": [0],
        "places": [{"topic": "t", "partition": 0, "offset": 7, "error": 0}],
    }
    path = tmp_path / "messages.jsonl"
    path.write_text(json.dumps(line) + "\n" + json.dumps(line)[:20])
    (found,) = read_trace(path)
    assert (found.places, found.done, found.outcome) == ((Place("t", 0, offset=7, error=0),), True, "error 0")
