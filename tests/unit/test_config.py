"""Settings: from keywords, TOML and the environment; wrong ones are refused with the right form."""

import dataclasses

import pytest
from settings_data import OF_THE_WORLD, changed, given

import seqcast
from seqcast._native.driver import Driver
from seqcast._native.engine import SLAB_BYTES, Engine
from seqcast.config import PRESETS, Config, derive
from seqcast.config.derive import core_settings, engine_settings, packet_bytes
from seqcast.core.context import EndpointSettings
from seqcast.net.opening import group_address, group_tag


def test_settings_come_from_the_file_then_the_environment_then_keywords(tmp_path):
    path = tmp_path / "seqcast.toml"
    path.write_text('[seqcast]\nttl = 3\ninterface = "lo"\nheartbeat_s = 0.02\n')
    config = Config.from_environment({"SEQCAST_CONFIG": str(path), "SEQCAST_TTL": "4", "SEQCAST_GSO": "no"})
    assert (config.ttl, config.interface, config.heartbeat_s, config.gso) == (4, "lo", 0.02, False)
    config = config.replace(ttl=5)
    assert (config.ttl, config.interface) == (5, "lo")


def test_each_setting_says_where_it_is_from(tmp_path):
    path = tmp_path / "seqcast.toml"
    path.write_text("ttl = 3\ndscp = 0\nheartbeat_s = 0.02\n")
    config = Config.from_environment({"SEQCAST_CONFIG": str(path), "SEQCAST_TTL": "4"})
    assert config.origins() == {"ttl": "SEQCAST_TTL", "dscp": str(path), "heartbeat_s": str(path)}
    changed = config.replace(ttl=5, gso=False)
    assert changed.origins() == {"ttl": "call", "gso": "call", "dscp": str(path), "heartbeat_s": str(path)}
    assert config.origins()["ttl"] == "SEQCAST_TTL" and changed == Config(ttl=5, heartbeat_s=0.02, gso=False)
    assert Config().origins() == {} == Config(preset="lan").origins() and Config(ttl=9).origins() == {"ttl": "call"}
    assert "suspect_s" not in Config(preset="wan").origins()  # its formula's value


def test_a_file_without_the_table_holds_the_settings_at_its_top(tmp_path):
    path = tmp_path / "seqcast.toml"
    path.write_text("dscp = 46\n")
    assert Config.from_toml(path).dscp == 46


@pytest.mark.parametrize(
    ("settings", "text"),
    [
        ({"ttl": 256}, "from 0 to 255 hops"),
        ({"ttl": "1"}, "a whole number"),
        ({"ttl": True}, "a whole number"),
        ({"gso": 1}, "True or False"),
        ({"suspect_s": "soon"}, "a number"),
        ({"suspect_s": float("nan")}, "from 0.01"),
        ({"ip_version": 5}, "one of 4, 6"),
        ({"suspect_s": 0.1}, "at least 4 times heartbeat_s"),
        ({"suspect_s": 1.0, "suspect_s_max": 0.5}, "suspect_s_max"),
        ({"preset": "slow"}, "'lan', 'fast', 'wan'"),
        ({"nak_backoff_s_min": 1.0}, "nak_backoff_s_max"),
        ({"ring_packets": 1000}, "power of two"),
        ({"packet_bytes": 1473}, "multiple of 8"),
        ({"address": "10.0.0.1"}, "not a multicast address of IPv4"),
        ({"address": "ff15::1"}, "not a multicast address of IPv4"),
        ({"address": "nonsense"}, "not an IP address"),
        ({"journal_payload": "half"}, "'full', 'hash'"),
        ({"journal": "journals", "receive": False}, "journal= needs receive=True"),
        ({"port": 65535}, "from 1 to 65534"),
    ],
)
def test_a_wrong_setting_is_refused_with_the_right_form(settings, text):
    with pytest.raises(seqcast.ConfigError, match=text):
        Config(**settings)


def test_keywords_and_the_environment_are_checked_together():
    """SEQCAST_STABLE alone was refused, though the program gives the partition, as `replicate` does."""
    from seqcast.blocks.replica import checked_settings

    there = {"SEQCAST_STABLE": "/state/a"}
    with pytest.raises(seqcast.ConfigError, match="stable= needs partition='primary'"):
        Config.from_environment(there)
    config = Config.from_environment(there, partition="primary", found=2)
    assert (config.stable, config.partition, config.found) == ("/state/a", "primary", 2)
    assert config.origins() == {"stable": "SEQCAST_STABLE", "partition": "call", "found": "call"}
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SEQCAST_STABLE", "/state/a")
        assert checked_settings("a replica", None, {"found": 2}).stable == "/state/a"


