"""Ports that servers are to have: nobody else is given one before its server listens."""

from __future__ import annotations

import socket

import pytest

from streamproof.testbed import process
from streamproof.testbed.process import FreePorts, free_port

FEW = 30_500, 30_509


def _server(host: str, port: int) -> socket.socket:
    """As servers make one."""
    server = socket.socket()
    server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    server.bind((host, port))
    server.listen()
    return server


def test_two_that_choose_at_the_same_time_get_different_ports(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process, "PORTS", FEW)
    with FreePorts() as ones, FreePorts() as others:
        taken = [ports.take() for ports in (ones, others, ones, others)]
    assert len(set(taken)) == 4


def test_the_server_that_a_port_is_held_for_can_listen_on_it_and_it_stays_taken() -> None:
    with FreePorts() as ports:
        port = ports.take()
        server = _server("127.0.0.1", port)
    with server, FreePorts() as others, pytest.MonkeyPatch.context() as patch:
        patch.setattr(process, "PORTS", (port, port + 3))
        assert port not in {others.take() for _ in range(3)}


def test_a_port_that_another_loopback_address_has_is_not_free(monkeypatch: pytest.MonkeyPatch) -> None:
    port = free_port()
    with _server("127.0.0.2", port), FreePorts() as ports:
        monkeypatch.setattr(process, "PORTS", (port, port + 3))
        assert port not in {ports.take() for _ in range(3)}
