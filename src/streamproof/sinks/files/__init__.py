"""A folder of files as output: ours, or the user's own."""

from streamproof.sinks.sink import Deferred

LOGGED_FILES = Deferred("files", frozenset({"kafka"}), "streamproof.sinks.files.folder:LoggedFiles")
LISTED_FILES = Deferred("listed_files", frozenset({"kafka"}), "streamproof.sinks.files.folder:ListedFiles")
FILE_ROWS = Deferred("file_rows", frozenset({"kafka"}), "streamproof.sinks.files.rows:FileRows")
