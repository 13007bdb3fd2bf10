"""A step of a protocol that a JVM passes: ``python -m streamproof.engines.spark.reach RUN STEP BATCH --process PID``.

The data source ``streamproof-kafka`` runs it where a failpoint is armed, and waits for it. Exit code 0: go on; any other: fail.
"""

from __future__ import annotations

import argparse
import sys

from streamproof.engines.spark.failpoints import FailpointError, reach
from streamproof.evidence.folder import RunFolder


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("run", help="the run's folder")
    parser.add_argument("step")
    parser.add_argument("batch", type=int)
    parser.add_argument("--process", type=int, required=True, help="the JVM that passes the step")
    parser.add_argument("--attempt", type=int)
    parser.add_argument("--partition", type=int)
    options = parser.parse_args()
    context = {name: value for name in ("attempt", "partition") if (value := getattr(options, name)) is not None}
    try:
        reach(RunFolder(options.run), options.step, options.batch, process=options.process, **context)
    except FailpointError as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
