"""The expectation suites name the same records as the checkers, by other means; and where they do not, the run is an ERROR."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

from streamproof.cli.main import app
from streamproof.evidence import manifest
from streamproof.evidence.folder import EvidenceError, RunFolder
from streamproof.evidence.outcome import Outcome
from streamproof.run.stages import suite_spec
from streamproof.suites import agreement, shipped
from streamproof.suites.expectations import database
from streamproof.verdict.anomaly import RESULT_KINDS, Anomaly
from streamproof.verdict.guarantee import Guarantee, Promise, forbidden
from streamproof.verdict.judge import judge
from streamproof.verdict.reconciliation import RECONCILIATION
from tests.mutation.run import FIXTURES
from tests.support.checkout import ROOT
from tests.support.histories import SPEC, Copy, Histories, Story, clean

ALL = replace(SPEC, promises=frozenset(Promise))
OF_RECORDS = tuple(anomaly for anomaly in Anomaly if anomaly not in RESULT_KINDS)
Named = tuple[str, Any, Any]


def _named(folder: RunFolder) -> Counter[Named]:
    """What the suites' queries name."""
    found: Counter[Named] = Counter()
    with database.building(folder.path) as connection:
        for anomaly in OF_RECORDS:
            columns = "start, batch" if anomaly is Anomaly.TORN else "producer, sequence"
            found.update((str(anomaly), *row) for row in connection.execute(f"SELECT {columns} FROM {anomaly.lower()}").fetchall())
    return found


def _story() -> Story:
    """Each anomaly once."""
    story = Story(histories=clean(60, partitions=1))
    histories = story.histories
    for line in story.progress:
        line["from"] = {"0": line["batch"] * 15}
        line["until"] = {"0": line["batch"] * 15 + 15}
    histories.delivered = [replace(copy, batch=copy.offset // 15) for copy in histories.delivered]
    histories.drop([(0, 20)])
    histories.double([(0, 31)])
    histories.change((0, 40), crc=7)
    histories.settle([(0, 50)], Outcome.REJECTED)
    histories.delivered.append(Copy(9, 9, 9, 0, 200, batch=None, attempt=None, start=None))
    histories.delivered.append(Copy(None, None, None, 0, 201, batch=None, attempt=None, start=None))
    return story


def test_the_suites_find_each_anomaly_by_themselves(tmp_path: Path) -> None:
    folder = _story().write(tmp_path / "run")
    assert {each for each in _named(folder) if each[0] not in ("OFFSET_AHEAD", "REORDERED")} == {
        ("LOST", 0, 20),
        ("DUPLICATED", 0, 31),
        ("CORRUPTED", 0, 40),
        ("CORRUPTED", None, None),
        ("PHANTOM", 0, 50),
        ("PHANTOM", 9, 9),
        ("TORN", 1, 1),
    }


def test_the_suites_agree_with_the_checkers(tmp_path: Path) -> None:
    folder = _story().write(tmp_path / "run")
    judgement = judge(folder, ALL)
    assert judgement.verdict.outcome == "FAILED", judgement.verdict.reason
    assert agreement.check(folder, suite_spec(ALL), judgement.table) is None
    assert not (folder.path / agreement.SPILL).exists()


def test_the_suites_tell_on_a_checker_that_finds_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("streamproof.verdict.judge.torn", lambda *_: [])
    folder = _story().write(tmp_path / "run")
    conflict = agreement.check(folder, suite_spec(ALL), judge(folder, ALL).table)
    assert conflict == "the checkers and the expectation suites do not agree: only the expectation suites name TORN 1/1"


def test_what_the_guarantee_allows_is_compared_too(tmp_path: Path) -> None:
    story = Story()
    story.histories.double([(0, 4)])
    folder, spec = story.write(tmp_path / "run"), replace(SPEC, guarantee=Guarantee.AT_LEAST_ONCE)
    judgement = judge(folder, spec)
    assert agreement.check(folder, suite_spec(spec), judgement.table) is None
    assert agreement.check(folder, suite_spec(spec), _without(judgement.table, "DUPLICATED")) is not None


def test_the_suites_find_nothing_in_a_real_run_that_is_clean() -> None:
    assert _named(RunFolder(FIXTURES / "two-phase-commit-killed-between-commits")) == Counter()


def test_a_run_without_any_record_has_no_anomaly(tmp_path: Path) -> None:
    folder = Story(histories=Histories()).write(tmp_path / "run")
    for directory in (folder.sent, folder.delivered):
        for path in directory.glob("*.parquet"):
            path.unlink()
    assert _named(folder) == Counter()


def test_what_was_to_be_sent_and_has_no_row_may_be_delivered_once(tmp_path: Path) -> None:
    story = Story()
    story.histories.sent = story.histories.sent[:-1]
    story.histories.double([(0, 59)])
    folder = story.write(tmp_path / "run")
    folder.intents.write_text('{"producer":0,"first":0,"count":60}\n')
    assert _named(folder) == Counter({("DUPLICATED", 0, 59): 1})


@pytest.mark.parametrize(
    ("damage", "named"),
    [
        (lambda folder: folder.progress.write_text("no JSON\n"), "progress.jsonl: a line is not JSON"),
        (lambda folder: folder.progress.write_text('{"batch":1}\n'), "progress.jsonl is damaged"),
        (lambda folder: (folder.sent / "00000.parquet").write_bytes(b"no parquet"), "00000.parquet"),
    ],
)
def test_evidence_that_the_suites_cannot_read_is_refused_by_name(tmp_path: Path, damage: Callable[[RunFolder], object], named: str) -> None:
    folder = Story().write(tmp_path / "run")
    table = judge(folder, SPEC).table
    damage(folder)
    with pytest.raises(EvidenceError, match=named):
        agreement.check(folder, suite_spec(SPEC), table)


def _without(table: pa.Table, anomaly: str) -> pa.Table:
    return table.filter([found != anomaly for found in table["anomaly"].to_pylist()])


def _with(table: pa.Table, **row: Any) -> pa.Table:
    return pa.concat_tables([table, pa.Table.from_pylist([{"row": "record", **row}], schema=RECONCILIATION)])


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (
            lambda table: _with(_without(table, "LOST"), anomaly="LOST", producer=0, sequence=5),
            "only the checkers name LOST 0/5; only the expectation suites name LOST 0/4",
        ),
        (lambda table: _without(table, "LOST"), "only the expectation suites name LOST 0/4"),
        (lambda table: _with(table, anomaly="LOST", producer=0, sequence=4), "only the checkers name LOST 0/4"),
        (lambda table: _with(table, anomaly="CORRUPTED"), "only the checkers name CORRUPTED None/None"),
        (
            lambda table: _with(
                _with(_with(_with(table, anomaly="CORRUPTED"), anomaly="CORRUPTED"), anomaly="CORRUPTED"), anomaly="CORRUPTED"
            ),
            "only the checkers name CORRUPTED None/None, CORRUPTED None/None, CORRUPTED None/None and 1 more",
        ),
    ],
)
def test_records_that_only_one_judge_names_are_told_apart(tmp_path: Path, change: Callable[[pa.Table], pa.Table], said: str) -> None:
    story = Story()
    story.histories.drop([(0, 4)])
    folder = story.write(tmp_path / "run")
    table = change(judge(folder, SPEC).table)
    assert agreement.check(folder, suite_spec(SPEC), table) == f"the checkers and the expectation suites do not agree: {said}"


