"""The stages of a run and their order, for the command line, Airflow and whoever reads the journal.

Each name is that of a function in ``streamproof.run.stages`` and, in Airflow, of a task. Stages of one group run side by side.
"""

from __future__ import annotations

TOGETHER = ("run_pipeline", "generate_load", "inject_faults")
SEQUENCE: tuple[tuple[str, ...], ...] = (("prepare",), TOGETHER, ("drain",), ("verify",), ("expect",))
"""The groups, one after the other; the first stage that fails ends the sequence."""

REPORT, RESTORE = "report", "restore"
"""``restore`` ends every run, whatever happened before. The command line restores before it reports, so that a run that broke has a report
too; Airflow's teardown comes last, behind the report."""

ORDER = (*(stage for group in SEQUENCE for stage in group), RESTORE, REPORT)
NEED_THE_TESTBED = (*TOGETHER, "drain")
"""What cannot be repeated once the run has given the testbed back."""
