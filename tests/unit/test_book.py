"""The address book of a member without multicast, and its seeds."""

from __future__ import annotations

import os
import queue
import socket
import sys
import threading
import time
from itertools import pairwise

import pytest

from seqcast.config import Config
from seqcast.config.check import split_seed
from seqcast.core.context import NEVER
from seqcast.core.machines.book import BOOK_MAX, JOINS_ALONE, KEPT_NS, TRIED_AT_ONCE, TRIED_NS_MAX, Book
from seqcast.errors import ConfigError
from seqcast.net.discovery import Discovery

MS = 1_000_000
BEACON_NS, JOIN_NS = 100 * MS, 20 * MS


def address(number: int) -> bytes:
    return b"at" + number.to_bytes(2, "big")


def asked(made: Book, now: int = 0, tries: int = 0) -> set[bytes]:
    """All that a last JOIN goes to."""
    return set(made.ask(now, tries, everyone=True))


def book(*seeds: int) -> Book:
    made = Book(address(0), BEACON_NS, JOIN_NS)
    made.seeds([address(number) for number in seeds], 0)
    return made


def test_an_address_is_tried_less_and_less_often():
    made, now, tried = book(1), 0, []
    while now < 60_000 * MS:
        if made.take((), now):
            tried.append(now)
        now = made.due(())
    waits = [(later - earlier) // BEACON_NS for earlier, later in pairwise(tried)]
    assert waits[:7] == [1, 2, 4, 8, 16, 32, TRIED_NS_MAX]
    assert set(waits[7:]) == {TRIED_NS_MAX}


def test_joins_go_to_silent_addresses_less_and_less_often():
    made, gone = book(1, 2), []
    for now in range(0, 10_000 * MS, JOIN_NS):
        if now == 5_000 * MS:
            made.named([address(2)], now)
        if now == 8_000 * MS:
            made.heard(address(2))
        gone += [(now // MS, each) for each in made.ask(now, tries=now // JOIN_NS)]
    silent = [at for at, each in gone if each == address(1)]
    assert silent[:6] == [0, 20, 40, 80, 160, 320] and silent[7:] == list(range(1280, 10_000, 1000))
    named = [at for at, each in gone if each == address(2) and at >= 5_000]
    assert named[:4] == [5_000, 5_020, 5_040, 5_080], "there is somebody: often again"
    assert [at for at in named if at >= 8_000][:3] == [8_000, 8_020, 8_040]
    made.seeds([address(2), address(3)], 10_000 * MS)
    assert made.ask(10_000 * MS, 500) == [address(3)]
    assert asked(made, 10_001 * MS) == {address(1), address(2), address(3)}, "a last JOIN goes to all"


def test_one_that_is_named_anew_or_answers_is_tried_at_once():
    made, now = book(1), 0
    for _ in range(8):
        made.take((), now)
        now = made.due(())
    now -= 10
    made.seeds([address(1)], now)
    assert made.take((), now) == []
    made.seeds([], now)
    made.seeds([address(1)], now)  # a name has the address again
    assert made.take((), now) == [address(1)]
    made.answered(address(1), now)
    assert made.take((), now) == [address(1)]


def test_no_member_and_not_oneself_is_tried_and_only_a_few_at_a_time():
    made = book(*range(20))
    assert address(0) not in asked(made)
    assert len(made.take((), 0)) == TRIED_AT_ONCE
    inside = {address(number) for number in range(20)}
    assert made.take(inside, 0) == []
    assert made.due(inside) == NEVER


def test_a_full_book_forgets_the_worst_first_and_never_a_seed_for_less():
    made = book(*range(1, 101))
    made.former([address(number) for number in range(101, 201)], 1)
    made.named([address(number) for number in range(201, 1000)], 2)
    assert len(asked(made)) == BOOK_MAX
    assert {address(number) for number in range(1, 201)} <= asked(made)
    made.former([address(5000)], 3)
    assert address(5000) in asked(made)
    made.seeds([address(number) for number in range(1, 400)], 4)
    first = {address(number) for number in range(1, BOOK_MAX + 1)}
    assert asked(made) == first, "of too many seeds the first ones stay"
    made.named([address(7000)], 5)
    assert address(7000) not in asked(made)


def test_a_sparing_book_that_is_full_of_hints_forgets_the_one_that_was_named_longest_ago():
    made = Book(address(0), 100, 20, sparing=True)
    for number in range(1, BOOK_MAX + 1):
        made.named([address(number)], number)
    made.named([address(1)], BOOK_MAX + 1)  # the first is there still
    made.named([address(5000)], BOOK_MAX + 2)
    hints = asked(made, BOOK_MAX + 2 + 10_000, JOINS_ALONE)
    assert len(hints) == BOOK_MAX and {address(1), address(5000)} <= hints and address(2) not in hints
    made.named([address(number) for number in range(6000, 6000 + BOOK_MAX + 1)], 20_000)
    hints = asked(made, 30_000, JOINS_ALONE)
    assert len(hints) == BOOK_MAX and address(6000 + BOOK_MAX) not in hints, "all were named at this moment"


def test_addresses_that_are_not_seeds_are_forgotten_in_time():
    made = book(1)
    made.former([address(2)], 0)
    made.named([address(3)], 0)
    made.take((), KEPT_NS)
    assert len(asked(made)) == 3
    made.take((), KEPT_NS + 1)
    assert asked(made) == {address(1)}


@pytest.mark.parametrize(
    ("seed", "parts"),
    [
        ("a", ("a", 0)),
        (" a.example:5 ", ("a.example", 5)),
        ("10.0.0.1", ("10.0.0.1", 0)),
        ("fe80::1", ("fe80::1", 0)),
        ("[::1]:47310", ("::1", 47310)),
        ("[::1]", ("::1", 0)),
    ],
)
def test_a_seed_is_a_host_perhaps_with_a_port(seed, parts):
    assert split_seed(seed) == parts


@pytest.mark.parametrize("seed", ["", " ", ":5", "a:", "a:0", "a:65536", "a:x", "[::1", "a b", "[]:5", "file:/x"])
def test_anything_else_is_not_a_seed(seed):
    with pytest.raises(ConfigError, match="host:port"):
        split_seed(seed)


def test_a_name_without_a_port_means_all_its_addresses_at_all_ports(monkeypatch):
    hosts = {"one": ["10.0.0.1"], "many": ["10.0.0.1", "10.0.0.2"]}

    def resolve(host, _port, family, kind):
        assert (family, kind) == (socket.AF_INET, socket.SOCK_DGRAM)
        if host not in hosts:
            raise socket.gaierror(-2, "Name or service not known")
        return [(family, kind, 17, "", (each, 0)) for each in hosts[host] for _ in range(2)]

    monkeypatch.setattr(socket, "getaddrinfo", resolve)
    config = Config(transport="unicast", seeds=["one:7", "many", "gone"], port=100, port_range=1)
    made = Discovery(config, "a", print)
    made.look()
    parts = [(each[0], int.from_bytes(each[1:3], "big"), socket.inet_ntoa(each[3:])) for each in made.addresses]
    hosts_and_ports = [("10.0.0.1", 7), *((f"10.0.0.{host}", port) for port in (100, 101) for host in (1, 2))]
    assert sorted(parts) == sorted((4, port, host) for host, port in hosts_and_ports)
    assert made.said() == "nobody answers at one:7, many; gone cannot be resolved (Name or service not known)"
    heard = made.said([made.found["one:7"][0], b"another"])
    assert heard.startswith("somebody answers at one:7; nobody answers at many; gone cannot be resolved")
    fate = made.fate([made.found["one:7"][0], made.found["many"][-1]])
    assert fate == {"addresses": 3, "silent": 1, "first": ["10.0.0.1"], "unresolved": ["gone"]}
    hosts["gone"], hosts["many"] = ["10.0.0.9"], ["10.0.0.3"]
    del hosts["one"]
    made.look()
    kept = {socket.inet_ntoa(each[3:]) for each in made.addresses}
    assert kept == {"10.0.0.1", "10.0.0.3", "10.0.0.9"}, "what cannot be resolved now is where it was"


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"transport": "multicast", "seeds": ["a"]}, "transport=\"unicast\""),
        ({"transport": "unicast", "address": "239.1.2.3"}, "address='239.1.2.3' has no meaning"),
        ({"transport": "unicast", "unicast_port": 7}, "unicast_port=7 has no meaning"),
        ({"transport": "unicast", "seeds": "a,"}, "host:port"),
        ({"transport": "carrier pigeon"}, "must be one of"),
    ],
)  # fmt: skip
def test_settings_that_do_not_fit_the_transport_are_refused(settings, said):
    with pytest.raises(ConfigError, match=said):
        Config(**settings)


