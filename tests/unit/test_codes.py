"""The registry of codes, and the findings that are made from the board of one member."""

import ast
import inspect
import os
import pickle
import re
from collections import defaultdict
from pathlib import Path

import pytest
from project import ROOT

import seqcast.codes as codes
import seqcast.errors as errors
from seqcast.board.judge import groups, readiness, spokesman, troubles, troubles_here, way
from seqcast.board.read import Board, pid_namespace
from seqcast.journal.schema import JournalError
from seqcast.perf.paths import PathError
from seqcast.perf.processes import RunFailed

SECOND = 10**9


def test_every_code_has_a_kind_and_a_remedy():
    for number, code in codes.CODES.items():
        assert re.fullmatch(r"SC\d{4}", number) and number[2] in codes.KINDS
        assert code.title and code.cause.endswith(".") and code.remedy.endswith((".", "warning.", "."))


def test_every_code_has_a_test():
    pages = [path for end in ("py", "txt") for path in (ROOT / "tests").glob(f"*/**/*.{end}")]
    tested = "".join(path.read_text("utf-8") for path in pages)
    assert [number for number in codes.CODES if number not in tested] == []


def test_every_code_is_used():
    names = {name: code for name, code in vars(codes).items() if isinstance(code, codes.Code)}
    assert len(names) == len(codes.CODES)
    sources = [path for path in (ROOT / "src/seqcast").glob("**/*.py") if path.name != "codes.py"]
    text = "".join(path.read_text("utf-8") for path in sources)
    assert [name for name, code in names.items() if f"codes.{name}" not in text and code.number not in text] == []


def test_a_member_is_named_by_its_own_board_before_any_view_and_by_those_beside():
    seeking, knows = board(about__view={"members": []}), board()
    assert [seeking.name_of(each) for each in (1, 2)] == ["a", f"{2:016x}"]
    seeking.names.update(knows.knows())
    assert seeking.name_of(2) == "b" and seeking.name_of(9) == f"{9:016x}"


def board(**changes):
    """Of member a, rank 0 of three, in which all is well."""
    now = 1000 * SECOND
    names = ("a", "b", "c")
    members = [{"id": i, "name": name, "address": f"10.0.0.{i}:9"} for i, name in enumerate(names, 1)]
    view = {"counter": 7, "since": 0, "members": members}
    about = {
        "cluster": "c", "name": "a", "id": 1, "gone": [], "clock": 0, "interface": "eth0",
        "pid": 1, "pids": "elsewhere" + pid_namespace(), "updated": now, "view": view,
        "net": "net:[1]", "port": 47310, "multicast": "", "seal": {"keys": []},
        "transport": "multicast", "status": {"name": "member", "reason": ""}, "seeds": {"silent": 0, "unresolved": []},
    }  # fmt: skip
    gauges = {"posted": now, "heartbeat_ns": SECOND // 20, "last": 10, "rank": 0}
    rows = [defaultdict(int, id=i, present=1, heard=now) for i in (1, 2, 3)]
    for key, value in changes.items():
        kind, _, name = key.partition("__")
        {"about": about, "gauges": gauges}.get(kind, about)[name] = value
    return Board(Path(about["name"]), about, {}, defaultdict(int, gauges), tuple(rows), (), now, frozenset())


def numbers(seen):
    return [each.code.number for each in troubles(seen, 1.0)]


def test_nothing_is_wrong_with_a_healthy_group():
    assert numbers(board()) == [] and readiness([board()], 3, 1.0) == ""


@pytest.mark.parametrize(
    ("row", "field", "bits", "how", "code"),
    [
        (1, "unheard_0", 0b100, "u", "SC2210"),
        (1, "mute_0", 0b100, "m", "SC2212"),
        (2, "unheard_0", 0b001, "u", "SC2210"),
    ],
)
def test_a_link_that_is_cut_is_named_with_its_direction(row, field, bits, how, code):
    seen = board()
    seen.members[row][field] = bits
    speaker = bits.bit_length() - 1
    assert numbers(seen) == [code] and way(seen, row, speaker) == how
    fact = troubles(seen, 1.0)[0].fact
    assert fact.split()[0 if code == "SC2210" else -1] == "abc"[row]


def test_a_link_that_carries_nothing_is_worse():
    seen = board()
    seen.members[2]["unheard_0"] = seen.members[2]["mute_0"] = 0b010
    assert numbers(seen) == ["SC2211"] and troubles(seen, 1.0)[0].fact == "c does not hear b at all"
    assert "(SC2211)" in readiness([seen], 3, 1.0)
    seen = board()  # this member itself has heard nothing for long
    seen.members[0]["unheard_0"] = 0b010
    seen.members[1]["heard"] -= 10 * SECOND
    assert numbers(seen) == ["SC2211"]


def test_by_the_unicast_transport_being_heard_by_unicast_is_not_a_fault():
    seen = board(about__transport="unicast")
    assert way(seen, 0, 1) == "u" and numbers(seen) == []


EXCLUDED = {
    "about__status": {"name": "excluded", "reason": "slow"}, "about__pids": pid_namespace(), "about__pid": os.getpid(),
    "about__started": "", "about__updated": 990 * SECOND, "gauges__posted": 990 * SECOND,
    "gauges__awaited_since": 990 * SECOND,
}  # fmt: skip
"""As of a member whose process runs: its board is as it was then."""


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"about__status": {"name": "blocked", "reason": "a pause"}}, "SC3102"),
        ({"about__status": {"name": "joining", "reason": "b is missing"}, "about__began": 990 * SECOND}, "SC3103"),
        ({"gauges__held_by": 2, "gauges__held_since": 990 * SECOND}, "SC2203"),
        ({"gauges__awaited_since": 990 * SECOND}, "SC2205"),
        ({"about__updated": 990 * SECOND}, "SC2206"),
        ({"gauges__posted": 990 * SECOND}, "SC2207"),
        ({"gauges__posted": 0}, "SC3005"),
        (EXCLUDED, "SC3101"),
        ({**EXCLUDED, "about__status": {"name": "left", "reason": "the disk is full (SC3111)"}}, "SC3003"),
    ],
)
def test_a_condition_of_a_member_has_its_code(changes, code):
    assert numbers(board(**changes)) == [code] and readiness([board(**changes)], 3, 1.0)


