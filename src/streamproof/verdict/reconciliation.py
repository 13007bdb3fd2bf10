"""The reconciliation, ``reconciliation.parquet``: every anomalous record with its blame, and the account of each source partition."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from streamproof.evidence.folder import SCHEMA_VERSION, RunFolder
from streamproof.evidence.histories import Evidence, write_table
from streamproof.verdict.blame import Timeline, explain
from streamproof.verdict.checks.matching import Finding
from streamproof.verdict.checks.records import Reconciliation

RECONCILIATION = pa.schema(
    [
        ("row", pa.string()),
        ("anomaly", pa.string()),
        ("producer", pa.int32()),
        ("sequence", pa.int64()),
        ("partition", pa.int32()),
        ("offset", pa.int64()),
        ("copies", pa.int32()),
        ("acked", pa.int64()),
        ("indeterminate", pa.int64()),
        ("rejected", pa.int64()),
        ("delivered", pa.int64()),
        ("lost", pa.int64()),
        ("duplicated", pa.int64()),
        ("blame", pa.string()),
        ("start", pa.int32()),
        ("batch", pa.int64()),
        ("result", pa.string()),
    ],
    metadata={b"schema_version": str(SCHEMA_VERSION).encode()},
)


def reconciliation_table(reconciliation: Reconciliation, findings: Sequence[Finding], evidence: Evidence, timeline: Timeline) -> pa.Table:
    """A ``record`` row for each finding, a ``partition`` row for each partition of the source."""
    sent, delivered = evidence.sent, evidence.delivered
    rows: list[dict[str, Any]] = []
    for finding in findings:
        at = finding.sent
        rows.append(
            {
                "row": "record",
                "anomaly": str(finding.anomaly),
                "producer": finding.producer,
                "sequence": finding.sequence,
                "partition": int(sent.partition[at]) if at is not None else None,
                "offset": int(sent.offset[at]) if at is not None and sent.offset[at] >= 0 else None,
                "copies": finding.copies,
                "blame": explain(finding, sent, delivered, evidence.delivered_at, timeline),
                "start": finding.start,
                "batch": finding.batch,
                "result": finding.result,
            }
        )
    for account in reconciliation.partitions:
        rows.append(
            {
                "row": "partition",
                "partition": account.partition,
                "acked": account.acked,
                "indeterminate": account.indeterminate,
                "rejected": account.rejected,
                "delivered": account.delivered,
                "lost": account.lost,
                "duplicated": account.duplicated,
            }
        )
    return pa.Table.from_pylist(rows, schema=RECONCILIATION)


def write_reconciliation(folder: RunFolder, table: pa.Table) -> None:
    write_table(folder.reconciliation, table)
