"""The table of cases of docs/unicast.md: each has a test."""

from project import ROOT

SEEDS, UNICAST = "tests/sim/test_seeds.py", "tests/sockets/test_unicast.py"
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
