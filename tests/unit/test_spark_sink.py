"""The data source for Spark: where the compiled one lies, and when it is compiled anew."""

from __future__ import annotations

import shutil
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from streamproof.testbed import ecj, install, spark_sink


@pytest.fixture
def sources(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A copy of the sources."""
    folder = tmp_path / "sources"
    shutil.copytree(spark_sink.SOURCES, folder)
    monkeypatch.setattr(spark_sink, "SOURCES", folder)
    spark_sink._sources.cache_clear()
    yield folder
    spark_sink._sources.cache_clear()


def test_it_is_in_place_and_spark_finds_it_by_its_format() -> None:
    path = spark_sink.jar()
    assert path is not None
    assert spark_sink.problem() is None
    with zipfile.ZipFile(path) as packed:
        assert packed.read(spark_sink.SERVICE).decode().strip() == spark_sink.PROVIDER
        assert f"{spark_sink.PROVIDER.replace('.', '/')}.class" in packed.namelist()


def test_a_changed_source_is_compiled_anew(sources: Path) -> None:
    before = spark_sink.jar()
    path = sources / "TransactionLost.java"
    path.write_text(path.read_text() + "// changed\n")
    spark_sink._sources.cache_clear()
    assert spark_sink.jar() != before
    assert spark_sink.problem() == "the data source streamproof-kafka is not compiled"


def test_a_source_that_does_not_compile_is_said_with_the_compilers_words(sources: Path, tmp_path: Path) -> None:
    (sources / "Broken.java").write_text("package streamproof.kafka; class Broken { Absent absent; }")
    jars = spark_sink._class_path()
    assert jars is not None
    with pytest.raises(ecj.NotCompiled, match="Absent cannot be resolved to a type"):
        ecj.compile_java(install.java_executable(), sources.glob("*.java"), jars, tmp_path / "classes")
