"""Compiles the C sources for systems that this machine is not, and runs it on emulators: ``make cross``."""