@pytest.mark.parametrize(("reason", "seconds"), [("", 100), ("b is missing", 0.5)])
def test_a_join_that_has_just_begun_or_waits_for_nobody_is_not_a_fault(reason, seconds):
    now = 1000 * SECOND
    joining = board(about__status={"name": "joining", "reason": reason}, about__began=now - int(seconds * SECOND))
    assert numbers(joining) == []


def test_a_member_that_has_left_as_wished_is_not_a_fault():
    assert numbers(board(**{**EXCLUDED, "about__status": {"name": "left", "reason": ""}})) == []


def test_a_member_that_misses_messages_is_named_and_is_ready():
    seen = board()
    seen.members[1]["slow"] = 1
    assert numbers(seen) == [], "the row of another one says something else"
    seen.members[0]["slow"] = 1
    assert numbers(seen) == ["SC2217"] and readiness([seen], 3, 1.0) == ""


def test_a_member_whose_process_has_ended_here_is_not_said_to_be_cut_off():
    """In a blocked minority `probe` told to look at the firewalls."""
    seen = board()
    seen.members[0]["unheard_0"] = seen.members[0]["mute_0"] = 0b10
    assert numbers(seen) == ["SC2211"]
    ended = board(about__name="b", about__id=2, gauges__posted=900 * SECOND)
    assert not ended.alive
    assert [each.code.number for each in troubles_here(seen, [seen, ended], 1.0)] == ["SC3005"]


def test_a_remedy_names_the_process_or_the_host():
    """So that the command in the text can be pasted."""
    (stopped,) = troubles(board(gauges__posted=990 * SECOND, about__pid=47), 1.0)
    assert stopped.remedy.startswith("`ps -o stat,wchan -p 47`;")
    (hangs,) = troubles(board(about__updated=990 * SECOND, about__pid=47), 1.0)
    assert "py-spy dump --pid 47`" in hangs.remedy
    seen = board()
    seen.members[1]["unheard_0"] = 0b100
    assert "`seqcast doctor --with 10.0.0.3`" in troubles(seen, 1.0)[0].remedy
    assert codes.filled(codes.DEAF, HOST="") == codes.DEAF.remedy


OTHERS = [{"id": i, "name": name, "address": "10.0.0.9:9"} for i, name in ((4, "d"), (1, "a"))]
OUT = {"about__name": "d", "about__id": 4, "about__view": {"counter": 5, "since": 0, "members": OTHERS}}
STOPPED = {"gauges__posted": 990 * SECOND}


