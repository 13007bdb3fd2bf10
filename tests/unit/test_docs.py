"""The documents say what the code says: their generated parts are up to date, and what they name is there and complete."""

from __future__ import annotations

import importlib
import importlib.util
import re
from pathlib import Path

import pytest
import yaml

from docs import generate
from docs.generate import FAULTS, STRATEGIES
from streamproof.experiment.matrix import Matrix
from streamproof.experiment.model import Experiment
from streamproof.run import stages
from streamproof.verdict.decide import RunOutcome
from streamproof.verdict.judge import RunSpec
from tests.support.checkout import ROOT
from tests.support.histories import unjudged

PAGES = sorted(generate.DOCS.glob("*.md"))


def _text(name: str) -> str:
    return (generate.DOCS / name).read_text()


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_generated_parts_are_what_the_code_says(page: Path) -> None:
    assert generate.rewritten(page.read_text()) == page.read_text(), "run `python docs/generate.py`"


def test_a_part_that_drifted_is_noticed() -> None:
    drifted = _text("verdicts.md").replace("| at-least-once | forbidden | allowed |", "| at-least-once | allowed | allowed |")
    assert drifted != _text("verdicts.md")
    assert generate.rewritten(drifted) == _text("verdicts.md")


def test_every_part_that_can_be_generated_is_shown_somewhere() -> None:
    shown = {name for page in PAGES for name in generate.named(page.read_text())}
    told_by_hand = {f"protocol:{name}" for name in STRATEGIES}
    assert shown | told_by_hand == set(generate.PARTS)


def test_every_part_is_closed() -> None:
    for page in PAGES:
        text = page.read_text()
        assert len(generate.named(text)) == text.count("<!-- generated: ") - len(re.findall(r"`<!-- generated: ", text)), page.name


def test_every_strategy_has_a_section_that_names_its_failpoints() -> None:
    sections = dict(re.findall(r"^## `(\w+)`$(.*?)(?=^## |\Z)", _text("strategies.md"), re.MULTILINE | re.DOTALL))
    assert set(sections) == set(STRATEGIES)
    for name, strategy in STRATEGIES.items():
        told = sections[name].split("<!-- generated: strategy:")[0]
        assert [at.name for at in strategy.failpoints if f"`{at.name}`" not in told] == []


def test_every_fault_has_a_section() -> None:
    assert set(re.findall(r"^### `(\w+)`$", _text("faults.md"), re.MULTILINE)) == set(FAULTS)


def test_every_step_is_described() -> None:
    assert [name for name in stages.STAGES if f"| `{name}` |" not in _text("architecture.md")] == []


def test_every_key_of_the_verdict_is_described() -> None:
    found = Experiment(strategy="checkpoint")
    spec = RunSpec("run", found.name, found.pipeline, found.strategy, found.promised, (), (), found.seed)
    keys = unjudged(spec, RunOutcome.ERROR, "")
    section = _text("verdicts.md").split("### `verdict.json`")[1].split("\n### ")[0]
    assert [key for key in keys if f"`{key}`" not in section] == []


def test_every_dependency_says_why_it_is_here() -> None:
    rows = generate.requirements().splitlines()[2:]
    assert len(rows) > 20
    assert [row for row in rows if row.endswith("|  |")] == []


def _anchor(heading: str) -> str:
    """A heading's anchor as GitHub makes it."""
    return re.sub(r"[^\w\- ]", "", heading.strip().lower()).replace(" ", "-")


def _headings(page: Path) -> list[str]:
    return [_anchor(found) for found in re.findall(r"^#+ (.+)$", page.read_text(), re.MULTILINE)]


def test_every_link_between_the_documents_leads_somewhere() -> None:
    broken = []
    for page in PAGES:
        for link in re.findall(r"\]\(([^)\s]+)\)", page.read_text()):
            name, _, anchor = link.partition("#")
            target = generate.DOCS / name if name else page
            if not target.exists() or (anchor and anchor not in _headings(target)):
                broken.append(f"{page.name}: {link}")
    assert broken == []


def test_the_matrix_that_is_told_can_be_run_and_the_told_fields_of_an_event_are_all() -> None:
    told = _text("airflow.md")
    [example] = re.findall(r"```yaml\n(schedule: .*?)```", told, re.DOTALL)
    assert Matrix.model_validate(yaml.safe_load(example)).scenarios
    [extra] = re.findall(r"`streamproof_verdict` \| each run that was judged \| (.*) \|", told)
    [listed] = re.findall(
        r"^_EXTRA = \((.*?)\)", (ROOT / "src" / "streamproof" / "airflow" / "assets.py").read_text(), re.MULTILINE | re.DOTALL
    )
    assert re.findall(r"`(\w+)`", extra) == re.findall(r'"(\w+)"', listed)


OWN_JOB = {
    "engine": "command",
    "command": ["job"],
    "promises": "at-least-once",
    "delivers": {"postgres": {"table": "rows", "identity": {"column": "id"}}},
}


@pytest.mark.parametrize("page", [ROOT / "README.md", *PAGES], ids=lambda page: page.name)
def test_the_faults_of_an_example_can_be_injected_as_it_says(page: Path) -> None:
    for example in re.findall(r"^```yaml\n(.*?)^```", page.read_text(), re.MULTILINE | re.DOTALL):
        told = yaml.safe_load(example)
        if not isinstance(told, dict) or "faults" not in told or "schedule" in told:
            continue
        whole = {key: value for key, value in told.items() if key not in ("testbed", "external")}
        jobs: list[dict[str, object]] = [{}] if {"strategy", "job"} & set(told) else [{"job": OWN_JOB}, {"strategy": "two_phase_commit"}]
        assert any(_is_an_experiment({**whole, **job}) for job in jobs), example


def _is_an_experiment(document: dict[str, object]) -> bool:
    try:
        Experiment.model_validate(document)
    except ValueError:
        return False
    return True


@pytest.mark.parametrize("page", [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *PAGES], ids=lambda page: page.name)
def test_files_and_names_of_the_code_that_a_page_tells_of_are_there(page: Path) -> None:
    paths = re.findall(r"`((?:src|docs|chaos|pipelines|dags|tests|benchmarks)/[\w./*-]+)`", page.read_text())
    assert [path for path in paths if not list(ROOT.glob(path.rstrip("/")))] == []
    names = re.findall(r"`(streamproof(?:\.\w+)+)`", page.read_text())
    assert [name for name in names if not name.endswith(".toml") and name not in GROUPS and not _is_there(name)] == []


GROUPS = {f"streamproof.{kind}" for kind in ("faults", "strategies", "pipelines", "engines", "sinks")}
"""Of entry points."""


def _is_there(name: str) -> bool:
    module, _, attribute = name.rpartition(".")
    try:
        return importlib.util.find_spec(name) is not None or hasattr(importlib.import_module(module), attribute)
    except ModuleNotFoundError:
        return hasattr(importlib.import_module(module), attribute)
