"""A Delta table in a folder as output: ours, or the user's own."""

from streamproof.sinks.sink import Deferred

DELTA_TABLE = Deferred("delta", frozenset({"kafka"}), "streamproof.sinks.delta.table:DeltaTable", keeps_versions=True)
DELTA_ROWS = Deferred("delta_rows", frozenset({"kafka"}), "streamproof.sinks.delta.rows:DeltaRows", keeps_versions=True)
