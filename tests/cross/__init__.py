"""Compiles what is written in C for systems that this machine is not, and runs it on emulators: ``make cross``."""
