"""An Iceberg table as output, its catalog in PostgreSQL: ours, or the user's own."""

from streamproof.sinks.sink import Deferred

ICEBERG_TABLE = Deferred("iceberg", frozenset({"kafka", "postgres"}), "streamproof.sinks.iceberg.table:IcebergTable", keeps_versions=True)
ICEBERG_ROWS = Deferred("iceberg_rows", frozenset({"kafka", "postgres"}), "streamproof.sinks.iceberg.rows:IcebergRows", keeps_versions=True)
ICEBERG_FOLDER_ROWS = Deferred(
    "iceberg_folder_rows", frozenset({"kafka"}), "streamproof.sinks.iceberg.rows:IcebergFolderRows", keeps_versions=True
)
