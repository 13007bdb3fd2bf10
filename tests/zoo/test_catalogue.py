"""The zoo's catalogue fits the jobs that are there, and each job is what the zoo is about: a job of a user, with one bug that matters."""

from __future__ import annotations

import ast
import difflib

import pytest
from pydantic import ValidationError

from streamproof.experiment import model
from tests.zoo.catalogue import VARIANTS, ZOO, Edge, Specimen, specimens

LEAST_JOBS, LEAST_SPARK_JOBS = 30, 8
MOST_CHANGED_LINES = 20
STANDARD = {"collections", "concurrent", "fcntl", "itertools", "json", "os", "pathlib", "signal", "threading", "time", "uuid"}
CLIENTS = {"confluent_kafka", "psycopg", "pyspark"}
ALL = specimens()
each_specimen = pytest.mark.parametrize("specimen", ALL, ids=lambda specimen: specimen.job)
each_variant = pytest.mark.parametrize("variant", VARIANTS)


def test_every_folder_is_in_the_catalogue_once() -> None:
    folders = {path.parent.name for path in ZOO.glob("*/*.yaml")}
    assert sorted(specimen.job for specimen in ALL) == sorted(folders)


def test_the_zoo_is_large_enough_and_has_every_sink() -> None:
    sinks = {model.load(specimen.experiment("buggy")).profile.sink for specimen in ALL}
    assert len(ALL) >= LEAST_JOBS
    assert sum(specimen.job.startswith("spark_") for specimen in ALL) >= LEAST_SPARK_JOBS
    assert sinks == {"kafka", "postgres_rows", "file_rows"}


@each_specimen
@each_variant
def test_an_experiment_is_valid_and_starts_the_variant_that_it_is_named_for(specimen: Specimen, variant: str) -> None:
    experiment = model.load(specimen.experiment(variant))
    experiment.spec.check()
    assert experiment.promised is specimen.promises
    assert experiment.faults == []
    assert experiment.job is not None
    assert experiment.job["command"] == ["{python}", f"tests/zoo/{specimen.job}/{variant}.py"]


@each_specimen
def test_the_two_experiments_differ_by_the_variant_only(specimen: Specimen) -> None:
    assert specimen.experiment("buggy").read_text().replace("buggy", "repaired") == specimen.experiment("repaired").read_text()


@each_specimen
def test_an_expected_anomaly_breaks_what_the_job_promises(specimen: Specimen) -> None:
    assert set(specimen.anomalies) <= specimen.promises.forbidden


@each_specimen
def test_the_two_scripts_differ_by_a_few_lines(specimen: Specimen) -> None:
    buggy, repaired = (specimen.script(variant).read_text().splitlines() for variant in VARIANTS)
    changed = [line for line in difflib.ndiff(buggy, repaired) if line[0] in "+-"]
    assert 0 < len(changed) <= MOST_CHANGED_LINES, changed


@each_specimen
@each_variant
def test_a_job_knows_nothing_of_streamproof(specimen: Specimen, variant: str) -> None:
    source = specimen.script(variant).read_text()
    imported = {name for node in ast.walk(ast.parse(source)) for name in _imported(node)}
    assert imported <= CLIENTS | STANDARD, imported
    assert "streamproof" not in source.lower()


@pytest.mark.parametrize(
    "edge",
    [{}, {"link": "kafka"}, {"link": "kafka", "message": "Produce"}, {"file": "commits/N", "link": "kafka", "message": "Produce"}],
    ids=str,
)
def test_an_edge_that_is_neither_a_message_nor_a_file_is_refused(edge: dict[str, str]) -> None:
    with pytest.raises(ValidationError, match="an edge is a `file`, or a message"):
        Edge.model_validate(edge)


def _imported(node: ast.AST) -> list[str]:
    if isinstance(node, ast.Import):
        return [alias.name.partition(".")[0] for alias in node.names]
    return [(node.module or "").partition(".")[0]] if isinstance(node, ast.ImportFrom) else []
