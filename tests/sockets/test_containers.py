"""The examples for Kubernetes and Compose: valid, and enough for a group without multicast."""

from __future__ import annotations

import contextlib
import json
import re
import shutil
import sys
from pathlib import Path

import pytest
from netns import network  # noqa: F401
from project import ROOT
from talkers import await_, talkers

yaml = pytest.importorskip("yaml")

KUBERNETES = list(yaml.safe_load_all((ROOT / "examples/kubernetes.yaml").read_text("utf-8")))
COMPOSE = yaml.safe_load((ROOT / "examples/compose.yaml").read_text("utf-8"))
SERVICE, STATEFUL_SET = KUBERNETES
CONTAINER = STATEFUL_SET["spec"]["template"]["spec"]["containers"][0]
ORDERS = COMPOSE["services"]["orders"]
EXAMPLES = {
    "kubernetes": (
        {each["name"]: each["value"] for each in CONTAINER["env"]},
        CONTAINER["readinessProbe"]["exec"]["command"],
        STATEFUL_SET["spec"]["replicas"],
    ),
    "compose": (ORDERS["environment"], ORDERS["healthcheck"]["test"][1:], ORDERS["deploy"]["replicas"]),
}
"""By name: the environment of each process, the command that asks if the process is ready, and how many there are."""


def test_objects_of_kubernetes_have_the_fields_of_its_schemas():
    checks = pytest.importorskip("kubernetes_validate")
    for each in KUBERNETES:
        checks.validate(each, checks.latest_version(), strict=True)
    wrong = json.loads(json.dumps(STATEFUL_SET).replace("readinessProbe", "readynessProbe"))
    with pytest.raises(checks.ValidationError):
        checks.validate(wrong, checks.latest_version(), strict=True)


def test_the_volume_in_the_comments_for_kubernetes_fits_the_path_of_the_setting():
    text = (ROOT / "examples/kubernetes.yaml").read_text("utf-8")
    _, with_volume = yaml.safe_load_all(re.sub(r"^( +)# (?=- |  |volume)", r"\1", text, flags=re.M))
    (claim,) = with_volume["spec"]["volumeClaimTemplates"]
    (container,) = with_volume["spec"]["template"]["spec"]["containers"]
    (mount,) = container["volumeMounts"]
    (path,) = (each["value"] for each in container["env"] if each["name"] == "SEQCAST_STABLE")
    assert mount["name"] == claim["metadata"]["name"] and path.startswith(f"{mount['mountPath']}/")
    checks = pytest.importorskip("kubernetes_validate")
    checks.validate(with_volume, checks.latest_version(), strict=True)


def test_the_file_of_compose_has_the_fields_of_its_specification():
    checks = pytest.importorskip("compose_spec")
    text = (ROOT / "examples/compose.yaml").read_text("utf-8")
    assert checks.PyCompose.from_yaml(text).service_names() == ["orders"]
    with pytest.raises(Exception, match="stop_graze_period"):
        checks.PyCompose.from_yaml(text.replace("stop_grace_period", "stop_graze_period"))


def test_names_and_ports_of_the_objects_fit_each_other():
    names = {SERVICE["metadata"]["name"], STATEFUL_SET["spec"]["serviceName"]}
    assert names == {EXAMPLES["kubernetes"][0]["SEQCAST_SEEDS"]}
    labels = STATEFUL_SET["spec"]["template"]["metadata"]["labels"]
    assert SERVICE["spec"]["selector"] == STATEFUL_SET["spec"]["selector"]["matchLabels"] == labels
    assert {each["port"] for each in SERVICE["spec"]["ports"]} == {each["containerPort"] for each in CONTAINER["ports"]}
    assert SERVICE["spec"]["publishNotReadyAddresses"] and SERVICE["spec"]["clusterIP"] == "None"
    for environment, _, replicas in EXAMPLES.values():
        assert int(environment["SEQCAST_FOUND"]) > replicas / 2


@contextlib.contextmanager
def named(places, name):
    """The name stands for all these places there, as that of a headless service does."""
    folders = [Path("/etc/netns") / place.namespace for place in places]
    try:
        for folder in folders:
            folder.mkdir(parents=True)
            lines = ["127.0.0.1 localhost", *(f"{place.address} {name}" for place in places)]
            (folder / "hosts").write_text("\n".join(lines) + "\n", encoding="utf-8")
        yield
    finally:
        for folder in folders:
            shutil.rmtree(folder, ignore_errors=True)


@pytest.mark.long
@pytest.mark.netns
@pytest.mark.parametrize("example", EXAMPLES)
def test_processes_with_its_environment_are_one_group_on_a_bridge_without_multicast(network, monkeypatch, example):  # noqa: F811
    environment, ready, replicas = EXAMPLES[example]
    places = network[:replicas]
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    for place in places:
        place.run(
            "nft",
            "add table inet seqcast_bridge; add chain inet seqcast_bridge out { type filter hook output priority 0; }; "
            "add rule inet seqcast_bridge out ip daddr 224.0.0.0/4 drop",
        )
    with named(places, environment["SEQCAST_SEEDS"]), talkers(places, "abc", at_once=True) as made:
        await_(made, lambda: all(each.got(other) > 60 for each in made for other in "abc"))
        command, cluster, *options = ready[1:]
        asked = places[0].run(sys.executable, "-m", "seqcast", command, made[0].cluster, *options)
        assert (cluster, asked.strip()) == ("orders", "ready")
