"""The commands on the history: every run ends in it, old ones leave it, and a run that is at work is never touched."""

from __future__ import annotations

import contextlib
import io
import json
import os
import sys
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest

from streamproof.cli import main as cli
from streamproof.cli import terminal
from streamproof.evidence.folder import RunFolder
from streamproof.evidence.journal import Aborted, HistoryFailed, Restored, TestbedTaken
from streamproof.history.store import Store
from streamproof.run import lock, recording, stages
from tests.support.histories import at
from tests.support.remembered import night, nights, write

DAY = 86_400


@pytest.fixture(autouse=True)
def runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The runs' folder of a state folder of this test."""
    monkeypatch.setenv("STREAMPROOF_HOME", str(tmp_path / "home"))
    monkeypatch.delenv("STREAMPROOF_HISTORY", raising=False)
    (tmp_path / "home" / "runs").mkdir(parents=True)
    return tmp_path / "home" / "runs"


@dataclass(frozen=True)
class Done:
    returncode: int
    stdout: str
    stderr: str


def _streamproof(*words: str | Path) -> Done:
    stdout, stderr = io.StringIO(), io.StringIO()
    with pytest.MonkeyPatch.context() as patch, contextlib.redirect_stdout(stdout), contextlib.redirect_stderr(stderr):
        patch.setattr(terminal.out, "_width", 250)
        patch.setattr(sys, "argv", ["streamproof", *map(str, words)])
        try:
            cli.main()
        except SystemExit as ended:
            return Done(int(ended.code or 0), stdout.getvalue(), stderr.getvalue())
    return Done(0, stdout.getvalue(), stderr.getvalue())


def _is_one_line(done: Done, code: int, *told: str) -> None:
    assert (done.returncode, done.stdout) == (code, "")
    assert done.stderr.startswith("error: ")
    assert len(done.stderr.splitlines()) == 1
    for each in told:
        assert each in done.stderr


def _names() -> list[str]:
    with recording.opened() as store:
        return [run.run for run in store.runs()]


# --- every run ends in it -----------------------------------------------------------------------------------------------------------


def test_the_step_report_records_the_run_and_repeated_it_updates_the_row(runs: Path) -> None:
    folder = write(runs, "one")
    stages.perform("report", folder)
    folder.verdict.write_text(json.dumps({**folder.read_json(folder.verdict), "outcome": "FAILED"}))
    stages.perform("report", folder)
    with recording.opened() as store:
        assert [(run.run, run.outcome) for run in store.runs()] == [("one", "FAILED")]


def test_what_restore_makes_of_a_run_after_its_report_is_in_the_history(runs: Path) -> None:
    folder = write(runs, "one")
    stages.perform("report", folder)
    folder.journal.append(Aborted(reason="stopped"))
    stages.perform("restore", folder)
    with recording.opened() as store:
        assert [(run.outcome, run.reason) for run in store.runs()] == [("ABORTED", "stopped")]


