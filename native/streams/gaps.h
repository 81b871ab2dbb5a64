#pragma once

#include "engine/engine.h"

/* Gaps of a receive ring. */

#define SC_GAPS_MAX 128

typedef struct {
    uint64_t lo, hi;
    int64_t due, wait;
    uint32_t tries;
    int32_t holder; /* rank to fetch from, -1: the sender */
    int asked; /* a NAK was sent: the answer may come from a member other than the sender */
} sc_gap;

struct sc_rx_stream;

void sc_rx_gap_add(sc_engine *e, struct sc_rx_stream *rx, uint64_t lo, uint64_t hi, int64_t due, int32_t holder);
void sc_rx_known(sc_engine *e, struct sc_rx_stream *rx, uint64_t highest, int64_t due);
void sc_gaps_came(sc_engine *e, struct sc_rx_stream *rx, uint64_t seqno, int64_t now);
int sc_gaps_asked(const struct sc_rx_stream *rx, uint64_t seqno);
void sc_gaps_prune(struct sc_rx_stream *rx);
void sc_gaps_cut(struct sc_rx_stream *rx, uint64_t limit);
void sc_gaps_fetch(sc_engine *e, struct sc_rx_stream *rx, uint64_t lo, uint64_t hi, uint32_t holder);
void sc_gaps_ask(sc_engine *e, struct sc_rx_stream *rx, uint64_t lo, uint64_t hi, uint32_t holder);
void sc_rx_naks(sc_engine *e, int64_t now);
int64_t sc_rx_deadline(const sc_engine *e);
/* When to ask again: after `*wait`, which doubles, and up to a quarter more by chance. */
int64_t sc_back_off(sc_engine *e, int64_t *wait, int64_t now);
