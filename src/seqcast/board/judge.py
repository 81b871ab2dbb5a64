"""The troubles of a group, by the board of one of its members."""

from __future__ import annotations

from collections.abc import Sequence

import seqcast.codes as codes
from seqcast.board.read import VERSION, Board, of_other_releases
from seqcast.codes import Finding, finding

LATE_NS = 3 * 10**9
"""A control thread, or an engine, that has written nothing for this long does not run."""
STALL_S = 1.0
"""Senders may wait this long for one member, unless a command is told otherwise."""
FIT = (codes.DEAF_TO_MULTICAST, codes.SKIPS)
"""Findings with which a member is ready all the same."""
BITS = 64
TOGETHER = ("interface", "net", "port", "transport", "multicast")
"""Fields of boards that are the same for all members of a group on one machine."""


def way(board: Board, listener: int, speaker: int) -> str:
    """How the member of rank ``listener`` hears the one of rank ``speaker``: "m" by multicast, "u" by unicast, "." not
    at all, "?" not known yet."""
    row = board.members[listener]
    if not row["present"]:
        return "?"
    if not _bit(row, "unheard", speaker):
        return "u" if board.about.get("transport") == "unicast" else "m"
    return "." if _bit(row, "mute", speaker) or not _recent(board, listener, speaker) else "u"


def _bit(row: dict[str, int], name: str, rank: int) -> bool:
    return bool(row[f"{name}_{rank // BITS}"] >> rank % BITS & 1)


def _recent(board: Board, listener: int, speaker: int) -> bool:
    """This member, if it is the listener, has heard the other one lately; for others unknown."""
    if listener != board.gauges["rank"]:
        return True
    silence = board.gauges["posted"] - board.members[speaker]["heard"]
    return silence < 20 * max(board.gauges["heartbeat_ns"], 1)


def name_at(board: Board, rank: int) -> str:
    """The name of the member of a rank."""
    return board.name_of(board.members[rank]["id"])


def host_of(address: str) -> str:
    """The host of a member's address, as `seqcast doctor --with` takes one; "": not known."""
    return address.rpartition(":")[0]


def troubles(board: Board, stall_s: float, ended: frozenset[int] = frozenset()) -> list[Finding]:
    """A fault.

    Args:
        board: of one member, which is judged too.
        stall_s: senders may wait this long for one member, in seconds.
        ended: ids of members whose processes are known to have ended: no link to them is a fault.
    """
    name, now, gauges = board.name, board.read_ns, board.gauges
    if not board.alive:
        ago = max(0.0, (now - gauges["posted"]) / 1e9)
        last = f"; last seen {ago:.1f} s ago" if gauges["posted"] else " before it was in a group"
        return [finding(codes.ENDED, f"the process of {name} ({board.about['pid']}) has ended{last}")]
    if is_over(board):
        status, whom = board.about["status"], f"{name} (process {board.about['pid']})"
        if status["name"] == "excluded":
            return [finding(codes.EXCLUDED, f"{whom} was excluded: {status['reason']}")]
        # One that left as it wished has no reason.
        return [finding(codes.NOT_MEMBER, f"{whom} has ended: {status['reason']}")] if status["reason"] else []
    found = []
    if not _running(board):
        late = (now - gauges["posted"]) / 1e9
        text = f"{name} (process {board.about['pid']}) has not run for {late:.1f} s"
        found.append(finding(codes.NOT_RUNNING, text, PID=board.about["pid"]))
    elif now - board.about["updated"] > LATE_NS:
        late = (now - board.about["updated"]) / 1e9
        text = f"Python of {name} (process {board.about['pid']}) has not run for {late:.1f} s"
        found.append(finding(codes.PYTHON_HANGS, text, PID=board.about["pid"]))
    status = board.about["status"]
    if status["name"] == "blocked":
        found.append(finding(codes.BLOCKED, f"{name} is blocked: {status['reason']}"))
    elif status["name"] == "joining" and status["reason"] and (waits_s := _lived_s(board)) > stall_s:
        found.append(finding(codes.JOIN_WAITS, f"the join of {name} waits for {waits_s:.1f} s: {status['reason']}"))
    if gauges["held_by"] and now - gauges["held_since"] > stall_s * 1e9:
        whose = board.name_of(gauges["held_by"])
        took = (now - gauges["held_since"]) / 1e9
        found.append(finding(codes.SLOW_RECEIVER, f"senders of {name} have waited for {whose} for {took:.1f} s"))
    if gauges["awaited_since"] and now - gauges["awaited_since"] > stall_s * 1e9:
        took = (now - gauges["awaited_since"]) / 1e9
        found.append(finding(codes.AWAITED, f"senders have waited for {name} for {took:.1f} s"))
    if any(row["slow"] for row in board.members[gauges["rank"] :][:1]):
        found.append(finding(codes.SKIPS, f"{name} misses messages, as its application takes them too slowly"))
    return found + _cut_links(board, ended)


