"""The breaks: each a wrong rule that somebody could have written, as a replacement of text.

A break whose text is not there exactly once is an error: it has to be written anew when the code changes. Where two
lines keep one rule, the break takes both.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Break:
    """One break.

    Args:
        name: what is wrong then.
        edits: (file, text, what stands there in its place).
        family: of storms, whose first seeds are run before the default ones: it is quicker so.
        tests: run when no seed finds it, and why seeds cannot is said in ``why``.
        quick: found by the first few seeds: CI runs it.
    """

    name: str
    edits: tuple[tuple[str, str, str], ...]
    family: str = ""
    tests: str = ""
    why: str = ""
    quick: bool = False

    @property
    def native(self) -> bool:
        """The engine has to be built anew."""
        return any(file.startswith("native/") for file, _, _ in self.edits)


POLICY = "src/seqcast/policy/"


def _one(name: str, file: str, old: str, new: str, **more: Any) -> Break:
    return Break(name, ((file, old, new),), **more)


BREAKS = (
    # ---- the wire and the rings
    _one("the CRC is not checked", "native/wire.c",
         "if (sc_get32(p + SC_OFF_CRC) != sum(p, len)) return SC_WIRE_CRC_BAD;",
         "(void)sum;", quick=True),
    _one("seqnos are compared in 32 bits", "native/rx.c", "if (seqno < rx->next) {\n        e->counters",
         "if ((uint32_t)seqno < (uint32_t)rx->next) {\n        e->counters",
         family="storm"),
    _one("the window of a receiver is compared in 32 bits", "native/rx.c",
         "if (seqno >= rx->first + e->config.ring_packets) {",
         "if ((uint32_t)seqno >= (uint32_t)(rx->first + e->config.ring_packets)) {",
         family="storm"),
    _one("a retransmission comes from the wrong slot once the ring has wrapped", "native/tx.c",
         "sc_tx_packet *packet = sc_tx_at(tx, a->seqno);",
         "sc_tx_packet *packet = sc_tx_at(tx, a->seqno - (a->seqno > tx->mask));",
         family="repair"),
    _one("what lies beyond the ring is taken into the slot of another packet", "native/rx.c",
         "if (seqno >= rx->first + e->config.ring_packets) {", "if (0) {"),
    _one("nobody notices that the last packet was lost", "native/rx.c",
         "if (highest <= rx->known || highest > rx->limit) return;",
         "(void)due; return;"),
    _one("gaps are not asked for", "native/rx.c", "if (rx->gaps[i].due > now) {\n            i++;",
         "if (rx->gaps[i].due > now || stream == SC_STREAM_GROUP) {\n            i++;"),
    _one("a request is repeated after 50 us", "native/rx.c", ".wait = e->config.nak_backoff_ns_min,", ".wait = 50000,",
         family="repair"),
    _one("what is held is asked of those that delivered it only", "native/rx.c",
         "if (peer->digest[owner->rank].received >= gap->lo) return peer;",
         "if (peer->digest[owner->rank].delivered >= gap->lo) return peer;", tests="tests/test_stability.py",
         why="members repair each other before the view without the sender comes: slower, and nothing is lost"),
    _one("a packet is purged without the vote of the last member", "native/flow.c",
         "if (r == e->view.rank || (peer->lost && !e->still)) continue;",
         "if (r == e->view.rank || r + 1 == e->view.n || (peer->lost && !e->still)) continue;",
         family="repair"),
    _one("votes of another view count", "native/engine.c", "if (!current) {", "if (!current && type != SC_TYPE_ACK) {",
         family="disagreeing"),
    _one("data of another view are taken", "native/engine.c",
         "if (!current) {", "if (!current && type != SC_TYPE_DATA) {",
         family="disagreeing"),
    # ---- the cut, in the engine
    _one("after its OK a member takes packets of those outside the survivors", "native/rx.c",
         "if ((peer->lost && e->cut_set != SC_CUT_CURRENT) || seqno > rx->limit) {", "if (seqno > rx->limit) {",
         family="storm"),
    _one("what was sent after the OK goes out in the closed view", "native/engine.c",
         "if (e->gate_closed) return SC_AGAIN;",
         "if (e->gate_closed && e->epoch & 1) return SC_AGAIN;",
         family="storm"),
    _one("members deliver on after the CUT", "native/rx.c", "if (stream == SC_STREAM_GROUP && e->cut_set) return;",
         "if (0) return;",
         family="storm"),
    _one("DONE comes before everything up to the cut is there", "native/view.c",
         "if (prefix_of(e, r) < e->cut[r]) return 0;", "if (prefix_of(e, r) + 2 < e->cut[r]) return 0;",
         family="storm"),
    _one("who sent a unicast does not wait for it to arrive", "native/view.c",
         "if (!peer->lost && peer->unicast_tx && peer->unicast_tx->stable < peer->unicast_mark) return 0;", "",
         family="unicasts"),
    # ---- order
    _one("what is sent again is delivered twice", "native/order.c", "if (origin <= peer->returned) {",
         "if (origin < peer->returned) {",
         family="storm"),
    _one("what the sequencer had not ordered is not sent again", "native/view.c",
         "if (!tx->packets || e->view.sequencer < 0 || sc_is_sequencer(e)) return 0;", "(void)tx; return 0;",
         family="storm"),
    _one("what is sent again goes out in the opposite order", "native/view.c",
         "for (uint64_t i = 0; i < u->n; i++) {\n        uint64_t done = 0;",
         "for (uint64_t k = 0, i = u->n - 1; k < u->n; k++, i = u->n - 1 - k) {\n        uint64_t done = 0;\n"
         "        start = i ? u->ends[i - 1] : 0;",
         family="storm"),
    _one("global seqnos go on across views", "native/view.c", "e->global_next = 1;",
         "e->global_next = e->global_next ? e->global_next : 1;",
         family="storm"),
    _one("unicast streams go on across a merge", "native/view.c",
         "if (!old[i] || old[i]->id != view->ids[r] || view->apart[r]) continue;",
         "if (!old[i] || old[i]->id != view->ids[r]) continue;", tests="tests/test_engine_views.py",
         family="merges"),
    _one("newer messages overtake what is queued", "native/engine.c",
         "if ((e->gate_closed || e->paused || e->blocked_first) && !state->wait_seqno)",
         "if ((e->gate_closed || e->paused) && !state->wait_seqno)",
         family="storm"),
    _one("nobody is told what the queue lost", "native/blocked.c", "return n;\n}", "return 0;\n}",
         family="storm"),
    # ---- failure detection
    _one("a member is suspected after two heartbeats", "native/detect.c",
         "return e->config.suspect_ns * (1 + e->health);",
         "return 2 * e->config.heartbeat_ns * (1 + e->health / 64);",
         family="repair"),
    _one("a link that is cut in one direction is left alone", POLICY + "membership.py",
         "self.severed |= severed(", "severed(",
         family="deaf"),
    # ---- attempts
    _one("a lower START is answered too", POLICY + "participant.py",
         "self.fire(PartInput.START if frame.attempt > self.promise else PartInput.START_BELOW, frame)",
         "self.fire(PartInput.START, frame)",
         family="overlapping"),
    _one("attempts are compared by their number only", POLICY + "participant.py",
         "self.fire(PartInput.START if frame.attempt > self.promise else PartInput.START_BELOW, frame)",
         "self.fire(PartInput.START if frame.attempt[0] >= self.promise[0] else PartInput.START_BELOW, frame)",
         family="duels"),
    _one("a CUT of another attempt is taken", POLICY + "participant.py",
         '"""A CUT that closes our view."""\n        if frame.attempt != self.promise:',
         '"""A CUT that closes our view."""\n        if self.promise == NO_PROMISE:',
         family="overlapping"),
    _one("an OK of another attempt is counted", POLICY + "initiator.py",
         "def ok(self, frame: Ok, sender: int) -> None:\n        if frame.attempt != self.attempt or",
         "def ok(self, frame: Ok, sender: int) -> None:\n        if",
         family="overlapping"),
    _one("a DONE of another attempt is counted", POLICY + "initiator.py",
         "def done(self, frame: Done, sender: int) -> None:\n        if frame.attempt != self.attempt or",
         "def done(self, frame: Done, sender: int) -> None:\n        if",
         family="overlapping"),
    _one("a VIEW of an attempt that was not promised is installed", POLICY + "participant.py",
         "        if frame.attempt != self.promise:\n            return self.context.primary and self.holds(frame)\n",
         "        if frame.attempt != self.promise:\n            return self.holds(frame)\n",
         family="overlapping"),
    _one("OK tells what was held at the first START", POLICY + "participant.py",
         "last, tuple(held), context.lacks, accepted)",
         "last, self.ok.held if self.ok else tuple(held), context.lacks, accepted)",
         family="overlapping"),
    _one("the cut of a lost member is what all survivors have", POLICY + "cut.py",
         "end, parts = _longest_prefix(rank, lowest, held)\n        # What", "end, parts = lowest, []\n        # What",
         family="storm"),
    _one("the cut of a survivor is what all survivors have", POLICY + "cut.py", "end = oks[rank].last", "end = lowest",
         family="storm"),
    _one("one packet of each range is not fetched", POLICY + "cut.py",
         "parts.append(Fetch(rank, end + 1, reach, -holder))",
         "parts.append(Fetch(rank, end + 2, reach, -holder)) if end + 2 <= reach else None",
         family="storm"),
    _one("a view's id tells the counter only", POLICY + "cut.py",
         "(attempt[0], initiator)\n    )", "(1, initiator)\n    )",
         family="disagreeing"),
    _one("the counter grows by one, whatever the attempt", POLICY + "cut.py",
         "view.view_id.counter + attempt[0], members",
         "view.view_id.counter + 1, members",
         family="disagreeing"),
    _one("a joiner starts one seqno too high", POLICY + "cut.py", "base=tuple(cut[rank] if rank >= 0",
         "base=tuple(cut[rank] + bool(joiners) if rank >= 0"),
    _one("the silence of an initiator is never noticed", POLICY + "participant.py",
         "if member not in self.lapsed and member != self.context.me.id:", "if member not in self.lapsed and False:",
         family="storm"),
    _one("a survivor that does not answer is never given up", POLICY + "initiator.py",
         "self.participant.lapsed |= self.missing", "pass",
         tests="tests/test_endpoint.py tests/test_endpoint_transcripts.py"),
    _one("nobody asks for a VIEW that is lost with its initiator", POLICY + "participant.py",
         "self.context.multicast(Done(self.context.tag, self.promise))", "pass",
         family="storm"),
    _one("the VIEW that answers a START is not adopted", POLICY + "initiator.py", "if frame.answers == self.attempt:",
         "if False:", tests="tests/test_endpoint.py",
         why="nothing unsafe happens, only a split that was not needed, and nothing says that a split was"),
    _one("leavers are no survivors of the cut", POLICY + "membership.py",
         "self.survivors = tuple(member.id for member in self.context.members if member.id not in doubted)",
         "self.survivors = tuple(member.id for member in self.context.members if member.id not in doubted\n"
         "                               and (member.id not in self.leavers or member.id == self.context.me.id))",
         family="unicasts"),
    _one("what a leaver sent to others alone is not awaited", POLICY + "participant.py",
         "plane.gate_close(context.leaving or context.settings.flush_unicasts)",
         "plane.gate_close(context.settings.flush_unicasts)",
         family="unicasts"),
    _one("an incarnation that lost its view is taken in again", POLICY + "membership.py",
         "if info.id in context.departed:", "if False:",
         tests="tests/test_endpoint.py tests/test_endpoint_transcripts.py",
         family="turnover"),
    # ---- primary partitions
    _one("half of a view is a majority", POLICY + "quorum.py",
         "return twice > len(of) or (twice == len(of) and of[0] in members)",
         "return twice >= len(of)",
         family="majorities"),
    _one("the proposal of the lowest attempt is repeated", POLICY + "quorum.py",
         "under = max((ok.accepted for", "under = min((ok.accepted for",
         family="acceptances"),
    _one("what was accepted before is forgotten", POLICY + "initiator.py",
         "if proposal is None:\n                proposal",
         "if True:\n                proposal",
         family="acceptances"),
    _one("a proposal is accepted with an empty table", POLICY + "participant.py",
         "proposal = with_table(proposal, context.view, context.plane.received_table())", "pass",
         family="majorities"),
    _one("in a primary partition members deliver on after their OK", POLICY + "participant.py",
         "plane.freeze([context.members[rank].id for rank in lost], context.primary)",
         "plane.freeze([context.members[rank].id for rank in lost])",
         family="majorities"),
    _one("the smaller of two groups stays", POLICY + "merge.py", "(not frame.primary or theirs < ours)",
         "(not frame.primary or theirs > ours)",
         family="majorities"),
    # ---- Lost
    _one("Lost names one packet too much", POLICY + "lineage.py",
         "result.append(Lost(own[0], last + 1, own[1], successor))",
         "result.append(Lost(own[0], last, own[1], successor))",
         family="storm"),
    _one("Lost names one packet too few", POLICY + "lineage.py",
         "result.append(Lost(own[0], last + 1, own[1], successor))",
         "result.append(Lost(own[0], last + 2, own[1], successor))",
         family="storm"),
    _one("who was left out is not told what was lost", POLICY + "lineage.py",
         "self.learn(self._of_lost(view, frame))", "pass",
         family="storm"),
    _one("Lost comes before the view", "src/seqcast/endpoint.py",
         "marker = self._next_marker(view, *self._unblocked(\"the view was installed\"), *lost)",
         "marker = self._next_marker(*lost, view, *self._unblocked(\"the view was installed\"))",
         family="storm"),
    _one("who is excluded is told that everything is lost", "src/seqcast/endpoint.py",
         "return [Lost(view.view_id, last + 1, sent, frame.view_id)] if sent > last else []",
         "return [Lost(view.view_id, 1, sent, frame.view_id)] if sent > last else []",
         family="majorities"),
    # ---- merging
    _one("a merge is cancelled without its id", POLICY + "merge.py",
         "case MergeCancel() if ours and sender == self.leader[0]:", "case MergeCancel() if sender == self.leader[0]:",
         tests="tests/test_merge_late.py", why="the sides merge a little later, and nothing is lost"),
    Break("an old timer ends a later merge", (
        (POLICY + "merge.py", "self.repeats.stop()\n        self.deadline_ns = NEVER\n", "self.repeats.stop()\n"),
        (POLICY + "merge.py", "self.deadline_ns = self.context.now + self.context.settings.merge_lease_ns",
         "self.deadline_ns = min(self.deadline_ns, self.context.now + self.context.settings.merge_lease_ns)"),
        (POLICY + "merge.py", '(M.APART, I.DEADLINE, None, ILLEGAL, "no deadline runs")',
         '(M.APART, I.DEADLINE, None, IGNORED, "no deadline runs")'),
    ), tests="tests/test_merge_late.py", why="the sides merge a little later, and nothing is lost"),
    _one("a merged view of another merge is taken", POLICY + "merge.py",
         "case MergeGo() if ours and sender == self.leader[0] and", "case MergeGo() if sender == self.leader[0] and",
         tests="tests/test_merge_late.py", why="what is not made of the cut that is held is refused",
         family="merges"),
    _one("who follows a merge waits for ever", POLICY + "merge.py",
         "self.deadline_ns = self.context.now + self.context.settings.merge_lease_ns", "pass",
         family="merges"),
    _one("each coordinator leads", POLICY + "merge.py", "if others and min(others) > context.me.id:", "if others:",
         tests="tests/test_endpoint_transcripts.py", why="each refuses the other, and one is quicker in the end"),
    # ---- pauses
    _one("a pause's lease is counted from when its answer came", POLICY + "pause.py",
         "self.answered[sender] = max(self.answered.get(sender, 0), self.sent[frame.turn])\n        if frame.phase",
         "self.answered[sender] = self.context.now\n        if frame.phase",
         family="pauses"),
    _one("a SUSPEND of a pause that is over stops members", POLICY + "pause.py",
         "return frame.pause <= self.ended.get(sender, 0)", "return False",
         family="pauses"),
    _one("an answer of another round counts", POLICY + "pause.py",
         "if frame.phase != self.frame.phase or frame.turn not in self.sent:", "if frame.turn not in self.sent:",
         family="pauses"),
    _one("a pause is held before all have delivered the same", POLICY + "pause.py",
         "done = all(have >= seqno for have, seqno in zip(held, frame.cut, strict=True))", "done = True",
         family="pauses"),
    # ---- block callbacks
    _one("gates close before the block callbacks have run", POLICY + "initiator.py",
         "asks = asks and any(context.infos[member].blocks for member in survivors)", "asks = False",
         family="storm"),
    _one("a block callback is waited for without limit", POLICY + "blocker.py",
         "self.due_ns = self.context.now + self.context.settings.block_deadline_ns", "pass",
         family="storm"),
    # ---- states
    _one("OK does not tell that the state is lacking", POLICY + "participant.py",
         "tuple(held), context.lacks, accepted)", "tuple(held), None, accepted)",
         family="turnover"),
    _one("the state of another boundary is taken for ours", POLICY + "state.py",
         "if self.provision is not None and boundary == self.provision.boundary:", "if self.provision is not None:",
         tests="tests/test_state.py tests/test_endpoint.py",
         family="turnover"),
)  # fmt: skip