def test_a_run_whose_history_cannot_be_written_says_so_and_keeps_its_verdict(runs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = write(runs, "one")
    before = folder.read_json(folder.verdict)
    monkeypatch.setenv("STREAMPROOF_HISTORY", "sqlite:////proc/nowhere/history.sqlite")
    stages.perform("report", folder)
    after = folder.read_json(folder.verdict)
    assert {**after, "notes": []} == {**before, "notes": []}
    (note,) = after["notes"]
    assert "could not be written to the history" in note
    assert "/proc/nowhere" in note
    assert "could not be written to the history" in folder.report.read_text()
    assert folder.journal.last(HistoryFailed) is not None


def test_a_run_without_a_verdict_has_a_report_and_no_row(runs: Path) -> None:
    folder = write(runs, "one")
    folder.verdict.unlink()
    stages.perform("report", folder)
    assert folder.report.exists()
    assert _names() == []


# --- history ------------------------------------------------------------------------------------------------------------------------


def test_the_last_runs_come_first(runs: Path) -> None:
    assert "`streamproof history import` takes in runs that exist" in _streamproof("history").stdout
    for number, name in enumerate(("one", "two", "three")):
        write(runs, name, began=number - 100)
    assert "3 of 3 runs" in _streamproof("history", "import").stdout
    done = _streamproof("history", "--limit", "2")
    assert done.returncode == 0
    assert done.stdout.index("three") < done.stdout.index("two")
    assert "one" not in done.stdout


def test_a_machine_gets_every_field_of_a_run(runs: Path) -> None:
    write(runs, "one")
    _streamproof("history", "import")
    (told,) = json.loads(_streamproof("history", "--json").stdout)
    assert (told["run"], told["outcome"], told["fault_names"]) == ("one", "PASSED", ["kill_executor"])
    assert told["began_at"] == "2026-01-01T00:00:00+00:00"


def test_the_list_can_be_narrowed(runs: Path) -> None:
    write(runs, "one", began=0)
    write(runs, "two", began=DAY, strategy="checkpoint", outcome="FAILED")
    write(runs, "three", began=2 * DAY, faults=[])
    _streamproof("history", "import")

    def listed(*words: str) -> set[str]:
        return {run["run"] for run in json.loads(_streamproof("history", "--json", *words).stdout)}

    assert listed("--strategy", "checkpoint") == {"two"}
    assert listed("--fault", "kill_executor") == {"one", "two"}
    assert listed("--outcome", "failed") == {"two"}
    assert listed("--since", "2026-01-02T00:00:00+00:00") == {"two", "three"}
    assert listed("--since", "5m") == set()
    assert listed("--strategy", "checkpoint", "--outcome", "PASSED") == set()


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--strategy", "chekpoint"], ["--strategy", "'chekpoint'", "two_phase_commit"]),
        (["--fault", "kill"], ["--fault", "kill_executor"]),
        (["--outcome", "GREEN"], ["--outcome", "PASSED, FAILED, INCONCLUSIVE, ERROR, ABORTED", "'GREEN'"]),
        (["--since", "yesterday"], ["--since", "2026-11-21", "30d", "'yesterday'"]),
        (["--since", "0001-01-01"], ["--since"]),
        (["--since", "99999999d"], ["--since"]),
        (["--limit", "3", "changes"], ["write the options behind the command", "history changes"]),
        (["--strategy", "checkpoint", "html", "x.html"], ["write the options behind the command"]),
        (["--since", "99999w"], ["--since"]),
        (["--store", "history.sqlite"], ["history.sqlite is not the URL of a database", "sqlite:///"]),
    ],
)
def test_what_cannot_be_asked_is_one_line(runs: Path, words: list[str], told: list[str]) -> None:
    write(runs, "one")
    _streamproof("history", "import")
    _is_one_line(_streamproof("history", *words), 2, *told)


def test_a_store_that_cannot_be_reached_is_one_line(runs: Path) -> None:
    _is_one_line(_streamproof("history", "--store", "sqlite:////proc/x/y.sqlite"), 3, "cannot be opened", "/proc/x")


