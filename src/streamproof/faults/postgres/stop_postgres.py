"""``stop_postgres``: the database server is shut down in good order, and started again.

The model: an upgrade, a restart for a new setting. Sessions are ended and their open transactions rolled back, prepared ones are kept, and
everything is forced to disk.

Evidence: its process is gone, a probe gets no answer as long as it is away, the job commits nothing meanwhile, and goes on afterwards.
Checked against: PostgreSQL 18.4 (SIGINT is the *fast* shutdown: it waits for no client).
"""

from __future__ import annotations

import signal

from streamproof.faults.outage import Stopped
from streamproof.jobs.profile import POSTGRES


class StopPostgres(Stopped):
    what = role = "postgres"
    of_links = frozenset({POSTGRES})
    by = signal.SIGINT
    name = "stop_postgres"
    summary = "Shut PostgreSQL down in good order; it is started again"
    target = "the database server"
