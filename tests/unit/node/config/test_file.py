"""A node's configuration: sources, precedence, and every problem told at once."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

import node
from node.config.file import ConfigError, load_config, options
from node.config.node import NodeConfig
from node.config.option import flatten
from node.factories import raft_config
from tests.unit.raft.cluster import Cluster

ROOT = Path(node.__path__[0]).parent
EXAMPLE = ROOT / "config.example.yaml"

GOQUEUE_README = """
broker:
  nodeId: "node-1"
  dataDir: "/var/lib/goqueue"

  listeners:
    http: ":8080"
    grpc: ":9000"

defaults:
  topic:
    partitions: 6
    replicationFactor: 2
    retention:
      hours: 168          # 7 days
      bytes: 10737418240  # 10GB

  delivery:
    visibilityTimeout: 30s
    maxRetries: 3
    dlqEnabled: true

  delay:
    enabled: true
    maxDelay: 168h        # 7 days max delay

  priority:
    lanes: 3              # high, normal, low
"""


def write(folder: Path, content: str) -> str:
    path = folder / "config.yaml"
    path.write_text(content)
    return str(path)


def test_defaults_need_no_source() -> None:
    assert load_config(env={}) == NodeConfig()


def test_goqueues_readme_example_is_accepted_whole(tmp_path: Path) -> None:
    config = load_config(write(tmp_path, GOQUEUE_README), env={})

    assert config.data_dir == "/var/lib/goqueue"
    assert config.http.listen == ("0.0.0.0", 8080)
    assert config.topic_defaults.replication_factor == 2
    assert config.topic_defaults.retention_bytes == 10 * 1024**3
    warned = {warning.split()[1] for warning in config.warnings}
    assert warned == {"broker.listeners.grpc"}
    assert config.queue_defaults.group_settings() == {"visibility_ms": 30_000, "max_attempts": 3}
    assert config.queue_defaults.topic_settings() == {"lanes": 3, "delay_ms_max": 604_800_000}


def test_without_dead_letters_and_delays_there_are_none() -> None:
    off = {"defaults.delivery.dlqEnabled": False, "defaults.delay.enabled": False}

    defaults = load_config(env={}, overrides=off).queue_defaults

    assert defaults.group_settings()["max_attempts"] == 0
    assert defaults.topic_settings()["delay_ms_max"] == 0


def test_a_topic_has_three_lanes_by_default_or_five() -> None:
    with pytest.raises(ConfigError, match="3 or 5"):
        load_config(env={}, overrides={"defaults.priority.lanes": 4})


def test_the_example_file_names_every_option_with_its_default(tmp_path: Path) -> None:
    tree = yaml.safe_load(EXAMPLE.read_text())
    known = {described.key: (described, default) for described, default in options()}

    written = flatten(tree, frozenset(known))

    assert set(written) == set(known)
    wrong = {key: raw for key, raw in written.items() if known[key][0].read(raw) != known[key][1]}
    assert wrong == {}
    loaded = load_config(str(EXAMPLE), env={})
    assert loaded.broker == NodeConfig().broker


def test_the_example_file_names_every_environment_variable() -> None:
    text = EXAMPLE.read_text()

    assert [described.env for described, _ in options() if described.env not in text] == []


def test_flags_win_over_environment_which_wins_over_the_file(tmp_path: Path) -> None:
    path = write(tmp_path, "broker: {nodeId: from-file, zone: from-file, dataDir: from-file}")

    config = load_config(
        path,
        env={"GOQUEUE_BROKER_ZONE": "from-env", "GOQUEUE_BROKER_DATADIR": "from-env"},
        overrides={"broker.dataDir": "from-flag", "broker.labels": None},
    )

    assert config.node_id == "from-file"
    assert config.broker.zone == "from-env"
    assert config.data_dir == "from-flag"


def test_all_problems_are_reported_together_with_their_sources(tmp_path: Path) -> None:
    path = write(tmp_path, "broker: {nodeID: x}\nstorage: {segmentBytes: many}\n")

    with pytest.raises(ConfigError) as caught:
        load_config(
            path,
            env={"GOQUEUE_LISTENERS_HTTP": "nowhere", "GOQUEUE_BROKER_NODE": "x"},
            overrides={"raft.electionMin": "1s", "raft.electionMax": "900ms"},
        )

    problems = "\n".join(caught.value.problems)
    assert len(caught.value.problems) == 5
    assert f"{path}: unknown key broker.nodeID (is it broker.nodeId?)" in problems
    assert f"{path}: storage.segmentBytes must be a size" in problems
    assert "environment GOQUEUE_LISTENERS_HTTP: broker.listeners.http must be host:port" in problems
    assert "unknown variable GOQUEUE_BROKER_NODE" in problems
    assert "raft.electionMax must be above raft.electionMin" in problems


@pytest.mark.parametrize("content", ["- a\n- b\n", "{", "x: !!python/object:os.system {}"])
def test_a_file_that_is_no_mapping_is_named(tmp_path: Path, content: str) -> None:
    path = write(tmp_path, content)

    with pytest.raises(ConfigError, match=r"config\.yaml"):
        load_config(path, env={})


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"nowhere\.yaml"):
        load_config(str(tmp_path / "nowhere.yaml"), env={})


def test_variables_of_kubernetes_services_and_of_the_client_are_left_alone() -> None:
    config = load_config(
        env={
            "GOQUEUE_SERVICE_HOST": "10.0.0.1",
            "GOQUEUE_PORT_8080_TCP_ADDR": "10.0.0.1",
            "GOQUEUE_HEADLESS_SERVICE_PORT_HTTP": "8080",
            "GOQUEUE_SERVER": "http://x",
            "GOQUEUE_SAMPLE_DATA": "/data",
        }
    )

    assert config == NodeConfig()


def test_a_variable_of_goqueue_without_meaning_here_is_warned_about() -> None:
    config = load_config(env={"GOQUEUE_CLUSTER_QUORUM": "2"})

    assert config.warnings == (
        "environment GOQUEUE_CLUSTER_QUORUM: has no effect: "
        "the quorum is always a majority of the replicas",
    )


def test_peers_are_read_from_csv_with_ids_or_host_names() -> None:
    config = load_config(
        env={
            "GOQUEUE_BROKER_NODEID": "gq-0",
            "GOQUEUE_CLUSTER_PEERS": "gq-0.gq:7000,gq-1.gq:7000,other=10.0.0.9:7001",
            "GOQUEUE_CLUSTER_SECRET": "a long secret",
        }
    )

    assert config.members == ("gq-0", "gq-1", "other")
    assert config.others == {"gq-1": ("gq-1.gq", 7000), "other": ("10.0.0.9", 7001)}


def test_peers_without_a_secret_are_refused() -> None:
    with pytest.raises(ConfigError, match=r"cluster\.secret is needed"):
        load_config(env={"GOQUEUE_CLUSTER_PEERS": "a=h:1,b=h:2"})


def test_the_secret_can_come_from_a_file(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("from a mounted file\n")

    config = load_config(
        env={
            "GOQUEUE_CLUSTER_PEERS": "a=h:1,b=h:2",
            "GOQUEUE_CLUSTER_SECRET_FILE": str(tmp_path / "secret"),
        }
    )

    assert config.cluster.secret == "from a mounted file"


@pytest.mark.parametrize(
    ("overrides", "problem"),
    [
        ({"broker.nodeId": "../x"}, "broker.nodeId must be"),
        ({"defaults.topic.partitions": 0}, "at least 1"),
        ({"defaults.topic.partitions": "1e3"}, "whole number"),
        ({"defaults.topic.durability": "maybe"}, "one of majority, relaxed"),
        ({"limits.slowSender": 10}, "must be a duration"),
        ({"broker.listeners.http": "h:99999"}, "port up to 65535"),
        ({"cluster.peers": "1.2.3.4:7000"}, "needs an id"),
        ({"cluster.peers": "a=h:1,a=h:2", "cluster.secret": "12345678"}, "names a twice"),
        ({"tls.enabled": "maybe"}, "true or false"),
        ({"tls.enabled": True}, "needs tls.certFile"),
        ({"cluster.tls.enabled": True}, "needs cluster.tls.certFile"),
        ({"broker.labels": "a"}, "map names to values"),
    ],
)
def test_bad_values_are_refused_in_words(overrides: dict[str, object], problem: str) -> None:
    with pytest.raises(ConfigError) as caught:
        load_config(env={}, overrides=overrides)

    assert problem in str(caught.value)


@pytest.mark.parametrize(
    ("written", "milliseconds"),
    [("50ms", 50), ("30s", 30_000), ("1h30m", 5_400_000), ("7d", 604_800_000)],
)
def test_durations_have_units(written: str, milliseconds: int) -> None:
    config = load_config(env={}, overrides={"defaults.delay.maxDelay": written})

    assert config.queue_defaults.max_delay_ms == milliseconds


@pytest.mark.parametrize(("heartbeat", "low", "high"), [(5, 20, 21), (100, 300, 301)])
def test_any_times_that_settings_allow_elect_a_leader(heartbeat: int, low: int, high: int) -> None:
    config = load_config(
        env={},
        overrides={
            "raft.heartbeat": f"{heartbeat}ms",
            "raft.electionMin": f"{low}ms",
            "raft.electionMax": f"{high}ms",
        },
    )

    assert Cluster(3, config=raft_config(config)).elect()
