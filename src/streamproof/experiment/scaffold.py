"""A first experiment for somebody's own job, from what its script says of itself: what it reads, where it delivers, what it must be told.

A Python script is parsed, never imported or run. Of a script in another language nothing is known but its name.
"""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from streamproof.errors import BadInput

NAME_LENGTH = 40
ADDRESS = re.compile(r"[\w.-]+:\d{2,5}(,[\w.-]+:\d{2,5})*|jdbc:postgresql://.*|postgres(ql)?://.*")
ID_COLUMN = re.compile(r"\b(\w*id)\s+(?:string|STRING)\b")
FILE_FORMATS = ("parquet", "json", "csv")
# What a variable of the job stands for, by words in its name; the first that fits.
PLACEHOLDERS = (
    (r"BOOTSTRAP|BROKERS?$|KAFKA_(SERVERS?|ADDRESS)", "bootstrap_servers"),
    (r"CHECKPOINT", "checkpoint"),
    (r"JDBC", "jdbc_url"),
    (r"POSTGRES|DATABASE_URL|DSN$", "postgres"),
    (r"GROUP", "group"),
    (r"(OUT|SINK|TARGET|DEST)\w*TOPIC|TOPIC\w*(OUT|SINK|TARGET|DEST)", "output_topic"),
    (r"TOPIC", "input_topic"),
    (r"JARS", "spark_jars"),
    (r"MASTER", "spark_master"),
    (r"BATCH|MAX_OFFSETS", "batch_records"),
    (r"TABLE", "table"),
    (r"OUTPUT|TARGET|SINK", "output_folder"),
    (r"STATE|DATA_DIR|WORK_DIR", "state_folder"),
)
OF_THE_MACHINE = re.compile(r"STREAMPROOF_.*|JAVA_HOME|PATH|HOME|USER|TMPDIR|LANG|PYTHON.*")


@dataclass
class Hints:
    """What a script says of itself. ``addresses`` are those that it names itself, ``variables`` those that it reads."""

    spark: bool = False
    sinks: set[str] = field(default_factory=set)
    file_format: str = "parquet"
    table: str | None = None
    identity: str | None = None
    checkpoint: bool = False
    transactions: bool = False
    variables: list[str] = field(default_factory=list)
    addresses: list[str] = field(default_factory=list)

    @property
    def sink(self) -> str:
        """kafka, postgres, files, delta or iceberg; kafka when nothing, or too much, is known."""
        (only,) = self.sinks if len(self.sinks) == 1 else ("kafka",)
        return only


def read(script: Path) -> Hints:
    """Raises BadInput when the script is not there, or is Python and cannot be parsed."""
    try:
        text = script.read_text()
    except (OSError, UnicodeDecodeError) as error:
        raise BadInput(f"{script}: expected a script, it cannot be read: {error}") from error
    if script.suffix != ".py":
        return Hints()
    try:
        tree = ast.parse(text)
    except SyntaxError as error:
        raise BadInput(f"{script}: expected Python, line {error.lineno} is none: {error.msg}") from error
    hints = Hints()
    for node in ast.walk(tree):
        _look(node, hints)
    return hints


def _look(node: ast.AST, hints: Hints) -> None:
    match node:
        case ast.Import(names=names):
            hints.spark |= any(name.name.partition(".")[0] == "pyspark" for name in names)
        case ast.ImportFrom(module=str(module)):
            hints.spark |= module.partition(".")[0] == "pyspark"
        case ast.Subscript(value=ast.Attribute(attr="environ") | ast.Name(id="environ"), slice=ast.Constant(value=str(name))):
            _variable(name, hints)
        case ast.Call(func=ast.Attribute(attr="getenv") | ast.Name(id="getenv"), args=[ast.Constant(value=str(name)), *_]):
            _variable(name, hints)
        case ast.Call(func=ast.Attribute(attr="get", value=ast.Attribute(attr="environ")), args=[ast.Constant(value=str(name)), *_]):
            _variable(name, hints)
        case ast.Call(func=ast.Attribute(attr=method), args=arguments):
            _called(node, method, [each.value for each in arguments if isinstance(each, ast.Constant)], hints)
        case ast.Constant(value=str(text)):
            if ADDRESS.fullmatch(text) and text not in hints.addresses:
                hints.addresses.append(text)
            if hints.identity is None and (found := ID_COLUMN.search(text)):
                hints.identity = found[1]


def _variable(name: str, hints: Hints) -> None:
    if not OF_THE_MACHINE.fullmatch(name) and name not in hints.variables:
        hints.variables.append(name)


