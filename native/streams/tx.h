#pragma once

#include "engine/engine.h"
#include "streams/ring.h"
#include "streams/rx.h"

/* Lies after the end of a ring, so that the ring can be retired without allocating, and without writing to lent
 * memory. */
typedef struct sc_retired {
    struct sc_retired *next;
    void *memory;
} sc_retired;

typedef struct {
    uint64_t unsent; /* bytes packed and not transmitted, of all streams */
    uint32_t singly; /* streams to single members that have begun: mostly none */
    sc_retired *retired; /* rings that were replaced; freed by the next transmit */
} sc_packing;

/* Bytes of a ring. New memory has `room`, if that is more than needed, and the first `written` bytes are written to.
 * Also the number of its packets, if messages that are sent again need more than the setting. */
typedef struct {
    uint64_t needed, room, written, packets;
} sc_ring_size;

int sc_tx_init(sc_tx_stream *tx, int stream, uint32_t ring_packets);
void sc_tx_free(sc_engine *e, sc_tx_stream *tx);
void sc_tx_end(sc_engine *e, sc_tx_stream *tx); /* made by sc_tx_to, or NULL */
int sc_tx_reset(sc_engine *e, sc_tx_stream *tx, uint64_t base, uint64_t window, uint32_t packet_bytes,
                const sc_ring_size *size);
int sc_tx_pack(sc_engine *e, sc_tx_stream *tx, const uint8_t *p, uint64_t len, uint64_t *done, int64_t wall, int force);
uint64_t sc_tx_pack_whole(sc_engine *e, sc_tx_stream *tx, const uint8_t *data, const uint64_t *offsets, uint64_t first,
                          uint64_t n);
void sc_tx_close(sc_engine *e, sc_tx_stream *tx);
/* The messages that are packed next travel beside the order, or within: no packet has both. */
void sc_tx_beside(sc_engine *e, sc_tx_stream *tx, int beside);
/* May a message of `len` bytes that is not of a block callback begin? */
int sc_tx_leaves_room(const sc_engine *e, const sc_tx_stream *tx, uint64_t len);
/* The next packet does not continue the message that is packed in part: receivers drop its beginning. */
void sc_tx_abandon(sc_tx_stream *tx);
/* Our stream of this kind to `peer`; NULL if there is none yet. sc_tx_to creates one, and returns NULL without
 * memory. */
sc_tx_stream *sc_tx_of(sc_engine *e, const struct sc_peer *peer, int stream);
sc_tx_stream *sc_tx_to(sc_engine *e, struct sc_peer *peer, int stream);
void sc_tx_rewindow(sc_engine *e, struct sc_peer *peer);
void sc_tx_insert(sc_engine *e, sc_tx_stream *tx, const sc_rx_packet *from, uint64_t sealed, uint32_t messages,
                  uint64_t own);
void sc_tx_extend(sc_engine *e, sc_tx_stream *tx, uint32_t bytes);
/* Is a descriptor left for a packet of our own that is not sent again? */
int sc_tx_has_place(const sc_engine *e, const sc_tx_stream *tx);
/* Is there credit, with `beyond` bytes more than the window, and a descriptor? */
int sc_tx_may_insert(const sc_engine *e, const sc_tx_stream *tx, uint32_t len, uint64_t beyond);
void sc_tx_purge(sc_tx_stream *tx, uint64_t upto);
void sc_tx_credit(sc_tx_stream *tx, uint64_t consumed);
void sc_tx_release(sc_engine *e, sc_tx_stream *tx);
int64_t sc_tx_spread(const sc_engine *e, int64_t delay); /* longer if many receive the group stream */
void sc_tx_probe_restart(sc_engine *e, sc_tx_stream *tx, int outstanding, int64_t now);
void sc_tx_probe_later(sc_engine *e, sc_tx_stream *tx, int64_t now);
/* A packet of `bytes` was transmitted. */
void sc_tx_sent(sc_engine *e, sc_tx_stream *tx, uint64_t bytes);
void sc_tx_retired_free(sc_engine *e);
int sc_tx_allows(const sc_engine *e, const sc_tx_stream *tx, uint32_t charge, uint64_t beyond);
