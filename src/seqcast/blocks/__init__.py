"""Blocks: what programs would otherwise build over a group, each small and on the public interface alone."""