def test_the_store_may_be_elsewhere(runs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(runs, "one")
    monkeypatch.setenv("STREAMPROOF_HISTORY", f"sqlite:///{tmp_path}/elsewhere/all.sqlite")
    _streamproof("history", "import")
    assert (tmp_path / "elsewhere" / "all.sqlite").exists()
    assert not (runs.parent / "history.sqlite").exists()
    assert _streamproof("history", "--json", "--store", f"sqlite:///{tmp_path}/third.sqlite").stdout.strip() == "[]"


# --- history import -----------------------------------------------------------------------------------------------------------------


def test_runs_of_other_folders_are_taken_in_one_by_one_or_all(runs: Path, tmp_path: Path) -> None:
    for name in ("one", "two"):
        write(tmp_path / "other", name)
    assert "1 of 1 runs" in _streamproof("history", "import", tmp_path / "other" / "one").stdout
    assert "2 of 2 runs" in _streamproof("history", "import", tmp_path / "other").stdout
    assert sorted(_names()) == ["one", "two"]


def test_a_run_without_a_verdict_or_with_a_damaged_one_is_left_out_and_told(runs: Path) -> None:
    write(runs, "good")
    write(runs, "unjudged").verdict.unlink()
    write(runs, "damaged").verdict.write_text("{")
    done = _streamproof("history", "import")
    assert done.returncode == 0
    assert "1 of 3 runs" in done.stdout
    assert done.stdout.count("left out: ") == 2
    assert _names() == ["good"]


def test_a_folder_that_is_no_run_is_refused_before_anything_is_written(runs: Path, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    good = write(runs, "good")
    for wrong in (tmp_path / "empty", tmp_path / "nowhere"):
        _is_one_line(_streamproof("history", "import", good.path, wrong), 2, str(wrong), "not a run's folder")
    assert _names() == []


# --- history prune ------------------------------------------------------------------------------------------------------------------


def test_old_is_what_began_before_and_is_not_among_the_newest_of_its_cell() -> None:
    mine, other = nights("PPPP"), [night(9, strategy="checkpoint")]

    def old(older_than: timedelta | None, keep: int | None) -> list[str]:
        return [run.run for run in recording.old([*mine, *other], older_than, keep, now=mine[3].began_at)]

    assert old(None, 1) == ["night-0", "night-1", "night-2"]
    assert old(None, 3) == ["night-0"]
    assert old(timedelta(days=1.5), None) == ["night-0", "night-1"]
    assert old(timedelta(days=1.5), 3) == ["night-0"]
    assert old(timedelta(days=30), None) == []


def test_old_runs_go_with_their_folders_and_a_dry_run_only_says_so(runs: Path) -> None:
    for number in range(3):
        write(runs, f"run-{number}", began=number)
    _streamproof("history", "import")
    dry = _streamproof("history", "prune", "--keep", "1", "--dry-run")
    assert "would remove 2 rows and 2 folders" in dry.stdout
    assert (len(_names()), len(list(runs.iterdir()))) == (3, 3)
    done = _streamproof("history", "prune", "--keep", "1")
    assert "removed 2 rows and 2 folders" in done.stdout
    assert (_names(), [path.name for path in runs.iterdir()]) == (["run-2"], ["run-2"])


def test_the_age_of_a_run_is_told_by_when_it_began(runs: Path) -> None:
    write(runs, "old")
    write(runs, "young", began=(datetime.now(UTC) - datetime(2026, 1, 1, tzinfo=UTC)).total_seconds() - DAY)
    _streamproof("history", "import")
    _streamproof("history", "prune", "--older-than", "2d")
    assert _names() == ["young"]
    assert [path.name for path in runs.iterdir()] == ["young"]


def _prune_all(dry: bool = False) -> dict[str, recording.Removal]:
    with recording.opened() as store:
        return {each.run.run: each for each in recording.remove(store, store.runs(), dry=dry)}


@pytest.mark.parametrize("pid", [os.getpid(), None], ids=["process", "airflow"])
def test_a_run_that_holds_the_testbed_is_kept_whole(runs: Path, pid: int | None) -> None:
    folder, other = write(runs, "at-work"), write(runs, "over")
    _streamproof("history", "import")
    lock.acquire("at-work", folder.path, pid)
    removals = _prune_all()
    assert (removals["at-work"].row, removals["at-work"].folder, removals["at-work"].kept) == (False, False, "it holds the testbed")
    assert folder.path.exists()
    assert not other.path.exists()
    assert _names() == ["at-work"]


def test_a_run_that_did_not_give_the_testbed_back_is_kept_for_heal(runs: Path) -> None:
    folder = write(runs, "left")
    folder.journal.append(TestbedTaken())
    _streamproof("history", "import")
    assert "streamproof heal" in (_prune_all()["left"].kept or "")
    folder.journal.append(Restored())
    assert _prune_all()["left"].folder
    assert not folder.path.exists()


def test_what_a_removal_left_that_was_stopped_half_way_goes_with_the_next(runs: Path) -> None:
    for number in range(2):
        write(runs, f"run-{number}", began=number)
    _streamproof("history", "import")
    rest = runs.parent / "pruned" / "earlier" / "sent"
    rest.mkdir(parents=True)
    _streamproof("history", "prune", "--keep", "1", "--dry-run")
    assert rest.exists()
    _streamproof("history", "prune", "--keep", "1")
    assert not rest.exists()
    assert [path.name for path in runs.iterdir()] == ["run-1"]


def test_a_folder_that_cannot_be_removed_is_one_line_and_keeps_its_row(runs: Path) -> None:
    for number in range(2):
        write(runs, f"run-{number}", began=number)
    _streamproof("history", "import")
    (runs.parent / "pruned").write_text("in the way")
    _is_one_line(_streamproof("history", "prune", "--keep", "1"), 3, "run-0 cannot be removed")
    assert sorted(_names()) == ["run-0", "run-1"]


def test_a_folder_that_holds_another_run_by_now_is_left(runs: Path) -> None:
    write(runs, "one", began=0)
    _streamproof("history", "import")
    again = write(runs, "one", began=60)
    removal = _prune_all()["one"]
    assert (removal.row, removal.folder) == (True, False)
    assert "another run" in (removal.kept or "")
    assert again.verdict.exists()


def _elsewhere(runs: Path, tmp_path: Path) -> RunFolder:
    return write(tmp_path / "elsewhere", "one")


def _behind_a_link(runs: Path, tmp_path: Path) -> RunFolder:
    write(tmp_path / "elsewhere", "one")
    (runs / "one").symlink_to(tmp_path / "elsewhere" / "one")
    return RunFolder(tmp_path / "elsewhere" / "one")


def _deeper(runs: Path, tmp_path: Path) -> RunFolder:
    return write(runs / "deeper", "one")


@pytest.mark.parametrize("make", [_elsewhere, _behind_a_link, _deeper])
def test_a_folder_outside_the_runs_folder_is_left_where_it_is(runs: Path, tmp_path: Path, make: Any) -> None:
    folder = make(runs, tmp_path)
    with recording.opened() as store:
        recording.take_in(store, [folder])
    removal = _prune_all()["one"]
    assert (removal.row, removal.folder) == (True, False)
    assert "is left" in (removal.kept or "")
    assert folder.verdict.exists()
    assert _names() == []


@pytest.mark.parametrize("path", ["{runs}/link", "{runs}", "{runs}/..", "{runs}/one/../../runs", "/", "{runs}/notes"])
def test_no_folder_is_removed_that_is_not_a_run_whatever_a_row_says(runs: Path, tmp_path: Path, path: str) -> None:
    target = write(tmp_path / "elsewhere", "target")
    (runs / "link").symlink_to(target.path)
    (runs / "notes").mkdir()
    write(runs, "one")
    with recording.opened() as store:
        store.record(night(0, folder=path.format(runs=runs)))
    assert not _prune_all()["night-0"].folder
    assert target.verdict.exists()
    assert sorted(each.name for each in runs.iterdir()) == ["link", "notes", "one"]


def test_a_link_beside_a_run_is_not_that_run(runs: Path) -> None:
    folder = write(runs, "one")
    (runs / "link").symlink_to(folder.path)
    with recording.opened() as store:
        store.record(night(0, folder=str(runs / "link"), began_at=datetime.fromisoformat(at(0))))
    assert not _prune_all()["night-0"].folder
    assert sorted(each.name for each in runs.iterdir()) == ["link", "one"]


def test_a_folder_that_is_gone_leaves_a_row_to_remove(runs: Path) -> None:
    with recording.opened() as store:
        store.record(night(0))
    removal = _prune_all()["night-0"]
    assert (removal.row, removal.folder, removal.kept) == (True, False, None)
    assert _names() == []


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ([], "--older-than or --keep"),
        (["--older-than", "30"], "30d, 12h"),
        (["--older-than", "-1d"], "30d"),
        (["--older-than", "1y"], "'1y'"),
    ],
)
def test_prune_without_a_bound_that_can_be_understood_is_one_line(words: list[str], told: str) -> None:
    _is_one_line(_streamproof("history", "prune", *words), 2, told)


