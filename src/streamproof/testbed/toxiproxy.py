"""Toxiproxy as a component, and a careful adapter over its Python client.

The server is one of our own, in ``message_proxy``: Toxiproxy as a library, with the message links of ``testbed.messages``.

toxiproxy-python keeps host and port in class globals, sets no HTTP timeout, lets a status 500 pass as success and returns nothing
from ``add_toxic``. Everything here goes through one adapter that sets a timeout and *reads back* after each write: a toxic is there
when the server lists it with the attributes that were asked for, not when a call returned.
"""

from __future__ import annotations

import contextlib
import functools
import struct
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from streamproof import settings
from streamproof.kafka import login
from streamproof.testbed import hosts, probes
from streamproof.testbed.process import Handle, TestbedError, listening, running, spawn, wait_until

ROLE = "toxiproxy"
HTTP_TIMEOUT_S = 5.0
READY_S = 15.0


def start(folder: Path, port: int) -> Handle:
    """Start the server on loopback ``port`` and return once it answers."""
    if (old := running("toxiproxy", folder)) is not None:
        return old
    command = [str(settings.cache() / "bin" / "toxiproxy-server"), "-host", hosts.listen(), "-port", str(port)]
    handle = spawn("toxiproxy", command, folder)
    wait_until("toxiproxy: accept connections", lambda: listening(hosts.of(ROLE), port), READY_S, process=handle)
    return handle


class NotThere(TestbedError):
    """The server has no proxy or toxic of that name."""


class Proxies:
    """The proxies of one Toxiproxy server. Raises TestbedError when the server refuses a request or does not show the change."""

    def __init__(self, port: int, host: str | None = None) -> None:
        self.port, self.host = port, hosts.of(ROLE) if host is None else host

    def _server(self) -> Any:
        from toxiproxy import Toxiproxy
        from toxiproxy.api import APIConsumer

        APIConsumer.host, APIConsumer.port = self.host, self.port
        for verb in ("get", "post", "delete"):
            call = getattr(APIConsumer, verb)
            if not hasattr(call, "bounded"):
                setattr(APIConsumer, verb, _bounded(call))
        return Toxiproxy()

    def _proxy(self, name: str) -> Any:
        proxy = self._server().get_proxy(name)
        if proxy is None:
            raise TestbedError(f"toxiproxy has no proxy {name!r}. Start the testbed anew: `streamproof testbed down`, then `up`.")
        return proxy

    def ensure(self, name: str, listen: str, upstream: str) -> None:
        """Make the proxy exist. One that is there already keeps its toxics: they may be a running experiment's."""
        server = self._server()
        present = server.get_proxy(name)
        if present is not None and (present.listen, present.upstream) != (listen, upstream):
            present.destroy()
            present = None
        if present is None:
            server.create(upstream=upstream, name=name, listen=listen, enabled=True)
            self._proxy(name)

    def destroy(self, name: str) -> None:
        """Make the proxy be no more; its connections are closed."""
        present = self._server().get_proxy(name)
        if present is not None:
            present.destroy()

    def add(self, name: str, toxic: str, kind: str, stream: str, attributes: dict[str, int]) -> None:
        """Add a toxic with toxicity 1.0 and read it back."""
        negative = {key: value for key, value in attributes.items() if value < 0}
        if negative:  # the server takes them, and then does nothing
            raise TestbedError(f"toxiproxy: toxic {toxic!r} on {name!r} was asked for with {negative}, expected 0 or more")
        self._proxy(name).add_toxic(name=toxic, type=kind, stream=stream, toxicity=1.0, attributes=attributes)
        read_back = self.toxics(name).get(toxic)
        if read_back is None or any(read_back.get(key) != value for key, value in attributes.items()):
            raise TestbedError(f"toxiproxy: toxic {toxic!r} on {name!r} was asked for with {attributes}, but reads back as {read_back}")

    def toxics(self, name: str) -> dict[str, dict[str, Any]]:
        """The toxics of a proxy by name, each with its attributes."""
        return {toxic: dict(state.attributes) for toxic, state in self._proxy(name).toxics().items()}

    def upstream(self, name: str) -> str:
        """Where the proxy leads to."""
        return str(self._proxy(name).upstream)

    def enabled(self, name: str) -> bool:
        return bool(self._proxy(name).enabled)

    def disable(self, name: str) -> None:
        """Close the proxy's connections and take new ones no more; read back."""
        self._proxy(name).disable()
        if self.enabled(name):
            raise TestbedError(f"toxiproxy: {name!r} was disabled, but reads back as enabled")

    def remove(self, name: str, toxics: Iterable[str]) -> None:
        """Remove those of the toxics that are there."""
        proxy = self._proxy(name)
        for toxic in toxics:
            with contextlib.suppress(NotThere):  # it never was, or another was quicker
                proxy.destroy_toxic(toxic)

    def reset(self, name: str) -> list[str]:
        """Remove every toxic of the proxy and enable it; read back. Returns the toxics that were there."""
        proxy = self._proxy(name)
        present = list(proxy.toxics())
        self.remove(name, present)
        if not proxy.enabled:
            proxy.enable()
        left, enabled = self.toxics(name), self._proxy(name).enabled
        if left or not enabled:
            raise TestbedError(f"toxiproxy: {name!r} still has {sorted(left)} and enabled={enabled} after a reset")
        return present


