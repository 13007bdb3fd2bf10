"""The class path of a job that is a program in Java: its own jar, or the classes of its source, which its first start compiles."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

from streamproof.engines.java.spec import JavaJob
from streamproof.errors import BadInput
from streamproof.testbed import ecj, install


def program(job: JavaJob, jars: Sequence[Path]) -> Path:
    """Its jar, or the folder of its classes. Raises BadInput with the compiler's own words."""
    path = Path(job.program)
    return path if path.suffix != ".java" else classes_of([path], jars, job.state / "classes")


def classes_of(sources: Iterable[Path], jars: Sequence[Path], classes: Path) -> Path:
    """The folder ``classes``, compiled unless it is there. Raises BadInput with the compiler's own words."""
    if not classes.is_dir():
        files = list(sources)
        try:
            ecj.compile_java(install.java_executable(), files, jars, classes)
        except ecj.NotCompiled as error:
            raise BadInput(f"job: source: {', '.join(map(str, files))} does not compile:\n  {error}") from error
    return classes
