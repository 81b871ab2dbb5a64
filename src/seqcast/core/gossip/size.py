"""An estimate of the size of a group in which nobody knows all members.

Each member draws random numbers that are exponentially distributed with mean 1. The least of N such numbers has mean
1/N, and to learn the least in the group it suffices that members tell each other the least that they know. With K
numbers each, the estimate (K - 1) / (sum of the minima) has a relative standard error of about 1 / sqrt(K - 2)
(extrema propagation, Baquero et al. 2009). Crashed members are forgotten because each epoch draws again.
"""

from __future__ import annotations

from math import log

from seqcast.core.gossip.dice import Dice

NUMBERS = 32
MEMBERS_MAX = 1 << 24
"""The largest estimate: whoever makes up numbers cannot exceed this."""
_EPOCHS = 1 << 64
"""Epochs are counted modulo this, so that the next one has a number, too, even after a forged one."""


class SizeEstimate:
    """The estimate of one member.

    Args:
        epoch_ns: how long minima are spread before they are believed.
        now_ns: the time.
        dice: draws the numbers.
        hint: the estimate before the first epoch is over.
    """

    def __init__(self, epoch_ns: int, now_ns: int, dice: Dice, hint: int) -> None:
        self._epoch_ns, self._dice = epoch_ns, dice
        self.members = max(hint, 1)
        """The estimate."""
        self.epoch = 0
        self._begin(1, now_ns)

    def _begin(self, epoch: int, now_ns: int) -> None:
        self.epoch = epoch
        self._ends_ns = now_ns + self._epoch_ns
        self.minima = tuple(-log((self._dice.below(1 << 53) + 1) / (1 << 53)) for _ in range(NUMBERS))

    def _end(self) -> None:
        self.members = max(round(min((NUMBERS - 1) / sum(self.minima), MEMBERS_MAX)), 1)

    def tick(self, now_ns: int) -> None:
        """Ends the epoch at its time; the others follow as they hear of the next one."""
        if now_ns >= self._ends_ns:
            self._end()
            self._begin((self.epoch + 1) % _EPOCHS, now_ns)

    def heard(self, epoch: int, minima: tuple[float, ...], now_ns: int) -> None:
        """The knowledge of another member."""
        ahead = (epoch - self.epoch) % _EPOCHS
        if ahead >= _EPOCHS // 2 or len(minima) != NUMBERS:
            return
        if ahead:
            self._end()
            self._begin(epoch, now_ns)
        self.minima = tuple(map(min, self.minima, minima))
