"""The guarantees, checked on what the applications were told and on what went over the wire.

Each module judges one of them by ``Record``s; none sees a process, an engine or an endpoint.
"""
