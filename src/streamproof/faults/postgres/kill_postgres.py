"""``kill_postgres``: SIGKILL the database server, and start it again on the data it left.

The model: the machine of the sink loses power. Open transactions are gone; committed and prepared ones are not. Tasks fail with their
connections and are retried until the server is back.

Evidence: its process is gone, a probe gets no answer as long as it is away, the job commits nothing meanwhile, and goes on afterwards.
Checked against: PostgreSQL 18.4 (crash recovery replays the write-ahead log; prepared transactions are read back from it).
"""

from __future__ import annotations

from streamproof.faults.outage import Killed
from streamproof.jobs.profile import POSTGRES


class KillPostgres(Killed):
    what = role = "postgres"
    of_links = frozenset({POSTGRES})
    name = "kill_postgres"
    summary = "SIGKILL PostgreSQL; it is started again on the data it left"
    target = "the database server"
