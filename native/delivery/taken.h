#pragma once

#include "engine/engine.h"
#include "delivery/queue.h"

/* How much applications have taken. */

typedef struct {
    sc_taking *waits; /* until all sent messages are taken */
    uint64_t curious; /* a caller asked for its progress; 0: none did */
    int64_t ask_due, ask_wait;
    int handed; /* something was handed out that is not taken yet */
} sc_taken;

/* Of each member, each in the numbering of the sender. */
typedef struct {
    uint64_t handed; /* of its messages: into a batch */
    uint64_t taken; /* of its messages, by our application */
    uint64_t asked; /* waits until this seqno of them is taken; 0: no wait */
    uint64_t took; /* of our messages, by its application, as far as is known here */
} sc_peer_taken;

void sc_taken_peer_begin(sc_engine *e, struct sc_peer *peer, uint32_t rank);
void sc_taking_stop(sc_engine *e);

void sc_taken_hand(sc_engine *e, const sc_delivery *d, int now);
void sc_on_ask(sc_engine *e, struct sc_peer *peer, const uint8_t *p);
void sc_on_taken(sc_engine *e, struct sc_peer *peer, const uint8_t *p);
void sc_taking_packed(sc_engine *e);
void sc_taking_installed(sc_engine *e, int64_t now);
void sc_taken_tick(sc_engine *e, int64_t now);
