"""A member's core depends only on its inputs, the time, and the engine's answers."""

from dataclasses import replace

import pytest
from halves import first_quick
from recording import Recorder, replay

from seqcast.core.vocabulary import Send
from seqcast.reports import FrameReceived
from seqcast.sim import Options, World

FAMILIES = first_quick(["storm", "turnover", "overlapping", "pauses"])


def recorded(seed, family):
    """The tapes of a simulated run."""
    world = World(Options.draw(seed, 0, "", 0, "", family), make_endpoint=Recorder)
    world.run()
    return [node.endpoint.tape for node in world.nodes]


@pytest.mark.parametrize("family", FAMILIES)
def test_a_recording_of_a_run_replays_to_the_same_effects(family):
    tapes = recorded(1, family)
    assert sum(isinstance(effect, Send) for tape in tapes for _, _, effects in tape.steps for effect in effects) > 50
    for tape in tapes:
        replay(tape)


def test_a_recording_that_lacks_a_frame_does_not_replay():
    tape = max(recorded(3, "storm"), key=lambda tape: len(tape.steps))
    frames = [i for i, (inputs, _, _) in enumerate(tape.steps) if any(isinstance(x, FrameReceived) for x in inputs)]
    where = next(i for i in frames if tape.steps[i][2])  # the first that the member answered
    inputs, now_ns, effects = tape.steps[where]
    less = tuple(each for each in inputs if not isinstance(each, FrameReceived))
    with pytest.raises(AssertionError):
        replay(replace(tape, steps=[*tape.steps[:where], (less, now_ns, effects), *tape.steps[where + 1 :]]))