# --- compare, changes ---------------------------------------------------------------------------------------------------------------


def _remember(*found: Any) -> None:
    with recording.opened() as store:
        store.record(*found)


def test_two_runs_are_compared_by_folder_by_name_or_from_the_history_alone(runs: Path, tmp_path: Path) -> None:
    write(tmp_path / "elsewhere", "first")
    write(runs, "second", outcome="FAILED")
    _remember(night(0, settings={"workload": {"records": 1}}))
    done = _streamproof("compare", tmp_path / "elsewhere" / "first", "second")
    assert done.returncode == 0
    assert "the same experiment: comparable" in done.stdout
    assert "PASSED" in done.stdout
    assert "FAILED" in done.stdout
    assert "NOT comparable, this is another workload" in _streamproof("compare", "second", "night-0").stdout


def test_a_machine_gets_the_comparison_too() -> None:
    _remember(night(0), night(1, seed=8, recovery_s=4.0))
    told = json.loads(_streamproof("compare", "night-0", "night-1", "--json").stdout)
    assert (told["comparable"], told["obstacles"]) == (False, ["another seed"])
    figures = {each["name"]: (each["first"], each["second"], each["ratio"]) for each in told["differences"]}
    assert figures["recovery_s"] == (2.0, 4.0, 2.0)


def test_a_run_beside_itself_differs_in_nothing() -> None:
    _remember(night(0))
    assert "nothing differs" in _streamproof("compare", "night-0", "night-0").stdout


def test_a_run_that_nobody_knows_cannot_be_compared(runs: Path) -> None:
    _remember(night(0))
    _is_one_line(_streamproof("compare", "night-0", "nobody"), 2, "nobody", str(runs))