def test_members_here_that_the_view_does_not_have_are_faults():
    """One that was stopped, which the others have excluded; one that was cut off; and none of another group of the
    same name."""
    seen, out = board(), board(**OUT)
    (apart,) = troubles_here(seen, [seen, out], 1.0)
    assert (apart.code.number, apart.fact) == ("SC3105", "d (process 1) is here in another view: 5 [d, a]")
    excluded = troubles_here(seen, [seen, board(**OUT, **EXCLUDED)], 1.0)
    assert [each.fact for each in excluded] == [f"d (process {os.getpid()}) was excluded: slow"], "so much is known"
    stopped = troubles_here(seen, [seen, board(**OUT, **STOPPED)], 1.0)
    assert [each.code.number for each in stopped] == ["SC2207", "SC3105"]
    for name, value in {
        "interface": "eth1", "net": "net:[2]", "port": 47320, "multicast": "239.1.2.3", "transport": "auto",
        "seal": {"keys": ["1f"]}, "cluster": "d",
    }.items():  # fmt: skip
        assert troubles_here(seen, [seen, board(**OUT, **STOPPED, **{f"about__{name}": value})], 1.0) == [], name
    assert troubles_here(seen, [seen, board(**OUT, gauges__posted=0)], 1.0) == [], "it has ended"
    assert troubles_here(seen, [seen, out], 1001.0) == [], "it has just entered its view"
    waits = {"about__status": {"name": "joining", "reason": "too few"}, "about__began": 990 * SECOND}
    nowhere = {"counter": 0, "since": 0, "members": []}
    joiner = board(about__name="d", about__id=4, about__view=nowhere, **waits)
    assert [each.code.number for each in troubles_here(seen, [seen, joiner], 1.0)] == ["SC3103"]
    beside = board(about__name="b", about__id=2, **STOPPED)
    assert [each.code.number for each in troubles_here(seen, [seen, beside], 1.0)] == ["SC2207"]


def test_boards_of_one_name_are_of_one_group_unless_something_on_them_keeps_the_groups_apart():
    def keyed(name, number, *keys):
        view = {"counter": 1, "since": 0, "members": [{"id": number, "name": name, "address": "10.0.0.1:9"}]}
        return board(about__name=name, about__id=number, about__view=view, about__seal={"keys": list(keys)})

    new, old, both, other = keyed("a", 1, "2e"), keyed("b", 2, "1f"), keyed("c", 3, "2e", "1f"), keyed("d", 4, "3d")
    names = [["".join(each.name for each in part)] for part in groups([new, old, other, both])]
    assert names == [["abc"], ["d"]], "a member that opens both keys joins those that have one each"
    seen, out = (board(**each, about__transport="unicast") for each in ({}, OUT))
    out.about["view"] = {"counter": 5, "since": 0, "members": OTHERS[:1]}
    assert [len(part) for part in groups([seen, out])] == [1, 1]
    out.about["view"]["members"] = OTHERS
    assert [len(part) for part in groups([seen, out])] == [2], "one is in the other's view"


def test_by_seeds_alone_only_members_that_have_met_are_of_one_group():
    seen, out = (board(**each, about__transport="unicast") for each in ({}, OUT))
    assert troubles_here(seen, [seen, out], 1.0) == []
    for one, other in ((seen, out), (out, seen)):
        one.about["gone"] = [{"id": other.about["id"], "name": other.name}]
        assert "SC3105" in {each.code.number for each in troubles_here(seen, [seen, out], 1.0)}
        one.about["gone"] = []


def test_a_group_is_shown_by_a_member_that_runs_or_by_the_last_one_that_did():
    runs, hangs = board(about__name="b"), board(**{**STOPPED, "about__name": "a"})
    alone = board(about__name="a", about__view={"members": []})
    first, last = (board(about__name=name, gauges__posted=at) for name, at in (("a", SECOND), ("b", 2 * SECOND)))
    assert spokesman([hangs, runs]) is runs and spokesman([hangs, last]) is hangs
    assert spokesman([alone, runs]) is runs and spokesman([alone, hangs]) is alone
    assert spokesman([first, last]) is last
    assert spokesman([board(about__updated=990 * SECOND), runs]) is runs, "its Python hangs"


