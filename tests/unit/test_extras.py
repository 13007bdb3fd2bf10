"""What the package says that it needs is what the checkout installs, and what it tells the user to install."""

from __future__ import annotations

import ast
import re
import sys
import tomllib
from pathlib import Path

import pytest

from streamproof import extras
from tests.support.checkout import ROOT

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
OPTIONAL: dict[str, list[str]] = PROJECT["optional-dependencies"]


def _names(requirements: list[str]) -> set[str]:
    return {match[0].lower() for each in requirements if (match := re.match(r"[A-Za-z0-9-]+", each))} - {"streamproof"}


def _asked_for(*files: str) -> set[str]:
    return _names([line for file in files for line in (ROOT / file).read_text().splitlines()])


def test_the_checkout_installs_all_that_the_package_asks_for() -> None:
    wanted = _names(PROJECT["dependencies"]) | {name for extra in OPTIONAL.values() for name in _names(extra)}
    assert wanted <= _asked_for("requirements.in", "requirements-java.in", "requirements-go.in")


def test_every_extra_that_a_message_may_name_exists() -> None:
    assert set(extras.MODULES) < set(OPTIONAL)
    assert OPTIONAL["run"] == [f"streamproof[{','.join(extras.RUN)}]"]


def test_every_package_that_the_code_imports_is_asked_for() -> None:
    """But for Airflow's, Spark's and pytest's own, which are used where they call this package."""
    distributions = {"yaml": "pyyaml", "kafka": "kafka-python", "toxiproxy": "toxiproxy-python", "airflow": "apache-airflow"}
    distributions["vl_convert"] = "vl-convert-python"
    others = {"streamproof", "fastapi", "starlette", "py4j", "pytest", *sys.stdlib_module_names}
    found = {name for path in (ROOT / "src").rglob("*.py") for name in _imported(path)} - others
    known = _names(PROJECT["dependencies"]) | {name for extra in OPTIONAL.values() for name in _names(extra)}
    assert {distributions.get(name, name.replace("_", "-")) for name in found} - known == set()


def _imported(path: Path) -> set[str]:
    nodes = list(ast.walk(ast.parse(path.read_text())))
    modules = [alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names]
    modules += [node.module for node in nodes if isinstance(node, ast.ImportFrom) and node.module and not node.level]
    return {module.partition(".")[0] for module in modules}


def test_what_is_missing_is_named_with_its_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(extras.MODULES, "spark", ("no_such_module",))
    with pytest.raises(extras.MissingExtra, match=r"not installed: no_such_module\. Run: pip install 'streamproof\[spark\]'"):
        extras.require("postgres", "spark")
    extras.require("postgres")


def test_a_module_that_no_extra_brings_is_no_matter_of_extras() -> None:
    assert extras.named(ModuleNotFoundError(name="elsewhere")) is None
    assert "streamproof[expectations]" in str(extras.named(ModuleNotFoundError(name="great_expectations.core")))