def _called(node: ast.Call, method: str, constants: list[object], hints: Hints) -> None:
    chain = set(_chain(node))
    writes = bool(chain & {"write", "writeStream"})
    first = constants[0] if constants else None
    if method == "option" and first == "checkpointLocation":
        hints.checkpoint = True
    elif method == "init_transactions":
        hints.transactions = True
    elif method == "produce" or (method == "send" and not hints.spark):
        hints.sinks.add("kafka")
    elif method == "jdbc" and writes:
        hints.sinks.add("postgres")
        hints.table = next((str(each) for each in constants if re.fullmatch(r"\w+", str(each))), None)
    elif method == "format" and writes and first == "kafka":
        hints.sinks.add("kafka")
    elif method == "format" and writes and first == "delta":
        hints.sinks.add("delta")
    elif method in ("toTable", "writeTo") and str(first).count(".") >= 2:  # CATALOG.NAMESPACE.TABLE
        hints.sinks.add("iceberg")
        hints.table = ".".join(str(first).split(".")[-2:])
    elif writes and (first if method == "format" else method) in FILE_FORMATS:
        hints.sinks.add("files")
        hints.file_format = str(first if method == "format" else method)


def _chain(node: ast.AST) -> Iterator[str]:
    """The names along a chain of calls and attributes, from its end."""
    while isinstance(node, ast.Call | ast.Attribute):
        if isinstance(node, ast.Attribute):
            yield node.attr
            node = node.value
        else:
            node = node.func


def placeholder(variable: str) -> str | None:
    """What a variable of the job most likely stands for."""
    return next((holds for pattern, holds in PLACEHOLDERS if re.search(pattern, variable.upper())), None)


def name_of(script: Path) -> str:
    """A name for the experiment: lower-case letters, digits, - and _."""
    return re.sub(r"[^a-z0-9_-]", "-", script.stem.lower()).strip("-_")[:NAME_LENGTH] or "job"


def experiment(script: str, name: str, hints: Hints) -> str:
    """The experiment as YAML, with a comment wherever somebody should look."""
    python = script.endswith(".py")
    command = json.dumps(["{python}", script] if python else [script], ensure_ascii=False)  # JSON is YAML, whatever a path holds
    return "\n".join(
        [
            f"# Is {name} what it promises? `streamproof doctor chaos/{name}.yaml` says whether it can be tested.",
            f"name: {name}",
            "job:",
            "  engine: command",
            f"  command: {command}",
            *(["  # interpreter: .venv            # the job's own Python, where that is another"] if python else []),
            *_env(hints),
            *_delivers(hints),
            *_progress(hints),
            "  promises: exactly-once          # or at-least-once, at-most-once: what its users count on",
            *(
                ["  transactions: true              # it writes in Kafka transactions; their ids should begin with {job}."]
                * hints.transactions
            ),
            "workload: {source: synthetic, records: 12000, rate_per_s: 1000}",
            "faults:",
            "  # SIGKILL between two steps of its commit protocol, each time between others; then the job is started again.",
            "  - fault: kill_at_window",
            "  - fault: kill_at_window",
            f"  # - fault: cut_{'postgres' if hints.sink == 'postgres' else 'kafka'}         # no network, until the job has noticed it",
            "seed: 1",
            "",
        ]
    )


def _env(hints: Hints) -> Iterator[str]:
    if not hints.variables:
        yield '  # env: {BOOTSTRAP: "{bootstrap_servers}"}   # or read STREAMPROOF_BOOTSTRAP_SERVERS, STREAMPROOF_INPUT_TOPIC, …'
        return
    yield "  env:"
    for variable in hints.variables:
        holds = placeholder(variable)
        yield (
            f'    {variable}: "{{{holds}}}"'
            if holds
            else f'    {variable}: ""{" " * max(1, 26 - len(variable))}# the script reads it: what is it?'
        )


def _delivers(hints: Hints) -> Iterator[str]:
    if hints.sink == "kafka":
        yield "  # Where a record keeps its identity; without this the value must begin with it, as it is sent."
        yield "  # delivers: {kafka: {identity: {header: id}}}"
        return
    column = hints.identity or "id"
    sure = "" if hints.identity else "     # which column keeps the identity?"
    yield "  delivers:"
    if hints.sink == "delta":
        yield f"    delta: {{path: out, identity: {{column: {column}}}}}{sure}"
    elif hints.sink == "iceberg":
        yield f"    iceberg: {{table: {hints.table}, identity: {{column: {column}}}}}{sure}"
    elif hints.sink == "postgres":
        yield f"    postgres: {{table: {hints.table or 'orders'}, identity: {{column: {column}}}}}{sure}"
    else:
        quoting = ', escape: "\\\\"' * (hints.spark and hints.file_format == "csv")
        yield f"    files: {{path: out, format: {hints.file_format}{quoting}, identity: {{column: {column}}}}}{sure}"


def _progress(hints: Hints) -> Iterator[str]:
    if hints.checkpoint:
        yield '  progress: {spark_checkpoint: "{checkpoint}"}   # the query\'s checkpointLocation'
    elif hints.spark:
        yield "  # progress: {spark_checkpoint: ...}   # the query has no checkpointLocation: how far it came would be forgotten"
