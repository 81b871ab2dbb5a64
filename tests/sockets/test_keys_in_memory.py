"""The memory of a member with a key, as a debugger, a core dump or the swap would show it."""

from __future__ import annotations

import base64
import json
import subprocess
import sys
import time

import pytest
from members import LIMIT_S, LOOPBACK, cluster, environment, founded, join, wait_until
from memory import FORGOTTEN, contents, needs_smaps

from seqcast.config import identities, keys
from seqcast.net.secure import Ed25519

pytest.importorskip("nacl")

MEMBER = """
import json, sys, seqcast
name, interface, *settings = sys.argv[1:]
with seqcast.join(name, name="b", interface=interface, **dict(each.split("=", 1) for each in settings)) as group:
    while input() == "?":
        context = group._runner.endpoint.context
        pair = context.settings.exchange
        held = [pair._private, *pair._shared.values(), context.secrets._current, context.settings.signer._secret]
        print(json.dumps([each.hex() for each in held]), flush=True)
"""


def found(pid: int, secrets: list[bytes]) -> tuple[set[bytes], list[str]]:
    """The secrets in memory that is for secrets; and the places of those in other memory, by their middle bytes."""
    inside, outside = set(), []
    for begin, _, flags, data in contents(pid):
        if FORGOTTEN in flags:
            inside |= {each for each in secrets if each in data}
        else:
            outside += [
                f"secret {n} at {begin + data.find(each[4:-4]):x}"
                for n, each in enumerate(secrets)
                if each[4:-4] in data
            ]
    return inside, outside


@needs_smaps
def test_the_secrets_of_a_member_lie_in_no_memory_but_that_for_secrets(tmp_path):
    files, seeds = {"key": str(tmp_path / "key"), "authorized": str(tmp_path / "members")}, {}
    keys.make(files["key"])
    with open(files["authorized"], "w", encoding="ascii") as listed:
        for member in "ab":
            seed = seeds[member] = keys.secrets.token_bytes(32)
            identities.make(str(tmp_path / member), seed)
            listed.write(f"{identities.described(Ed25519(seed).public)} {member}\n")
    name = cluster()
    with join(name, "a", identity=str(tmp_path / "a"), **files) as a:
        founded(name)
        settings = [f"{each}={value}" for each, value in {**files, "identity": str(tmp_path / "b")}.items()]
        command = [sys.executable, "-c", MEMBER, name, LOOPBACK, *settings]
        with subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment(name)
        ) as b:
            wait_until(lambda: len(a.view.members) == 2)
            print("?", file=b.stdin, flush=True)
            kept = [bytes.fromhex(each) for each in json.loads(b.stdout.readline())]
            assert len(kept) >= 4 and all(any(each) for each in kept)
            (key,) = keys.read(files["key"])
            derived = bytes(keys.cluster_secret(key, name))
            kept += [derived, *(bytes(cookie) for _, _, cookie in keys.key_parts([(key.number, derived)]))]
            passing = [bytes(key.secret), base64.b64encode(key.secret), base64.b64encode(seeds["b"])]
            until = time.monotonic() + 10
            while (look := found(b.pid, kept + passing))[1] and time.monotonic() < until:
                time.sleep(0.5)  # a library's stack, until the next call
            assert look == (set(kept), [])
            print("", file=b.stdin, flush=True)
            assert b.wait(LIMIT_S) == 0