def test_a_command_leaves_the_file_of_the_member_alone_whose_environment_it_shares():
    """`kubectl exec POD -- seqcast tail orders` ended with SC3110: the member uses the file."""
    there = {"SEQCAST_STABLE": "/state/a", "SEQCAST_PARTITION": "primary", "SEQCAST_FOUND": "2"}
    guest = Config.from_environment(there).for_guest(interface="lo")
    assert (guest.stable, guest.partition, guest.found) == ("", "primary", 0)
    assert Config.from_environment({"SEQCAST_STABLE": "/state/a"}, stable="") == Config()


def test_a_wrong_file_or_variable_is_named(tmp_path):
    path = tmp_path / "seqcast.toml"
    wrong = {"ttl = ": "not valid TOML", "tttl = 1": "did you mean ttl", "ttl = 1.5": "a whole number"}
    for content, text in wrong.items():
        path.write_text(content)
        with pytest.raises(seqcast.ConfigError, match=text):
            Config.from_toml(path)
    with pytest.raises(seqcast.ConfigError, match="cannot read the settings"):
        Config.from_toml(tmp_path / "none.toml")
    with pytest.raises(seqcast.ConfigError, match="SEQCAST_PORT='many' must be a whole number"):
        Config.from_environment({"SEQCAST_PORT": "many"})
    with pytest.raises(seqcast.ConfigError, match="SEQCAST_GSO='maybe' must be true or false"):
        Config.from_environment({"SEQCAST_GSO": "maybe"})


@pytest.mark.parametrize(
    ("variable", "says"),
    [
        ("SEQCAST_INTERFCE", "did you mean SEQCAST_INTERFACE"),
        ("SEQCAST_PARTITON", "did you mean SEQCAST_PARTITION"),
        ("SEQCAST_CONFG", "did you mean SEQCAST_CONFIG"),
        ("SEQCAST_WEATHER_TODAY", "unset it"),
    ],
)
def test_a_variable_with_a_slip_of_the_pen_is_refused_as_a_keyword_is(variable, says):
    with pytest.raises(seqcast.ConfigError, match=f"has {variable}, .*{says}"):
        Config.from_environment({"PATH": "/", variable: "lo"})


def test_variables_of_the_build_are_neither_settings_nor_mistakes():
    build = {"SEQCAST_EXTENSIONS": "engine", "SEQCAST_LTO": "0", "SEQCAST_SANITIZE": "1"}
    assert Config.from_environment({**build, "SEQCASTLE": "1"}) == Config()


def test_variables_of_a_kubernetes_service_are_left_alone_with_one_line(caplog):
    """Kubernetes sets these in every pod of a namespace in which services have such names."""
    services = {
        "SEQCAST_SERVICE_HOST": "10.0.0.11",
        "SEQCAST_SERVICE_PORT": "47310",
        "SEQCAST_SERVICE_PORT_GROUP": "47310",
        "SEQCAST_PORT": "udp://10.0.0.11:47310",
        "SEQCAST_PORT_47310_UDP": "udp://10.0.0.11:47310",
        "SEQCAST_PORT_47310_UDP_ADDR": "10.0.0.11",
        "SEQCAST_PORT_47310_UDP_PORT": "47310",
        "SEQCAST_PORT_47310_UDP_PROTO": "udp",
        "SEQCAST_WEB_SERVICE_HOST": "10.0.0.12",
        "SEQCAST_WEB_SERVICE_PORT": "80",
        "SEQCAST_WEB_PORT": "tcp://10.0.0.12:80",
        "SEQCAST_WEB_PORT_80_TCP_ADDR": "10.0.0.12",
    }
    assert Config.from_environment({**services, "SEQCAST_TTL": "4"}) == Config(ttl=4)
    assert [record.getMessage() for record in caplog.records] == [
        "SEQCAST_PORT and 11 more in the environment: no setting, but a variable that Kubernetes sets for a "
        "service, and left alone (rename the service, or set enableServiceLinks: false) (SC1204)"
    ]
    for mistake in ("SEQCAST_SERVICE", "SEQCAST_SERVICE_HOSTS", "SEQCAST_PORT_UDP", "SEQCAST_POST"):
        with pytest.raises(seqcast.ConfigError, match=mistake):
            Config.from_environment({mistake: "47310"})


