"""Boards: files in memory in which each member keeps its counters, a row for each of the others, and its last events,
to be read while it hangs and after it was killed (native/board/board.h).

``place`` makes and finds the files, ``read`` reads them.
"""
