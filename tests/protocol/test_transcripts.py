"""Scenarios as transcripts: each control frame that crosses the network, and each view, in ``transcripts/``.

After a wanted change of the protocol: ``SEQCAST_TRANSCRIPTS=write pytest tests/protocol/test_transcripts.py``, and
review the difference as code.
"""

import re

import pytest
import transcript

NAMES = sorted(path.stem for path in transcript.FOLDER.glob("*.txt"))


@pytest.mark.parametrize("name", NAMES)
def test_the_scenario_goes_as_its_transcript_says(name):
    transcript.check(name)


def test_every_frame_is_written_in_words():
    fields = re.compile(r"^.*: \w+\(\w+=.*$", re.M)  # as dataclasses are printed
    assert [line for name in NAMES for line in fields.findall(transcript.read(name))] == []


def test_there_are_transcripts():
    assert len(NAMES) >= 32


@pytest.mark.parametrize(
    ("script", "error"),
    [
        ("group a b\ncrash c", "no process has the name 'c'"),
        ("group a b\nexplode a", "no such command: explode a"),
        ("group a\nworld partition=primary", "world comes first"),
        ("group a b\nat CUT of a reaching b", "'CUT of a reaching b' does not read as"),
        ("group a b\nat CUT of a: crash a\nrun until 1200 ms", "never happened: at CUT of a"),
    ],
)
def test_a_script_that_makes_no_sense_fails(script, error):
    with pytest.raises(AssertionError, match=error):
        transcript.play(f"# x\n\n{script}\n")


def test_the_output_of_a_script_replaces_the_recorded_one():
    text = "# x\n\ngroup a b\ncrash b\n----\n  1000.000 ms  a crashes\n\n# and then\nshow\n"
    _, played = transcript.play(text)
    assert played == (
        "# x\n\ngroup a b\ncrash b\n----\n  1000.000 ms  b crashes\n\n"
        "# and then\nshow\n----\na: view 2 [a, b]\nb: crashed\n"
    )
    assert transcript.play(played)[1] == played
