"""Over TLS the name in the URL must be the one in the certificate, wherever it leads."""

import os
import socket
import ssl
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from tests.webhooks.conftest import Opened
from tests.webhooks.endpoint import Received, Writer
from tests.webhooks.sending import consumer_at, refusal, send
from tests.webhooks.test_sending import hosts_of

NAME = "shop.example"


@pytest.fixture
def tls(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ssl.SSLContext:
    """Return a context for a server with a self-signed certificate for `NAME`, which is trusted."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, NAME)])
    now = datetime.now(UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(NAME)]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .sign(key, hashes.SHA256())
    )
    file = tmp_path / "both.pem"
    file.write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
        + certificate.public_bytes(serialization.Encoding.PEM)
    )
    monkeypatch.setenv("SSL_CERT_FILE", str(file))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(file)
    return context


def test_name_stands_in_handshake_and_host_though_its_address_is_connected_to(
    endpoint: Opened, tls: ssl.SSLContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked_for: list[str | None] = []
    tls.sni_callback = lambda _socket, name, _context: asked_for.append(name)
    there = endpoint(tls=tls)
    monkeypatch.setattr(socket, "getaddrinfo", hosts_of({NAME: ["127.0.0.1"]}, []))
    assert send(consumer_at(f"https://{NAME}:{there.port}/")) == [None]
    assert asked_for == [NAME]
    assert there.received[0].header("Host") == f"{NAME}:{there.port}"


def test_2xx_whose_body_breaks_is_delivered(
    endpoint: Opened, tls: ssl.SSLContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def breaking(received: Received, writer: Writer) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n")
        await writer.drain()
        os.write(writer.get_extra_info("socket").fileno(), b"\x17\x03\x03\x00\x20" + bytes(32))

    there = endpoint(breaking, tls=tls)
    monkeypatch.setattr(socket, "getaddrinfo", hosts_of({NAME: ["127.0.0.1"]}, []))
    assert send(consumer_at(f"https://{NAME}:{there.port}/")) == [None]


def test_certificate_of_another_name_is_refused(
    endpoint: Opened, tls: ssl.SSLContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    there = endpoint(tls=tls)
    monkeypatch.setattr(socket, "getaddrinfo", hosts_of({"other.example": ["127.0.0.1"]}, []))
    reason = refusal(consumer_at(f"https://other.example:{there.port}/")).reason
    assert "certificate" in reason
    assert there.received == []
