"""``pause_postgres``: SIGSTOP the database server and all of its sessions for a while, then let them go on.

The model: a disk that hangs, a virtual machine that is moved. Statements in flight are neither answered nor lost: they are carried out
later, when whoever sent them may have given up.

Evidence: its process is stopped, a probe gets no answer as long as it is, the job commits nothing meanwhile, and goes on afterwards.
Checked against: PostgreSQL 18.4 (``statement_timeout`` counts the server's own clock, and ends the statement after SIGCONT).
"""

from __future__ import annotations

from streamproof.faults.outage import Paused
from streamproof.jobs.profile import POSTGRES


class PausePostgres(Paused):
    what = role = "postgres"
    of_links = frozenset({POSTGRES})
    name = "pause_postgres"
    summary = "SIGSTOP PostgreSQL and its sessions for a while"
    target = "the database server"