def test_what_a_night_broke_is_told_and_is_the_exit_code() -> None:
    _remember(*nights("PP"), night(9, strategy="checkpoint"), night(10, strategy="checkpoint"))
    quiet = _streamproof("history", "changes")
    assert quiet.returncode == 0
    assert "2 stable" in quiet.stdout
    _remember(night(2, "F"))
    done = _streamproof("history", "changes")
    assert done.returncode == 1
    assert "newly broken" in done.stdout
    assert "3 LOST" in done.stdout
    assert "1 newly broken, 1 stable" in done.stdout
    told = json.loads(_streamproof("history", "changes", "--json").stdout)
    assert [(each["kind"], each["newest"]["run"]) for each in told] == [("newly broken", "night-2"), ("stable", "night-10")]


def test_of_the_cells_that_were_run_lately_older_runs_still_count() -> None:
    now = datetime.now(UTC)
    _remember(night(0, began_at=now - timedelta(days=3)), night(1, "F", began_at=now), night(0, "F", run="old", strategy="checkpoint"))
    told = json.loads(_streamproof("history", "changes", "--json", "--since", "1d").stdout)
    assert [(each["kind"], each["newest"]["run"], each["before"]["run"]) for each in told] == [("newly broken", "night-1", "night-0")]
    assert "checkpoint" not in _streamproof("metrics", "--since", "1d").stdout
    assert "checkpoint" in _streamproof("metrics").stdout


def test_the_store_is_closed_to_nobody_while_it_is_open() -> None:
    with recording.opened() as one, recording.opened() as other:
        assert isinstance(one, Store)
        one.record(night(0))
        other.record(night(1))
        assert len(one.runs()) == len(other.runs()) == 2


def test_the_time_in_a_row_is_the_moment_whatever_its_zone() -> None:
    began = datetime.fromisoformat(at(0)).astimezone(timezone(timedelta(hours=5)))
    _remember(night(0, began_at=began))
    with recording.opened() as store:
        assert store.runs()[0].began_at == began


# --- history html -------------------------------------------------------------------------------------------------------------------


def test_the_page_is_written_where_it_is_asked_for(tmp_path: Path) -> None:
    _remember(*nights("PF"), night(5, strategy="checkpoint"))
    done = _streamproof("history", "html", tmp_path / "new" / "history.html", "--strategy", "two_phase_commit")
    assert (done.returncode, done.stdout.strip()) == (0, str(tmp_path / "new" / "history.html"))
    text = (tmp_path / "new" / "history.html").read_text()
    assert "newly broken" in text
    assert "checkpoint" not in text


def test_a_page_that_cannot_be_written_is_one_line(tmp_path: Path) -> None:
    _is_one_line(_streamproof("history", "html", "/proc/nowhere/history.html"), 2, "/proc/nowhere", "cannot be written")
    _is_one_line(_streamproof("history", "html", tmp_path), 2, str(tmp_path), "cannot be written")


# --- history junit, metrics -----------------------------------------------------------------------------------------------------------


def test_runs_are_written_for_a_ci_server(tmp_path: Path) -> None:
    _remember(*nights("PF"), night(5, "I", strategy="checkpoint"))
    done = _streamproof("history", "junit", tmp_path / "junit.xml", "--strategy", "two_phase_commit")
    assert (done.returncode, done.stdout.strip()) == (0, f"2 runs: {tmp_path / 'junit.xml'}")
    text = (tmp_path / "junit.xml").read_text()
    assert 'tests="2" failures="1" errors="0"' in text
    assert "checkpoint" not in text


def test_metrics_go_to_standard_output_or_as_a_whole_to_a_file(tmp_path: Path) -> None:
    _remember(*nights("PF"))
    told = _streamproof("metrics").stdout
    assert "# TYPE streamproof_run_outcome gauge" in told
    assert told.endswith("# EOF\n")
    assert _streamproof("metrics", tmp_path / "streamproof.prom").stdout == ""
    assert (tmp_path / "streamproof.prom").read_text() == told


def test_an_export_that_cannot_be_written_is_one_line() -> None:
    _is_one_line(_streamproof("metrics", "/proc/nowhere/x.prom"), 2, "/proc/nowhere", "cannot be written")
    _is_one_line(_streamproof("history", "junit", "/proc/nowhere/x.xml"), 2, "/proc/nowhere", "cannot be written")
