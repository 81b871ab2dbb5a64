"""The guarantees, checked by what the applications were told and what went over the wire.

Each module checks one of them by ``Record``s; none sees a process, an engine or an endpoint.
"""
