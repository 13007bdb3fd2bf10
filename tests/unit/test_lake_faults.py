"""Faults of lakehouse tables and of the input before them say for which jobs they are, and what each must show."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from streamproof.engines.command.job import CommandSpec
from streamproof.engines.spark import settings
from streamproof.engines.spark.registry import STRATEGIES
from streamproof.engines.spark.spec import profile
from streamproof.experiment.model import Experiment
from streamproof.faults import FAULTS
from streamproof.verdict.anomaly import Anomaly

OWN = {"command": ["job"], "promises": "exactly-once", "executors": "jvm", "progress": {"spark_checkpoint": "{checkpoint}"}}


def _experiment(**fields: Any) -> Experiment:
    return Experiment.model_validate({"name": "test", "seed": 1, "strategy": "delta_sink", **fields})


@pytest.mark.parametrize("fault", ["expire_unread", "recreate_input"])
def test_what_vanishes_before_it_was_read_must_be_seen_as_lost_where_the_promise_allows_it(fault: str) -> None:
    assert FAULTS[fault].provokes(profile("at_most_once"), {}) == [Anomaly.LOST]
    for strategy in ("checkpoint", "delta_sink", "iceberg_sink"):
        assert FAULTS[fault].provokes(profile(strategy), {}) == [], "it is forbidden, and makes the run FAILED"


def test_a_job_of_ones_own_is_not_told_what_its_source_does_about_data_loss() -> None:
    job = {"engine": "command", "command": ["job"], "promises": "at-least-once"}
    with pytest.raises(ValidationError, match="`fail_on_data_loss` are for built-in Spark jobs; leave them out"):
        _experiment(strategy=None, job=job, fail_on_data_loss=False)
    assert _experiment(fail_on_data_loss=False).spec.fail_on_data_loss is False  # type: ignore[attr-defined]


def test_a_run_with_a_twin_leaves_room_for_it() -> None:
    assert not _experiment().spec.half  # type: ignore[attr-defined]
    assert _experiment(faults=[{"fault": "twin_driver"}]).spec.half  # type: ignore[attr-defined]
    whole, half = (settings.of_run(settings.Path("/run"), STRATEGIES["delta_sink"], state=None, half=half) for half in (False, True))
    for key in ("spark.executor.cores", "spark.cores.max"):
        assert int(whole[key]) == 2 * int(half[key])


def test_a_twin_is_for_our_jobs_with_executors_and_not_for_those_of_others() -> None:
    FAULTS["twin_driver"].check(profile("iceberg_sink"), {"step": "after_files"})
    with pytest.raises(ValueError, match="has executors, which keep their place"):
        FAULTS["twin_driver"].check(CommandSpec.model_validate(OWN).profile, {})


@pytest.mark.parametrize(
    ("parameters", "said"),
    [
        ({"step": "after_offsets"}, "has no step 'after_offsets' at which its driver .* there are: after_files, after_version"),
        ({"step": "after_files", "window": "offsets > commits"}, "give a `window` or a `step`, not both"),
    ],
)
def test_a_twin_is_refused_a_step_that_there_is_not(parameters: dict[str, Any], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        FAULTS["twin_driver"].check(profile("delta_sink"), parameters)


def test_only_a_job_with_a_table_has_a_disk_for_it() -> None:
    FAULTS["full_disk"].check(profile("delta_sink"), {"disk": "table"})
    FAULTS["full_disk"].check(profile("checkpoint"), {})
    with pytest.raises(ValueError, match="full_disk: disk: table: a job with 'checkpoint' has no table of Delta or Iceberg"):
        FAULTS["full_disk"].check(profile("checkpoint"), {"disk": "table"})


def test_maintenance_doubles_what_the_snapshots_alone_know() -> None:
    fault = FAULTS["maintain_table"]
    assert fault.provokes(profile("iceberg_foreach_append"), {}) == [Anomaly.DUPLICATED]
    assert fault.provokes(profile("iceberg_merge"), {}) == []
    assert fault.provokes(profile("iceberg_sink"), {}) == [], "it promises exactly-once: DUPLICATED makes the run FAILED"
    with pytest.raises(ValueError, match="has no Iceberg table"):
        fault.check(profile("delta_sink"), {})
