"""The guarantees, checked by the events of the applications and the datagrams on the wire.

Each module checks one of them by ``Record``s; none sees a process, an engine or an endpoint.
"""
