"""Windows are read from a trace: which messages are steps, what they are called, which pairs of them come again and again."""

from __future__ import annotations

import json
import os
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from streamproof.engines.command.job import CommandSpec
from streamproof.evidence import manifest
from streamproof.evidence.coverage import Coverage, Situation, Stage
from streamproof.evidence.folder import EvidenceError, RunFolder
from streamproof.faults import FAULTS
from streamproof.faults.process.kill_at_window import KillAtWindowParameters
from streamproof.jobs import windows
from streamproof.jobs.job import Job
from streamproof.jobs.windows import Step, Trace
from streamproof.run import coverage
from streamproof.testbed.messages import Message, Place
from streamproof.verdict.judge import judge
from tests.support.histories import SPEC, Story

MS = 1_000_000
FORWARD = CommandSpec.model_validate({"engine": "command", "command": ["run"], "promises": "exactly-once"}).profile


def job(folder: Path) -> Job:
    return Job(
        engine="command",
        name="job",
        folder=str(folder),
        sink="kafka",
        bootstrap="",
        input_topic="in",
        output_topic="out",
        batch_records=100,
        transaction_timeout_ms=60_000,
    )


def message(name: str, number: int, at_ms: int, direction: str, **more: Any) -> Message:
    statements = (name,) if name in windows.STATEMENTS else ()
    common = {"link": "x", "protocol": "postgres" if statements else "kafka", "connection": 1, "client_port": 1, "statements": statements}
    common |= {"number": number, "message": name}
    return Message(at_ns=at_ms * MS, monotonic_ns=at_ms * MS, direction=direction, **{**common, **more})  # type: ignore[arg-type]


def pair(name: str, number: int, begun_ms: int, done_ms: int, answer: dict[str, Any] | None = None, **more: Any) -> list[Message]:
    return [message(name, number, begun_ms, "request", **more), message(name, number, done_ms, "answer", **{**more, **(answer or {})})]


def written(path: Path, *messages: Message) -> None:
    path.parent.mkdir(exist_ok=True)
    with path.open("a") as file:
        for one in messages:
            file.write(json.dumps({name: value for name, value in asdict(one).items() if value not in (None, ())}) + "\n")


def read(tmp_path: Path, *messages: Message) -> list[Step]:
    path = job(tmp_path).run.messages
    written(path, *messages)
    trace = Trace(job(tmp_path))
    trace.read_on()
    return trace.steps


def test_a_step_is_what_a_server_did(tmp_path: Path) -> None:
    produce = {"places": (Place("out", 0),)}
    steps = read(
        tmp_path,
        *pair("Produce", 1, 10, 12, **produce),
        *pair("Produce", 2, 13, 14, {"errors": (6,)}, **produce),  # refused
        message("Produce", 3, 15, "request", **produce),  # never answered
        message("Produce", 4, 16, "request", acks=0, **produce),  # never answered, and not to be
        *pair("Heartbeat", 5, 17, 18),
        *pair("SELECT", 6, 17, 18, sql="SELECT"),
    )
    assert steps == [Step("Produce", 10 * MS, 12 * MS), Step("Produce", 16 * MS, 16 * MS)]


@pytest.mark.parametrize(
    ("name", "more", "step"),
    [
        ("Produce", {"places": (Place("out", 0), Place("out", 1))}, "Produce"),
        ("Produce", {"places": (Place("dead-letters", 0),)}, "Produce to dead-letters"),
        ("EndTxn", {"commit": True}, "EndTxn"),
        ("EndTxn", {"commit": False}, "EndTxn (abort)"),
        ("INSERT", {"sql": 'INSERT INTO "sp"."orders" VALUES ($1)'}, "INSERT orders"),
        ("UPDATE", {"sql": "UPDATE totals SET n = $1"}, "UPDATE totals"),
        ("COPY", {"sql": "COPY orders FROM STDIN"}, "COPY orders"),
        ("DELETE", {"sql": "DELETE FROM ledger"}, "DELETE ledger"),
        ("INSERT", {"sql": "INSERT INTO a SELECT * FROM b"}, "INSERT a"),
        ("UPDATE", {"sql": 'UPDATE "sp-run-7"."decisions" SET done = $1'}, "UPDATE decisions"),
        ("INSERT", {"sql": "INSERT INTO a VALUES ($1) ON CONFLICT (k) DO UPDATE SET v = $2"}, "INSERT a"),
        ("COMMIT PREPARED", {"sql": "COMMIT PREPARED ?"}, "COMMIT PREPARED"),
        ("BEGIN", {"sql": "BEGIN"}, None),
        ("COMMIT", {"sql": "COMMIT"}, None),  # it changed nothing
    ],
)
def test_a_step_is_called_by_what_it_changes(tmp_path: Path, name: str, more: dict[str, Any], step: str | None) -> None:
    assert Trace(job(tmp_path)).name(message(name, 1, 1, "request", **more)) == step
    if step is not None:
        assert windows.kind(step) == name