def test_a_stall_that_has_just_begun_is_not_trouble():
    assert numbers(board(gauges__held_by=2, gauges__held_since=1000 * SECOND - SECOND // 2)) == []


WRITES = {"warning", "error", "exception", "warn", "Warn"}
PASSED_ON = {
    "crowd/runner.py": "what the core or the watch of the interface warns of",
    "net/interface.py": "what the core warns of",
    "net/runner.py": "what the core warns of",
    "core/holdups.py": "its own lines, which have codes",
    "blocks/replica.py": "an error of a disk, whose text has the code",
}
"""Modules with functions that get a text with its code."""


def coded(call, body):
    """The text of a call that warns is made by a code: there, or in an assignment before it in the same module."""
    made = [ast.unparse(each) for each in call.args]
    texts = {
        target.id
        for each in ast.walk(body)
        if isinstance(each, ast.Assign) and "codes." in ast.unparse(each.value)
        for target in each.targets
        if isinstance(target, ast.Name)
    }
    return any("codes." in text or text in texts for text in made)


def test_every_warning_has_a_code():
    source, without = ROOT / "src/seqcast", []
    for path in source.glob("**/*.py"):
        name = path.relative_to(source).as_posix()
        tree = ast.parse(path.read_text("utf-8"))
        for call in ast.walk(tree):
            if not isinstance(call, ast.Call) or not call.args:
                continue
            what = ast.unparse(call.func)
            last = what.rpartition(".")[2]
            asks = what.startswith(("log.", "self.lines", "warnings.", "self.warn", "self.log")) or last == "Warn"
            if last in WRITES and asks and name not in PASSED_ON and not coded(call, tree):
                without.append(f"{name}:{call.lineno}: {ast.unparse(call)[:80]}")
    assert without == []


ERRORS = {
    "SeqcastError": "SC9001", "UsageError": "SC1201", "ConfigError": "SC1202", "JoinTimeout": "SC4001",
    "JoinRefused": "SC3001", "NameTaken": "SC3002", "NotMember": "SC3003", "NotInView": "SC2214",
    "SendTimeout": "SC2208", "SendWouldBlock": "SC2205", "Undecided": "SC3006", "NotReady": "SC3007",
    "OtherRelease": "SC3010", "StableFailed": "SC3111", "MachineError": "SC3009", "SuspendTimeout": "SC3008",
    "JournalWriteError": "SC6001", "RemoteProtocolError": "SC4002", "SparkFailed": "SC6002",
}  # fmt: skip
"""They never change: programs and people look for them."""


def test_every_error_has_its_code():
    found = {name: value for name, value in vars(errors).items() if inspect.isclass(value)}
    assert {name: vars(error).get("code") for name, error in found.items()} == ERRORS
    assert set(ERRORS.values()) <= codes.CODES.keys()


OTHERS_OF_THE_PACKAGE = {JournalError: "SC6008", PathError: "SC1206", RunFailed: "SC1206"}


@pytest.mark.parametrize("error", [*(getattr(errors, name) for name in ERRORS), *OTHERS_OF_THE_PACKAGE])
def test_the_text_of_an_error_ends_with_its_code_once(error):
    code = ERRORS.get(error.__name__) or OTHERS_OF_THE_PACKAGE[error]
    one = error("no: try again")
    assert str(one) == str(pickle.loads(pickle.dumps(one))) == f"no: try again ({code})"
    assert errors.without_code(one) == "no: try again" and errors.without_code(OSError(2, "no")) == "[Errno 2] no"
    assert str(error(f"no ({code})")) == f"no ({code})" and str(error()) == f"({code})"
    one.code = "SC3216"  # of this one alone
    assert str(one) == "no: try again (SC3216)"


def test_no_error_of_the_package_has_the_code_of_a_bug():
    without = []
    for path in (ROOT / "src/seqcast").glob("**/*.py"):
        for each in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(each, ast.ClassDef) and "SeqcastError" in map(ast.unparse, each.bases):
                if not any(ast.unparse(line).startswith("code = ") for line in each.body):
                    without.append(each.name)
    assert without == [] and {error.code for error in OTHERS_OF_THE_PACKAGE} <= codes.CODES.keys()


def test_a_line_ends_with_its_number():
    assert codes.STARVED("no room") == "no room (SC2201)"
