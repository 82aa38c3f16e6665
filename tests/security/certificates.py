"""Certificates of a day, made with the `openssl` program."""

from __future__ import annotations

import subprocess
from pathlib import Path

#: Opens the clients' private keys.
KEY_PASSWORD = "s3cr3t-of-the-key"


class Authority:
    """A certificate authority in a folder of its own."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir()
        self.folder = folder
        self.pem = folder / "ca.pem"
        self._key = folder / "ca.key"
        _openssl(
            # Python 3.13 and later trust no authority that does not say what its key is for.
            *("-addext", "keyUsage=critical,keyCertSign,cRLSign"),
            *("-nodes", "-subj", "/CN=authority", "-keyout", self._key, "-out", self.pem),
        )

    def issue(self, name: str, *, address: str = "", password: str = "") -> Path:
        """Return a file with a new private key and its certificate, as ``/CN=name``.

        :param address: the IP address that the certificate is good for
        :param password: encrypts the private key
        """
        key, certificate = self.folder / f"{name}.key", self.folder / f"{name}.crt"
        _openssl(
            *(["-passout", f"pass:{password}"] if password else ["-nodes"]),
            *(["-addext", f"subjectAltName=IP:{address}"] if address else []),
            *("-addext", "basicConstraints=critical,CA:FALSE"),
            *("-CA", self.pem, "-CAkey", self._key),
            *("-subj", f"/CN={name}", "-keyout", key, "-out", certificate),
        )
        both = self.folder / f"{name}.pem"
        both.write_text(key.read_text() + certificate.read_text())
        return both


def _openssl(*arguments: str | Path) -> None:
    key = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1")
    subprocess.run(
        ["openssl", "req", "-x509", "-days", "1", *key, *arguments],
        check=True,
        capture_output=True,
    )
