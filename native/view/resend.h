#pragma once

#include "engine/engine.h"

/* Messages to be resent in the next view. */

typedef struct {
    uint8_t *data; /* the messages, one after another */
    uint64_t *ends;
    uint8_t *beside; /* by message: it travels beside the order */
    uint64_t n;
    uint64_t len; /* of the data while it is collected; */
    int open; /* and whether a message is */
} sc_resend;

int sc_resend_collect(const sc_engine *e, sc_resend *r);
uint64_t sc_resend_ring(const sc_resend *r, uint32_t packet_bytes);
int sc_resend_pack(sc_engine *e, const sc_resend *r, int64_t wall);
void sc_resend_free(sc_resend *r);