def test_what_a_transaction_did_before_its_commit_is_no_step(tmp_path: Path) -> None:
    opened, idle = {"transaction": "open"}, {"transaction": "idle"}
    steps = read(
        tmp_path,
        *pair("INSERT", 1, 1, 2, idle, sql="INSERT INTO log VALUES ($1)"),
        *pair("BEGIN", 2, 3, 4, opened, sql="BEGIN"),
        *pair("INSERT", 3, 5, 6, opened, sql="INSERT INTO orders VALUES ($1)"),
        *pair("UPDATE", 4, 7, 8, opened, sql="UPDATE progress SET n = $1"),
        *pair("COMMIT", 5, 9, 10, idle, sql="COMMIT"),
        *pair("BEGIN", 6, 11, 12, opened, sql="BEGIN"),
        *pair("SELECT", 7, 13, 14, opened, sql="SELECT"),
        *pair("COMMIT", 8, 15, 16, idle, sql="COMMIT"),
        *pair("BEGIN", 9, 17, 18, opened, sql="BEGIN"),
        *pair("COPY", 10, 19, 20, opened, sql="COPY orders FROM STDIN"),
        *pair("ROLLBACK", 11, 21, 22, idle, sql="ROLLBACK"),
        *pair("INSERT", 12, 23, 24, idle, sql="INSERT INTO log VALUES ($1)"),
    )
    assert [step.name for step in steps] == ["INSERT log", "COMMIT orders, progress", "INSERT log"]


def test_an_answer_is_named_as_its_request_was(tmp_path: Path) -> None:
    opened, idle = {"transaction": "open"}, {"transaction": "idle"}
    begun, insert = pair("BEGIN", 1, 1, 2, opened, sql="BEGIN"), pair("INSERT", 2, 3, 4, opened, sql="INSERT INTO orders VALUES ($1)")
    asked, answered = pair("COMMIT", 3, 5, 6, idle, sql="COMMIT")
    written(job(tmp_path).run.messages, *begun, *insert, asked, answered)
    trace = Trace(job(tmp_path))
    trace.read_on()
    assert (trace.name(asked), trace.name(answered)) == ("COMMIT orders", "COMMIT orders")


