/* The fuzz target's knowledge of the engine's group, so that the others' datagrams can be those that a sound member
 * would send next. */
#pragma once

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/engine.h"

#define GROUP 0x5eedu
#define MEMBERS 3
#define STEPS_MAX 256
#define IDS (MEMBERS + 2) /* of members from 1 on, of a stranger, and 0 for the group */
#define RUNS 16
#define BATCH 64 /* messages of an array */
#define CHECK(what)                                                                                                    \
    do {                                                                                                               \
        if (!(what)) {                                                                                                 \
            fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #what);                                                 \
            abort();                                                                                                   \
        }                                                                                                              \
    } while (0)

typedef struct {
    const uint8_t *p;
    size_t left;
} script;

static inline uint64_t take(script *s, size_t bytes) { /* zeros behind the end */
    uint64_t value = 0;
    for (size_t i = 0; i < bytes; i++)
        if (s->left) {
            value |= (uint64_t)*s->p++ << (8 * i);
            s->left--;
        }
    return value;
}

/* One message, or an array, that is packed in part, and goes on or is given up. */
typedef struct {
    int under_way, beside;
    uint64_t to, len;
    uint64_t marks[BATCH + 1], next, n; /* of an array; n 0: one message */
    sc_send_state state;
} sending;

typedef struct {
    uint64_t first, end;
} places;

/* The last message that was delivered of one sender, and where. */
typedef struct {
    uint64_t view_tag, seqno, end;
} delivered;

typedef struct {
    sc_engine *engine;
    sc_view view;
    int safe, gossip;
    int64_t now;
    uint64_t marker;
    uint64_t pair[IDS]; /* tag of the view since which we are together */
    uint64_t next[4][IDS]; /* by SC_STREAM_* and sender: its next seqno */
    uint64_t sent[4][IDS]; /* and the highest that we transmitted, by receiver; 0: to the group */
    uint64_t origin[IDS]; /* the highest of its own seqnos that the sequencer put in order */
    uint16_t claim[IDS]; /* of each member for its window, ours too */
    uint64_t told[IDS][IDS]; /* by sender: its records' entries for each group stream */
    uint64_t place; /* the next that another sequencer grants */
    places hand[IDS]; /* that we have granted to others */
    uint64_t wants[IDS]; /* number of the newest request of each */
    uint64_t want; /* number of our newest, */
    uint32_t wanted; /* and for how many places */
    uint64_t batch; /* the one that our policy was offered; then the ranks of its senders */
    uint16_t offered[SC_OFFERS_MAX];
    size_t n_offered;
    delivered last[2][IDS]; /* to the group, to a member */
    delivered last_global;
    sc_tx lent[RUNS]; /* the buffers that the last transmit handed out */
    int n_lent;
    int awaited; /* the cut waits for unicasts */
    uint32_t sums[RUNS][SC_TX_SEGMENTS]; /* and its check sums */
    sending messages[2]; /* to the group, to a member */
} world;

static inline int of_pair(uint64_t stream) { return stream == SC_STREAM_UNICAST || stream == SC_STREAM_STATE; }

static inline sc_address address_of(uint64_t id) { return (sc_address){2, {(uint8_t)id, (uint8_t)(id >> 8)}}; }

/* The mechanism has a sequencer that multicasts for others. */
static inline int stamps(const world *w) {
    return w->view.mechanism == SC_ORDER_SEQUENCER || w->view.mechanism == SC_ORDER_TOTAL1999;
}

/* Id of the member that orders; 0: nobody does. */
static inline uint64_t sequencer_of(const world *w) {
    return w->view.sequencer < 0 ? 0 : w->view.ids[w->view.sequencer];
}

/* ---- datagrams.c ----------------------------------------------------------------------------------------------- */

/* Makes of arbitrary bytes a datagram that gets behind the first checks: ours, of a member, of this view, with a CRC.
 * Each of these returns its length. */
size_t repair(world *w, uint8_t *p, size_t n, uint64_t sender);
/* A data packet whose form is right and whose fields are arbitrary. */
size_t data_packet(world *w, script *s, uint8_t *p, uint64_t sender);
/* Any other datagram with small numbers. */
size_t small_word(world *w, script *s, uint8_t *p, uint64_t sender);
/* The next packet of `sender` on one of its streams, now and then after a gap. */
size_t next_packet(world *w, script *s, uint8_t *p, uint64_t sender);
/* A report of `sender` on our packets, on its own, or for the order. */
size_t next_word(world *w, script *s, uint8_t *p, uint64_t sender);
/* We have transmitted this datagram. */
void note_sent(world *w, const sc_tx *run, const uint8_t *p);
