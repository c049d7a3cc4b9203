"""Helm installs, upgrades and removes the chart; what it generates once stays."""

from __future__ import annotations

import base64
import re
import ssl
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import helm_python
import pytest
from cryptography import x509

from tests.deploy.api_server import ApiServer
from tests.deploy.matrix import CASES, EVERYTHING
from tests.deploy.rendering import CHART, NAMESPACE, RELEASE
from tests.deploy.report import Report

Json = dict[str, Any]
CLUSTER_ID = f"{RELEASE}-cluster-id"
"""The ConfigMap that nodes write the cluster's id into."""


class Releases:
    """Helm over an API server of its own."""

    def __init__(self, server: ApiServer, helm: helm_python.Config) -> None:
        self.server = server
        self._helm = helm

    def install(self, **values: Any) -> None:
        assert self._helm.install(CHART, RELEASE, values)["status"] == "deployed"

    def upgrade(self, **values: Any) -> None:
        assert self._helm.upgrade(CHART, RELEASE, values)["status"] == "deployed"

    def uninstall(self) -> None:
        self._helm.uninstall(RELEASE)

    def secrets(self) -> dict[str, dict[str, bytes]]:
        """What the chart's Secrets hold, by name."""
        return {
            name: {key: base64.b64decode(value) for key, value in one["data"].items()}
            for name, one in self.server.named("Secret", RELEASE).items()
        }

    def age(self, name: str, days: int) -> None:
        """The certificate in the Secret is so many days from its end."""
        ends = int(datetime.now(UTC).timestamp()) + days * 86400
        meta = self.server.objects["Secret", name]["metadata"]
        meta["annotations"]["goqueue.io/valid-until"] = str(ends)


@pytest.fixture
def releases() -> Iterator[Releases]:
    with ApiServer() as server, server.helm(NAMESPACE) as helm:
        yield Releases(server, helm)
        assert server.refused == []


def test_what_is_generated_is_kept_on_upgrades(releases: Releases, report: Report) -> None:
    releases.install()
    first = releases.secrets()
    releases.upgrade(replicaCount=5, **CASES["monitoring on"])
    second = releases.secrets()

    assert first == second
    assert releases.server.objects["StatefulSet", RELEASE]["spec"]["replicas"] == 5
    assert set(first) == {
        f"{RELEASE}-{name}" for name in ("admin", "ca", "cluster", "peer-ca", "peer-tls", "tls")
    }
    key_id, _, secret = first[f"{RELEASE}-admin"]["admin-key"].decode().partition(".")
    assert re.fullmatch(r"admin-[a-z0-9]{12}", key_id) and len(secret) >= 40
    assert len(first[f"{RELEASE}-cluster"]["cluster-secret"]) >= 40
    report.executed(
        "Releases, by Helm over an imitated API server",
        "install, upgrade from 3 to 5 nodes: cluster secret, admin key and certificates stay",
    )


def test_a_release_of_the_same_name_takes_up_what_the_last_one_left(
    releases: Releases, report: Report
) -> None:
    releases.install()
    first = releases.secrets()
    releases.uninstall()

    assert releases.secrets() == first
    assert {kind for kind, _ in releases.server.objects} == {"Secret", "ConfigMap"}
    assert list(releases.server.named("ConfigMap")) == [CLUSTER_ID]
    releases.install()
    assert releases.secrets() == first
    report.executed(
        "Releases, by Helm over an imitated API server",
        "uninstall leaves Secrets and the cluster's id only; install again takes them up",
    )


def test_certificates_are_for_the_names_that_are_used(releases: Releases) -> None:
    releases.install()
    secrets = releases.secrets()
    service = secrets[f"{RELEASE}-tls"]
    peers = secrets[f"{RELEASE}-peer-tls"]

    assert {
        "localhost",
        f"{RELEASE}.{NAMESPACE}.svc",
        f"*.{RELEASE}-headless.{NAMESPACE}.svc.cluster.local",
    } <= set(dns_names(service))
    assert dns_names(peers) == [f"{RELEASE}-{ordinal}" for ordinal in range(32)]
    for found, authority in ((service, f"{RELEASE}-ca"), (peers, f"{RELEASE}-peer-ca")):
        assert found["ca.crt"] == secrets[authority]["ca.crt"]
        certificate(found).verify_directly_issued_by(
            x509.load_pem_x509_certificate(found["ca.crt"])
        )
    assert service["ca.crt"] != peers["ca.crt"]


def test_python_takes_the_certificates_strictly(releases: Releases, tmp_path: Path) -> None:
    releases.install()
    for name, ca in ((f"{RELEASE}-tls", "a"), (f"{RELEASE}-peer-tls", "b")):
        for key, value in releases.secrets()[name].items():
            (tmp_path / f"{ca}-{key}").write_bytes(value)
        server, client = ssl.MemoryBIO(), ssl.MemoryBIO()
        serving = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        serving.load_cert_chain(tmp_path / f"{ca}-tls.crt", tmp_path / f"{ca}-tls.key")
        asking = ssl.create_default_context(cafile=tmp_path / f"{ca}-ca.crt")
        asking.verify_flags |= ssl.VERIFY_X509_STRICT
        host = "localhost" if ca == "a" else f"{RELEASE}-2"
        shake(
            asking.wrap_bio(server, client, server_hostname=host),
            serving.wrap_bio(client, server, server_side=True),
        )


