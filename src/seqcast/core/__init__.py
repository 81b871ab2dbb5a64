"""Everything that decides: state tables, pure rules and control frames; without I/O, clock or randomness."""
