"""One run of each kind: a baseline in plain C, or a group of seqcast members; each member is its own process."""

from __future__ import annotations

import os
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import IO, Any

from seqcast.errors import without_code
from seqcast.perf.hosts import GROUP_ADDRESS
from seqcast.perf.paths import Path
from seqcast.perf.processes import LEAVE_S, Crew, Process, Processes, RunFailed
from seqcast.perf.report import PERCENTILES

START_S = 40.0
"""Limit for processes to start and for a group to form, s."""
JOURNAL_LEAVE_S = 300.0
"""Limit for members with a journal to leave, s: to roll journals takes longer than to write them."""
WARM_S = 0.3
WARM_ROUNDS = 500
BARE_TRIES = 3
USED = ("user_s", "system_s", "waits", "pid", "begun_ns", "ended_ns")
"""A process's report of its use of the machine: CPU time outside and in the kernel, s, how often it blocked, which
process it is, and from when to when by the monotonic clock."""
FOREIGN = ("drop_key", "drop_crc", "drop_group", "drop_rate", "drop_view")
"""Counters of datagrams that no member has sent to the group, or that came too late."""
GROUP_TRIES = 3
PING_PONGS = {"plain": "latency", "aio": "latency_aio", "c": "latency_c"}
"""The roles of ``worker``: by ``send`` and ``recv`` of ``Group`` or of ``aio.Group``, or in C by ``seqcast.embed``."""


@dataclass(frozen=True, slots=True)
class Load:
    """The measurement.

    Args:
        members: processes.
        senders: how many of them send.
        size: bytes of a message.
        order: as in ``seqcast.join``.
        seconds: how long the senders send.
        kind: how applications send and receive: "batches", "plain" or "aio".
        journal: the form of payloads in journals, "hash" or "full"; "": no journals.
        journal_folder: directory of the journals during a run.
        settings: more of ``seqcast.join``, by name.
        agree: a run does not count whose last message came later than this part of its length after it: its senders
            filled buffers, which were drained then. 0: each counts.
    """

    members: int
    senders: int
    size: int
    order: str
    seconds: float
    kind: str = "batches"
    journal: str = ""
    journal_folder: str = ""
    settings: Mapping[str, Any] = field(default_factory=dict)
    agree: float = 0.0


@dataclass(frozen=True, slots=True)
class Latency:
    """The measurement of a ping-pong.

    Args:
        size: bytes of a message.
        order: as in ``seqcast.join``.
        rounds: round trips that count.
        spin: waiting spins rather than blocks.
        kind: how both members send and receive, a key of PING_PONGS.
        cores: of the two members; None: not pinned.
        settings: more of ``seqcast.join``, by name.
        rate: questions per second, whether answers come or not; 0: each follows the answer to the one before.
        members: of the group. Those beyond two only listen: they join first, so that neither side is the sequencer.
    """

    size: int
    order: str
    rounds: int
    spin: bool
    kind: str
    cores: tuple[int, int] | None
    settings: Mapping[str, Any] = field(default_factory=dict)
    members: int = 2
    rate: int = 0


def port(offset: int = 0) -> int:
    """A port that no other measurement at the same time uses."""
    return 40000 + os.getpid() % 2000 * 8 + offset


# ---- throughput ----------------------------------------------------------------------------------------------------


def bare_throughput(path: Path, load: Load, *, limit: bool, window_bytes: int) -> float:
    """Whole packets in MB/s at the slowest receiver: one bare sender, ``load.members - 1`` bare receivers.

    Args:
        path: where.
        load: members, message size and seconds; by unicast, a copy for each receiver, if the group's messages are.
        limit: with acks, CRC and copies; otherwise only a credit counter in shared memory.
        window_bytes: size of the credit window and of the rings.

    Raises:
        RunFailed: a process failed, lost data or found a wrong CRC.
    """
    sender = bare_run(path, load, limit=limit, window_bytes=window_bytes)[0]
    return float(sender["bytes"] / sender["elapsed_ns"] * 1e3)


