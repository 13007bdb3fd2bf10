"""A Delta table in a folder, as output."""

from streamproof.sinks.sink import Deferred

DELTA_TABLE = Deferred("delta", frozenset({"kafka"}), "streamproof.sinks.delta.table:DeltaTable")
