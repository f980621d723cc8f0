"""Certificates for tests: an authority of the test's own, and files of what it signs."""

import trustme

from statemachines.drivers.credentials import Credentials

SECRET = b"a secret that nobody else knows"


class Authority:
    """Signs for nodes; its files are below `folder`."""

    def __init__(self, folder):
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        self.authority = trustme.CA()
        self.ca = folder / "ca.pem"
        self.authority.cert_pem.write_to_path(str(self.ca))

    def issue(self, *names, common_name=None, unit=None):
        """(certificate, key) as files; that of a leader host says so (`unit`)."""
        unit = unit or ("leader" if names and names[0].startswith("leader-") else None)
        issued = self.authority.issue_cert(*names, common_name=common_name, organization_unit_name=unit)
        stem = self.folder / (*names, common_name or "")[0]
        cert, key = stem.with_suffix(".cert"), stem.with_suffix(".key")
        cert.write_bytes(b"".join(blob.bytes() for blob in issued.cert_chain_pems))
        issued.private_key_pem.write_to_path(str(key))
        key.chmod(0o600)
        return cert, key

    def server(self, *names, **more):
        """Credentials of a leader host on this machine."""
        cert, key = self.issue(*(names or ("leader-1",)), "127.0.0.1")
        return Credentials(tls_cert=cert, tls_key=key, **more)

    def mutual(self, *names, unit=None, **more):
        """Credentials with a certificate that ask for one."""
        cert, key = self.issue(*names, "127.0.0.1", unit=unit)
        return Credentials(tls_cert=cert, tls_key=key, tls_ca=self.ca, **more)