@pytest.fixture
def resolved(monkeypatch):
    """A resolver that knows hosts by number, and one that is not there."""

    def resolve(host, _port, family, kind):
        if host == "gone":
            raise socket.gaierror(-2, "Name or service not known")
        return [(family, kind, 17, "", (f"10.0.0.{host.removeprefix('host')}", 0))]

    monkeypatch.setattr(socket, "getaddrinfo", resolve)


def looked(made):
    made.look()
    return {socket.inet_ntoa(each[3:]) for each in made.addresses}


def test_seeds_are_looked_at_again_as_often_as_is_set(resolved):
    told, hosts = queue.Queue(), iter(["host1", "host2"])
    made = Discovery(Config(seeds=lambda: [next(hosts, "host3")], discovery_refresh_s=0.1), "a", told.put)
    made.start()
    begun = time.monotonic()
    seen = [{socket.inet_ntoa(each[3:]) for each in told.get(timeout=30)} for _ in range(3)]
    took = time.monotonic() - begun
    made.stop()
    assert seen == [{"10.0.0.1"}, {"10.0.0.2"}, {"10.0.0.3"}]
    assert took >= 0.1, "it does not ask without a pause"


def test_seeds_in_a_file_and_in_the_environment_are_read_again_each_time(resolved, tmp_path, monkeypatch):
    file = tmp_path / "seeds"
    config = Config(transport="unicast", seeds=[f"file:{file}", "env:SEQCAST_TEST_SEEDS", "host9:7"])
    made = Discovery(config, "a", print)
    assert looked(made) == {"10.0.0.9"}
    assert made.said() == (
        f"nobody answers at host9:7; file:{file} cannot be resolved (No such file or directory); "
        "env:SEQCAST_TEST_SEEDS cannot be resolved (the variable is not set)"
    )
    file.write_text("host1:7 # the first\n\ngone\nhost2\n")
    monkeypatch.setenv("SEQCAST_TEST_SEEDS", "host3, host4:7")
    assert looked(made) == {f"10.0.0.{number}" for number in (1, 2, 3, 4, 9)}, "gone keeps no other host out"
    assert "gone cannot be resolved" in made.said()
    (tmp_path / "new").write_text("host5")
    file.unlink()
    file.symlink_to(tmp_path / "new")  # as mounted files are replaced
    assert looked(made) == {f"10.0.0.{number}" for number in (3, 4, 5, 9)}
    file.unlink()
    assert looked(made) == {f"10.0.0.{number}" for number in (3, 4, 5, 9)}, "what was there last stays"


