/* Journal columns: a batch of delivered messages as rows, one per message, in the buffers of Arrow arrays.
 * No Python, no allocation: the caller provides the buffers. */
#pragma once

#include "engine/engine.h"

/* One buffer per column, each with room for the coming rows; with `payload` also room for their payloads and for one more
 * offset than there are rows, the first of which is 0. */
typedef struct {
    int64_t *idx; /* position in the journal */
    int64_t *view_counter, *view_tag, *global_seqno, *sender, *seqno, *sent_ns, *delivered_ns, *payload_hash;
    int32_t *index, *length;
    uint8_t *transitional; /* one bit a row, the lowest first, as in Arrow's boolean arrays */
    int32_t *offsets;
    uint8_t *payload; /* NULL: payloads are not kept */
} sc_columns;

/* What all rows of one batch share. */
typedef struct {
    int64_t view_counter, view_tag, delivered_ns;
    int total; /* the view has a total order */
} sc_columns_shared;

/* Writes a row for each multicast message of a batch from row `at` on, the first with position `idx`; unicasts are skipped, and
 * so are messages beside a total order: the agreed stream is what all members deliver in one order. Returns the rows written, or
 * -1 if runs or offsets point outside the batch, or the runs have more than `room` rows. */
int64_t sc_columns_fill(const sc_columns *out, uint64_t at, uint64_t room, int64_t idx, const sc_columns_shared *shared,
                        const uint8_t *data, uint64_t data_len, const int32_t *offsets, uint32_t n, const sc_run *runs,
                        uint32_t n_runs);

/* What the rows of one sender show about its clock and the receiving member's. */
typedef struct {
    int64_t sender, least_ns; /* lowest difference between delivery and sending */
} sc_columns_clock;

/* Writes one per sender of the first `rows` rows into `found`, and returns how many; senders beyond `room` are left out. */
size_t sc_columns_clocks(const sc_columns *of, uint64_t rows, sc_columns_clock *found, size_t room);
