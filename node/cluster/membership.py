"""Which nodes belong to the cluster: its first formation, who comes to it, and who is there.

A cluster is formed once. Each node tells its peers the set of data directories it sees; a node
forms the cluster when its own set names every configured node, all of them empty, and every peer
has told the same set. Whoever forms next does so with the voters of those that have: so no two
different clusters can come out of one start, whichever of the nodes die on the way.

A node whose peers belong to a cluster that does not know its data directory asks one of them to be
let in: then it is registered, and follows the cluster group as a learner. It asks in the name of
its former directory only where this one is empty, or has lost its incarnation to damage.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Any

from coordinator.brokers.formation import (
    Hello,
    Plan,
    Step,
    cluster_id,
    empty_directories,
    fingerprint,
    plan_formation,
)
from coordinator.commands.codec import RegisterBroker
from coordinator.errors import BrokerGone, BrokerWiped
from goqueue.wire.errors import GoQueueError
from goqueue.wire.types import CLUSTER_GROUP, Incarnation, Index, NodeId, PartitionId, Voter
from log.errors import EntryDamaged, LogError
from log.store.directory import Store
from node.cluster.admission import Admission
from node.cluster.hello import hello_fields, read_hello
from node.cluster.host import REMOVED, ClusterHost
from node.config.node import NodeConfig
from node.config.option import Address, address
from node.config.secret_checks import founding_refusal
from node.peers.link import PeerLink
from node.runtime.logger import get_logger
from node.runtime.periodic import Periodic
from node.runtime.version import VERSION
from raft.configuration import decode_voters, stored_configuration
from raft.host import RaftHost

REGISTER_DEADLINE_S = 5.0
REGISTER_PAUSE_S = 0.05
REGISTER_CHECK_S = 1.0
ASK_PAUSE_S = 0.5
"""After being let in was refused, or nobody could answer."""
HEALED_S = 10.0
HEALED_PAUSE_S = 0.1
LEADERLESS_S = 3.0
"""Who hears no leader for so long asks whether it still belongs to the cluster."""

_REGISTERED = ["incarnation", "peer_address", "http_url", "zone", "version", "labels"]
_REGISTERED += ["lowest_level", "highest_level"]

_log = get_logger("cluster")


class BrokerMembership:
    """A service that starts the cluster group, registers this node, and sorts its peers."""

    def __init__(
        self,
        me: Voter,
        *,
        config: NodeConfig,
        store: Store,
        raft: RaftHost,
        cluster: ClusterHost,
        link: PeerLink,
    ) -> None:
        self._me = me
        self._config = config
        self._store = store
        self._raft = raft
        self._cluster = cluster
        self._link = link
        self._admission = Admission(cluster, link)
        self._listed = {NodeId(name): at for name, at in config.others.items()}
        self._members: tuple[NodeId, ...] | None = tuple(map(NodeId, config.members))
        if config.kubernetes.enabled and not config.cluster.peers:
            self._members = None
        self._zone = config.broker.zone
        self._founders: tuple[Voter, ...] = ()
        self._plan = Plan(Step.WAIT)
        self.may_found: Callable[[int], str] = lambda _cluster: ""
        """Why a cluster of this id must not be founded where no peer belongs to one; or empty."""
        self._refusal = ""
        self._admitted: set[NodeId] = set()
        self._strangers: set[NodeId] = set()
        self._table: dict[NodeId, Address] = {}
        self._leaderless_since_s: float | None = None
        self._starts_again = False
        self._held = False
        """Whether the cluster group's log is being replaced by a copy: nothing may run on it."""
        self._registrations = Periodic(
            "registrar",
            self._register_when_due,
            None,
            _log,
            "not_registered",
            first_s=0.0,
            retry_s=REGISTER_CHECK_S,
        )

    async def start(self) -> None:
        if (
            self._store.has_log(CLUSTER_GROUP)
            and self._store.partition_log(CLUSTER_GROUP).untrusted
        ):
            self._raft.retire_raft_group(CLUSTER_GROUP)  # its leader sends all of it again
        await self._until_readable()
        if self._is_new:
            self._consider()
        else:
            self._go_on()
            self._starts_again = self._cluster.raft_group is None
        await self._registrations.start()

    async def stop(self) -> None:
        await self._registrations.stop()
        await self._cluster.stop()

    def hello(self) -> dict[str, Any]:
        """What peers are told of this node's part in the cluster."""
        return {**hello_fields(self._me_hello()), "http_url": self._config.http_url}

    # what is told

    def listed(self, peers: Mapping[NodeId, Address], *, founders: bool) -> None:
        """Other nodes are these, as far as is known; with `founders`, they and this one are all
        that are to found the cluster."""
        if founders:
            self._members = tuple(sorted({self._me.node, *peers}))
        if self._listed != peers:
            self._listed = dict(peers)
            self._table = self._addresses()
            self._link.set_peers(self._table)
        self._consider()

    def reconsider(self) -> None:
        """What `may_found` answers has changed."""
        self._consider()

    def in_zone(self, zone: str) -> None:
        """Where this node is; it is registered anew where that is another zone than before."""
        self._zone = zone

    def peer_told(self, node: NodeId, hello: Mapping[str, Any]) -> None:
        cluster = self._cluster
        cluster.hellos[node] = hello
        self._consider()
        if cluster.raft_group is not None and not cluster.state.cluster_id:
            cluster.state.cluster_id = read_hello(node, hello).cluster
        self._sort(node)
        if node in self._admitted:
            self._admission.heard(node)

    def peer_down(self, node: NodeId) -> None:
        self._cluster.hellos.pop(node, None)
        self._part(node)

    def frame(self, node: NodeId, partition_id: PartitionId, frame: memoryview) -> None:
        """A Raft frame; those of a node with another data directory than it is known by are not
        its own."""
        if node in self._admitted:
            self._raft.receive(node, partition_id, frame)

    def cluster_changed(self) -> None:
        """The cluster's state is another one: others may belong to it, and be elsewhere."""
        if self._cluster.raft_group is None:
            return
        table = self._addresses()
        if table != self._table:
            self._table = table
            self._link.set_peers(table)
        for node in list(self._cluster.hellos):
            self._sort(node)

    # private

    async def _until_readable(self) -> None:
        """Damaged entries of the cluster group come back from peers before it is started, as it
        could not go on from them; where nobody brings them in time, it is started all the same."""
        deadline = asyncio.get_running_loop().time() + HEALED_S
        while not self._is_new and asyncio.get_running_loop().time() < deadline:
            log = self._store.partition_log(CLUSTER_GROUP)
            at = log.first_index
            try:
                while at <= log.last_index:
                    at = Index(log.entries(at)[-1].index + 1)
                return
            except EntryDamaged:  # the healer knows of it from now on
                await asyncio.sleep(HEALED_PAUSE_S)

    @property
    def _is_new(self) -> bool:
        """Whether this data directory holds nothing of any cluster."""
        if not self._store.has_log(CLUSTER_GROUP):
            return True
        return self._store.partition_log(CLUSTER_GROUP).last_index < 1

    @property
    def _is_empty(self) -> bool:
        """Whether it never held anything either, and may found. What lies set aside may be needed
        again, where nobody else has it: then no new cluster must take its place unasked."""
        if self._store.set_aside.exists:
            return False
        if not self._store.has_log(CLUSTER_GROUP):
            return True
        log = self._store.partition_log(CLUSTER_GROUP)
        return log.last_index < 1 and not log.suspect and not log.quarantined

    def _sort(self, node: NodeId) -> None:
        """Let Raft talk with a peer exactly while it has the data directory it is known by."""
        if self._cluster.raft_group is None:
            return
        problem = self._cluster.kept_out(node)
        if problem:
            self._part(node)
            if node not in self._strangers:
                self._strangers.add(node)
                tell = _log.info if problem == REMOVED else _log.error
                tell("peer_kept_out", peer=node, problem=problem)
        elif node not in self._admitted:
            self._strangers.discard(node)
            self._admitted.add(node)
            self._admission.heard(node)
            told = self._cluster.hellos[node]
            self._raft.peer_connected(node, Incarnation(int(told["incarnation"])))

    def _part(self, node: NodeId) -> None:
        if node in self._admitted:
            self._admitted.discard(node)
            self._raft.peer_disconnected(node)

    def _addresses(self) -> dict[NodeId, Address]:
        """Whom to dial: who belongs to the cluster, where this node's own list says, or else where
        they say they are. Until this node is registered, and where none of its list belongs to its
        cluster, also all others in the list."""
        cluster = self._cluster
        listed = self._listed
        found = {node: at for node, at in listed.items() if node in cluster.nodes}
        if not found or not self._is_registered():
            found = listed
        for node, broker in cluster.state.brokers.items():
            if node != self._me.node and node not in found and broker.peer_address:
                try:
                    found[node] = address(broker.peer_address)
                except ValueError:
                    _log.warning("peer_address_unreadable", peer=node, said=broker.peer_address)
        return found

    def _me_hello(self) -> Hello:
        me, cluster = self._me, self._cluster
        if cluster.raft_group is not None:
            return Hello(
                me.node,
                me.incarnation,
                False,
                self._founders,
                cluster=cluster.state.cluster_id,
                members=cluster.raft_group.membership.configuration.members,
            )
        alone = Hello(me.node, me.incarnation, self._is_empty)
        seen = empty_directories(alone, self._peer_hellos(), self._members or ())
        return Hello(me.node, me.incarnation, alone.empty, sees=fingerprint(seen))

    def _peer_hellos(self) -> dict[NodeId, Hello]:
        return {node: read_hello(node, told) for node, told in self._cluster.hellos.items()}

    def _consider(self) -> None:
        """Form, begin with those that founded, or see that this node must be let in."""
        cluster = self._cluster
        if cluster.raft_group is not None or self._held or not self._is_new:
            return
        hellos = self._peer_hellos()
        plan = plan_formation(self._me_hello(), hellos, self._members)
        self._plan = plan
        cluster.reason_not_formed = plan.reason + self._refusal * (plan.step is Step.JOIN)
        if plan.wiped and not cluster.wiped:
            _log.error("data_directory_replaced", problem=plan.reason)
        cluster.wiped = plan.wiped
        is_first = plan.step is Step.FOUND and not any(told.cluster for told in hellos.values())
        problem = founding_refusal(self._config) or self.may_found(plan.cluster)
        if is_first and problem:
            cluster.reason_not_formed = problem
            return
        if plan.step is Step.FOUND:
            _log.info("cluster_founded", voters=[voter.node for voter in plan.voters])
            self._founders = plan.voters
            self._start_raft_group(plan.voters, cluster_id(plan.voters), bootstrap=True)

    def _start_raft_group(
        self, voters: tuple[Voter, ...], cluster: int, *, bootstrap: bool
    ) -> None:
        """With founders where this node is one and holds nothing; else from what its log holds."""
        known = {voter.node: voter.incarnation for voter in voters}
        if not known and self._store.has_log(CLUSTER_GROUP):
            stored = stored_configuration(self._store.partition_log(CLUSTER_GROUP))
            known = {voter.node: voter.incarnation for voter in stored.voters}
        self._cluster.found(cluster)
        raft_group = self._raft.start_raft_group(
            CLUSTER_GROUP,
            voters,
            self._cluster,
            bootstrap=bootstrap,
            preferred=min(known, default=None),
        )
        self._cluster.attach(raft_group, self._store.partition_log(CLUSTER_GROUP))
        self._cluster.wiped = raft_group.membership.is_refused
        self.cluster_changed()

    def hold(self) -> None:
        """Stop the cluster group, and don't start it before `release`: its log is replaced."""
        self._held = True
        self._stop_raft_group()

    def release(self) -> None:
        """Start the cluster group again, from what its log holds now."""
        self._held = False
        self._go_on()

    def healed(self) -> None:
        """The cluster group's log is whole again: a replica that stopped over it goes on from what
        the log holds now. Where it can't yet, the next healing tries again."""
        raft_group = self._cluster.raft_group
        if raft_group is not None and raft_group.failed is not None:
            _log.info("cluster_group_starts_again", problem=str(raft_group.failed))
            self._stop_raft_group()
            self._starts_again = True
        if self._starts_again and not self._held:
            self._go_on()
            self._starts_again = self._cluster.raft_group is None

    def _stop_raft_group(self) -> None:
        if self._cluster.raft_group is not None:
            self._raft.stop_raft_group(CLUSTER_GROUP)
            self._cluster.detach("the cluster group's log is being replaced by a copy")

    def _go_on(self) -> None:
        """Start from what the log holds; where it has nothing to begin from, it will be copied."""
        if self._cluster.raft_group is not None or self._is_new:
            return
        try:
            self._start_raft_group((), self._stored_cluster(), bootstrap=False)
        except EntryDamaged as error:
            _log.error("cluster_group_not_started", problem=str(error))
            self._cluster.detach("the cluster group's log is damaged, and is to be copied")

    def _begin_anew(self) -> None:
        """Let in with a new incarnation: what the log held for the former one is of no use, and
        may be damaged."""
        cluster_id = self._cluster.state.cluster_id
        self._stop_raft_group()
        self._raft.retire_raft_group(CLUSTER_GROUP)
        self._start_raft_group((), cluster_id, bootstrap=False)

    def _stored_cluster(self) -> int:
        """The cluster's id by its creating entry; 0 where the log goes back less far: then the
        snapshot tells it."""
        try:
            entry = self._store.partition_log(CLUSTER_GROUP).entry(Index(1))
        except LogError:
            return 0
        self._founders = decode_voters(entry.body)
        return cluster_id(self._founders)

    # being registered

    async def _register_when_due(self) -> float | None:
        """Keep what the cluster knows of this node true, until it is cast out."""
        if self._cluster.outcast is not None:
            return None
        try:
            return await self._register()
        except GoQueueError as error:
            return self._refused(error)

    async def _register(self) -> float:
        """One attempt, if one is due; seconds until the next."""
        cluster, plan = self._cluster, self._plan
        if self._held:
            return REGISTER_PAUSE_S
        if cluster.raft_group is None:
            if plan.step is Step.JOIN:
                await self._ask_to_join(plan)
            return REGISTER_PAUSE_S
        self._look_at_state()
        is_forsaken = self._is_forsaken()
        if self._is_registered() and not is_forsaken:
            cluster.wiped = False
            return REGISTER_CHECK_S
        known = cluster.state.brokers.get(self._me.node)
        is_other = known is not None and known.incarnation != self._me.incarnation
        cluster.wiped = is_other or cluster.raft_group.membership.is_refused
        if cluster.wiped or is_forsaken:
            await self._ask(self._registration(replaces=cluster.wiped))
            raft_group = cluster.raft_group  # None where a copy of its log came meanwhile
            if raft_group is not None and raft_group.membership.is_refused:
                self._begin_anew()
            return ASK_PAUSE_S
        await cluster.command(self._registration(), REGISTER_DEADLINE_S)
        return REGISTER_PAUSE_S

    async def _ask_to_join(self, plan: Plan) -> None:
        await self._ask(self._registration(replaces=True))
        if self._cluster.raft_group is None and not self._held:
            _log.info("let_in", again=plan.wiped)
            self._start_raft_group((), plan.cluster, bootstrap=False)

    async def _ask(self, command: RegisterBroker) -> None:
        try:
            await self._admission.ask(command, self._cluster.state.cluster_id or self._plan.cluster)
        except GoQueueError as error:
            if error.code in (BrokerGone.code, BrokerWiped.code):
                self._expel(error)
            raise

    def _look_at_state(self) -> None:
        """Whether the cluster's state tells that this node is out for good. Raises that."""
        me, layout = self._me, self._cluster.state.layout
        known = layout.brokers.by_name.get(me.node)
        error: GoQueueError | None = None
        if me in layout.brokers.gone:
            error = BrokerGone(me.node)
        elif known is not None and me.incarnation in known.former:
            error = BrokerWiped(f"another data directory of {me.node} has taken this one's place")
        if error is not None:
            self._expel(error)
            raise error

    def _expel(self, error: GoQueueError) -> None:
        _log.error("cast_out", code=error.code, problem=error.message)
        self._cluster.outcast = error

    def _refused(self, error: GoQueueError) -> float:
        _log.debug("not_registered_yet", problem=error.message)
        self._refusal = f" ({error.message})"
        if self._cluster.raft_group is None or self._cluster.wiped or self._is_forsaken():
            self._consider()
            return ASK_PAUSE_S
        return REGISTER_PAUSE_S

    def _is_forsaken(self) -> bool:
        """Whether no leader speaks to this node: it may have been removed, or replaced."""
        raft_group = self._cluster.raft_group
        if raft_group is None or raft_group.voting.hears_leader():
            self._leaderless_since_s = None
            return False
        now = asyncio.get_running_loop().time()
        if self._leaderless_since_s is None:
            self._leaderless_since_s = now
        return now - self._leaderless_since_s >= LEADERLESS_S

    def _registration(self, *, replaces: bool = False) -> RegisterBroker:
        broker = self._config.broker
        return RegisterBroker(
            node=self._me.node,
            incarnation=self._me.incarnation,
            peer_address=self._config.peer_address,
            http_url=self._config.http_url,
            zone=self._zone or self._zone_known(),
            version=VERSION.version,
            labels=dict(broker.labels),
            replaces=replaces,
            lowest_level=self._cluster.levels.lowest,
            highest_level=self._cluster.levels.highest,
        )

    def _zone_known(self) -> str:
        """A node that learns its zone only later keeps the one it had meanwhile."""
        known = self._cluster.state.brokers.get(self._me.node)
        return known.zone if known is not None and self._config.kubernetes.enabled else ""

    def _is_registered(self) -> bool:
        known = self._cluster.state.brokers.get(self._me.node)
        wanted = self._registration()
        return known is not None and all(
            getattr(known, name) == getattr(wanted, name) for name in _REGISTERED
        )