def bare_run(path: Path, load: Load, *, limit: bool, window_bytes: int) -> list[dict[str, Any]]:
    """Reports of the processes in ``bare_throughput``, the sender first: for the sender, bytes that the slowest
    receiver got, the ns that it took, and sent (all bytes); for each process ``USED``."""
    window_bytes = max(window_bytes, 2 * path.packet_bytes * path.segments)
    # From where a group's one sender sends, as hosts and the ways between them differ.
    path = replace(path, places=(path.places[1], path.places[0], *path.places[2:]))
    settings = {
        "group": GROUP_ADDRESS,
        "port": port(),
        "limit": limit,
        "packet_bytes": path.packet_bytes,
        "segments": path.segments,
        "gro": path.gro,
        "message_bytes": load.size,
        "receivers": load.members - 1,
        "window_bytes": window_bytes,
        "ring_bytes": max(window_bytes, 1 << 20),
        "to": without_multicast(path, load.settings)[1 : load.members],
    }
    for _ in range(BARE_TRIES):  # no retransmission: a run with losses does not count
        done = (_bare_apart if path.places[0].host else _bare_run)(path, settings, load.seconds)
        if not done[0]["lost"] and not any(answer["corrupt"] for answer in done[1:]):
            return done
    lost, sent = done[0]["lost"], done[0]["sent"]
    if lost == sent:
        raise RunFailed("the bare baseline: a receiver got no datagram, as without multicast")
    raise RunFailed(f"the bare baseline lost {lost} bytes in the last of {BARE_TRIES} tries: datagrams are lost here")


def without_multicast(path: Path, settings: Mapping[str, Any]) -> list[str]:
    """The addresses of all places if messages to a group travel by unicast."""
    return [place.address for place in path.places] if settings.get("transport") == "unicast" else []


def _bare_run(path: Path, settings: dict[str, Any], seconds: float) -> list[dict[str, Any]]:
    """The results of the sender and then of the receivers."""
    from seqcast._native import bare

    with shared_memory(bare.SHARED_BYTES) as shared, Processes() as processes:
        for index in range(settings["receivers"] + 1):
            place = path.places[index]
            task: dict[str, Any] = {"settings": {**settings, "interface": place.address}, "shared_fd": shared.fileno()}
            if index:
                task |= {"role": "receive", "index": index - 1}
            else:
                task |= {"role": "send", "warm_ns": int(WARM_S * 1e9), "measure_ns": int(seconds * 1e9)}
            processes.start(place, task, [shared.fileno()])
        everyone(processes.all, "ready", START_S)
        return everyone(processes.all, "done", START_S + seconds)


def _bare_apart(path: Path, settings: dict[str, Any], seconds: float) -> list[dict[str, Any]]:
    """The same on several hosts, whose processes share no memory: this one tells them when to begin and to end."""
    with Processes() as processes:
        for index in range(1, settings["receivers"] + 1):
            place = path.places[index]
            task = {"role": "receive", "index": index - 1, "settings": {**settings, "interface": place.interface}}
            processes.start(place, task)
        receivers = list(processes.all)
        ports = [answer["port"] for answer in everyone(receivers, "ready", START_S)]
        time.sleep(WARM_S)  # switches learn who receives
        place = path.places[0]
        task = {"role": "send", "warm_ns": int(WARM_S * 1e9), "measure_ns": int(seconds * 1e9), "ports": ports}
        sender = processes.start(place, task | {"settings": {**settings, "interface": place.interface}})
        sender.expect("ready", START_S)
        sent = sender.expect("done", START_S + seconds, receivers)
        for process in receivers:
            process.tell(over=True)
        return [sent, *everyone(receivers, "done", START_S)]


def group_throughput(path: Path, load: Load, cluster: str, crew: Crew | None = None) -> dict[str, Any]:
    """One run of a seqcast group.

    Args:
        path: where.
        load: the measurement.
        cluster: name of the group, which no other run on the path has.
        crew: the members' processes, for several runs of ``kind="batches"`` on this path; None: new ones.

    Returns:
        sent_msgs_per_s, delivered_msgs_per_s and delivered_mb_per_s (of the slowest receiver, until its last
        message), messages, received, lost (sum over receivers), wrong, foreign (``FOREIGN`` of all members), views
        (that came during the run; always 0), retransmitted_packets, packets (sent for the first time),
        acks_per_packet, cpu_us_per_msg (of the whole group),
        used (``USED`` of each member, in their order), throttled_s (for how long a CPU quota stopped the member that it
        stopped longest), rss_mb and rss_rest_mb (of the largest member), window_bytes;
        drained (how long after the run the slowest receiver's last message came, as a part of its length), and with
        journals journal_missing, the messages received that no journal holds. A run that does not count is repeated.

    Raises:
        RunFailed: a member failed, its journal cannot be read, or no try counts.
    """
    why = ""
    for _ in range(GROUP_TRIES):
        run = _journaled_run(path, load, cluster, crew)
        if run["views"]:
            why, mend = "membership changed during the run", "is another load on this machine?"
        elif load.agree and run["drained"] > load.agree:
            why = f"the last message came {100 * run['drained']:.1f} % of the run's length after its end"
            mend = "buffers were drained, so the senders' rate is another one: more --seconds, or --anyway"
        else:
            return run
        print(f"{cluster}: {why}, which does not count", file=sys.stderr, flush=True)
    raise RunFailed(f"none of {GROUP_TRIES} runs counts, as {why}: {mend}")


