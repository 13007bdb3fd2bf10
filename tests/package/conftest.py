"""The package as others get it: built once, and installed into environments of its own, outside of the checkout."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

import bootstrap
from tests.support.checkout import ROOT

INSTALL_S = 600

FAULT = """
from streamproof.faults.process.kill_driver import KillDriver


class KillDriverTwice(KillDriver):
    name = "kill_driver_twice"
    summary = "a fault of another package"
"""
PROJECT = """
[build-system]
requires = ["setuptools"]
build-backend = "setuptools.build_meta"

[project]
name = "more-faults"
version = "1.0"

[project.entry-points."streamproof.faults"]
kill_driver_twice = "more_faults:KillDriverTwice"

[tool.setuptools]
py-modules = ["more_faults"]
"""


def _environment() -> dict[str, str]:
    """What a shell elsewhere has: nothing of this checkout, and the registry that pip is set to use."""
    inherited = {**bootstrap.environment_of_children(), **bootstrap.settings_of_pip()}
    return {name: value for name, value in inherited.items() if not name.startswith("STREAMPROOF_")}


@dataclass(frozen=True)
class Installed:
    """An environment with the package in it."""

    prefix: Path

    def run(self, folder: Path, program: str, *words: str, timeout_s: int = 120, **variables: str) -> subprocess.CompletedProcess[str]:
        """A program of the environment, called from ``folder``."""
        command = [str(self.prefix / "bin" / program), *words]
        env = {**_environment(), **variables}
        return subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True, timeout=timeout_s, check=False)


@pytest.fixture(scope="session")
def place() -> Iterator[Path]:
    """A folder outside of the checkout that does not outlive the session: an environment with everything takes more than a gigabyte."""
    with tempfile.TemporaryDirectory(prefix="streamproof-package-") as name:
        yield Path(name).resolve()


@pytest.fixture(scope="session")
def dist(place: Path) -> Path:
    """The folder of the wheel and the source archive, built by the command that developers use."""
    subprocess.run(["make", "wheel", f"DIST={place / 'dist'}", f"PYTHON={sys.executable}"], cwd=ROOT, check=True, timeout=INSTALL_S)
    return place / "dist"


def _uv(*words: str | Path, folder: Path) -> None:
    (uv,) = (ROOT / ".streamproof" / "uv").glob("*/bin/uv")
    done = subprocess.run([uv, *words], cwd=folder, env=_environment(), capture_output=True, text=True, timeout=INSTALL_S, check=False)
    assert done.returncode == 0, done.stderr


def _installed(place: Path, dist: Path, name: str, extras: str) -> Installed:
    """The wheel with what it asks for itself; the lock only says in which versions, so that they come from uv's cache."""
    (wheel,) = dist.glob("streamproof-*.whl")
    prefix = place / name
    _uv("venv", "--quiet", "--python", sys.executable, prefix, folder=place)
    options = ["--quiet", "--python", prefix, "--constraint", ROOT / "requirements.lock"]
    options += ["--build-constraints", ROOT / "requirements-build.lock"]
    _uv("pip", "install", *options, f"streamproof{extras} @ {wheel.as_uri()}", folder=place)
    return Installed(prefix)


@pytest.fixture(scope="session")
def bare(place: Path, dist: Path) -> Installed:
    """The package without any extra."""
    return _installed(place, dist, "bare", "")


@pytest.fixture(scope="session")
def whole(place: Path, dist: Path) -> Installed:
    return _installed(place, dist, "whole", "[all]")


@pytest.fixture(scope="session")
def more_faults(place: Path) -> str:
    """The folder of an installed package of somebody else's, with one fault: for PYTHONPATH."""
    source = place / "more-faults"
    source.mkdir()
    (source / "pyproject.toml").write_text(PROJECT)
    (source / "more_faults.py").write_text(FAULT)
    build = ["build", "--quiet", "--wheel", "--offline", "--no-build-isolation", "--python", sys.executable, "--out-dir", place / "more"]
    _uv(*build, folder=source)
    (wheel,) = (place / "more").glob("*.whl")
    target = place / "more-installed"
    _uv("pip", "install", "--quiet", "--offline", "--no-deps", "--python", sys.executable, "--target", target, wheel, folder=place)
    return os.fspath(target)
