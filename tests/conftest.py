"""What the tests share: a real testbed of their own, apart from any that is in use on this machine."""

from __future__ import annotations

import os
import shutil
import tempfile
import warnings
from collections.abc import Generator, Iterator
from pathlib import Path

import hypothesis
import psutil
import pytest

from streamproof import settings
from streamproof.testbed import embedded
from streamproof.testbed.embedded import Testbed
from streamproof.testbed.process import marked
from tests.support import repair

FAILED = pytest.StashKey[bool]()
LONGEST = (
    "test_airflow_nightly",
    "test_sweep",
    "test_runs",
    "test_own_jobs",
    "test_late",
    "test_stateful",
    "test_doctor",
    "test_testbed",
    "test_brokers",
    "test_pytest_plugin",
    "test_heal",
    "test_postgres_runs",
    "test_command_engine",
    "test_wheel",
    "test_steady_state",
    "test_site",
)
"""The files whose tests take longest, the longest first."""
HOME_PREFIX = "streamproof-test-"
os.environ.pop("STREAMPROOF_HISTORY", None)  # the runs of tests are no part of anybody's history
# Two busy cores say nothing about an example's time; examples are not kept, tests leave no file.
hypothesis.settings.register_profile("streamproof", deadline=None, database=None, max_examples=50)
hypothesis.settings.load_profile("streamproof")


def _sweep() -> None:
    """End what test sessions left behind that were killed before they could clean up."""
    for folder in Path(tempfile.gettempdir()).glob(f"{HOME_PREFIX}*"):
        owner = folder / "pytest.pid"
        if not owner.is_file() or psutil.pid_exists(int(owner.read_text())):
            continue
        os.environ["STREAMPROOF_HOME"] = str(folder)
        embedded.down()
        shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture(scope="session")
def home() -> Iterator[Path]:
    """A state folder of the tests' own; what was downloaded is shared. Nothing of it, and no process, is left afterwards."""
    os.environ["STREAMPROOF_CACHE"] = str(settings.cache())
    before = os.environ.get("STREAMPROOF_HOME")
    _sweep()
    folder = Path(tempfile.mkdtemp(prefix=HOME_PREFIX)).resolve()
    (folder / "pytest.pid").write_text(str(os.getpid()))
    os.environ["STREAMPROOF_HOME"] = str(folder)
    try:
        yield folder
        assert marked() == [], "processes were left behind"
    finally:
        embedded.down()
        keep = os.environ.get("STREAMPROOF_KEEP_TEST_RUNS")
        if keep and (folder / "runs").exists():
            shutil.copytree(folder / "runs", keep, dirs_exist_ok=True)
        shutil.rmtree(folder, ignore_errors=True)
        if before is None:
            del os.environ["STREAMPROOF_HOME"]
        else:
            os.environ["STREAMPROOF_HOME"] = before


@pytest.fixture(scope="session")
def testbed(home: Path) -> Iterator[Testbed]:
    """The embedded testbed, started once for all tests."""
    yield embedded.up()
    embedded.down()


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers() -> int:
    """One process more than there are cores: where a test waits, another one works."""
    return (os.cpu_count() or 1) + 1


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The files that take longest come first: where processes take whole files in turn, none of them waits long for the last."""
    place = {name: number for number, name in enumerate(LONGEST)}
    items.sort(key=lambda item: place.get(item.path.stem, len(place)))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    item.stash[FAILED] = item.stash.get(FAILED, False) or report.failed
    return report


@pytest.fixture(autouse=True)
def _testbed_left_right(request: pytest.FixtureRequest) -> Iterator[None]:
    """Whoever uses the shared testbed leaves it right, or it is put right for whoever comes next. Then a test that had passed gets an
    error that names what it left damaged; of one that had failed it is a warning."""
    if "testbed" not in request.fixturenames:
        yield
        return
    before = repair.Before.look(brokers_may_change=request.node.get_closest_marker("other_brokers") is not None)
    yield
    wrong = repair.damage(before)
    if not wrong:
        return
    repair.repair(before)
    message = f"{request.node.nodeid} left the testbed damaged: {'; '.join(wrong)}. It was put right."
    if request.node.stash.get(FAILED, False):
        warnings.warn(message, stacklevel=1)
    else:
        pytest.fail(message, pytrace=False)
