"""Roles by templates: their commands find, kill and look; what they cannot do is refused before anything is broken."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest
from pydantic import ValidationError

from streamproof.experiment.model import Experiment
from streamproof.jobs.profile import Role
from streamproof.testbed.external import RoleName
from streamproof.testbed.process import TestbedError
from streamproof.testbed.roles import Template

ABOUT = {"run": "a-run", "job": "sp-a-run"}
IS_GONE = f"{sys.executable} -c \"import os, sys; sys.exit(1 if os.path.exists('/proc/' + sys.argv[1]) else 0)\" {{name}}"


@pytest.fixture
def somebody() -> Iterator[subprocess.Popen[bytes]]:
    process = subprocess.Popen(["sleep", "60"])
    yield process
    process.kill()
    process.wait()


def test_who_plays_a_role_is_found_killed_and_gone(somebody: subprocess.Popen[bytes]) -> None:
    template = Template(find=f"echo worker-1 {somebody.pid}", kill="kill -9 {name}", evidence=IS_GONE)
    template.check("workers", ABOUT)
    assert somebody.poll() is None, "to check a template breaks nothing"
    (victim,) = template.found("workers", ABOUT)
    assert victim == {"role": "workers", "id": "worker-1", "name": str(somebody.pid)}
    assert not template.gone(victim, ABOUT)
    template.kill_one(victim, ABOUT)
    somebody.wait(10)
    assert template.gone(victim, ABOUT)


def test_a_command_gets_words_and_no_shell() -> None:
    template = Template(find="echo a {run};{job} $HOME `id`", kill="kill {id}", evidence="test {id}")
    assert template.found("driver", ABOUT) == [{"role": "driver", "id": "a", "name": "a-run;sp-a-run $HOME `id`"}]
    assert Template(find="true", kill="kill {id}", evidence="test {id}").found("driver", ABOUT) == []
    two = Template(find="printf 'a one\\nb\\n'", kill="kill {id}", evidence="test {id}").found("driver", ABOUT)
    assert [(each["id"], each["name"]) for each in two] == [("a", "one"), ("b", "b")]


@pytest.mark.parametrize(
    ("commands", "reason"),
    [
        ({"kill": "kill everybody"}, r"kill: expected \{id\} or \{name\} in it, or it could be about anybody"),
        ({"evidence": "true"}, r"evidence: expected \{id\} or \{name\}"),
        ({"find": "find {id}"}, r"find: it is about all who play the role"),
        ({"find": "echo 'open"}, r"it cannot be split into words"),
        ({"find": ""}, r"expected a command"),
    ],
)
def test_a_template_that_cannot_be_right_is_refused(commands: dict[str, str], reason: str) -> None:
    with pytest.raises(ValidationError, match=reason):
        Template.model_validate({"find": "true", "kill": "kill {id}", "evidence": "test {id}", **commands})


def test_what_is_not_there_or_fails_is_named_before_anything_is_broken() -> None:
    with pytest.raises(TestbedError, match="roles: driver: kill: there is no program no-such-program here"):
        Template(find="true", kill="no-such-program {id}", evidence="test {id}").check("driver", ABOUT)
    broken = Template(find=f"{sys.executable} -c 'raise SystemExit(\"cannot reach the cluster\")'", kill="kill {id}", evidence="test {id}")
    with pytest.raises(TestbedError, match=r"roles: driver: find: .* ended with exit code 1, its last words: cannot reach the cluster"):
        broken.check("driver", ABOUT)
    cannot_say = Template(find="true", kill="kill {id}", evidence="ls /no/such/{id}")
    with pytest.raises(TestbedError, match=r"evidence: .* exit code 2"):
        cannot_say.gone({"role": "driver", "id": "x", "name": "x"}, ABOUT)


def experiment(*faults: dict[str, Any], **fields: Any) -> Experiment:
    template = {"find": "true", "kill": "kill {id}", "evidence": "test {id}"}
    job = {"engine": "command", "promises": "at-least-once", "command": ["{python}", "job.py"]}
    described = {"job": job, "testbed": "external", "external": {"roles": {"workers": template, "driver": template}}, "seed": 1}
    return Experiment.model_validate({**described, "faults": list(faults), **fields})


def test_a_template_gives_a_job_a_role_and_a_fault_asks_for_no_more() -> None:
    kill = experiment({"fault": "kill_process", "parameters": {"role": "workers"}}, {"fault": "kill_driver"})
    assert {Role.DRIVER, Role.WORKERS} <= kill.profile.roles
    with pytest.raises(ValidationError, match="has no coordinator of its own"):
        experiment({"fault": "kill_process", "parameters": {"role": "coordinator"}})


@pytest.mark.parametrize(
    "fault",
    [
        {"fault": "pause_process", "parameters": {"role": "workers"}},
        {"fault": "kill_process", "parameters": {"role": "workers", "gracefully": True}},
        {"fault": "twin_driver"},
    ],
)
def test_a_fault_that_does_more_than_to_kill_is_refused(fault: dict[str, Any]) -> None:
    with pytest.raises(ValidationError, match=r"on this machine, and `external\.roles` finds them elsewhere|started here"):
        experiment(fault)


def test_templates_are_for_jobs_of_a_users_own() -> None:
    with pytest.raises(ValidationError, match="`roles` is for a `job` of your own"):
        experiment(job=None, strategy="checkpoint")


def test_the_roles_of_templates_are_roles_of_jobs() -> None:
    assert {role.value for role in RoleName} <= {role.value for role in Role}
