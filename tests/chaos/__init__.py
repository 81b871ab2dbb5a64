"""Groups of real processes in network namespaces, with real faults; afterwards their journals are audited.

``scenarios`` has the faults of a group, ``runner`` causes them and judges, ``member`` is one process of the group.
``make chaos`` runs for the time given; tests/sockets/test_chaos.py runs a part.
"""
