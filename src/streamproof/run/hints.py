"""What to do about an error that a job printed last, where that is known."""

from __future__ import annotations

import re

_HINTS = (
    (r"ModuleNotFoundError: No module named '([\w.]+)'", "install {0} into the job's own environment, and name that in `interpreter`"),
    (r"(?:Import|ModuleNotFound)Error\b", "its environment does not fit it: name the job's own in `interpreter`"),
    (r"KeyError: '([A-Z][A-Z0-9_]*)'", "it looks for a variable {0}: set it in `env`"),
    (r"KeyError: '([a-z_]\w*)'", "no record has a field {0}: send input of its own, `workload: {file: {path: …}}`"),
    (r"environment variable [\"'`]?([A-Za-z_]\w*)", "set the variable {0} in `env`"),
    (r"can't open file '([^']+)'", "there is no file {0}: the command runs in the project's folder, `cwd` names another"),
    (r"(?:JAVA_GATEWAY_EXITED|JAVA_HOME)", "Spark found no Java: `streamproof setup` brings one, or set JAVA_HOME in `env`"),
    (r"Failed to find data source: (\w+)", "Spark lacks a package for {0}: give it the jars in {spark_jars}"),
    (r"No suitable driver|ClassNotFoundException: org\.postgresql", "Spark lacks PostgreSQL's driver: give it the jars in {spark_jars}"),
    (
        r"password authentication failed|no password supplied",
        "take the address from {jdbc_url} or {postgres}: the password is in PGPASSFILE",
    ),
    (r"UNKNOWN_TOPIC|[Uu]nknown topic", "read {input_topic} and write {output_topic}: no topic is made by using it"),
)


def hint(error: str) -> str:
    """What to do about it; empty when nobody knows."""
    for pattern, advice in _HINTS:
        if match := re.search(pattern, error):
            return advice.replace("{0}", match[1] if match.groups() else "")
    return ""
