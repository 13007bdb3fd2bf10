"""Says what changed, and nothing when nothing did.

Of a nightly run: what is newly broken, fixed, flaky, slower, still broken or was not run, and that it has no summary. Of an experiment
from the form: that it failed. A nightly run in which all is as it was, and an experiment that went as expected, are passed over in silence.

It speaks through connections of Airflow, where they exist: a webhook (``streamproof_webhook``, type HTTP: a POST of JSON to its host, port
and schema; ``endpoint`` in its extra is the path, other extras are headers, login and password are sent as basic authentication) and
mail (``streamproof_smtp``, type SMTP: ``from_email`` and ``to`` in its extra). A connection's fields may be secrets, a webhook's address
first of all: no log and no error here says more of it than its id.
"""

from __future__ import annotations

import html
import logging
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from airflow.sdk import BaseNotifier, Connection
from airflow.sdk.exceptions import AirflowNotFoundException

from streamproof.airflow.links import dag_run
from streamproof.airflow.operators import newest, plain

WEBHOOK, MAIL = "streamproof_webhook", "streamproof_smtp"
SEND_S = 20.0
log = logging.getLogger("streamproof.airflow.notifier")


class NotToldError(Exception):
    """Somebody who was to be told was not. The message names the connection and the kind of error, nothing of the connection's fields."""


@dataclass(frozen=True)
class Message:
    """``text`` begins with ``subject``; ``data`` is the same for a machine."""

    subject: str
    text: str
    data: dict[str, Any]


class ChangeNotifier(BaseNotifier):
    """The callback of a DAG: one for its success, one that ``failed``. ``webhook`` and ``mail`` are connection ids."""

    def __init__(self, *, failed: bool, webhook: str = WEBHOOK, mail: str = MAIL) -> None:
        super().__init__()
        self.failed, self.webhook, self.mail = failed, webhook, mail

    def notify(self, context: Any) -> None:
        """Raises NotToldError when one of the connections did not take the message; the others have been tried too."""
        message = news(context["dag"].dag_id, context["run_id"], self.failed)
        if message is None:
            log.info("nothing changed: nobody is told")
            return
        log.info("%s", message.text)
        failures = []
        for name, send in ((self.webhook, _post), (self.mail, _mail)):
            try:
                connection = Connection.get(name)
            except AirflowNotFoundException:
                log.info("there is no connection %s: nothing is sent there", name)
                continue
            try:
                send(connection, message)
                log.info("told through %s", name)
            except Exception as error:  # noqa: BLE001 - whatever it is, its text may hold a secret, and the other is still to be told
                failures.append(f"{name}: {type(error).__name__}{_code(error)}")
        if failures:
            raise NotToldError(f"not told through {'; '.join(failures)}") from None


def news(dag: str, run_id: str, failed: bool) -> Message | None:
    """What is to be said of a DAG run that ended, from what it left on the disk, and where it is in Airflow."""
    message, link = _news(dag, plain(run_id), failed), dag_run(dag, run_id)
    if message is None or link is None:
        return message
    return replace(message, text=f"{message.text}\n{link}", data={**message.data, "link": link})


def _news(dag: str, name: str, failed: bool) -> Message | None:
    if dag == "chaos_nightly":
        return _of_nightly_run(dag, name, failed)
    return _of_run(dag, newest(name)) if failed else None


def _of_nightly_run(dag: str, name: str, failed: bool) -> Message | None:
    from streamproof.run.nightly import NightlyRun

    summary = NightlyRun.named(name).summary()
    if summary is None:
        subject = f"streamproof: nightly run {name} came to no summary"
        return Message(subject, f"{subject}. See the DAG run in Airflow.", {"dag": dag, "nightly_run": name, "red": True, "scenarios": []})
    if not summary.news and not failed:
        return None
    subject = f"streamproof: {summary.headline}"
    data = summary.to_dict()
    return Message(subject, f"{subject}\n\n{summary.text}\n\n{summary.folder}", {"dag": dag, **data, "scenarios": data["scenarios"]})


def _of_run(dag: str, folder: Path) -> Message:
    from streamproof.evidence.folder import EvidenceError, RunFolder
    from streamproof.verdict.verdict import Verdict

    try:
        verdict = Verdict.read(RunFolder(folder))
        outcome, reason = str(verdict.outcome), verdict.reason
    except EvidenceError:
        outcome, reason = "no verdict", "it ended before it was judged; see the DAG run in Airflow"
    subject = f"streamproof: {folder.name}: {outcome}"
    return Message(subject, f"{subject}\n\n{reason}\n\n{folder}", {"dag": dag, "run": folder.name, "outcome": outcome, "reason": reason})


def _post(connection: Any, message: Message) -> None:
    import httpx

    extra = {**connection.extra_dejson}
    endpoint = str(extra.pop("endpoint", "")).lstrip("/")
    host = connection.host or ""
    address = host if "://" in host else f"{connection.schema or 'https'}://{host}"
    address = f"{address}:{connection.port}" if connection.port else address
    login = httpx.BasicAuth(connection.login, connection.password or "") if connection.login else None
    with _unlogged("httpx", "httpcore"), httpx.Client(timeout=SEND_S, trust_env=False, auth=login) as client:
        body = {"text": message.text, "subject": message.subject, **message.data}
        headers = {name: str(value) for name, value in extra.items()}
        client.post(f"{address.rstrip('/')}/{endpoint}", json=body, headers=headers).raise_for_status()


def _mail(connection: Any, message: Message) -> None:
    from airflow.providers.smtp.hooks.smtp import SmtpHook

    extra = connection.extra_dejson
    to = extra["to"].split(",") if isinstance(extra["to"], str) else extra["to"]
    with SmtpHook(smtp_conn_id=connection.conn_id) as hook:
        hook.send_email_smtp(
            to=[address.strip() for address in to], subject=message.subject, html_content=f"<pre>{html.escape(message.text)}</pre>"
        )


def _code(error: Exception) -> str:
    """The server's answer, where there was one: a number."""
    code = getattr(getattr(error, "response", None), "status_code", None) or getattr(error, "smtp_code", None)
    return f" ({code})" if isinstance(code, int) else ""


class _unlogged:  # noqa: N801 - used like a function
    """Keep loggers below WARNING quiet for a while: httpx tells each address that it asks."""

    def __init__(self, *names: str) -> None:
        self._loggers = [logging.getLogger(name) for name in names]

    def __enter__(self) -> None:
        self._levels = [logger.level for logger in self._loggers]
        for logger in self._loggers:
            logger.setLevel(logging.WARNING)

    def __exit__(self, *_: object) -> None:
        for logger, level in zip(self._loggers, self._levels, strict=True):
            logger.setLevel(level)