def test_every_setting_explains_its_effect():
    for field in dataclasses.fields(Config):
        assert len(field.metadata["text"]) > 20, field.name


def test_a_preset_is_the_start_of_derived_values_and_given_ones_win(tmp_path):
    lan, fast, wan = (Config(preset=name) for name in ("lan", "fast", "wan"))
    assert lan == Config()
    assert fast.heartbeat_s < lan.heartbeat_s < wan.heartbeat_s
    for config in (lan, fast, wan):
        assert config.suspect_s == pytest.approx(8 * config.heartbeat_s)
        assert config.suspect_s < config.suspect_s_max == config.name_taken_s
    assert wan.nak_backoff_s_min > 0.1, "a request is not repeated before its answer can be there"
    given = Config(heartbeat_s=0.1, suspect_s=3.0)
    assert given.replace(preset="fast").suspect_s == 3.0
    assert Config(heartbeat_s=0.1).suspect_s == pytest.approx(0.8)
    assert lan.replace(preset="wan") == wan and wan.replace(ttl=2).replace(ttl=1, preset="lan") == lan
    path = tmp_path / "seqcast.toml"
    path.write_text('preset = "wan"\nlease_s = 2.0\n')
    config = Config.from_environment({"SEQCAST_CONFIG": str(path), "SEQCAST_PRESET": "fast"})
    assert (config.heartbeat_s, config.lease_s) == (fast.heartbeat_s, 2.0)
    with pytest.raises(seqcast.ConfigError, match="from 0"):
        Config(heartbeat_s=-1.0)


def test_latency_sets_defaults_and_given_values_win():
    default, quick = Config(), Config(latency=True)
    assert default.busy_poll_s == 0.0 < quick.busy_poll_s
    assert quick.nap_s == 0.0 < default.nap_s
    assert 0.0 < quick.flush_s_min < default.flush_s_min
    assert Config(latency=True, busy_poll_s=0.0).busy_poll_s == 0.0
    assert quick.replace(latency=False) == default


@pytest.mark.parametrize("field", dataclasses.fields(Config), ids=lambda field: field.name)
def test_every_setting_changes_those_of_engine_control_plane_or_sockets(field):
    """No setting is read and ignored."""
    own = changed(field)
    if field.name == "blocked_queue_bytes":
        own = own.replace(send_while_blocked="queue")
        assert given(own) != given(Config(send_while_blocked="queue"))
    if field.name == "seeds":
        assert given(own) != given(Config(transport="unicast"))
    if field.name == "stable":
        assert given(own) != given(Config(partition="primary"))
    if field.name == "cipher":
        assert given(own) != given(Config(key="key"))
    if field.name == "authorized":
        assert given(own) != given(own.replace(identity="", authorized=""))
    if field.name.startswith("gossip_"):
        own = own.replace(reliability="gossip")
        assert given(own) != given(Config(reliability="gossip"))
    assert (given(own) != given(Config())) == (field.name not in OF_THE_WORLD)


def test_every_setting_that_is_given_on_is_one_that_takes_it():
    """The names that settings become are keywords of the functions that they are given to."""
    engine, core, driver = given(Config())
    Engine(member_id=1, group_tag=1, seed=1, **engine)
    with pytest.raises(TypeError, match="no_such"):
        Engine(member_id=1, group_tag=1, seed=1, no_such=1, **engine)
    with pytest.raises(ValueError, match="seed"):
        Engine(member_id=1, group_tag=1, **engine)
    EndpointSettings(order="fifo", **core)
    with pytest.raises(OSError, match="interface"):
        Driver(
            Engine(member_id=1, group_tag=1, seed=1, **engine),
            member_id=1,
            group=bytes(4),
            look_ns=1,
            **driver | {"interface": "none-such"},
        )
    assert derive.SLAB_BYTES == SLAB_BYTES


def test_engine_settings_are_in_nanoseconds():
    settings = engine_settings(Config(heartbeat_s=0.02, suspect_s=0.5, nak_delay_s=200e-6))
    assert settings["heartbeat_ns"] == 20_000_000
    assert settings["suspect_ns"] == 500_000_000
    assert settings["nak_delay_ns"] == 200_000


@pytest.mark.parametrize("preset", ["lan", "fast", "wan"])
def test_joiners_and_other_views_are_forgotten_only_after_several_signs_are_missed(preset):
    core = core_settings(Config(preset=preset), mtu=1500, rcvbuf=1 << 20)
    assert core["joiner_seen_ns"] >= 3 * core["join_ns_max"] and core["group_seen_ns"] > core["joiner_seen_ns"]
    assert core["elsewhere_ns"] >= 3 * core["beacon_ns"] and core["merge_lease_ns"] < core["merge_deadline_ns"]