def _bounded(call: Callable[..., Any]) -> Any:
    """Give a request of toxiproxy-python a timeout, and turn its own errors (400, 404, 409) and what it lets pass (a 5xx, no
    connection) into TestbedError."""
    import requests
    from toxiproxy import exceptions

    def bounded(*arguments: Any, **options: Any) -> Any:
        try:
            response = call(*arguments, **{"timeout": HTTP_TIMEOUT_S, **options})
        except requests.RequestException as error:
            raise TestbedError(f"toxiproxy does not answer ({error}). Is the testbed up? `streamproof testbed status`") from error
        except exceptions.NotFound as error:
            raise NotThere(f"toxiproxy has no such thing: {_message(error)}") from error
        except (exceptions.InvalidToxic, exceptions.ProxyExists) as error:
            raise TestbedError(f"toxiproxy refused: {_message(error)}") from error
        if response.status_code >= 500:
            raise TestbedError(f"toxiproxy answered {response.status_code}: {response.text}")
        return response

    bounded.bounded = True  # type: ignore[attr-defined]
    return bounded


def _message(error: Exception) -> str:
    """What the server said: toxiproxy-python raises with the body of its answer, as bytes."""
    body = error.args[0] if error.args else b""
    return body.decode(errors="replace").strip() if isinstance(body, bytes) else str(body)


@functools.cache
def _api_versions_request() -> bytes:
    """Kafka's ApiVersions v0 (key 18, version 0, correlation 1, no client): the smallest request that needs no state to be answered."""
    body = struct.pack(">hhih", 18, 0, 1, -1)
    return struct.pack(">i", len(body)) + body


def kafka_round_trip_ms(address: str, *, samples: int = 3, timeout_s: float = 30.0) -> float:
    """The median time, in ms, of ``samples`` ApiVersions requests to the Kafka behind ``address`` over one connection.

    It measures what a client behind the proxy feels. Raises TestbedError when no answer comes.
    """
    times = []
    try:
        with login.connected(address, timeout_s) as connection:
            for _ in range(samples):
                begun = time.monotonic()
                connection.sendall(_api_versions_request())
                probes.read(connection, struct.unpack(">i", probes.read(connection, 4))[0])
                times.append((time.monotonic() - begun) * 1000)
    except OSError as error:
        raise TestbedError(f"kafka behind {address} did not answer a probe: {error}") from error
    return sorted(times)[len(times) // 2]
