"""The daemon has what tasks need before it forks, and still is Spark's."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from tests.support.checkout import ROOT

SCRIPT = """
import gc, sys, zipimport
from streamproof.engines.spark import python_daemon
python_daemon.make_ready()
assert set(python_daemon.READY) <= set(sys.modules)
archive = zipimport.zipimporter(sys.argv[1])
archive._files = {"kept": ()}
archive.invalidate_caches()
assert archive._files == {"kept": ()}, "the archive was read again"
assert gc.get_freeze_count() > 10_000
print("ready")
"""


def test_the_daemon_imports_what_tasks_need_and_keeps_what_archives_hold() -> None:
    import pyspark

    archive = Path(pyspark.__file__).parent / "python" / "lib" / "pyspark.zip"
    done = subprocess.run([sys.executable, "-c", SCRIPT, str(archive)], cwd=ROOT, capture_output=True, text=True, timeout=60, check=False)
    assert done.stdout == "ready\n", done.stderr
