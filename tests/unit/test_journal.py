"""The journal: what is appended is read back typed, what other versions wrote is read, and what is damaged is named."""

from __future__ import annotations

import ast
import json
import subprocess
import sys
from dataclasses import fields
from pathlib import Path

import pytest

from streamproof.evidence.files import EvidenceError
from streamproof.evidence.journal import (
    EVENTS,
    Aborted,
    DriverStarted,
    EvidenceCheck,
    FailpointFired,
    InjectionEvent,
    InjectionEvidence,
    InjectionHealed,
    Journal,
    PhaseBegan,
    Recovered,
    Restored,
    StageFinished,
)
from tests.support.checkout import ROOT

STAMP = "2026-01-01T00:00:00.000+00:00"


@pytest.fixture
def journal(tmp_path: Path) -> Journal:
    return Journal(tmp_path / "journal.jsonl")


def _write(journal: Journal, *lines: dict[str, object]) -> None:
    journal.path.write_text("".join(json.dumps({"at": STAMP, **line}) + "\n" for line in lines))


def test_events_come_back_in_order_by_type(journal: Journal) -> None:
    journal.append(PhaseBegan(phase="steady"))
    journal.append(Aborted(reason="stopped"))
    journal.append(PhaseBegan(phase="impact"))
    assert [event.name for event in journal.events()] == ["phase", "aborted", "phase"]
    assert [event.phase for event in journal.all(PhaseBegan)] == ["steady", "impact"]
    last = journal.last(Aborted, PhaseBegan)
    assert isinstance(last, PhaseBegan)
    assert last.phase == "impact"
    assert journal.last(Restored) is None


def test_a_journal_that_is_not_there_is_empty(journal: Journal) -> None:
    assert journal.events() == []


def test_the_line_of_an_event_is_its_name_its_stamp_and_its_fields(journal: Journal) -> None:
    journal.append(DriverStarted(start=2, pid=71))
    (line,) = map(json.loads, journal.path.read_text().splitlines())
    assert line.pop("at").endswith("+00:00")
    assert line == {"event": "driver_started", "start": 2, "pid": 71}


def test_an_optional_field_that_is_not_known_is_left_out(journal: Journal) -> None:
    journal.append(FailpointFired(failpoint="after_output", batch=4))
    assert set(json.loads(journal.path.read_text())) == {"at", "event", "failpoint", "batch", "action"}


def test_evidence_checks_are_claims_on_the_disk(journal: Journal) -> None:
    checks = (EvidenceCheck("the process is gone", True, "pid 1"), EvidenceCheck("the master dropped it", False))
    journal.append(InjectionEvidence(injection="kill_executor-1", checks=checks))
    assert json.loads(journal.path.read_text())["claims"] == [
        {"claim": "the process is gone", "holds": True, "detail": "pid 1"},
        {"claim": "the master dropped it", "holds": False, "detail": ""},
    ]
    assert [event.checks for event in journal.all(InjectionEvidence)] == [checks]


def test_details_of_a_strategy_lie_beside_the_other_fields(journal: Journal) -> None:
    journal.append(Recovered(start=2, details={"finished_batches": [3]}))
    assert json.loads(journal.path.read_text())["finished_batches"] == [3]
    (event,) = journal.all(Recovered)
    assert (event.start, event.details) == (2, {"finished_batches": [3]})


def test_what_a_task_says_where_it_is_comes_back_as_fields(journal: Journal) -> None:
    journal.append(FailpointFired(failpoint="x", batch=1, details={"partition": 3, "attempt": 0}))
    (event,) = journal.all(FailpointFired)
    assert (event.partition, event.attempt, event.details) == (3, 0, {})


def test_what_json_has_no_word_for_is_written_as_text(journal: Journal, tmp_path: Path) -> None:
    journal.append(Recovered(start=1, details={"path": tmp_path, "text": "two\nlines"}))
    (event,) = journal.all(Recovered)
    assert event.details == {"path": str(tmp_path), "text": "two\nlines"}


# --- other versions, and damage -------------------------------------------------------------------------------------------------------


def test_an_event_and_a_field_that_are_not_known_are_skipped(journal: Journal) -> None:
    _write(journal, {"event": "window_seen", "window": 3}, {"event": "phase", "phase": "steady", "share": 0.2})
    assert journal.events() == [PhaseBegan(at=STAMP, phase="steady")]


