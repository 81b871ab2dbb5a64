#pragma once

#include "board/board.h"
#include "engine/engine.h"

/* The engine's parts of its member's board. */

typedef struct {
    sc_board *board; /* NULL: there is none */
    sc_board_part *gauges, *rows, *events;
    int64_t due; /* when gauges and rows are written next */
} sc_posts;

/* Gauges among the counters, as they are now. */
void sc_counters_now(const sc_engine *e, sc_counters *out);
void sc_posts_tick(sc_engine *e, int64_t now);