def _journaled_run(path: Path, load: Load, cluster: str, crew: Crew | None) -> dict[str, Any]:
    """One try of ``group_throughput``."""
    if load.journal:
        with tempfile.TemporaryDirectory(prefix="seqcast-perf-", dir=load.journal_folder) as folder:
            run = _group_run(path, load, cluster, crew, {"journal": folder, "journal_payload": load.journal})
            return {**run, "journal_missing": run["received"] - journal_rows(folder)}
    return _group_run(path, load, cluster, crew, {})


def journal_rows(folder: str) -> int:
    """Counts the messages that the journals in ``folder`` hold.

    Raises:
        RunFailed: a journal cannot be read.
    """
    from seqcast.journal.places import find
    from seqcast.journal.schema import JournalError

    try:
        return sum(journal.rows for journal in find([folder]))
    except JournalError as error:
        raise RunFailed(without_code(error)) from None


def placed(path: Path, settings: Mapping[str, Any], members: int) -> dict[str, Any]:
    """The given settings; without multicast with the places of the members as seeds, unless others are given."""
    if settings.get("transport") != "unicast":
        return dict(settings)
    places = dict.fromkeys(place.address or place.host for place in path.places[:members])
    return {"seeds": ",".join(places), "port_range": members} | dict(settings)


def _group_run(path: Path, load: Load, cluster: str, crew: Crew | None, journal: dict[str, str]) -> dict[str, Any]:
    """``group_throughput``, with the settings of the members' journals."""
    # The first to join is the coordinator, and the sequencer: it sends only when all do.
    sending = [0 < number <= load.senders or load.senders == load.members for number in range(load.members)]
    own = load.kind != "batches"  # by default senders receive their own messages too
    given = placed(path, load.settings, load.members)
    receiving = [own or load.senders > 1 or not sends for sends in sending]
    with crew.run() if crew else Processes(JOURNAL_LEAVE_S if journal else LEAVE_S) as processes:
        members = []
        for number, sends in enumerate(sending):
            place = path.places[number]
            task = {
                "role": "member" if load.kind == "batches" else load.kind,
                "name": f"member-{number}",
                "cluster": cluster,
                "members": load.members,
                "size": load.size,
                "sends": sends,
                "receives": receiving[number],
                "sender": number,
                "settings": {**given, "order": load.order, "interface": place.interface, **journal},
            }
            members.append(processes.start(place, task))
            if number == 0:
                members[0].expect("joined", START_S)
        everyone(members[1:], "joined", START_S)
        ready = everyone(members, "ready", START_S)
        for process in members:
            process.tell(seconds=load.seconds)
        senders = [process for process, sends in zip(members, sending, strict=True) if sends]
        sent = [answer["sent"] for answer in everyone(senders, "sent", START_S + load.seconds, members)]
        for process in members:
            process.tell(messages=sum(sent))
        done = everyone(members, "done", START_S + load.seconds)
        for process in members:
            process.tell(leave=True)
    receivers = [answer for answer, receives in zip(done, receiving, strict=True) if receives]
    rate = min(answer["received"] / answer["seconds"] if answer["seconds"] > 0 else 0.0 for answer in receivers)
    drained = max(answer["seconds"] for answer in receivers) / load.seconds - 1
    throttled: dict[str, float] = {}
    for place, answer in zip(path.places, done, strict=False):
        throttled[place.host] = max(throttled.get(place.host, 0.0), answer["throttled_s"])
    return {
        "sent_msgs_per_s": sum(sent) / load.seconds,
        "delivered_msgs_per_s": rate,
        "delivered_mb_per_s": rate * load.size / 1e6,
        "messages": sum(sent),
        "drained": max(0.0, drained),
        "received": sum(answer["received"] for answer in receivers),
        "lost": sum(answer["lost"] for answer in receivers),
        "wrong": sum(answer["wrong"] for answer in receivers),
        "foreign": sum(answer["counters"][name] for answer in done for name in FOREIGN),
        "views": sum(answer["views"] for answer in done),
        "retransmitted_packets": sum(answer["counters"]["packets_retransmitted"] for answer in done),
        "cpu_us_per_msg": sum(answer["user_s"] + answer["system_s"] for answer in done) * 1e6 / max(1, sum(sent)),
        "packets": (packets := sum(answer["counters"]["packets_sent"] for answer in done)),
        "acks_per_packet": sum(answer["counters"]["acks_received"] for answer in done) / max(1, packets),
        "used": [{key: answer[key] for key in USED} for answer in done],
        "throttled_s": max(answer["throttled_s"] for answer in done),
        "throttled": throttled,
        "dropped": {place.host: answer["dropped"] for place, answer in zip(path.places, done, strict=False)},
        "hosts": {place.host: process.said for place, process in zip(path.places, members, strict=False)},
        "rss_mb": max(answer["rss_mb"] for answer in done),
        "rss_rest_mb": max(answer["rss_mb"] for answer in ready),
        "window_bytes": ready[0]["counters"]["window_bytes"],
        "path": ready[0]["path"],
    }


