"""The frames of a protocol version do not change: a changed frame needs a new version (docs/protocol.md, "Releases side
by side"). ``frames-N.json`` has those of version N, from the oldest that this release speaks to its newest."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from seqcast.core.frames.codec import defaults
from seqcast.core.frames.fields import PROTOCOL_OLDEST, PROTOCOL_VERSION
from seqcast.core.frames.kinds import SCHEMAS

Frames = dict[str, dict[str, dict[str, Any]]]
HERE = Path(__file__).parent
HOW = (
    "a frame has changed: raise PROTOCOL_VERSION (before 0.1.0 PROTOCOL_OLDEST with it), and write the new file by "
    "`PYTHONPATH=tests python -m protocol.test_versions`"
)


def described() -> Frames:
    """By kind and field: the field's form, and its default, if any."""
    return {
        kind: {
            name: {"form": schema.text}
            | ({"default": schema.dump(defaults(make)[name])} if name in defaults(make) else {})
            for name, schema in schemas.items()
        }
        for kind, (make, schemas) in sorted(SCHEMAS.items())
    }


def file_of(version: int) -> Path:
    return HERE / f"frames-{version}.json"


def faults(older: Frames, newer: Frames) -> list[str]:
    """Why a release with the older frames cannot be in a group with one that has the newer ones (rule 3)."""
    found = [f"{kind} is gone" for kind in older.keys() - newer.keys()]
    for kind in older.keys() & newer.keys():
        for name, field in older[kind].items():
            now = newer[kind].get(name)
            # An entry that is added to a record stands at its end.
            form = re.sub(r"(?<=\w)\\\]", r"(, \\w+)*\\]", re.escape(field["form"]))
            if now is None:
                found.append(f"{kind}.{name} is gone")
            elif not re.fullmatch(form, now["form"]):
                found.append(f"{kind}.{name} has another form: {now['form']}")
            elif now.get("default", ...) != field.get("default", ...):
                found.append(f"{kind}.{name} has another default")
        added = newer[kind].keys() - older[kind].keys()
        found += [f"{kind}.{name} has no default" for name in added if "default" not in newer[kind][name]]
    return found


def test_the_frames_of_this_version_are_as_written_down() -> None:
    assert json.loads(file_of(PROTOCOL_VERSION).read_text()) == described(), HOW


def test_a_later_version_only_adds() -> None:
    versions = range(PROTOCOL_OLDEST, PROTOCOL_VERSION + 1)
    files = set(HERE.glob("frames-*.json"))
    assert {file_of(each) for each in versions} == files, "a file for each version that is spoken, and no other"
    for each in versions:
        assert not faults(json.loads(file_of(each).read_text()), described())


def field(form: str, **default: Any) -> dict[str, Any]:
    return {"form": form, **default}


OLD = {"join": {"version": field("count"), "infos": field("list of at most 9 × [name, id]", default=[])}}


@pytest.mark.parametrize(
    ("newer", "fault"),
    [
        ({"join": {**OLD["join"], "more": field("count", default=0)}, "late": {}}, []),
        ({"join": {**OLD["join"], "infos": field("list of at most 9 × [name, id, more]", default=[])}}, []),
        ({}, ["join is gone"]),
        ({"join": {"version": field("count")}}, ["join.infos is gone"]),
        ({"join": {**OLD["join"], "version": field("text")}}, ["join.version has another form: text"]),
        ({"join": {**OLD["join"], "version": field("count", default=0)}}, ["join.version has another default"]),
        ({"join": {**OLD["join"], "more": field("count")}}, ["join.more has no default"]),
        (
            {"join": {**OLD["join"], "infos": field("list of at most 9 × [more, name, id]", default=[])}},
            ["join.infos has another form: list of at most 9 × [more, name, id]"],
        ),
    ],
)
def test_a_change_that_a_later_version_may_not_make_is_seen(newer: Frames, fault: list[str]) -> None:
    assert faults(OLD, newer) == fault


if __name__ == "__main__":
    text = json.dumps(described(), indent=1, ensure_ascii=False)
    file_of(PROTOCOL_VERSION).write_text(f"{text}\n", encoding="utf-8")
