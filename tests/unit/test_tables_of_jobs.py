"""Faults of a Delta table: of the output, or of another table of a job of the user's own."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from streamproof.engines.command.job import CommandSpec
from streamproof.engines.spark.spec import profile
from streamproof.evidence.folder import RunFolder
from streamproof.experiment.model import Experiment
from streamproof.faults import FAULTS
from streamproof.faults.lakehouse import tables
from tests.support.jobs import run_context, spark_job

TAKES_A_TABLE = ["compact_table", "rewrite_table", "vacuum_table"]
KAFKA: dict[str, Any] = {"command": ["job"], "promises": "exactly-once", "progress": "output"}
DELTA = {**KAFKA, "delivers": {"delta": {"path": "silver", "identity": {"column": "id"}}}}

ICEBERG = {**KAFKA, "delivers": {"iceberg": {"table": "shop.silver", "identity": {"column": "id"}}}}


@pytest.mark.parametrize("fault", TAKES_A_TABLE)
def test_a_table_beside_the_output_is_only_of_a_job_of_ones_own(fault: str) -> None:
    named = {"table": "bronze"}
    FAULTS[fault].check(CommandSpec.model_validate(KAFKA).profile, named)
    FAULTS[fault].check(CommandSpec.model_validate(DELTA).profile, named)
    with pytest.raises(ValueError, match=f"^{fault}: table: a job with 'delta_sink' has no table but its output; leave it out$"):
        FAULTS[fault].check(profile("delta_sink"), named)


@pytest.mark.parametrize("fault", [*TAKES_A_TABLE, "concurrent_writer"])
def test_the_output_must_be_a_table_where_none_is_named(fault: str) -> None:
    FAULTS[fault].check(CommandSpec.model_validate(DELTA).profile, {})
    with pytest.raises(ValueError, match=f"^{fault}: a job with 'job' has no "):
        FAULTS[fault].check(CommandSpec.model_validate(KAFKA).profile, {})


def test_a_table_of_iceberg_is_named_as_its_catalog_does() -> None:
    own = CommandSpec.model_validate(ICEBERG).profile
    FAULTS["rewrite_table"].check(own, {"table": "shop.bronze"})
    with pytest.raises(ValueError, match=r"^rewrite_table: table: expected NAMESPACE\.TABLE in the catalog of the output, came 'bronze'$"):
        FAULTS["rewrite_table"].check(own, {"table": "bronze"})
    for table in (None, "shop.bronze"):
        with pytest.raises(ValueError, match=r"^vacuum_table: a job with 'job' has no table of Delta$"):
            FAULTS["vacuum_table"].check(own, {"table": table})


@pytest.mark.parametrize("path", ["../other", "/bronze", "bronze/../..", "", "a//b", ".hidden"])
def test_a_table_is_named_by_a_path_below_the_folder(path: str) -> None:
    with pytest.raises(ValidationError, match="table"):
        tables.TableParameters(table=path)


def test_where_a_table_is(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path)
    ours, own = spark_job(folder), spark_job(folder, output={"path": "silver", "format": "delta"})
    assert tables.folder(run_context(folder, job=ours)) == ours.files
    run = run_context(folder, job=own)
    assert tables.folder(run, tables.TableParameters()) == own.files / "silver"
    assert tables.folder(run, tables.TableParameters(table="a/bronze")) == own.state / "a" / "bronze"


def test_an_experiment_that_names_a_table_of_a_strategy_is_refused_before_anything_starts() -> None:
    with pytest.raises(ValidationError, match="has no table but its output"):
        Experiment.model_validate(
            {"name": "test", "strategy": "delta_sink", "faults": [{"fault": "rewrite_table", "parameters": {"table": "bronze"}}], "seed": 1}
        )
