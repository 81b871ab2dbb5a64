"""Deliberate breaks, and the test or seed that catches each: ``make mutants``."""
