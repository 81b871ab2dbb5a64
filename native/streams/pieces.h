#pragma once

#include "base/out.h"
#include "seal/seal.h"

/* Datagrams that are too large for the path. */

struct sc_peer;

#define SC_PARTLY 8 /* datagrams of one member, or of all strangers, by one kind of secret, that may be here in part */
/* From those who show that they are in our view; that they are in another one; and from all others. */
enum { SC_PARTLY_OURS, SC_PARTLY_ELSEWHERE, SC_PARTLY_OUTSIDE, SC_PARTLY_KINDS };
typedef struct {
    uint64_t sender, number; /* as the pieces say; 0: there is none */
    uint64_t view; /* `latest` of all pieces; see sc_opened */
    uint16_t key_id; /* of all pieces */
    uint64_t age; /* grows with each that begins */
    uint32_t total, each; /* bytes of the datagram, and of a piece */
    uint32_t lacks; /* pieces */
    uint64_t came[SC_PIECES_MAX / 64];
    uint8_t *p;
} sc_partly;

typedef struct {
    sc_partly partly[SC_PARTLY_KINDS * SC_PARTLY];
} sc_peer_pieces;

typedef struct {
    uint64_t number; /* of the last datagram that left in pieces */
    uint64_t age; /* of the last one that came in pieces */
    sc_peer_pieces strangers;
} sc_pieces;

/* Queues a packet in pieces that reach this member. */
void sc_pieces_say(sc_engine *e, const struct sc_peer *peer, const uint8_t *p, uint32_t len);
/* Queues pieces of a datagram without messages, which was in the queue, if not all paths carry its size. 0: all do. */
int sc_pieces_instead(sc_engine *e, const sc_out *o);
/* A piece has come from a member, or from a stranger (NULL), and was opened: returns the datagram, which the caller
 * frees, after the last piece, or NULL. */
uint8_t *sc_pieces_take(sc_engine *e, struct sc_peer *peer, const uint8_t *p, size_t len, const sc_opened *opened,
                        uint32_t *total);
void sc_pieces_free(sc_peer_pieces *pieces);