def test_a_stored_run_is_checked_by_both_judges(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    story = Story()
    story.histories.drop([(0, 4)])
    folder = story.write(tmp_path / "run")
    folder.experiment.write_text("strategy: two_phase_commit\n")
    folder.schedule.write_text(json.dumps({"schema": 1, "seed": 7, "injections": []}))
    manifest.write(folder)
    monkeypatch.setattr("streamproof.run.stages.run_spec", lambda _: SPEC)
    assert "FAILED" in CliRunner().invoke(app, ["check", str(folder.path)]).output
    monkeypatch.setattr("streamproof.verdict.judge.reconciliation_table", lambda *_: RECONCILIATION.empty_table())
    result = CliRunner().invoke(app, ["check", str(folder.path)])
    assert result.exit_code == 3
    assert "only the expectation suites name LOST 0/4" in " ".join(result.output.split())


def test_neither_duckdb_nor_great_expectations_is_imported_before_it_is_asked() -> None:
    command = "import sys, streamproof.run.stages; sys.exit(bool({'duckdb', 'great_expectations'} & set(sys.modules)))"
    assert subprocess.run([sys.executable, "-c", command], timeout=60, check=False).returncode == 0


# --- the suites -------------------------------------------------------------------------------------------------------------------------

OF_ANOMALY = {
    Anomaly.LOST: "expect_no_record_to_be_lost",
    Anomaly.DUPLICATED: "expect_no_record_to_be_duplicated",
    Anomaly.PHANTOM: "expect_no_phantom_record",
    Anomaly.CORRUPTED: "expect_no_record_to_be_corrupted",
    Anomaly.REORDERED: "expect_no_record_to_be_reordered",
    Anomaly.TORN: "expect_no_batch_to_be_torn",
    Anomaly.OFFSET_AHEAD: "expect_no_offset_to_be_committed_ahead_of_its_output",
    Anomaly.VANISHED: "expect_no_record_to_vanish",
    Anomaly.MISSING: "expect_no_result_to_be_missing",
    Anomaly.UNEXPECTED: "expect_no_unexpected_result",
    Anomaly.WRONG_VALUE: "expect_no_result_to_be_wrong",
    Anomaly.REPEATED: "expect_no_result_to_be_repeated",
    Anomaly.DROPPED: "expect_late_rows_to_be_dropped_as_declared",
}


@pytest.mark.parametrize("stateful", [False, True])
@pytest.mark.parametrize("guarantee", Guarantee)
def test_a_suite_expects_what_its_guarantee_forbids(guarantee: Guarantee, stateful: bool) -> None:
    suite = shipped.read(f"{guarantee}-results" if stateful else str(guarantee))
    expected = {OF_ANOMALY[anomaly] for anomaly in forbidden(guarantee, (), stateful)}
    assert {each["type"] for each in suite["expectations"]} == expected | ({"expect_results_to_be_due"} if stateful else set())


@pytest.mark.parametrize("promise", Promise)
def test_a_promise_has_a_suite_of_its_own(promise: Promise) -> None:
    judged = {
        Promise.ATOMIC: "expect_every_batch_to_be_judged",
        Promise.ORDERED: "expect_the_order_to_be_judged",
        Promise.MONOTONIC: "expect_every_version_to_be_judged",
    }
    assert [each["type"] for each in shipped.read(promise)["expectations"]] == [OF_ANOMALY[promise.forbidden], judged[promise]]


def test_the_project_has_the_suites_of_the_product() -> None:
    ours, theirs = ({path.name: path.read_text() for path in folder.glob("*.json")} for folder in (shipped.PACKAGE, ROOT / "expectations"))
    own = {name: text for name, text in theirs.items() if name in ours}
    assert own == ours, f"copy {shipped.PACKAGE}/*.json to expectations/: the product's own files are the ones to edit"


def test_a_project_replaces_a_suite_by_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STREAMPROOF_PROJECT", str(tmp_path))
    (tmp_path / "expectations").mkdir()
    mine = {"name": "atomic", "expectations": [{"type": "expect_no_phantom_record", "kwargs": {}}]}
    (tmp_path / "expectations" / "atomic.json").write_text(json.dumps(mine))
    assert shipped.read("atomic")["expectations"] == mine["expectations"]
    assert shipped.path("ordered").parent == shipped.PACKAGE
    (tmp_path / "expectations" / "atomic.json").write_text("[]")
    with pytest.raises(EvidenceError, match=r"atomic\.json is no suite"):
        shipped.read("atomic")


ALONE = """
import os, sys

class Refused:
    def find_spec(self, name, path=None, target=None):
        if name == "streamproof" or name.startswith("streamproof."):
            raise ImportError(f"{name} is not there")

sys.meta_path.insert(0, Refused())
os.environ["GX_ANALYTICS_ENABLED"] = "false"
import great_expectations as gx
from expectations import database, runs

runs_folder, suites = sys.argv[1:]
for name in ("whole", "damaged"):
    file, config = f"{name}.duckdb", database.settings("spill")
    with database.building(f"{runs_folder}/{name}", file, config):
        pass
    context = gx.get_context(mode="ephemeral")
    batch = runs.batch(context, file, config)
    found = batch.get_batch().validate(runs.suite(suites + "/exactly-once.json"))
    print(name, found.success, *sorted(each.expectation_config.type for each in found.results if not each.success))
sys.stdout.flush()
os._exit(0)
"""


def test_the_suites_judge_a_runs_folder_without_the_product(tmp_path: Path) -> None:
    """A copy of the expectations, Great Expectations and DuckDB are all that it takes."""
    shutil.copytree(shipped.PACKAGE, tmp_path / "alone" / "expectations", ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("whole", "damaged"):
        shutil.copytree(FIXTURES / "two-phase-commit-killed-between-commits", tmp_path / "runs" / name)
    copies = RunFolder(tmp_path / "runs" / "damaged").delivered / "00000.parquet"
    table = pq.read_table(copies)
    again = pc.add(table["offset"], 1_000_000)
    pq.write_table(table.set_column(table.schema.get_field_index("offset"), "offset", again), copies.with_name("00001.parquet"))
    (tmp_path / "alone" / "judge.py").write_text(ALONE)
    command = [sys.executable, "judge.py", str(tmp_path / "runs"), "expectations"]
    done = subprocess.run(command, cwd=tmp_path / "alone", capture_output=True, text=True, timeout=200, check=False)
    assert done.stdout.splitlines() == ["whole True", "damaged False expect_no_record_to_be_duplicated"], done.stderr[-2000:]