def is_over(board: Board) -> bool:
    """The membership has ended, and nothing is written any more, although the process runs."""
    return bool(board.alive and board.about["status"]["name"] in ("excluded", "left"))


def _running(board: Board) -> bool:
    """Its engine has written lately, or never yet."""
    posted = board.gauges["posted"]
    return not posted or board.read_ns - posted <= LATE_NS + 3 * board.gauges["heartbeat_ns"]


def spokesman(found: Sequence[Board]) -> Board:
    """The board by which a group is shown, of its boards on this machine: the first one of a member that runs, one in a
    view if there is one; else that of one that hangs; else the last one that was written."""

    def order(board: Board) -> tuple[bool, bool, bool, int]:
        if not board.alive:
            return True, True, True, -board.gauges["posted"]
        hangs = not _running(board) or board.read_ns - board.about["updated"] > LATE_NS
        return False, hangs, not board.about["view"]["members"], 0

    return min(found, key=order)


def troubles_here(board: Board, found: Sequence[Board], stall_s: float) -> list[Finding]:
    """The faults by a member's board, and by those of the other members of its view on this machine.

    Args:
        board: of the member by which the group is seen.
        found: the boards of the group on this machine.
        stall_s: as for ``troubles``.
    """
    ids = {each["id"] for each in board.about["view"]["members"]}
    others = [each for each in found if each.path != board.path and each.about["id"] in ids]
    ended = frozenset(each.about["id"] for each in others if not each.alive)
    wrong = [fault for each in (board, *others) for fault in troubles(each, stall_s, ended)]
    return list({each.fact: each for each in [*wrong, *strays(board, found, stall_s)]}.values())


def strays(board: Board, found: Sequence[Board], stall_s: float) -> list[Finding]:
    """The faults of members on this machine, of the same group, that are in another view than that of a board; after
    ``stall_s``, being there is a fault by itself."""
    ids, wrong = {each["id"] for each in board.about["view"]["members"]}, list[Finding]()
    if not (board.alive and ids):
        return wrong
    for other in [each for each in found if each.alive and _could_meet(board, each)]:
        view = other.about["view"]
        if other.about["id"] in ids:
            continue
        wrong += troubles(other, stall_s)
        # Members do not enter a view at the same moment.
        if view["members"] and not is_over(other) and min(_age_s(board), _age_s(other)) > stall_s:
            names = ", ".join(each["name"] for each in view["members"])
            text = f"{other.name} (process {other.about['pid']}) is here in another view: {view['counter']} [{names}]"
            wrong.append(finding(codes.MEMBER_EXCLUDED, text))
    return wrong


def groups(found: Sequence[Board]) -> list[list[Board]]:
    """The boards of each group: a setting, a network or a key may keep several of one name apart on a machine."""
    parts: list[list[Board]] = []
    for board in found:
        near = [part for part in parts if any(_share_view(board, each) or _could_meet(board, each) for each in part)]
        if near:
            near[0] += [each for part in near[1:] for each in part] + [board]
            parts = [part for part in parts if not any(part is each for each in near[1:])]
        else:
            parts.append([board])
    return parts


def _share_view(board: Board, other: Board) -> bool:
    pairs = ((board.about, other.about), (other.about, board.about))
    return any(each["id"] == two["id"] for one, two in pairs for each in one["view"]["members"])