@pytest.mark.parametrize(
    ("write", "said"),
    [
        (lambda path: path.write_text("a b"), "host:port"),
        (lambda path: path.write_text("\n".join(f"host{number}" for number in range(257))), "257 hosts"),
        (lambda path: path.write_bytes(b"#" * 1_100_000), "at most"),
        (lambda path: os.mkfifo(path), "not a regular file"),
    ],
    ids=["no host", "too many", "too long", "fifo"],
)
@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs POSIX")
def test_a_file_that_holds_no_hosts_is_told_and_holds_nothing_up(write, said, resolved, tmp_path):
    write(tmp_path / "seeds")
    made = Discovery(Config(transport="unicast", seeds=f"file:{tmp_path / 'seeds'}"), "a", print)
    assert looked(made) == set() and said in made.said()


def test_a_function_gives_seeds_and_may_fail_or_never_return(resolved, monkeypatch):
    monkeypatch.setattr("seqcast.net.seeds.CALL_S", 0.05)
    answers, held = [], threading.Event()

    def registry():
        answer = answers.pop(0)
        if answer == "wait":
            held.wait(10)
            return ["host7"]
        if isinstance(answer, Exception):
            raise answer
        return answer

    made = Discovery(Config(transport="unicast", seeds=registry), "a", print)
    answers[:] = [["host1", "host2:7"], ValueError("no registry"), "text", "wait"]
    assert looked(made) == {"10.0.0.1", "10.0.0.2"}
    assert looked(made) == {"10.0.0.1", "10.0.0.2"} and "no registry" in made.failed["the function registry"][1]
    assert looked(made) == {"10.0.0.1", "10.0.0.2"} and "not text" in made.failed["the function registry"][1]
    for _ in range(3):
        looked(made)
        assert "has not returned" in made.failed["the function registry"][1]
    held.set()
    made.seeds["the function registry"]._running.join(5)
    assert looked(made) == {"10.0.0.7"} and not made.failed and not answers


