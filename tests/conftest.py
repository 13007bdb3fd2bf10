"""What the tests share: a real testbed of their own, apart from any that is in use on this machine."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import hypothesis
import psutil
import pytest

from testbed import embedded, settings
from testbed.embedded import Testbed
from testbed.process import marked

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
