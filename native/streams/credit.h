#pragma once

#include "engine/engine.h"
#include "streams/rx.h"
#include "streams/ring.h"

typedef struct {
    uint64_t delivered, received;
} sc_mark;

typedef struct {
    uint64_t self; /* consumed of the own group stream by this member */
    uint64_t peers; /* and by all others */
    uint64_t limit; /* all others have room until the own group stream's `charged` is this much */
    int64_t yield_due; /* when window that is not used is given back */
    uint16_t claim; /* how often */
    int64_t tell_due; /* in a safe view: when others are told the stable seqno, if no packet does */
    uint64_t told;
    int due; /* one of them, or a receiver's report, has changed: recompute */
} sc_credit;

/* Each member's report about our group stream. */
typedef struct {
    sc_mark acked;
    uint64_t consumed;
    uint64_t limit; /* room until `charged` is this much */
} sc_peer_credit;

void sc_credit_begin(sc_engine *e, uint64_t base);
void sc_credit_due(sc_engine *e);
void sc_credit_peer_begin(const sc_engine *e, struct sc_peer *peer, uint64_t base);
uint64_t sc_window_of(const sc_engine *e, int stream);
uint64_t sc_credit_promise(const sc_engine *e, sc_rx_stream *rx);
void sc_credit_self(sc_engine *e, uint64_t seqno);
void sc_credit_yield(sc_engine *e);
int sc_credit_tells(sc_engine *e, int64_t now);
void sc_credit_told(sc_engine *e, const sc_tx_stream *tx);
void sc_credit_claim(sc_rx_stream *rx, uint16_t claim);
void sc_credit_recount(sc_engine *e, int64_t now);
void sc_credit_sent(sc_engine *e, sc_tx_stream *tx, int64_t now);
void sc_credit_received(struct sc_peer *peer, uint64_t seqno);
void sc_credit_returned(sc_engine *e, uint64_t seqno);
/* 1 if the stream of own messages has no credit: *whose is the member that has taken least of the stream (the
 * sequencer, for a forward stream; this member, if its own application has taken least), *mark that member's position.
 * 0: has credit. */
int sc_credit_held(const sc_engine *e, uint64_t *whose, uint64_t *mark);
void sc_credit_group(sc_engine *e, struct sc_peer *peer, const uint8_t *p);
void sc_credit_stream(sc_engine *e, sc_tx_stream *tx, uint64_t delivered, uint64_t consumed, int64_t now);