# ---- latency -------------------------------------------------------------------------------------------------------


def bare_latency(path: Path, latency: Latency) -> dict[str, float]:
    """p50, p99, p999 and max of half a round trip of the plain C ping-pong, µs."""
    from seqcast._native import bare

    settings = {"group": GROUP_ADDRESS, "port": port(2), "message_bytes": latency.size}
    path = replace(path, places=path.places[latency.members - 2 : latency.members])  # as the group's two that ask
    apart = bool(path.places[0].host)
    with shared_memory(bare.SHARED_BYTES) as shared, Processes() as processes:
        for index, role in enumerate(("pong", "ping")):
            place = path.places[index]
            task = {
                "role": role,
                "settings": {
                    **settings,
                    "interface": place.interface if apart else place.address,
                    "to": without_multicast(path, latency.settings)[1 - index : 2 - index],
                },
                **({} if apart else {"shared_fd": shared.fileno()}),
                "spin": latency.spin,
                "rounds": latency.rounds,
                "warm_rounds": WARM_ROUNDS,
                "core": latency.cores[index] if latency.cores else None,
            }
            processes.start(place, task, [shared.fileno()])
        everyone(processes.all, "ready", START_S)
        pong, ping = processes.all
        done = ping.expect("done", START_S + latency.rounds / 1e3, [pong])
        pong.tell(over=True)
        pong.expect("done", START_S)
    return {key: done[key] for key in PERCENTILES}


def group_latency(path: Path, latency: Latency, cluster: str) -> dict[str, float]:
    """The same for two members of a seqcast group."""
    listeners, given = latency.members - 2, placed(path, latency.settings, latency.members)
    asks = "latency_at_rate" if latency.rate else PING_PONGS[latency.kind]
    with Processes() as processes:
        for number in range(latency.members):
            place, index = path.places[number], number - listeners
            settings: dict[str, Any] = {**given, "order": latency.order, "interface": place.interface}
            if latency.spin:
                settings["latency"] = True
            task = {
                "role": "listener" if index < 0 else asks if index == 0 else PING_PONGS[latency.kind],
                "rate": latency.rate,
                "name": f"member-{number}",
                "cluster": cluster,
                "members": latency.members,
                "size": latency.size,
                "sender": index,
                "rounds": latency.rounds,
                "warm_rounds": WARM_ROUNDS,
                "core": latency.cores[index] if latency.cores and index >= 0 else None,
                "settings": settings,
            }
            processes.start(place, task).expect("joined", START_S)
        everyone(processes.all, "ready", START_S)
        asker = processes.all[listeners]
        asker.tell(go=True)
        done = asker.expect("done", START_S + latency.rounds / (latency.rate or 1e3), processes.all)
    return {key: done[key] for key in PERCENTILES}


def everyone(
    processes: list[Process], event: str, timeout_s: float, beside: Sequence[Process] = ()
) -> list[dict[str, Any]]:
    """Each process's message about ``event``, in their order; ``beside``: others without which none may come."""
    return [process.expect(event, timeout_s, beside or processes) for process in processes]


def shared_memory(size: int) -> IO[bytes]:
    """Zeroed memory that processes share: an anonymous file, in /dev/shm on systems that have one."""
    folder = "/dev/shm" if os.path.isdir("/dev/shm") else None
    file = tempfile.TemporaryFile(dir=folder)
    file.truncate(size)
    return file
