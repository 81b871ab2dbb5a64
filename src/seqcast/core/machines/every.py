"""Every machine of the core, in the order of docs/state-tables.md."""

from seqcast.core.machines.blocker import Blocker
from seqcast.core.machines.coordinated import CoordinatedMembership
from seqcast.core.machines.guard import Line
from seqcast.core.machines.informer import Informer
from seqcast.core.machines.initiator import Initiator
from seqcast.core.machines.interface import Interface
from seqcast.core.machines.lifecycle import Lifecycle
from seqcast.core.machines.merge import Merger
from seqcast.core.machines.operator import Operator
from seqcast.core.machines.participant import Participant
from seqcast.core.machines.pause_member import PauseMember
from seqcast.core.machines.pause_owner import PauseOwner
from seqcast.core.machines.pause_request import PauseRequest
from seqcast.core.machines.ring import Ring
from seqcast.core.machines.token_ring import TokenRingMembership
from seqcast.core.state.backlog import Backlog
from seqcast.core.state.merging import StateMerge
from seqcast.core.state.taker import StateTaker
from seqcast.core.state.transfer import Transfer
from seqcast.core.table import TableMachine

MACHINES: tuple[type[TableMachine], ...] = (
    Lifecycle,
    CoordinatedMembership,
    TokenRingMembership,
    Ring,
    Initiator,
    Participant,
    Blocker,
    PauseMember,
    PauseOwner,
    Merger,
    Informer,
    PauseRequest,
    StateTaker,
    Transfer,
    Backlog,
    StateMerge,
    Line,
    Interface,
    Operator,
)
