"""The wheel, installed outside of the checkout: it is complete, says which extra is missing, and takes what other packages register."""

from __future__ import annotations

import json
import tarfile
import zipfile
from pathlib import Path

import pytest

from streamproof import registry, settings
from streamproof.evidence import manifest
from streamproof.experiment.model import Experiment, FaultSpec
from streamproof.experiment.schedule import plan
from tests.package.conftest import Installed
from tests.support.checkout import ROOT
from tests.support.histories import Story

OURS = ("dags", "pipelines", "chaos", "expectations", "tests", "benchmarks", "bootstrap")
STRATEGY = """
from streamproof.engines.spark.strategies.checkpoint import Checkpoint


class Mine(Checkpoint):
    name = "mine"
    summary = "a strategy of a project of the user's own"
"""
REGISTERED = '[strategies]\nmine = "pipelines.mine:Mine"\n'
EXPERIMENT = (
    "name: elsewhere\nstrategy: mine\nworkload: {source: synthetic, records: 2000}\nfaults: [{fault: kill_driver, at: 0.4}]\nseed: 3\n"
)


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A project of the user's own, with a package ``pipelines``."""
    folder = tmp_path / "project"
    (folder / "pipelines").mkdir(parents=True)
    (folder / "pipelines" / "__init__.py").touch()
    (folder / "pipelines" / "mine.py").write_text(STRATEGY)
    (folder / "streamproof.toml").write_text(REGISTERED)
    (folder / "elsewhere.yaml").write_text(EXPERIMENT)
    return folder


def test_the_archives_hold_every_file_of_the_package(dist: Path) -> None:
    files = (path for path in (ROOT / "src" / "streamproof").rglob("*") if path.is_file() and "__pycache__" not in path.parts)
    wanted = {str(path.relative_to(ROOT / "src")) for path in files}
    (wheel,), (source,) = dist.glob("streamproof-*.whl"), dist.glob("streamproof-*.tar.gz")
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
    assert {name for name in names if ".dist-info/" not in name} == wanted
    assert [name for name in names if name.endswith("licenses/LICENSE")] != []
    with tarfile.open(source) as tar:
        within = {name.partition("/")[2] for name in tar.getnames()}
    assert {f"src/{name}" for name in wanted} | {"LICENSE", "README.md", "pyproject.toml"} <= within


def test_the_command_answers_without_any_extra(bare: Installed, tmp_path: Path) -> None:
    assert "Break a streaming" in bare.run(tmp_path, "streamproof", "--help").stdout
    for group in ("faults", "strategies"):
        listed = bare.run(tmp_path, "streamproof", group, "--json")
        assert [each["name"] for each in json.loads(listed.stdout)] == list(registry.installed(group)), listed.stderr


def test_a_stored_run_is_judged_without_any_extra(bare: Installed, tmp_path: Path) -> None:
    found = Experiment(name="test", strategy="two_phase_commit", faults=[FaultSpec(fault="kill_executor", at=0.4)], seed=7)
    for name, dropped, code, told in (("kept", [], 0, "PASSED: "), ("lossy", [(0, 22)], 1, "FAILED: two_phase_commit broke exactly-once")):
        story = Story()
        story.histories.drop(dropped)
        folder = story.write(tmp_path / name)
        folder.experiment.write_text(found.to_yaml())
        folder.schedule.write_text(plan(found).to_json())
        manifest.write(folder)
        done = bare.run(tmp_path, "streamproof", "check", name)
        assert (done.returncode, done.stderr) == (code, "")
        assert told in done.stdout


def test_nothing_of_the_checkout_is_installed_beside_the_package(bare: Installed, tmp_path: Path) -> None:
    asks = f"import importlib.util as util, streamproof; print([n for n in {OURS} if util.find_spec(n)], streamproof.__file__)"
    told = bare.run(tmp_path, "python", "-c", asks).stdout
    assert told.startswith("[] ")
    assert str(bare.prefix) in told


def test_what_a_run_needs_and_is_not_installed_is_one_line(bare: Installed, project: Path) -> None:
    done = bare.run(project, "streamproof", "run", "elsewhere.yaml")
    assert done.returncode == 2
    assert done.stderr.startswith("error: not installed: great_expectations, ")
    assert done.stderr.endswith("Run: pip install 'streamproof[expectations,postgres,spark]'\n")
    assert not (project / ".streamproof").exists()


def test_the_operators_say_that_airflow_is_not_installed(bare: Installed, tmp_path: Path) -> None:
    done = bare.run(tmp_path, "python", "-c", "import streamproof.airflow.operators")
    assert done.stderr.endswith("Run: pip install 'streamproof[airflow]'\n")


def test_a_fault_of_another_package_is_listed_and_offered_by_the_form(bare: Installed, more_faults: str, tmp_path: Path) -> None:
    listed = bare.run(tmp_path, "streamproof", "faults", "--json", PYTHONPATH=more_faults)
    assert [each["name"] for each in json.loads(listed.stdout)] == [*registry.installed("faults"), "kill_driver_twice"], listed.stderr
    asks = "import json; from streamproof.experiment.form import Form; print(json.dumps(Form.model_json_schema()))"
    schema = json.loads(bare.run(tmp_path, "python", "-c", asks, PYTHONPATH=more_faults).stdout)
    assert "kill_driver_twice" in schema["properties"]["fault"]["enum"]


@pytest.mark.slow
def test_airflows_form_offers_the_fault_of_another_package(whole: Installed, more_faults: str, tmp_path: Path) -> None:
    asks = "from streamproof.airflow.form import params; print(params()['fault'].schema['enum'])"
    done = whole.run(tmp_path, "python", "-c", asks, PYTHONPATH=more_faults, AIRFLOW_HOME=str(tmp_path / "airflow"))
    assert "'kill_driver_twice'" in done.stdout, done.stderr


@pytest.mark.slow
@pytest.mark.timeout(1200, func_only=True)
def test_a_project_elsewhere_sets_up_and_runs_its_own_strategy(whole: Installed, project: Path, place: Path) -> None:
    """What was downloaded and compiled is shared with the checkout; everything else is made in the project."""
    cache = place / "cache"
    cache.mkdir()
    for part in ("jars", "bin"):
        (cache / part).symlink_to(settings.cache() / part)
    variables = {"STREAMPROOF_CACHE": str(cache)}
    try:
        done = whole.run(project, "streamproof", "setup", timeout_s=600, **variables)
        assert done.returncode == 0, done.stdout + done.stderr
        done = whole.run(project, "streamproof", "run", "elsewhere.yaml", timeout_s=300, **variables)
        assert done.returncode == 0, done.stdout + done.stderr
        assert "PASSED: mine kept at-least-once for 2000 acknowledged records" in done.stdout
        (run,) = (project / ".streamproof" / "runs").iterdir()
        assert (run / "report.html").stat().st_size > 10_000
        assert (run / "expectations" / "data_docs" / "index.html").is_file()
    finally:
        for home in (project / ".streamproof", *cache.glob("training-*")):
            whole.run(project, "streamproof", "down", **variables, STREAMPROOF_HOME=str(home))
