"""A real browser, and a real Airflow to look at. What is seen is kept as pictures in ``build/browser/``.

The browser is the machine's Chromium. Where there is none, it is installed when that is possible (Debian, root); else the tests are
skipped, with the reason.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from playwright.sync_api import Browser, Frame, Page, expect, sync_playwright

from streamproof.airflow import service
from streamproof.airflow.service import USER, Api
from tests.support.checkout import ROOT

PICTURES = ROOT / "build" / "browser"
NAMES = ("chromium", "chromium-browser", "google-chrome")
# Chromium cannot sandbox itself as root, and has no GPU here.
ARGUMENTS = ["--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"]
INSTALL_S = 240
PAGE_MS = 90_000  # an upper bound of everything that is waited for: a busy machine is no failure
expect.set_options(timeout=PAGE_MS)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.slow)


@cache
def _chromium() -> tuple[str | None, str]:
    """Where the browser is, or why there is none."""
    found = next(filter(None, map(shutil.which, NAMES)), None)
    if found is not None:
        return found, ""
    if shutil.which("apt-get") is None or os.geteuid() != 0:
        return None, "there is no Chromium, and to install one takes apt-get and root"
    command = "apt-get update -qq && apt-get install -y -qq --no-install-recommends chromium"
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    try:
        done = subprocess.run(["sh", "-c", command], capture_output=True, text=True, timeout=INSTALL_S, env=environment, check=False)
    except subprocess.TimeoutExpired:
        return None, f"Chromium could not be installed within {INSTALL_S} s"
    return shutil.which("chromium"), f"Chromium could not be installed: {done.stderr[-300:]}"


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    path, reason = _chromium()
    if path is None:
        pytest.skip(reason)
    with sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=path, args=ARGUMENTS)
        yield started
        started.close()


@pytest.fixture(scope="module")
def airflow(home: Path) -> Iterator[Api]:
    yield service.up()
    service.down()


@dataclass
class Seat:
    """Somebody before a browser's window. ``asked`` is every address that a page asked for, ``complaints`` what it said of errors."""

    page: Page
    asked: list[str] = field(default_factory=list)
    complaints: list[str] = field(default_factory=list)

    def login(self, api: Api) -> None:
        self.page.goto(api.url)
        self.sign_in(api)
        self.page.wait_for_url(lambda url: "/login" not in url)

    def sign_in(self, api: Api) -> None:
        """Fill in Airflow's form, which is there."""
        self.page.locator("input[name=username]").fill(api.user)
        self.page.locator("input[name=password]").fill(api.password)
        self.page.locator("button[type=submit]").click()

    def report_by_way_of_the_login(self, api: Api, run: str, arrived: str) -> None:
        """Open a run's report as somebody who is not known: to the login, and back to it."""
        self.page.goto(f"{api.url}/streamproof/runs/{run}/report")
        assert "/login" in self.page.url
        self.sign_in(api)
        self.page.wait_for_url(arrived)
        self.page.wait_for_selector(".chart.drawn")

    def picture(self, name: str, *, whole: bool = False) -> None:
        PICTURES.mkdir(parents=True, exist_ok=True)
        self.page.screenshot(path=PICTURES / f"{name}.png", full_page=whole)

    @property
    def outside(self) -> set[str]:
        """The machines that were asked for something, apart from this one."""
        return {host for host in map(_host, self.asked) if host not in ("127.0.0.1", "")}


def _host(address: str) -> str:
    return urlsplit(address).hostname or ""


@pytest.fixture
def sit(browser: Browser) -> Iterator[Callable[..., Seat]]:
    """Open a window: ``sit(width, dark=..., scripts=...)``."""
    contexts = []

    def opened(width: int = 1280, *, dark: bool = False, scripts: bool = True) -> Seat:
        context = browser.new_context(
            viewport={"width": width, "height": 844 if width < 500 else 900},
            color_scheme="dark" if dark else "light",
            java_script_enabled=scripts,
        )
        context.set_default_timeout(PAGE_MS)
        contexts.append(context)
        seat = Seat(context.new_page())
        seat.page.on("request", lambda request: seat.asked.append(request.url))
        seat.page.on("console", lambda said: seat.complaints.append(said.text) if said.type == "error" else None)
        seat.page.on("pageerror", lambda error: seat.complaints.append(str(error)))
        return seat

    yield opened
    for context in contexts:
        context.close()


@pytest.fixture
def admin(sit: Callable[..., Seat], airflow: Api) -> Callable[..., Seat]:
    """As ``sit``, logged in to Airflow."""

    def opened(*arguments: Any, user: str = USER, **options: Any) -> Seat:
        seat = sit(*arguments, **options)
        seat.login(Api(user))
        return seat

    return opened


def frame(page: Page) -> Frame:
    """The plugin's page in Airflow's."""
    element = page.wait_for_selector("iframe[title='Streaming reliability']")
    assert element is not None
    found = element.content_frame()
    assert found is not None
    found.wait_for_load_state()
    return found
