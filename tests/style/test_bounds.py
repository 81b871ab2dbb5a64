"""Each limit of the kernels, and each setting of a size or a number, has a test of its effect, or a reason why it needs
none. The fields of a datagram have a table of their own: tests/unit/test_wire_limits.py."""

from __future__ import annotations

import ast
import dataclasses
import re
from functools import cache

import pytest
from project import ROOT

from seqcast.config import Config

LIMITS, WIRE, BOUNDS = "unit/test_limits.py", "unit/test_wire_limits.py", "unit/test_engine_bounds.py"
FIELD = f"{WIRE}::test_a_field_may_have_its_least_and_its_largest_value_and_none_beyond"
SETTING = f"{LIMITS}::test_a_setting_may_be_as_small_and_as_large_as_its_bounds_and_no_more"
PACE = "how often something is tried or looked at: nothing is refused or dropped"
KERNEL = "the kernel has it as it is"
PORT = "a number, and no more of it is used than of another"
ROOM = "as many bytes as the largest of a fixed set needs: nobody can ask for more"

KERNELS = {
    # native/: a macro; its test, or why there is none
    "SC_ADDRESS_MAX": f"{LIMITS}::test_an_address_may_be_as_long_as_its_room_and_no_longer",
    "SC_AGAIN_MAX": f"{LIMITS}::test_as_many_packets_as_the_queue_holds_are_repeated_at_once",
    "SC_ASSEMBLIES": f"{BOUNDS}::test_more_open_messages_than_places_are_dropped_while_views_wait_for_the_application",
    "SC_BARE_RECEIVERS_MAX": "why: the plain sender of the benchmarks; its arguments are refused at once",
    "SC_BORROWED_MAX": f"{LIMITS}::test_batches_borrow_a_sixteenth_of_the_slabs_and_no_more_than_there_may_be",
    "SC_GAPS_MAX": f"{LIMITS}::test_as_many_gaps_as_a_request_names_and_more_are_repaired",
    "SC_HEAD_MAX": "why: an order policy sees the beginning of a message, and no more of it",
    "SC_IO_BATCH_MAX": SETTING,
    "SC_MEMBERS_MAX": f"{LIMITS}::test_a_view_has_no_more_members_than_a_heartbeat_has_bits",
    "SC_NAK_RANGES_MAX": FIELD,
    "SC_OFFERS_MAX": "why: packets beyond it are offered to the policy in its next batch",
    "SC_PACKET_MAX": FIELD,
    "SC_PIECES_MAX": FIELD,
    "SC_RECORD_ENTRIES_MAX": FIELD,
    "SC_ROUND_BYTES_MAX": f"why: {PACE}",
    "SC_SEAL_KEY_MAX": f"why: {ROOM}",
    "SC_SEAL_NONCE_MAX": f"why: {ROOM}",
    "SC_SEQNO_MAX": FIELD,
    "AHEAD_MAX": "why: more places ahead are a larger request, which REQUEST_MAX limits",
    "ANSWERS_MAX": "why: a request beyond it is repeated, as one whose answer was lost is",
    "BACK_NS_MAX": f"why: {PACE}",
    "BURST_BYTES_MAX": f"why: {PACE}",
    "LANE_MAX": "unit/test_crc32c.py::test_each_kernel_equals_the_table_at_every_length_and_alignment",
    "NAP_MAX": f"why: {PACE}",
    "POLLS_MAX": f"why: {PACE}",
    "RECORDS_MAX": "unit/test_causal.py::test_all_sixty_four_members_may_be_causes",
    "REFUSED_RUNS_MAX": f"why: {PACE}",
    "REQUEST_MAX": "unit/test_grant.py::test_the_sequencer_answers_requests_in_turn_and_of_bounded_size",
    "STANDBY_NS_MAX": f"why: {PACE}",
    "VOIDS_MAX": "unit/test_grant.py::test_a_member_that_gives_back_places_goes_on_for_ever",
    "YIELD_PAUSE_NS_MAX": f"why: {PACE}",
}

