"""How empty nodes become a cluster: all of them, with the same secret or certificates."""

from __future__ import annotations

from pathlib import Path

from cryptography import x509

from tests.certificates import Authority
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
    """Started by their command, as users start them."""
    with Cluster(tmp_path, 3) as cluster:
        for node in cluster.nodes:
            node.has_interpreter = True
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
        other.write_text("this is not the secret of this cluster\n")
        stranger.arguments[stranger.arguments.index("--secret-file") + 1] = str(other)
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
            at = node.arguments.index("--secret-file")
            del node.arguments[at : at + 2]
            certificate, key = authority.issue(node.id, x509.DNSName(node.id))
            for setting in (
                "cluster.tls.enabled=true",
                f"cluster.tls.certFile={certificate}",
                f"cluster.tls.keyFile={key}",
                f"cluster.tls.caFile={authority.path}",
            ):
                node.arguments += ["--set", setting]

        cluster.start()

        publish(cluster[0], "orders", [{"value": "over TLS", "partition": 0}])
        assert [m["value"] for m in read_all(cluster[1], "orders", 0)] == ["over TLS"]
