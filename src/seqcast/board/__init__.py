"""Boards: files in memory in which each member keeps its counters, a row for each of the others, and its last events,
readable during a hang and after a kill (native/board/board.h).

``place`` makes and finds the files, ``read`` reads them.
"""