def _could_meet(board: Board, other: Board) -> bool:
    """Two members of one cluster's name may be of one group: nothing that their boards say separates them. By seeds
    alone, members of any number of groups may share a network: these two are of one if one has seen the other leave."""
    one, two = board.about, other.about
    keys, others = set(one["seal"]["keys"]), set(two["seal"]["keys"])
    if any(one[name] != two[name] for name in ("cluster", *TOGETHER)) or not (keys & others or keys == others):
        return False
    if one["transport"] != "unicast":
        return True
    return any(each["id"] == about["id"] for by, about in ((one, two), (two, one)) for each in by["gone"])


def _lived_s(board: Board) -> float:
    """For how long a member has been joining or in its group: each incarnation has a board of its own."""
    return float(board.read_ns + board.about["clock"] - board.about["began"]) / 1e9


def _age_s(board: Board) -> float:
    """For how long a member has been in its view."""
    return float(board.read_ns + board.about["clock"] - board.about["view"]["since"]) / 1e9


def unreadable(cluster: str = "") -> list[Finding]:
    """The members on this machine that run with a release whose boards this one cannot read."""
    return [
        finding(codes.OTHER_LAYOUT, f"the board {path} has layout {version}, and this release reads {VERSION}")
        for path, version in of_other_releases(cluster).items()
    ]


def unheard(listener: str, speaker: str, how: str, transport: str, host: str) -> list[Finding]:
    """The fault that one member does not hear another one, or hears that one by unicast only in a group that uses
    multicast.

    Args:
        how: as ``way`` says.
        host: of the speaker.
    """
    if how == ".":
        return [finding(codes.DEAF, f"{listener} does not hear {speaker} at all", HOST=host)]
    if how == "u" and transport == "multicast":
        return [finding(codes.DEAF_TO_MULTICAST, f"{listener} hears {speaker} by unicast only", HOST=host)]
    return []


def _cut_links(board: Board, ended: frozenset[int]) -> list[Finding]:
    found = []
    addresses = {each["id"]: each["address"] for each in board.about["view"]["members"]}
    for listener, row in enumerate(board.members):
        for speaker in range(len(board.members)):
            if listener == speaker or ended & {row["id"], board.members[speaker]["id"]}:
                continue
            one, other, how = name_at(board, listener), name_at(board, speaker), way(board, listener, speaker)
            host = host_of(addresses.get(board.members[speaker]["id"], ""))
            deaf = unheard(one, other, how, board.about["transport"], host)
            mute = not deaf and _bit(row, "mute", speaker)
            found += deaf
            found += [finding(codes.MUTE, f"unicasts from {other} do not reach {one}", HOST=host)] if mute else []
    return found


def readiness(found: Sequence[Board], members: int, stall_s: float) -> str:
    """Why the members on this machine are not ready; "": they are.

    Args:
        found: their boards.
        members: the view must have this many.
        stall_s: senders may wait this long for one member, in seconds.
    """
    living = [board for board in found if board.alive]
    if not living:
        return "no member runs on this machine"
    for board in living:
        status, view = board.about["status"], board.about["view"]
        if status["name"] != "member":
            reason = f": {status['reason']}" if status["reason"] else ""
            return f"{board.name} is {status['name']}{reason}{_silent_seeds(board)}"
        if len(view["members"]) < members:
            there = ", ".join(each["name"] for each in view["members"])
            few = f"the view of {board.name} has {len(view['members'])} of {members} members: {there}"
            return few + _silent_seeds(board)
        if wrong := [each for each in troubles(board, stall_s) if each.code not in FIT]:
            return f"{wrong[0].fact} ({wrong[0].code.number})"
    return ""


def _silent_seeds(board: Board) -> str:
    """The addresses that discovery gave and at which nobody answers, and the seeds without any."""
    seeds = board.about["seeds"]
    lost = f"; {', '.join(seeds['unresolved'])} cannot be resolved" if seeds["unresolved"] else ""
    if not seeds["silent"]:
        return lost
    gave = f"discovery gave {seeds['addresses']} address{'es' if seeds['addresses'] != 1 else ''}"
    more = ", …" if seeds["silent"] > len(seeds["first"]) else ""
    silent = f"{seeds['silent']} {'do' if seeds['silent'] != 1 else 'does'} not answer"
    return f"; {gave}, {silent}: {', '.join(seeds['first'])}{more}{lost}"
