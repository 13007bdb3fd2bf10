"""The plugin for pytest: the fixture ``streamproof``, its options, and the testbed behind it.

It is loaded by every pytest of an environment that has streamproof: it imports nothing of the product before a test asks for the fixture.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from streamproof.testing.runs import Experiments

STARTED = pytest.StashKey[bool]()


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("streamproof")
    group.addoption("--streamproof-seed", type=int, metavar="N", help="the seed of every run, in place of the experiments' own")
    group.addoption("--streamproof-keep-testbed", action="store_true", help="leave the testbed running for the next session")


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "streamproof(seed=N): the seed of the runs of this test")


@pytest.fixture(scope="session")
def streamproof_testbed(pytestconfig: pytest.Config) -> Iterator[None]:
    """The testbed. It is started once, and stopped by the session that started it; parallel processes of one session share it."""
    from streamproof.testbed import embedded

    was_up = bool(embedded.status())
    embedded.up()
    yield
    of_a_parallel_session = hasattr(pytestconfig, "workerinput")  # others may still use it: the controller stops it
    if not was_up and not of_a_parallel_session and not pytestconfig.getoption("--streamproof-keep-testbed"):
        embedded.down()


@pytest.fixture
def streamproof(request: pytest.FixtureRequest, streamproof_testbed: None) -> Experiments:
    """Runs experiments on the testbed: ``run = streamproof.run("chaos/orders.yaml")``, then ``run.assert_passed()``.

    The runs of a test are among its properties, so JUnit XML has them.
    """
    from streamproof.testing.runs import Experiments

    marker = request.node.get_closest_marker("streamproof")
    of_test = marker.kwargs.get("seed") if marker is not None else None
    seed = request.config.getoption("--streamproof-seed")
    return Experiments(request.node.user_properties, of_test if seed is None else seed)


def pytest_sessionstart(session: pytest.Session) -> None:
    """Of a parallel session the controller remembers whether the testbed was there before, for it outlives the processes that use it."""
    if _is_parallel(session.config):
        session.config.stash[STARTED] = not _testbed_is_up()


def pytest_sessionfinish(session: pytest.Session) -> None:
    config = session.config
    if config.stash.get(STARTED, False) and not config.getoption("--streamproof-keep-testbed") and _testbed_is_up():
        from streamproof.testbed import embedded

        embedded.down()


def _is_parallel(config: pytest.Config) -> bool:
    return not hasattr(config, "workerinput") and bool(getattr(config.option, "numprocesses", None))


def _testbed_is_up() -> bool:
    """Whether a testbed was started in the project's state folder. It imports nothing that starts one."""
    from streamproof import settings

    return (settings.home() / "testbed" / "state.json").is_file()