SETTINGS = {
    # a setting whose unit is not a time; the test of its effect, or why there is none. SETTING tests its own bounds.
    "port": f"why: {PORT}",
    "port_range": "sockets/test_unicast.py::test_if_all_ports_are_taken_a_member_names_the_remedy",
    "unicast_port": f"why: {PORT}",
    "ttl": f"why: {KERNEL}",
    "dscp": f"why: {KERNEL}",
    "batch_bytes": f"{LIMITS}::test_a_batch_is_no_larger_than_was_asked_for_but_has_one_packet_at_least",
    "kept_bytes": "sockets/test_answering.py::"
    "test_a_member_whose_own_messages_fill_the_bound_of_kept_ones_is_told_at_once",
    "message_bytes_max": f"{LIMITS}::"
    "test_a_message_of_just_the_largest_size_is_sent_and_delivered_and_a_larger_one_refused",
    "journal_segment_bytes": "audit/test_journal.py::test_segments_roll_to_parquet_and_read_as_one",
    "journal_keep_bytes": "audit/test_journal.py::"
    "test_retention_removes_the_oldest_segments_and_the_reader_begins_with_the_kept_ones",
    "found": "protocol/test_founding.py::test_enough_joiners_that_start_together_found_one_group_at_once",
    "state_memory_bytes": "unit/test_spool.py::test_a_state_of_just_as_much_as_memory_may_hold_needs_no_file",
    "state_backlog_bytes": f"{LIMITS}::test_the_messages_that_a_joiner_holds_are_bounded_to_the_byte",
    "blocked_queue_bytes": f"{LIMITS}::test_the_queue_of_a_closed_gate_is_used_up_to_its_last_byte",
    "packet_bytes": f"{LIMITS}::test_a_message_that_just_fits_into_a_packet_travels_in_one_and_a_larger_one_in_two",
    "rcvbuf": "sockets/test_io.py::test_clipped_buffers_are_a_warning_with_the_remedy_and_the_group_still_works",
    "sndbuf": "sockets/test_io.py::test_clipped_buffers_are_a_warning_with_the_remedy_and_the_group_still_works",
    "window_bytes": f"{LIMITS}::test_as_many_bytes_as_the_window_has_are_in_flight_and_no_more",
    "ring_bytes": "unit/test_engine_views.py::test_own_messages_of_closed_views_that_are_not_taken_are_bounded",
    "unicast_bytes": "unit/test_hostile_engine.py::test_unicasts_beyond_a_gap_leave_slabs_for_everybody_else",
    "ring_packets": f"{LIMITS}::test_as_many_packets_as_the_ring_has_places_are_in_flight_and_no_more",
    "slabs_max": "unit/test_slabs.py::test_the_windows_of_all_senders_fit_into_the_slabs",
    "control_bytes_max": f"{LIMITS}::test_frames_that_wait_for_transmission_are_kept_up_to_the_last_byte",
    "retransmit_bytes_per_s": f"{LIMITS}::"
    "test_as_many_bytes_are_repeated_at_once_as_a_fiftieth_of_a_second_allows_and_two_packets",
    "send_bytes_per_s": "unit/test_outflow.py::test_all_copies_and_repeats_of_packets_leave_at_the_rate_that_is_set",
    "ack_bytes": "unit/test_stability.py::test_an_acknowledgement_is_sent_by_bytes_and_by_packets",
    "ack_packets": "unit/test_stability.py::test_an_acknowledgement_is_sent_by_bytes_and_by_packets",
    "gossip_subset_percent": "unit/test_gossip.py::"
    "test_a_gossip_goes_to_as_large_a_part_of_the_others_as_the_setting_says",
    "send_batch": f"why: {PACE}",
    "receive_batch": f"why: {PACE}",
    "flush_bytes": f"why: {PACE}",
}


def macros(text: str) -> set[str]:
    """The limits that a file of C defines."""
    return set(re.findall(r"^#define (\w+_MAX|SC_ASSEMBLIES)\b", text, re.M))


def sizes() -> set[str]:
    """The settings of a size or a number."""
    fields = [field for field in dataclasses.fields(Config) if field.metadata["low"] is not None]
    return {field.name for field in fields if field.metadata["unit"] != "s"}


@cache
def named_in(file: str) -> set[str]:
    tree = ast.parse((ROOT / "tests" / file).read_text("utf-8"))
    return {node.name for node in tree.body if isinstance(node, ast.FunctionDef) and node.name.startswith("test_")}


def wrong(found: set[str], table: dict[str, str]) -> list[str]:
    """The names that a table lacks, and its rows for names that do not exist."""
    result = [f"{name}: neither a test nor a reason" for name in sorted(found - table.keys())]
    result += [f"{name}: there is no such limit" for name in sorted(table.keys() - found)]
    for name, row in table.items():
        file, _, test = row.partition("::")
        if not row.startswith("why: ") and test not in named_in(file):
            result.append(f"{name}: {file} has no {test}")
    return result


def test_each_limit_of_the_kernels_has_a_test() -> None:
    paths = list((ROOT / "native").glob("*/*.[ch]"))
    found = set().union(*(macros(path.read_text("utf-8")) for path in paths))
    assert len(paths) > 50 and not (mistakes := wrong(found, KERNELS)), "\n".join(mistakes)


def test_each_setting_of_a_size_has_a_test() -> None:
    assert not (mistakes := wrong(sizes(), SETTINGS)), "\n".join(mistakes)


@pytest.mark.parametrize(
    ("found", "table", "mistake"),
    [
        (macros("#define SC_NEW_MAX 7 /* of it */\n"), {}, "SC_NEW_MAX: neither a test nor a reason"),
        (set(), {"SC_OLD_MAX": f"why: {PACE}"}, "SC_OLD_MAX: there is no such limit"),
        ({"SC_A_MAX"}, {"SC_A_MAX": f"{LIMITS}::test_of_nothing"}, f"SC_A_MAX: {LIMITS} has no test_of_nothing"),
    ],
    ids=["a new limit", "a limit that is gone", "a test that is gone"],
)
def test_a_row_that_is_missing_or_wrong_is_found(found: set[str], table: dict[str, str], mistake: str) -> None:
    assert wrong(found, table) == [mistake]
