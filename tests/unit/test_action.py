"""The action of GitHub Actions, as far as it can be tested away from GitHub: its schema, its inputs, its scripts."""

from __future__ import annotations

import copy
import json
import os
import re
import subprocess
import sys
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

from tests.support.checkout import ROOT

ACTION: dict[str, Any] = yaml.safe_load((ROOT / "action.yml").read_text())
STEPS: list[dict[str, Any]] = ACTION["runs"]["steps"]
SCRIPTS = {step["name"]: step["run"] for step in STEPS if "run" in step}
PAGE = (ROOT / "docs" / "github-actions.md").read_text()
WORKFLOW = re.search(r"```yaml\n(name: chaos\n.*?)```", PAGE, re.DOTALL)


@cache
def _schema(name: str) -> Any:
    vendored = resources.files("check_jsonschema") / "builtin_schemas" / "vendor" / f"github-{name}.json"
    return json.loads(vendored.read_text())


def _workflow() -> dict[str, Any]:
    assert WORKFLOW is not None
    return yaml.load(WORKFLOW[1], yaml.BaseLoader)  # `on` stays a word


def test_the_action_is_one_of_githubs_schema() -> None:
    jsonschema.validate(ACTION, _schema("actions"))


def test_a_script_without_its_shell_is_refused_by_the_schema() -> None:
    damaged = copy.deepcopy(ACTION)
    next(step for step in damaged["runs"]["steps"] if "run" in step).pop("shell")
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(damaged, _schema("actions"))


def test_the_workflow_of_the_docs_is_one_of_githubs_schema_and_gives_inputs_that_the_action_has() -> None:
    written = yaml.safe_load(WORKFLOW[1]) if WORKFLOW else {}
    written["on"] = written.pop(True)  # YAML 1.1 reads `on` so
    jsonschema.validate(written, _schema("workflows"))
    (given,) = (step["with"] for step in _workflow()["jobs"]["chaos"]["steps"] if step["uses"].startswith("streamproof/"))
    assert set(given) <= set(ACTION["inputs"])
    assert {name for name, each in ACTION["inputs"].items() if each.get("required")} <= set(given)


def test_every_input_is_used_and_documented_and_every_used_one_is_there() -> None:
    used = set(re.findall(r"inputs\.([\w-]+)", json.dumps(ACTION["runs"])))
    assert used == set(ACTION["inputs"])
    assert [name for name in [*ACTION["inputs"], *ACTION["outputs"]] if f"| `{name}` |" not in PAGE] == []


def test_every_step_that_is_named_comes_before_the_step_that_names_it() -> None:
    known: set[str] = set()
    for step in STEPS:
        assert set(re.findall(r"steps\.([\w-]+)", json.dumps(step))) <= known, step["name"]
        known |= {step["id"]} if "id" in step else set()


def test_no_script_takes_an_expression_into_its_text() -> None:
    assert [name for name, script in SCRIPTS.items() if "${{" in script] == [], "an input there could run any command: give it by `env`"


@pytest.mark.parametrize("name", SCRIPTS)
def test_every_script_is_one_of_bash(name: str) -> None:
    done = subprocess.run(["bash", "-n"], input=SCRIPTS[name], capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stderr) == (0, "")


def test_every_variable_of_a_script_is_set_by_its_step_or_by_github() -> None:
    for step in STEPS:
        script = step.get("run", "")
        own = set(re.findall(r"^\s*(?:while IFS= read -r )?([a-z]\w*)(?==|;)", script, re.MULTILINE)) | {"experiment"}
        read = set(re.findall(r"\$\{?(\w+)", script)) - own - {"pip"}
        of_github = {name for name in read if name.startswith(("GITHUB_", "RUNNER_"))}
        assert read - of_github == {name for name in step.get("env", {}) if name in read}, step["name"]


def _run_experiments(folder: Path, experiments: str) -> subprocess.CompletedProcess[str]:
    """The script of the step that runs the experiments, as GitHub calls it. These experiments are bad input: nothing starts."""
    variables = {
        "EXPERIMENTS": experiments,
        "STREAMPROOF": str(Path(sys.executable).with_name("streamproof")),
        "STREAMPROOF_HOME": str(folder / "home"),
        "GITHUB_STEP_SUMMARY": str(folder / "summary"),
        "GITHUB_OUTPUT": str(folder / "output"),
    }
    command = ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", SCRIPTS["Run the experiments"]]
    env = {**os.environ, **variables}
    return subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True, timeout=120, check=False)


def test_all_experiments_are_run_and_the_worst_exit_code_is_the_steps_own(tmp_path: Path) -> None:
    done = _run_experiments(tmp_path, "chaos/one.yaml\n\n  \nchaos/two words.yaml\n")
    assert done.returncode == 2, done.stderr
    assert "chaos/one.yaml: no such file" in done.stderr
    assert "chaos/two words.yaml: no such file" in done.stderr
    assert (tmp_path / "summary").read_text().splitlines()[2:] == ["| `chaos/one.yaml` | 2 |", "| `chaos/two words.yaml` | 2 |"]
    assert (tmp_path / "output").read_text() == "exit-code=2\n"


def test_no_experiment_at_all_is_bad_input(tmp_path: Path) -> None:
    done = _run_experiments(tmp_path, "\n")
    assert done.returncode == 2
    assert "experiments: expected at least one file, came none" in done.stderr
    assert (tmp_path / "output").read_text() == "exit-code=2\n"
