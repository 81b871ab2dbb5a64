"""The application's state on its way to members that lack it (the cut, step 10), in the order of events.

``providers.py``: which member gives the state to which, a pure function of the VIEW. ``taker.py``: a member
that lacks the state, and the provider that the group agreed on for it. ``transfer.py``: the bytes at the joiner, and
when its provider is given up; ``chunks.py`` is their form. ``backlog.py`` holds the deliveries meanwhile.
``merging.py``: giving the state at the beginning of a view, and making one of several after a merge.
"""
