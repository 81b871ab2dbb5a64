"""Random numbers of a policy, from a seed that its owner gives: the same seed, the same run."""

from __future__ import annotations

from collections.abc import Sequence

_MASK = (1 << 64) - 1


class Dice:
    """SplitMix64.

    Args:
        seed: any integer. Members must have different ones, or they all do the same at the same time.
    """

    def __init__(self, seed: int) -> None:
        self._state = seed & _MASK

    def below(self, n: int) -> int:
        """0 to n - 1, ``n`` at least 1."""
        self._state = (self._state + 0x9E3779B97F4A7C15) & _MASK
        z = self._state
        z = ((z ^ z >> 30) * 0xBF58476D1CE4E5B9) & _MASK
        z = ((z ^ z >> 27) * 0x94D049BB133111EB) & _MASK
        return (z ^ z >> 31) % n

    def some(self, of: Sequence[int], n: int) -> tuple[int, ...]:
        """``n`` different ones of ``of``, or all if there are no more, each equally likely."""
        rest = list(of)
        if n >= len(rest):
            return tuple(rest)
        for at in range(n):
            other = at + self.below(len(rest) - at)
            rest[at], rest[other] = rest[other], rest[at]
        return tuple(rest[:n])
