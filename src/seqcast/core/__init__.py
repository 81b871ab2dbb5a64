"""The control plane: state machines, pure rules and control frames, without I/O, clock or randomness."""
