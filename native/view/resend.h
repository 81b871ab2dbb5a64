#pragma once

#include "engine/engine.h"

/* Messages to be resent in the next view. */

typedef struct {
    uint64_t *ends; /* by message: its end in the data */
    uint8_t *data; /* the messages, one after another */
    uint8_t *beside; /* by message: beside the order */
    uint64_t n;
    uint64_t len; /* of the data during collection; */
    int open; /* and whether a message is */
} sc_resend;

/* The memory in which they are collected; it lives as long as the engine. */
typedef struct {
    uint8_t *p;
    size_t bytes;
} sc_resend_memory;

/* Makes memory ready for the next view change, in a view in which own messages wait for their order. `next`: bytes of
 * the ring from which the one after that would collect. */
void sc_resend_prepare(sc_engine *e, size_t next);
int sc_resend_collect(sc_engine *e, sc_resend *r);
uint64_t sc_resend_ring(const sc_resend *r, uint32_t packet_bytes);
int sc_resend_pack(sc_engine *e, const sc_resend *r, int64_t wall);
void sc_resend_free(sc_engine *e);
