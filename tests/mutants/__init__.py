"""Breaks of the protocol on purpose, and the test or seed that catches each: ``make mutants``."""
