"""Only public addresses are delivered to, and those that a setting allows."""

import pytest

from pulljobs.webhooks.addresses import Guard

NOT_PUBLIC = """
    0.0.0.0 10.0.0.1 100.64.0.1 100.100.100.200 127.0.0.1 127.255.255.254 169.254.169.254
    172.16.0.1 172.31.255.255 192.0.0.192 192.0.2.1 192.88.99.1 192.168.0.1 198.18.0.1
    198.51.100.1 203.0.113.1 224.0.0.1 239.255.255.255 240.0.0.1 255.255.255.255 168.63.129.16
    :: ::1 ::127.0.0.1 ::ffff:127.0.0.1 ::ffff:10.0.0.1 ::ffff:169.254.169.254 ::ffff:0:127.0.0.1
    64:ff9b::127.0.0.1 64:ff9b::a9fe:a9fe 64:ff9b:1::10.0.0.1 100::1
    2001::1 2001:db8::1 2002:7f00:1:: 2002:a00:1:: 2002:808:808:: 3fff::1 4000::1 5f00::1
    fc00::1 fd00:ec2::254 fe80::1 fe80::1%eth0 fec0::1 ff02::1
    localhost 127.1 0x7f000001 2130706433 010.0.0.1
"""
PUBLIC = """
    1.1.1.1 8.8.8.8 172.15.255.255 172.32.0.1 100.63.255.255 100.128.0.1 192.88.98.1 223.255.255.254
    2606:4700:4700::1111 2a00:1450:4001::200e ::ffff:8.8.8.8 64:ff9b::8.8.8.8
"""


@pytest.mark.parametrize("address", NOT_PUBLIC.split())
def test_what_is_not_public_is_refused(address: str) -> None:
    assert not Guard([]).permits(address)


@pytest.mark.parametrize("address", PUBLIC.split())
def test_what_is_public_is_delivered_to(address: str) -> None:
    assert Guard([]).permits(address)


def test_a_setting_allows_a_network_and_no_more() -> None:
    guard = Guard(["10.1.0.0/16", "fd12::/32"])
    assert guard.permits("10.1.2.3")
    assert guard.permits("::ffff:10.1.2.3")
    assert guard.permits("fd12::1")
    assert not guard.permits("10.2.0.1")
    assert not guard.permits("fd13::1")
    assert guard.permits("8.8.8.8")
