"""The table of cases of docs/unicast.md: each has a test."""

from project import ROOT

SEEDS, UNICAST, BOOK = "tests/sim/test_seeds.py", "tests/sockets/test_unicast.py", "tests/unit/test_book.py"
TESTS = {
    "a seed is down": f"{SEEDS}::test_a_seed_that_is_down_delays_nobody",
    "all seeds are down, or cannot be resolved":
        f"{UNICAST}::test_a_member_whose_seeds_are_all_down_founds_a_group_names_them_and_merges_later",
    "two start at once, each with the other as seed":
        f"{SEEDS}::test_two_that_start_at_once_with_each_other_as_seed_are_one_group_from_the_first_view_on",
    "two start at once, before their names have addresses":
        f"{SEEDS}::test_two_that_start_before_their_names_have_addresses_are_one_group_once_they_have",
    "all members restart one by one, at other addresses":
        f"{SEEDS}::test_members_that_all_restart_one_by_one_elsewhere_stay_one_group_though_seeds_are_stale",
    "all members restart together, at other addresses":
        f"{SEEDS}::test_a_group_that_restarts_elsewhere_as_a_whole_is_one_once_its_names_lead_there",
    "an excluded member joins again, and its seeds are stale":
        "tests/sockets/test_rejoin.py::test_a_member_that_joins_again_has_its_address_book",
    "all seeds are of the other version of IP": f"{BOOK}::test_seeds_of_the_other_version_of_ip_say_which_one_to_set",
    "the host's own name leads to 127.0.1.1, and another seed has no address yet":
        f"{BOOK}::test_our_own_name_on_loopback_decides_nothing_while_another_seed_has_no_address",
    "seeds have no addresses yet, and no default route leads to them":
        f"{UNICAST}::test_seeds_that_resolve_late_on_a_network_without_a_default_route_are_found",
    "another cluster, or another program, has an address":
        f"{UNICAST}::test_a_seed_that_another_cluster_or_program_has_is_as_one_where_nobody_is",
    "the seeds name only the member itself":
        f"{SEEDS}::test_a_member_whose_seeds_name_only_itself_founds_a_group_and_is_found_by_others",
    "no seed is on the other side of a partition":
        f"{SEEDS}::test_the_sides_of_a_partition_meet_again_though_no_seed_leads_there",
    "a translator gives a member another port":
        "tests/sockets/test_translated.py::test_with_translated_ports_the_error_says_which_to_publish",
    "all ports of the range are taken": f"{UNICAST}::test_if_all_ports_are_taken_a_member_names_the_remedy",
}  # fmt: skip


def test_each_case_of_the_page_has_a_test_and_no_other_has():
    _, _, table = (ROOT / "docs" / "unicast.md").read_text(encoding="utf-8").partition("| case | result |\n")
    rows = [line.split(" | ")[0].strip("| ") for line in table.partition("\n\n")[0].splitlines()[1:]]
    assert rows == list(TESTS)


def test_each_test_of_a_case_exists():
    named = [test.split("::") for test in TESTS.values()]
    assert [f"{file}::{test}" for file, test in named if f"def {test}(" not in (ROOT / file).read_text()] == []
