"""The command line: ``streamproof``.

Exit codes: 0 PASSED (or done), 1 FAILED, 2 bad input, 3 INCONCLUSIVE or ERROR, 130 ABORTED.
"""

from __future__ import annotations

import sys

import typer

from streamproof import extras
from streamproof.cli.catalogue_commands import faults, pipelines, strategies
from streamproof.cli.check_command import check
from streamproof.cli.component_command import component
from streamproof.cli.doctor_command import doctor
from streamproof.cli.explore_command import explore
from streamproof.cli.history_commands import compare, history_app, metrics
from streamproof.cli.init_command import init
from streamproof.cli.plan_command import plan
from streamproof.cli.record_command import record
from streamproof.cli.run_command import run
from streamproof.cli.shrink_command import shrink
from streamproof.cli.soak_command import soak
from streamproof.cli.sweep_command import sweep
from streamproof.cli.testbed_commands import down, heal, setup, testbed_app
from streamproof.cli.windows_command import windows
from streamproof.errors import BadInput
from streamproof.evidence.folder import EvidenceError
from streamproof.history.record import HistoryError
from streamproof.testbed.install import SetupError
from streamproof.testbed.process import TestbedError

BAD_INPUT = 2
COMMANDS = (
    *(init, doctor, windows, explore, record, compare, metrics),
    *(run, sweep, soak, shrink, check, plan, faults, strategies, pipelines, setup, heal, down),
)

app = typer.Typer(
    help="Break a streaming pipeline on purpose, and prove record by record what it delivered.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    add_completion=False,
)
app.add_typer(testbed_app, name="testbed")
app.add_typer(history_app, name="history")
for command in COMMANDS:
    app.command()(command)
app.command(hidden=True)(component)


def main() -> None:
    """Entry point. What the user can mend is one line on standard error, without a traceback."""
    from streamproof.run.lock import TestbedBusy

    try:
        app()
    except (BadInput, EvidenceError, TestbedBusy) as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(BAD_INPUT)
    except (TestbedError, SetupError, HistoryError) as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(3)
    except ModuleNotFoundError as error:  # a part that this installation left out
        if (missing := extras.named(error)) is None:
            raise
        print(f"error: {missing}", file=sys.stderr)
        sys.exit(BAD_INPUT)
    except BrokenPipeError:
        sys.exit(0)


if __name__ == "__main__":
    main()
