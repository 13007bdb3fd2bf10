"""The catalogue of faults says truly for which jobs of the user's own each fault is."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from streamproof.engines.command.job import CommandSpec
from streamproof.experiment import catalogue
from streamproof.faults import FAULTS
from streamproof.faults.fault import Unconditional
from streamproof.jobs.profile import POSTGRES, JobProfile, Trait
from tests.support.checkout import ROOT

OWN = [path for folder in ("chaos", "examples", "tests/zoo") for path in sorted((ROOT / folder).rglob("*.yaml"))]
OWN = [path for path in OWN if "\njob:" in path.read_text() and "engine: command" in path.read_text()]


def _job(path: Path) -> CommandSpec:
    return CommandSpec.model_validate(yaml.safe_load(path.read_text())["job"])


def _said_of(job: CommandSpec) -> dict[str, Any]:
    """A job by the keys of the catalogue."""
    [delivers] = job.delivers.model_dump(exclude_none=True)
    progress = job.progress if isinstance(job.progress, str) else next(iter(job.progress.model_dump()))
    said = {"delivers": delivers, "transactions": job.transactions, "executors": job.executors, "progress": progress}
    return {**said, "instances": "several" if job.instances > 1 else None, "promises": str(job.promises)}


def test_there_are_jobs_to_hold_it_to() -> None:
    assert {_said_of(_job(path))["delivers"] for path in OWN} == {"kafka", "postgres", "files", "delta", "iceberg", "iceberg_folder"}


@pytest.mark.parametrize("path", OWN, ids=lambda path: str(path.relative_to(ROOT)))
def test_a_job_of_the_users_own_is_offered_exactly_those_faults_that_its_check_admits(path: Path) -> None:
    job = _job(path)
    said = _said_of(job)
    assert set(said) == set(catalogue.OWN_JOBS)
    for name, fault in FAULTS.items():
        offered = any(all(said[key] in values for key, values in each.items()) for each in catalogue.describe(name)["own_jobs"])
        assert offered == _admitted(fault, job.profile), name


def _admitted(fault: Any, job: JobProfile) -> bool:
    try:
        fault.check(job, {})
    except ValueError:
        return False
    return True


@pytest.mark.parametrize(
    ("fault", "words"),
    [
        ("kill_driver", ""),
        ("crash_at_step", None),
        ("cut_postgres", "with `delivers: postgres` or `delivers: iceberg`"),
        ("kill_executor", "with `executors`"),
        ("kill_python_worker", "with `executors: python`"),
        ("twin_driver", "without `executors`"),
        ("expire_records", "without `progress: output`"),
        ("kill_transaction_coordinator", "with `transactions`"),
        ("recreate_topic", "with `delivers: kafka`, with `promises: at-least-once`, without `transactions`"),
    ],
)
def test_which_jobs_these_are_is_said_in_words(fault: str, words: str | None) -> None:
    assert catalogue.own_jobs(catalogue.describe(fault)) == words


class EitherOr(Unconditional):
    """For jobs that one description does not tell from the others."""

    name = "either_or"
    summary = target = "nothing"
    parameters_model = FAULTS["kill_kafka"].parameters_model

    def check(self, profile: JobProfile, parameters: dict[str, Any]) -> None:
        if POSTGRES not in profile.links and Trait.KAFKA_TRANSACTIONS not in profile.traits:
            raise ValueError("neither PostgreSQL nor transactions")


def test_jobs_that_one_description_does_not_tell_from_the_others_have_several(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(FAULTS, EitherOr.name, EitherOr())  # type: ignore[arg-type]
    described = catalogue.describe(EitherOr.name)
    assert described["own_jobs"] == [{"transactions": [True]}, {"delivers": ["postgres", "iceberg"]}]
    assert catalogue.own_jobs(described) == "with `transactions`; or with `delivers: postgres` or `delivers: iceberg`"
