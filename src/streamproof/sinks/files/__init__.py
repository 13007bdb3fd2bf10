"""A folder of files as output."""

from streamproof.sinks.sink import Deferred

LOGGED_FILES = Deferred("files", frozenset({"kafka"}), "streamproof.sinks.files.folder:LoggedFiles")
LISTED_FILES = Deferred("listed_files", frozenset({"kafka"}), "streamproof.sinks.files.folder:ListedFiles")
