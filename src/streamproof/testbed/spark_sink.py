"""The data source ``streamproof-kafka`` for Spark: Java in ``spark_sink/``, compiled at set-up against the jars that it will run with.

A machine needs no JDK: the compiler is Eclipse's, a jar of jars.lock. The result lies in a folder named by a fingerprint of the sources, of
Spark's jars and of Kafka's client: a change of any of them compiles anew, and checkouts that share a cache do not disturb each other.
The module imports nothing outside the standard library, as the rest of the set-up.
"""

from __future__ import annotations

import functools
import hashlib
import importlib.util
import os
import tempfile
import zipfile
from pathlib import Path

from streamproof import settings
from streamproof.testbed import ecj

SOURCES = Path(__file__).with_name("spark_sink")
FORMAT = "streamproof-kafka"
PROVIDER = "streamproof.kafka.SinkProvider"
SERVICE = "META-INF/services/org.apache.spark.sql.sources.DataSourceRegister"
STAMP = (1980, 1, 1, 0, 0, 0)  # the same sources make the same jar


def jar() -> Path | None:
    """Where the compiled data source lies, once it was compiled; None without Spark."""
    jars = _class_path()
    return None if jars is None else settings.cache() / "jars" / "sink" / _fingerprint(jars) / f"{FORMAT}.jar"


def problem() -> str | None:
    """What is missing, in words."""
    path = jar()
    return f"the data source {FORMAT} is not compiled" if path is not None and not path.is_file() else None


def build(java: Path) -> Path | None:
    """Compile the data source if it is not in place. Raises ecj.NotCompiled."""
    path, jars = jar(), _class_path()
    if path is None or jars is None or path.is_file():
        return path
    path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=path.parent, prefix=".build-") as scratch:
        classes = Path(scratch) / "classes"
        ecj.compile_java(java, sorted(SOURCES.glob("*.java")), jars, classes)
        fresh = Path(scratch) / path.name
        _pack(classes, fresh)
        os.replace(fresh, path)
    return path


def _class_path() -> list[Path] | None:
    """Spark's own jars and those of its Kafka connector; None where Spark is not installed."""
    spec = importlib.util.find_spec("pyspark")
    if spec is None or spec.origin is None:
        return None
    spark = Path(spec.origin).parent / "jars"
    return [*sorted((settings.cache() / "jars" / "spark").glob("*.jar")), *sorted(spark.glob("*.jar"))]


def _fingerprint(jars: list[Path]) -> str:
    """A jar is known by its name, which holds its version, and by its size."""
    parts = [f"{path.name} {path.stat().st_size}" for path in jars]
    return hashlib.sha256("\n".join([_sources(), ecj.RELEASE, *parts]).encode()).hexdigest()[:16]


@functools.cache
def _sources() -> str:
    digest = hashlib.sha256()
    for path in sorted(SOURCES.glob("*.java")):
        digest.update(f"{path.name} {path.stat().st_size}\n".encode() + path.read_bytes())
    return digest.hexdigest()


def _pack(classes: Path, target: Path) -> None:
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as packed:
        for path in sorted(classes.rglob("*.class")):
            packed.writestr(zipfile.ZipInfo(path.relative_to(classes).as_posix(), STAMP), path.read_bytes())
        packed.writestr(zipfile.ZipInfo(SERVICE, STAMP), f"{PROVIDER}\n")
