"""The control plane's policies: pure state machines as tables, without I/O, clock or randomness."""
