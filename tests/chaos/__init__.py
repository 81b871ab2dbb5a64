"""Groups of real processes in network namespaces, with real faults; afterwards their journals are audited.

``scenarios`` has the faults of a group, ``runner`` does it and judges, ``member`` is one process of the group.
``make chaos`` runs it for as long as it is told to; tests/sockets/test_chaos.py runs a part of it.
"""