def test_seeds_that_have_not_answered_yet_are_told_as_such(resolved):
    made = Discovery(Config(transport="unicast", seeds=lambda: ["host1"]), "a", print)
    assert made.said() == "the function <lambda> has not answered yet with hosts" and made.is_elsewhere()
    made.look()
    assert "nobody answers at host1" in made.said()


def test_a_seed_where_this_member_itself_is_leaves_no_doubt(resolved):
    made, own = Discovery(Config(transport="unicast", seeds=["host1", "host2:7"]), "a", print), b"\4\0\7\12\0\0\2"
    made.look()
    assert made.is_in_doubt(own, ()) and not made.is_in_doubt(own, [made.found["host1"][2]])
    made.failed["gone"] = 1, "no address"
    assert made.is_in_doubt(own, [made.found["host1"][2]])


@pytest.mark.parametrize("seed", ["file:", "env:", "env:A=B"])
def test_a_list_without_a_name_is_refused(seed):
    with pytest.raises(ConfigError, match="names none"):
        Config(transport="unicast", seeds=seed)


def test_the_first_seed_that_is_elsewhere_decides_the_interface(monkeypatch):
    asked = []
    monkeypatch.setattr("seqcast.net.discovery._source", lambda way, _: asked.append(way) or "")
    made = Discovery(Config(transport="unicast", seeds=["127.0.0.1", "10.9.0.9", "10.7.0.9", "10.8.0.9:7"]), "a", print)
    made.look()
    assert made.host() == "127.0.0.1"
    assert asked == ["10.9.0.9", "10.7.0.9", "10.8.0.9", "127.0.0.1"]


def test_our_own_name_on_loopback_decides_nothing_while_another_seed_has_no_address(monkeypatch):
    def resolve(host, _port, family, kind):
        hosts = {"a": "127.0.1.1", "b": ""}  # as in /etc/hosts of Debian, on a
        if not hosts[host]:
            raise socket.gaierror(-3, "Temporary failure in name resolution")
        return [(family, kind, 17, "", (hosts[host], 0))]

    monkeypatch.setattr(socket, "getaddrinfo", resolve)
    monkeypatch.setattr("seqcast.net.discovery._source", lambda way, _: way if way.startswith("127.") else "10.0.0.7")
    monkeypatch.setenv("LATER", "")  # gives no hosts yet
    for seeds, host in ((["a", "b"], "10.0.0.7"), (["a", "env:LATER"], "10.0.0.7"), (["a"], "127.0.1.1")):
        made = Discovery(Config(transport="unicast", seeds=seeds), "a", print)
        made.look()
        assert made.host() == host


