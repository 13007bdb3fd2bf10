"""Compiles Java where there is no JDK: the compiler is Eclipse's, a jar of jars.lock.

The module imports nothing outside the standard library, for the set-up works with it before anything is installed.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterable
from pathlib import Path

from streamproof import settings

COMPILE_TIMEOUT_S = 300.0
RELEASE = "17"  # the oldest Java that Spark 4.1 runs on


class NotCompiled(Exception):
    """The sources do not compile against these jars. The message ends with the compiler's own words."""


def compile_java(java: Path, sources: Iterable[Path], jars: Iterable[Path], classes: Path) -> None:
    """Compile the sources into the folder ``classes``. Raises NotCompiled."""
    compiler = next((settings.cache() / "jars" / "ecj").glob("*.jar"), None)
    if compiler is None:
        raise NotCompiled("the compiler's jar is not installed")
    options = ["-source", RELEASE, "-target", RELEASE, "-proc:none", "-nowarn", "-encoding", "UTF-8", "-d", str(classes)]
    command = [str(java), "-jar", str(compiler), *options, "-classpath", os.pathsep.join(map(str, jars)), *map(str, sources)]
    try:
        done = subprocess.run(command, capture_output=True, text=True, errors="replace", timeout=COMPILE_TIMEOUT_S, check=False)
    except subprocess.TimeoutExpired as error:
        raise NotCompiled(f"the compiler did not end within {COMPILE_TIMEOUT_S:.0f} s") from error
    if done.returncode != 0:
        raise NotCompiled("\n  ".join((done.stdout + done.stderr).strip().splitlines()[-20:]))
