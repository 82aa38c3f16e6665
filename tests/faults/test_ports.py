"""Test servers find free ports, and say which port is not."""

from __future__ import annotations

import socket

import pytest

from distlock_chaos.ports import PortInUse, free_ports, require_free


def test_free_ports_are_different_and_not_those_excluded() -> None:
    first = free_ports(20)
    assert len(set(first)) == 20
    assert not set(free_ports(20, other_than=first)) & set(first)


def test_a_port_is_in_use_until_its_listener_is_closed() -> None:
    (port,) = free_ports(1)
    with (
        socket.create_server(("127.0.0.1", port)),
        pytest.raises(PortInUse, match=f"Port {port} .*another port"),
    ):
        require_free(port)
    require_free(port)
