"""Attacks on groups that the tests start themselves: datagrams that a stranger, or a faulty member, could send.

``forge`` makes valid datagrams of any kind; ``attacks`` are scripts against members on real sockets, on loopback;
``storm`` is a simulated network with an attacker. tests/sockets/test_hostile.py and
tests/sim/test_hostile_storms.py run them.
"""
