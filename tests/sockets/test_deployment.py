"""docs/deployment.md: systemd takes the unit, and members meet through a firewall with the rules; and one that is the
first process of a container ends as the page says."""

from __future__ import annotations

import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from members import LOOPBACK, cluster
from netns import network  # noqa: F401
from project import ROOT
from talkers import await_, talkers

PAGE = (ROOT / "docs" / "deployment.md").read_text(encoding="utf-8")
(UNIT,) = re.findall(r"```ini\n(.*?)```", PAGE, re.S)
(RULES,) = re.findall(r"```\n(nft .*?)```", PAGE, re.S)
IN_CONTAINER = """
import sys, seqcast
seqcast.leave_on_signals()
with seqcast.join(sys.argv[1], interface=sys.argv[2]) as group:
    print("in", flush=True)
    for message in group:
        pass
print(group.status, flush=True)
"""


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="no systemd-analyze")
def test_systemd_takes_the_unit(tmp_path: Path) -> None:
    def faults(unit: str) -> list[str]:
        """That are told of this unit, and not of others wanted by the unit, which this machine may lack."""
        path = tmp_path / "shop.service"
        unit = unit.replace("/srv/shop/.venv/bin/python", sys.executable).replace("/srv/shop", str(tmp_path))
        path.write_text(unit, encoding="utf-8")
        command = ["systemd-analyze", "verify", "--man=no", str(path)]
        said = subprocess.run(command, capture_output=True, text=True, timeout=60).stderr
        return [line for line in said.splitlines() if "shop.service" in line]

    assert faults(UNIT) == []
    assert any("Restrat" in line for line in faults(UNIT.replace("Restart=", "Restrat=")))
    assert faults(UNIT.replace("python stock.py", "pyhton stock.py"))


@pytest.mark.long
@pytest.mark.netns
@pytest.mark.multicast
def test_members_meet_through_a_firewall_with_the_rules_of_the_page(network) -> None:  # type: ignore[no-untyped-def]  # noqa: F811
    for place in network[:2]:
        place.run(
            "nft",
            "add table inet filter; add chain inet filter input { type filter hook input priority 0; policy drop; }; "
            "add rule inet filter input iif lo accept",
        )
        for rule in RULES.splitlines():
            place.run("nft", rule.removeprefix("nft "))
    with talkers(network[:2], "ab", at_once=True, unicast_port=47320, transport="multicast") as made:
        await_(made, lambda: all(each.got(other) > 60 for each in made for other in "ab"))


@pytest.mark.long
@pytest.mark.netns
def test_the_first_process_of_a_container_leaves_on_sigterm() -> None:
    command = ["unshare", "--pid", "--fork", "--kill-child", sys.executable, "-c", IN_CONTAINER, cluster(), LOOPBACK]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "in\n"
        child = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
        subprocess.run(["kill", f"-{signal.SIGTERM.value}", *child], check=True)
        assert process.stdout.readline() == "left\n"
        assert process.wait(30) == 0