def test_a_field_with_a_default_may_be_missing(journal: Journal) -> None:
    _write(journal, {"event": "driver_started", "start": 1})
    assert journal.events() == [DriverStarted(at=STAMP, start=1)]


@pytest.mark.parametrize("name", sorted(EVENTS))
def test_a_field_that_must_be_there_is_named_when_it_is_missing(journal: Journal, name: str) -> None:
    _write(journal, {"event": name})
    needed = [each for each in fields(EVENTS[name])[1:] if each.default is each.default_factory]
    if not needed:
        assert [event.name for event in journal.events()] == [name]
        return
    with pytest.raises(EvidenceError, match=r"journal\.jsonl is damaged: [a-z_]+ missing in"):
        journal.events()


@pytest.mark.parametrize("line", [{"event": "phase", "phase": "steady"}, {"at": STAMP, "phase": "steady"}])
def test_a_line_without_its_stamp_or_its_name_is_damage(journal: Journal, line: dict[str, str]) -> None:
    journal.path.write_text(json.dumps(line) + "\n")
    with pytest.raises(EvidenceError, match=r"journal\.jsonl is damaged: (at|event) missing in"):
        journal.events()


def test_a_check_without_its_result_is_damage(journal: Journal) -> None:
    _write(journal, {"event": "injection_healed", "injection": "x-1", "claims": [{"claim": "no toxic is left"}]})
    with pytest.raises(EvidenceError, match="holds missing in"):
        journal.all(InjectionHealed)


def test_a_line_that_was_torn_by_a_kill_does_not_damage_the_next(journal: Journal) -> None:
    _write(journal, {"event": "aborted", "reason": "a"})
    with journal.path.open("a") as file:
        file.write('{"at":"2026-')
    journal.append(Aborted(reason="b"))
    assert [event.reason for event in journal.all(Aborted)] == ["a", "b"]


def test_every_line_that_was_torn_is_left_out_and_no_line_beside_them(journal: Journal) -> None:
    for reason in ("a", "b", "c"):
        journal.append(Aborted(reason=reason))
        with journal.path.open("a") as file:
            file.write('{"at":"2026-')
    assert [event.reason for event in journal.all(Aborted)] == ["a", "b", "c"]


def test_processes_that_append_side_by_side_never_tear_a_line(journal: Journal) -> None:
    processes, lines = 4, 50
    code = (
        "import sys; from pathlib import Path; from streamproof.evidence.journal import Journal, StageFinished\n"
        "journal = Journal(Path(sys.argv[1]))\n"
        f"for number in range({lines}): journal.append(StageFinished(stage=sys.argv[2] + 'x' * 3000, seconds=number))"
    )
    started = [subprocess.Popen([sys.executable, "-c", code, str(journal.path), str(who)], cwd=ROOT) for who in range(processes)]
    assert [process.wait(60) for process in started] == [0] * processes
    events = journal.all(StageFinished)
    for who in range(processes):
        assert [event.seconds for event in events if event.stage[0] == str(who)] == list(range(lines))


# --- the names are on the disk only ---------------------------------------------------------------------------------------------------


def test_every_event_says_when_it_is_written() -> None:
    undescribed = [name for name, kind in EVENTS.items() if (kind.__doc__ or "").startswith(kind.__name__) or not kind.__doc__]
    assert undescribed == []
    assert set(InjectionEvent.__subclasses__()) <= set(EVENTS.values())


def test_no_code_but_the_journals_own_names_an_event() -> None:
    """A bare name in a call of a journal, or compared with an event's."""
    bare = [
        f"{path.relative_to(ROOT)}:{node.lineno}"
        for folder in ("src", "pipelines", "dags", "benchmarks")
        for path in sorted((ROOT / folder).rglob("*.py"))
        if path.name != "journal.py" and "expectations" not in path.parts  # the suites' modules import nothing of the package
        for node in ast.walk(ast.parse(path.read_text()))
        if _names_an_event(node)
    ]
    assert bare == []


def _names_an_event(node: ast.AST) -> bool:
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in ("append", "last", "all", "events"):
        of_a_journal = ast.unparse(node.func.value).endswith("journal")
        return of_a_journal and any(isinstance(argument, ast.Constant) for argument in node.args)
    return isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Constant) and node.slice.value == "event"
