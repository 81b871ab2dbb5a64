"""``seqcast doctor``: is this machine, and the path to another one, fit for a group?

``local`` looks at the machine, ``path`` measures the way to another one, on which ``listen`` runs. Each look gives
lines, and a line with a condition has its code (``seqcast.codes``).
"""
