"""Seeds at addresses of the own network where nobody is: the kernel keeps datagrams to them for seconds, while it asks
who has the address, and counts them against the buffer of the socket that they leave by."""

from __future__ import annotations

import time

import pytest
from members import cluster
from netns import network  # noqa: F401
from talkers import Talker, await_

pytestmark = [pytest.mark.netns, pytest.mark.long]


@pytest.mark.parametrize(("transport", "silent", "found"), [("unicast", 4, 3), ("unicast", 45, 1), ("auto", 45, 1)])
def test_silent_seeds_on_the_own_network_stop_no_live_member(network, transport, silent, found):  # noqa: F811
    seeds = [f"10.99.0.{number}" for number in (*range(1, 4), *range(101, 101 + silent))]
    settings = {"transport": transport, "seeds": ",".join(seeds), "found": found, "sndbuf": 106_496}
    name, made = cluster(), []
    try:
        for place, member in zip(network, "abc", strict=False):
            made.append(Talker(place, name, member, **settings))
            if found > 1 and member == "a":
                time.sleep(2.0)  # its datagrams fill what they can
        await_(made, lambda: all(sorted(each.members()) == ["a", "b", "c"] for each in made), timeout=12.0)
        views = [len(each.of("view")) for each in made]
        time.sleep(4.0)
        assert [len(each.of("view")) for each in made] == views
        assert not any(each.of("SendTimeout") for each in made)
        assert all(one.got(other.name) > 200 for one in made for other in made)
    finally:
        for each in made:
            each.end()