def test_other_names_and_a_wish_have_the_kept_authority_sign_anew(
    releases: Releases, report: Report
) -> None:
    releases.install()
    first = releases.secrets()
    releases.upgrade(tls={"extraDnsNames": ["queues.example.com"]})
    second = releases.secrets()
    releases.upgrade(tls={"extraDnsNames": ["queues.example.com"], "generated": {"renew": 2}})
    third = releases.secrets()

    name = f"{RELEASE}-tls"
    assert "queues.example.com" in dns_names(second[name])
    assert len({found[name]["tls.crt"] for found in (first, second, third)}) == 3
    assert len({found[name]["ca.crt"] for found in (first, second, third)}) == 1
    assert first[f"{RELEASE}-peer-tls"] == third[f"{RELEASE}-peer-tls"]
    certificate(third[name]).verify_directly_issued_by(
        x509.load_pem_x509_certificate(first[name]["ca.crt"])
    )
    report.executed(
        "Releases, by Helm over an imitated API server",
        "another name, a wish, and the last third of its days have a certificate signed anew by the"
        " authority that clients know",
    )


def test_a_certificate_in_its_last_third_is_renewed_by_an_upgrade(releases: Releases) -> None:
    releases.install()
    name = f"{RELEASE}-tls"
    first = releases.secrets()[name]
    releases.age(name, 3650 // 3 + 2)
    releases.upgrade()
    assert releases.secrets()[name] == first

    releases.age(name, 3650 // 3 - 2)
    releases.upgrade()
    renewed = releases.secrets()[name]
    assert renewed["tls.crt"] != first["tls.crt"] and renewed["ca.crt"] == first["ca.crt"]
    assert (certificate(renewed).not_valid_after_utc - datetime.now(UTC)).days >= 3649


def test_given_secrets_replace_generated_ones(releases: Releases) -> None:
    releases.install(**CASES["existing secrets"])

    assert releases.secrets() == {}


def test_everything_on_can_be_installed_and_removed(releases: Releases, report: Report) -> None:
    releases.install(**EVERYTHING)
    kinds = {kind for kind, _ in releases.server.objects}
    releases.uninstall()

    assert kinds >= {"CronJob", "HTTPRoute", "PrometheusRule", "ScaledObject", "StorageClass"}
    assert {kind for kind, _ in releases.server.objects} == {"Secret", "ConfigMap"}
    assert list(releases.server.named("ConfigMap")) == [CLUSTER_ID]
    report.executed(
        "Releases, by Helm over an imitated API server",
        f"everything on: {len(kinds)} kinds of objects made, and all removed but Secrets and the"
        " cluster's id",
    )


def test_the_chart_gives_the_clusters_id_no_data_that_an_upgrade_could_change(
    releases: Releases,
) -> None:
    """Helm 4 applies on the server's side: fields that no manifest names stay whose they are."""
    releases.install()
    kept = releases.server.objects["ConfigMap", CLUSTER_ID]

    assert kept["metadata"]["annotations"]["helm.sh/resource-policy"] == "keep"
    assert not {"data", "binaryData", "immutable"} & kept.keys()


def running(releases: Releases, *, drained: tuple[int, ...] = ()) -> None:
    """Five pods, as Kubernetes made them and as nodes label them."""
    for ordinal in range(5):
        name = f"{RELEASE}-{ordinal}"
        labels = {"goqueue.io/drained": "true" if ordinal in drained else "false"}
        releases.server.objects["Pod", name] = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": name, "namespace": NAMESPACE, "labels": labels},
        }


@pytest.mark.parametrize("drained", [(), (4,), (3, 4)])
def test_only_one_node_that_holds_replicas_is_taken_away_at_a_time(
    releases: Releases, drained: tuple[int, ...], report: Report
) -> None:
    releases.install(replicaCount=5)
    running(releases, drained=drained)

    if drained:
        releases.upgrade(replicaCount=3)
    else:
        with pytest.raises(helm_python.HelmError) as refused:
            releases.upgrade(replicaCount=3)
        assert "would take away goqueue-3, goqueue-4 at once" in str(refused.value)
        assert "cluster drain NODE --wait" in str(refused.value)
        releases.upgrade(replicaCount=4)

    wanted = 3 if drained else 4
    assert releases.server.objects["StatefulSet", RELEASE]["spec"]["replicas"] == wanted
    report.executed(
        "Releases, by Helm over an imitated API server",
        "5 to 3 nodes: refused while both hold replicas, done once one is drained",
    )


def test_values_are_refused_before_anything_is_made(releases: Releases) -> None:
    with pytest.raises(helm_python.HelmError, match="replicas"):
        releases.install(replicas=5)

    assert releases.secrets() == {}
    assert not releases.server.named("StatefulSet")


def certificate(secret: dict[str, bytes]) -> x509.Certificate:
    return x509.load_pem_x509_certificate(secret["tls.crt"])


def dns_names(secret: dict[str, bytes]) -> list[str]:
    found = certificate(secret).extensions.get_extension_for_class(x509.SubjectAlternativeName)
    return found.value.get_values_for_type(x509.DNSName)


def shake(client: ssl.SSLObject, server: ssl.SSLObject) -> None:
    """Raises ssl.SSLError where one does not take the other."""
    left = [client, server]
    for _ in range(8):
        for side in list(left):
            try:
                side.do_handshake()
                left.remove(side)
            except ssl.SSLWantReadError:
                pass
    assert left == []