def test_presets_say_how_soon_other_views_are_found():
    found = {name: core_settings(Config(preset=name), mtu=1500, rcvbuf=1 << 20)["beacon_ns"] for name in PRESETS}
    assert found["fast"] == found["lan"] < found["wan"], "Python answers beacons"


def test_an_ipv6_address_of_the_link_names_its_interface():
    six = {"ip_version": 6, "address": "ff02::1:2%eth0"}
    assert Config(**six).interface == "eth0"
    for interface in ("eth0", "fe80::1%eth0", "fe80::1"):
        assert Config(interface=interface, **six).interface == interface
    for interface in ("eth1", "fe80::1%eth1"):
        with pytest.raises(seqcast.ConfigError, match=r"address=ff02::1:2%eth0 names another interface"):
            Config(interface=interface, **six)


def test_group_addresses_lie_in_the_scopes_for_local_use_and_differ():
    import ipaddress

    four = {group_address(f"cluster {i}", 4) for i in range(1000)}
    six = {group_address(f"cluster {i}", 6) for i in range(1000)}
    assert len(four) > 950 and len(six) == 1000
    assert all(ipaddress.ip_address(a) in ipaddress.ip_network("239.255.0.0/16") for a in four)
    assert all(ipaddress.ip_address(a) in ipaddress.ip_network("ff15::/16") for a in six)
    assert len({group_tag(f"cluster {i}") for i in range(1000)}) == 1000


@pytest.mark.parametrize(
    ("mtu", "granted", "ip_version", "want"),
    [
        (1500, 8 << 20, 4, 1472),
        (1500, 8 << 20, 6, 1448),
        (9000, 8 << 20, 4, 8968),
        (65536, 8 << 20, 4, 65000),
        (65536, 400 << 10, 4, 1472),  # a small buffer holds few large datagrams
        (65536, 400 << 10, 6, 1448),
        (1400, 8 << 20, 4, 1368),
    ],
)
def test_packets_are_as_large_as_the_path_carries_whole(mtu, granted, ip_version, want):
    assert packet_bytes(Config(ip_version=ip_version), mtu, granted) == want
    assert packet_bytes(Config(packet_bytes=1024), mtu, granted) == 1024


@pytest.mark.parametrize(("limit", "want"), [(20_000, 1232), (500_000, 10_000), (100_000_000, 65_000)])
def test_packets_are_small_if_few_bytes_may_be_sent(limit, want):
    """On loopback, packets of 64 KB at 20 KB/s took seconds each: members were excluded in a view change."""
    assert packet_bytes(Config(send_bytes_per_s=limit), 65536, 6 << 20) == want


@pytest.mark.parametrize(
    ("seeds", "found"),
    [
        (["10.0.0.1"], 1),
        (["10.0.0.1", "10.0.0.2:5", "[fe80::1]:7"], 2),
        (["10.0.0.1", "10.0.0.1"], 1),
        (["10.0.0.1", "10.0.0.2", "10.0.0.3", "10.0.0.4"], 3),
    ],
)
def test_a_primary_group_is_founded_by_a_majority_of_the_seeds_that_are_addresses(seeds, found):
    config = Config(partition="primary", seeds=seeds)
    assert config.found == found
    assert config.replace(seeds=["10.0.0.9"], found=5).found == 5
    assert Config(seeds=seeds).found == 1
    assert config.for_guest().found == 0


@pytest.mark.parametrize("seeds", ["orders-headless", "10.0.0.1,file:/seeds", "env:SEEDS", lambda: ["10.0.0.1"]])
def test_other_seeds_do_not_say_how_many_found_a_primary_group(seeds):
    with pytest.raises(seqcast.ConfigError, match=r"addresses of all of them as seeds= \(SC4102\)"):
        Config(partition="primary", seeds=seeds)
    config = Config(partition="primary", seeds=seeds, found=1)
    assert config.replace(port=5000).found == 1
    assert Config(seeds=seeds).for_guest(partition="primary").found == 0


def test_the_marks_of_origins_are_not_settings():
    with pytest.raises(seqcast.ConfigError, match="there is no setting '_marks'"):
        Config().replace(_marks={})
    with pytest.raises(seqcast.ConfigError, match="SEQCAST__MARKS"):
        Config.from_environment({"SEQCAST__MARKS": "1"})