def test_the_fate_of_seeds_can_be_told_while_they_are_looked_up(resolved):
    made, own = Discovery(Config(transport="unicast", seeds=["host1", "host2", "gone"]), "a", print), b"\4\0\7\12\0\0\2"
    made.look()
    found, failed = dict(made.found), dict(made.failed)
    for place in range(20):
        made.found, made.failed, lines = dict(found), dict(failed), iter(range(place))

        def trace(frame, event, _, made=made, lines=lines):
            if frame.f_code.co_name in ("said", "fate") and event == "line" and next(lines, None) is None:
                made.found.clear()
                made.failed.clear()
            return trace

        before = sys.gettrace()
        sys.settrace(trace)
        try:
            made.said([found["host1"][0]], own)  # which raises nothing
            made.fate([])
        finally:
            sys.settrace(before)


@pytest.mark.parametrize(
    ("seeds", "version", "error"),
    [
        ("::1", 4, ConfigError), ("127.0.0.1,10.0.0.1:7", 6, ConfigError),
        ("::1,127.0.0.1", 4, ""), ("env:NONE,::1", 4, ""), ("newer", 4, ""),
    ],
)  # fmt: skip
def test_seeds_of_the_other_version_of_ip_say_which_one_to_set(monkeypatch, seeds, version, error):
    def resolve(host, _port, family, kind):
        if host == "newer" and family == socket.AF_INET6:
            return [(family, kind, 17, "", ("2001:db8::7", 0, 0, 0))]
        if host == "127.0.0.1":
            return [(family, kind, 17, "", (host, 0))]
        raise socket.gaierror(socket.EAI_NODATA if host == "newer" else socket.EAI_NONAME, "nothing")

    monkeypatch.setattr(socket, "getaddrinfo", resolve)
    said = f"this is of IPv{10 - version}, and ip_version={version}: set ip_version={10 - version} on every member"
    if error:
        with pytest.raises(error, match=said):
            Config(transport="unicast", seeds=seeds, ip_version=version)
        return
    made = Discovery(Config(transport="unicast", seeds=seeds, ip_version=version), "a", print)
    made.look()
    assert said in made.said()


def test_seeds_without_a_way_leave_the_route_of_multicasts_before_loopback(resolved, monkeypatch):
    ways = {"239.255.0.1": "10.0.0.7"}
    monkeypatch.setattr("seqcast.net.discovery._source", lambda way, _: ways.get(way, ""))
    made = Discovery(Config(transport="unicast", seeds=["gone"]), "a", print)
    made.look()
    assert made.host() == "10.0.0.7"
    ways.clear()
    monkeypatch.setattr("seqcast.net.discovery.only_interface", lambda _: "eth0")
    assert made.host() == "eth0", "the seeds may yet lead to the network of the only interface"
    made = Discovery(Config(transport="unicast", seeds=list), "a", print)
    made.look()
    assert made.host() == "eth0", "the function gives no hosts yet"
    monkeypatch.setattr("seqcast.net.discovery.only_interface", lambda _: "")
    assert made.host() == "127.0.0.1"


def test_more_addresses_than_are_tried_are_told_once(resolved, caplog):
    made = Discovery(Config(transport="unicast", seeds=[f"host{number}" for number in range(64)]), "a", print)
    made.look()
    made.look()
    (told,) = [record.getMessage() for record in caplog.records]
    assert "320 addresses, more than the 256" in told and "64 are left out" in told
    ports = [int.from_bytes(each[1:3], "big") for each in made.addresses[:BOOK_MAX]]
    assert ports.count(47310) == 64, "the first port of each host is tried"


def test_a_seed_where_this_member_itself_is_is_not_called_silent(resolved):
    made = Discovery(Config(transport="unicast", seeds=["host1", "host2"]), "a", print)
    made.look()
    assert made.said((), made.found["host1"][0]) == "host1 is this member itself; nobody answers at host2"
