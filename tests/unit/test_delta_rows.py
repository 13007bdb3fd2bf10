"""A Delta table of the user's own as output."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import cast

import deltalake
import pyarrow as pa
import pytest

from streamproof.engines.command.job import CommandSpec
from streamproof.engines.spark.job import SparkJob
from streamproof.evidence import histories, locations
from streamproof.evidence.folder import EvidenceError, RunFolder
from streamproof.evidence.locations import Kind, Location
from streamproof.evidence.second_reading import Stretch
from streamproof.sinks.delta.rows import DeltaRows
from streamproof.testbed.embedded import Testbed
from tests.support.jobs import spark_job

TABLE, TESTBED = DeltaRows(), cast(Testbed, None)
ORDERS = Location(Kind.COLUMNS, ("id",), False)


@pytest.fixture
def job(tmp_path: Path) -> SparkJob:
    given = spark_job(RunFolder.create(tmp_path / "run"), "delta_sink")
    found = replace(given, sink="delta_rows", output={"path": "orders", "format": "delta"}, delivers_identity=ORDERS.to_dict())
    TABLE.create(found, TESTBED, 1)
    return found


def _append(job: SparkJob, *sequences: int) -> None:
    ids = [locations.text(0, sequence) for sequence in sequences]
    rows = pa.table({"id": ids, "amount": [0.5 * sequence for sequence in sequences]})
    deltalake.write_deltalake(job.files / "orders", rows, mode="append")


def test_rows_of_the_newest_version_are_delivered_and_read_twice(job: SparkJob) -> None:
    for sequences in ((1, 2, 3), (3, 4)):
        _append(job, *sequences)
    drained = TABLE.drain(job.run, job, TESTBED, 1.0)
    assert (drained["complete"], drained["records"]) == (True, 5)
    assert sorted(histories.read_delivered(job.run).sequence.tolist()) == [1, 2, 3, 3, 4]
    assert sorted(drained["places"].values()) == ["version 0, WRITE", "version 1, WRITE"]
    ends = TABLE.ends_again(job, TESTBED, 1.0)
    assert drained["end_offsets"] == {str(number): count for number, count in ends.items()}
    again = TABLE.rows(job, TESTBED, "", [Stretch(number, 0, count) for number, count in ends.items()], 1.0)
    assert sorted(json.loads(row[7])["amount"] for row in again) == [0.5, 1.0, 1.5, 1.5, 2.0]
    assert {found[1] for found in TABLE.follower(job, TESTBED).identities() if found} == {1, 2, 3, 4}


def test_a_job_that_made_no_table_is_said_with_what_there_is(job: SparkJob) -> None:
    (job.files / "other").mkdir()
    with pytest.raises(EvidenceError, match=r"the job made no Delta table .*orders; in .*output there is: other"):
        TABLE.drain(job.run, job, TESTBED, 1.0)


def test_a_file_that_the_log_names_and_that_is_cut_is_not_passed_over(job: SparkJob) -> None:
    _append(job, 1, 2)
    (file,) = (job.files / "orders").glob("*.parquet")
    file.write_bytes(file.read_bytes()[:-9])
    drained = TABLE.drain(job.run, job, TESTBED, 1.0)
    assert not drained["complete"]
    assert "files that the log names cannot be read" in str(drained["reason"])


def test_a_job_says_that_it_delivers_there() -> None:
    described = {"command": ["./job"], "promises": "exactly-once", "delivers": {"delta": {"path": "orders", "identity": {"column": "id"}}}}
    assert CommandSpec.model_validate({"engine": "command", **described}).profile.sink == "delta_rows"