def test_statements_that_do_not_wait_for_each_other_are_one_step(tmp_path: Path) -> None:
    asked, answered = zip(
        *(pair("INSERT", n, n, 9, {"transaction": "idle"}, sql="INSERT INTO log VALUES ($1)") for n in (1, 2, 3)), strict=True
    )
    steps = read(tmp_path, *asked, *answered, *pair("INSERT", 4, 10, 11, {"transaction": "idle"}, sql="INSERT INTO log VALUES ($1)"))
    assert [(step.name, step.begun_ns // MS) for step in steps] == [("INSERT log", 1), ("INSERT log", 10)]


def test_a_trace_is_read_as_it_grows(tmp_path: Path) -> None:
    path = job(tmp_path).run.messages
    trace = Trace(job(tmp_path))
    assert trace.read_on() == []
    begun, done = pair("OffsetCommit", 1, 1, 2)
    written(path, begun)
    assert trace.read_on() == []
    with path.open("a") as file:
        file.write('{"half')
    assert trace.read_on() == []
    path.write_text("".join(path.read_text().splitlines(keepends=True)[:-1]))
    written(path, done)
    assert [step.name for step in trace.read_on()] == ["OffsetCommit"]


def test_files_of_a_checkpoint_are_steps(tmp_path: Path) -> None:
    here = job(tmp_path)
    for number, name in enumerate(("offsets/0", "commits/0", "offsets/.1.tmp", "offsets/metadata", "state/0/1.delta")):
        path = here.checkpoint() / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
        os.utime(path, ns=(number * MS, number * MS))
    assert [step.name for step in windows.files(here)] == ["offsets", "commits"]


def test_a_window_lies_between_steps_that_follow_each_other_again_and_again() -> None:
    names = ["InitProducerId", *["Produce", "Produce", "EndTxn"] * 3]
    steps = [Step(name, number * 10 * MS, (number * 10 + 4) * MS) for number, name in enumerate(names)]
    found = windows.windows(steps)
    assert [(window.name, window.seen, window.open_ms) for window in found] == [
        ("Produce > Produce", 3, 6.0),
        ("Produce > EndTxn", 3, 6.0),
        ("EndTxn > Produce", 2, 6.0),
    ]
    assert list(windows.runs_of(steps, "Produce", "EndTxn")) == [2, 2, 2]
    assert windows.last_before(steps, 35 * MS) == steps[3]
    assert windows.last_before(steps, 0) is None


@pytest.mark.parametrize(
    ("window", "complaint"),
    [
        ("Produce", "expected the name of a window"),
        ("Produce > Fetch", "there is no step 'Fetch'"),
        ("Produce > EndTxn or Produce", "expected the name of a window"),
        ("Produce > commits or commits > offsets", "commits > offsets lies between two files"),
        ("Produce > commits or EndTxn > Produce", "in one a Produce is held, in the other its answer"),
    ],
)
def test_a_window_that_is_none_is_refused(window: str, complaint: str) -> None:
    with pytest.raises(ValidationError) as refused:
        KillAtWindowParameters(window=window)
    assert complaint in str(refused.value)


def test_a_step_that_was_done_once_in_the_middle_is_named() -> None:
    names = [
        "InitProducerId",
        *["COMMIT orders", "OffsetCommit"] * 3,
        "TRUNCATE seen",
        *["OffsetCommit", "COMMIT orders"] * 2,
        "COMMIT end",
    ]
    assert windows.done_once([Step(name, number, number) for number, name in enumerate(names)]) == ["TRUNCATE seen"]
    assert windows.done_once([]) == windows.done_once([Step("Produce", 0, 1)]) == []


def test_several_windows_may_be_named() -> None:
    assert KillAtWindowParameters(window="Produce > EndTxn or  EndTxn > Produce").window == "Produce > EndTxn or EndTxn > Produce"  # type: ignore[attr-defined]
    with pytest.raises(ValueError, match="expected one window, came 'Produce > EndTxn or EndTxn > Produce'"):
        FAULTS["twin_driver"].check(FORWARD, {"window": "Produce > EndTxn or EndTxn > Produce"})


# --- in which of them a job was killed ------------------------------------------------------------------------------------------------


def _folder(tmp_path: Path, *injected: dict[str, Any]) -> RunFolder:
    """A run of three batches, each of them written and then committed; a batch takes 10 ms and begins at 0, 10 and 20 ms."""
    folder = RunFolder.create(tmp_path / "run")
    for number, at in enumerate((0, 10, 20)):
        written(folder.messages, *pair("Produce", 2 * number, at + 1, at + 2, places=(Place("out", 0),)))
        written(folder.messages, *pair("OffsetCommit", 2 * number + 1, at + 5, at + 6))
    folder.journal.path.write_text("".join(json.dumps({"event": "injection_injected", **one}) + "\n" for one in injected))
    return folder


def _at(ms: int) -> str:
    return datetime.fromtimestamp(ms / 1000, UTC).isoformat(timespec="milliseconds")


def test_a_kill_is_found_in_its_window_whether_or_not_it_was_aimed(tmp_path: Path) -> None:
    aimed = {
        "at": _at(99),
        "injection": "kill_at_window-1",
        "target": {"strikes": [{"window": "Produce > OffsetCommit", "at_ns": 13 * MS}]},
    }
    missed = {
        "at": _at(99),
        "injection": "kill_at_window-2",
        "target": {"strikes": [{"window": "Produce > OffsetCommit", "at_ns": 18 * MS}]},
    }
    by_chance = {"at": _at(3), "injection": "kill_driver-1", "target": {}}
    other = {"at": _at(3), "injection": "cut_kafka-1", "target": {}}
    folder = _folder(tmp_path, aimed, missed, by_chance, other)
    coverage.write(folder, job(folder.path))
    found = Coverage.read(folder)
    assert found is not None
    assert found.known == ("Produce > OffsetCommit", "OffsetCommit > Produce")
    assert found.hit == {
        "kill_at_window-1": "Produce > OffsetCommit",
        "kill_at_window-2": "OffsetCommit > Produce",
        "kill_driver-1": "Produce > OffsetCommit",
    }


PRODUCED = "Produce > OffsetCommit"


def test_each_fault_has_the_situation_in_which_it_struck_whatever_it_did(tmp_path: Path) -> None:
    in_recovery = {"strikes": [{"window": "Produce > OffsetCommit", "at_ns": at * MS} for at in (13, 23)]}
    folder = _folder(
        tmp_path,
        {"at": _at(3), "injection": "cut_kafka-1", "target": {}},
        {"at": _at(99), "injection": "kill_at_window-1", "target": in_recovery},
        {"at": _at(12), "injection": "lose_answer-1", "target": {}},
        {"at": _at(26), "injection": "lose_answer-2", "target": {}},
    )
    started = [{"event": "driver_started", "at": _at(at), "start": start, "pid": 1} for start, at in ((1, 0), (2, 15))]
    asked = [
        {"event": "injection_started", "at": _at(0), "injection": name, "fault": "lose_answer", "parameters": parameters}
        for name, parameters in (("lose_answer-1", {"message": "OffsetCommit", "nth": 2}), ("lose_answer-2", {"message": "Produce"}))
    ]
    with folder.journal.path.open("a") as journal:
        journal.writelines(json.dumps(event) + "\n" for event in [*started, *asked])
    folder.progress.write_text(json.dumps({"batch": 0, "start": 1, "committed_at": _at(7)}) + "\n")
    coverage.write(folder, job(folder.path))
    found = Coverage.read(folder)
    assert found is not None
    assert found.situations == (
        Situation("cut_kafka-1", "Produce", Stage.START, (), PRODUCED),
        Situation("kill_at_window-1", "Produce", Stage.WORK, (), PRODUCED),
        Situation("kill_at_window-1", "Produce", Stage.RECOVERY, (), PRODUCED),
        Situation(
            "lose_answer-1", "Produce", Stage.RECOVERY, ("OffsetCommit",), PRODUCED
        ),  # the second from then on; no Produce came after 26 ms
    )
    assert found.struck == {PRODUCED: ("cut_kafka", "kill_at_window", "lose_answer")}
    assert found.situations[-1].told == "after Produce, with OffsetCommit on its way, in recovery"


def test_a_run_whose_messages_were_not_read_says_nothing_of_windows(tmp_path: Path) -> None:
    folder = RunFolder.create(tmp_path / "run")
    coverage.write(folder, job(folder.path))
    assert Coverage.read(folder) is None


def test_the_verdict_says_in_how_many_windows_the_job_was_killed(tmp_path: Path) -> None:
    folder = Story().write(tmp_path / "run")
    folder.windows.parent.mkdir()
    Coverage(("a > b", "b > a"), {"kill_executor-1": "a > b"}).write(folder)
    manifest.write(folder)
    verdict = judge(folder, SPEC).verdict
    assert verdict.outcome == "PASSED"
    assert ", killed in 1 of 2 windows" in verdict.reason
    assert verdict.to_json()["windows"] == {"known": ["a > b", "b > a"], "hit": ["a > b"], "struck": {}}


def test_coverage_that_is_damaged_is_no_evidence(tmp_path: Path) -> None:
    folder = Story().write(tmp_path / "run")
    folder.windows.parent.mkdir()
    folder.windows.write_text('{"known": 3}')
    manifest.write(folder)
    with pytest.raises(EvidenceError, match=r"windows\.json is damaged"):
        judge(folder, SPEC)


@pytest.mark.parametrize(
    ("window", "left"),
    [
        ("INSERT daily > commits", "daily is changed, the checkpoint does not count the batch as done"),
        ("COMMIT orders, progress > OffsetCommit", "orders, progress are committed, the offset is not committed"),
        ("Produce > Produce", "records are written, but not all of the batch"),
        ("TxnOffsetCommit > EndTxn", "the offset is in the open transaction, the transaction is still open"),
        ("decisions > COMMIT PREPARED", "the commit is decided, a prepared transaction is not"),
    ],
)
def test_what_a_crash_leaves_is_said_in_words(window: str, left: str) -> None:
    assert windows.leaves(window) == left
