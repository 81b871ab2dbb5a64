"""Breaks of the protocol on purpose, and what catches each: ``make mutants``."""
