"""How this testbed runs a JVM: which Java, and flags that trade peak speed for a quick start.

Short runs are mostly start-up. Measured on two cores, ``-XX:TieredStopAtLevel=1 -XX:+UseSerialGC`` halves the time of a new Spark
application to its 20th small batch, and a class-data-sharing archive takes a third off the rest. They lower peak throughput:
benchmarks of sinks must not use them.
"""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Mapping
from pathlib import Path

from streamproof import settings

QUICK_START = ["-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-XX:-UsePerfData", "-Xshare:auto"]

OPTIONS = "JAVA_TOOL_OPTIONS"
"""The variable whose options each JVM takes, and says so on its standard error."""


def archive(name: str) -> Path:
    """Where the class-data-sharing archive of the JVM role ``name`` lies, once it was made.

    An archive holds for one class path, and Spark's is in the checkout's environment: checkouts that share a cache keep their own.
    """
    environment = hashlib.sha256(sys.prefix.encode()).hexdigest()[:12]
    return settings.cache() / "cds" / environment / f"{name}.jsa"


def archive_flags(name: str) -> list[str]:
    """Flags to start from the archive of ``name``; none while it does not exist. A stale archive only costs the time it would save."""
    path = archive(name)
    return [f"-XX:SharedArchiveFile={path}", "-Xlog:cds=off", "-Xlog:cds+dynamic=off"] if path.is_file() else []


def temporary(folder: Path, before: Mapping[str, str]) -> dict[str, str]:
    """Variables that tell a program, a JVM and Spark to put what is temporary into ``folder``. The options that ``before`` has for each
    JVM stay."""
    options = f"{before.get(OPTIONS, '')} -Djava.io.tmpdir={folder}".strip()
    return {"TMPDIR": str(folder), "SPARK_LOCAL_DIRS": str(folder), OPTIONS: options}
