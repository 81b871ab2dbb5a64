"""False alarms of the doctor: ``python bench/doctor_alarms.py --runs 50`` (10 minutes; needs root).

Each run makes a new network of two namespaces that nothing is wrong with, on a bridge, starts ``seqcast doctor
--listen`` on one side, and runs ``seqcast doctor --with`` on the other. A finding is a false alarm, unless the doctor
has it there without ``--with`` too: then it is about this machine. Prints one line of JSON, and ends with status 1 if
there was an alarm.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from collections.abc import Callable
from typing import Any

from seqcast.perf.paths import PathError, Place, bridged, why_no_namespaces

LIMIT_S = 300.0
Lines = list[dict[str, Any]]


def doctor(place: Place, *options: str) -> Lines:
    """The lines with a code.

    Raises:
        PathError: the command failed.
    """
    command = [*place.prefix, sys.executable, "-m", "seqcast", "doctor", "--json", *options]
    done = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT_S, check=False)
    if done.returncode not in (0, 1):
        raise PathError(f"doctor ended with {done.returncode}: {done.stderr.strip()}")
    return [line for line in json.loads(done.stdout)["lines"] if line["code"]]


def run(plant: Callable[[Place], object] = id) -> Lines:
    """The false alarms of one pair. ``plant`` may make a fault on the side that is examined."""
    with bridged(2) as (here, there):
        plant(here)
        of_machine = {line["code"] for line in doctor(here)}
        command = [*there.prefix, sys.executable, "-m", "seqcast", "doctor", "--listen"]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as listener:
            try:
                assert listener.stdout is not None
                if "listens" not in listener.stdout.readline():
                    raise PathError("doctor --listen does not listen")
                return [line for line in doctor(here, "--with", there.address) if line["code"] not in of_machine]
            finally:
                listener.kill()


def main() -> int:
    """All runs; each alarm is told on standard error as it comes."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=50, help="pairs, each examined once (%(default)s)")
    wanted = parser.parse_args()
    if reason := why_no_namespaces():
        print(reason, file=sys.stderr)
        return 2
    alarms: list[Lines] = []
    for _ in range(wanted.runs):
        if found := run():
            alarms.append(found)
            print(json.dumps(found), file=sys.stderr, flush=True)
    print(json.dumps({"doctor_runs": wanted.runs, "with_alarms": len(alarms), "alarms": alarms}))
    return 1 if alarms else 0


if __name__ == "__main__":
    sys.exit(main())
