"""Crowds: groups without views, for more members than a view can have.

One member without I/O is ``member.py``, over the policy of ``core/gossip``; ``streams.py`` is its deliveries and its
store, ``datagrams.py`` its wire. ``runner.py`` is its thread, ``store.py`` keeps the packets of a
late-join handler, and ``handle.py`` (``aio.py``) is the public interface.
"""
