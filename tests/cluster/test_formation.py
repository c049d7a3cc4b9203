"""How empty nodes become a cluster: all of them, with the same secret or certificates."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from tests.cluster.processes import Cluster, Node, eventually, publish, read_all


def why_not_ready(node: Node) -> str:
    message: str = node.ask("GET", "/readyz").body.get("message", "")
    return message


def serves(node: Node) -> bool:
    try:
        return node.ask("GET", "/health", timeout_s=2).status == 200
    except OSError:
        return False


def test_nodes_wait_for_the_last_one_and_name_it(tmp_path: Path) -> None:
    with Cluster(tmp_path, 3) as cluster:
        for node in cluster.nodes[:2]:
            node.start()
        for node in cluster.nodes[:2]:
            eventually("it answers", lambda node=node: serves(node))
        eventually(
            "the missing one is named", lambda: "waiting for node-3" in why_not_ready(cluster[0])
        )
        assert not cluster[0].is_ready()

        cluster[2].start()
        cluster.wait_until_ready()

        publish(cluster[2], "orders", [{"value": "formed", "partition": 0}])
        assert [m["value"] for m in read_all(cluster[0], "orders", 0)] == ["formed"]


def test_a_node_with_another_secret_is_not_let_in(tmp_path: Path) -> None:
    with Cluster(tmp_path, 3) as cluster:
        stranger = cluster[2]
        other = tmp_path / "other-secret"
        other.write_text("not the secret of this cluster\n")
        stranger.command[stranger.command.index("--secret-file") + 1] = str(other)
        for node in cluster.nodes:
            node.start()
        for node in cluster.nodes:
            eventually("it answers", lambda node=node: serves(node))

        eventually("refused by name", lambda: "waiting for node-3" in why_not_ready(cluster[0]))
        eventually("both say why", lambda: "peer_not_reached" in stranger.log.read_text())
        assert not any(node.is_ready() for node in cluster.nodes)


def test_peers_with_certificates_form_a_cluster_without_a_secret(tmp_path: Path) -> None:
    with Cluster(tmp_path, 3) as cluster:
        authority = Authority(tmp_path)
        for node in cluster.nodes:
            at = node.command.index("--secret-file")
            del node.command[at : at + 2]
            certificate, key = authority.issue(node.id)
            for setting in (
                "cluster.tls.enabled=true",
                f"cluster.tls.certFile={certificate}",
                f"cluster.tls.keyFile={key}",
                f"cluster.tls.caFile={authority.path}",
            ):
                node.command += ["--set", setting]

        cluster.start()

        publish(cluster[0], "orders", [{"value": "over TLS", "partition": 0}])
        assert [m["value"] for m in read_all(cluster[1], "orders", 0)] == ["over TLS"]


class Authority:
    """Signs certificates for nodes, in files."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "test authority")])
        own = self._build(self._name, self._key.public_key()).add_extension(
            x509.BasicConstraints(ca=True, path_length=0), critical=True
        )
        self.path = folder / "ca.pem"
        signed = own.sign(self._key, hashes.SHA256())
        self.path.write_bytes(signed.public_bytes(serialization.Encoding.PEM))

    def issue(self, node: str) -> tuple[Path, Path]:
        key = ec.generate_private_key(ec.SECP256R1())
        name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, node)])
        signed = (
            self._build(name, key.public_key())
            .add_extension(x509.SubjectAlternativeName([x509.DNSName(node)]), critical=False)
            .sign(self._key, hashes.SHA256())
        )
        certificate, private = self._folder / f"{node}.pem", self._folder / f"{node}.key"
        certificate.write_bytes(signed.public_bytes(serialization.Encoding.PEM))
        private.write_bytes(
            key.private_bytes(
                serialization.Encoding.PEM,
                serialization.PrivateFormat.PKCS8,
                serialization.NoEncryption(),
            )
        )
        return certificate, private

    def _build(self, name: x509.Name, key: ec.EllipticCurvePublicKey) -> x509.CertificateBuilder:
        now = datetime.now(UTC)
        return (
            x509.CertificateBuilder()
            .subject_name(name)
            .issuer_name(self._name)
            .public_key(key)
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - timedelta(hours=1))
            .not_valid_after(now + timedelta(hours=1))
        )
