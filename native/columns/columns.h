/* Journal columns: a batch of delivered messages in journaled form, in the buffers of Arrow arrays: one row for each
 * run of messages that came in one packet, with a list of these messages. No Python, no allocation: the caller provides
 * the buffers. */
#pragma once

#include "engine/engine.h"

/* One buffer per column, each with room for the coming runs or messages; `starts` with room for one more, and `offsets`
 * too, which are there only with `payload`. The first of both is 0. */
typedef struct {
    int64_t *idx; /* position of the run's first message in the journal */
    int64_t *view_counter, *view_tag, *global_seqno, *sender, *seqno, *sent_ns, *delivered_ns;
    int32_t *index;
    uint8_t *transitional; /* one bit a run, the lowest first, as in Arrow's boolean arrays */
    int32_t *starts; /* place of the run's first message among the messages */
    int64_t *payload_hash;
    int32_t *length, *offsets;
    uint8_t *payload; /* NULL: payloads are not kept */
} sc_columns;

/* How many there are, or how many there is room for. */
typedef struct {
    uint64_t runs, messages;
} sc_columns_size;

/* Shared by all runs of one batch. */
typedef struct {
    int64_t view_counter, view_tag, delivered_ns;
    int total; /* the view has a total order */
} sc_columns_shared;

enum { SC_COLUMNS_FULL = 1, SC_COLUMNS_OUTSIDE = 2 };

/* Writes the multicast messages of a batch after the `used` ones, the first with position `idx`; unicasts are skipped,
 * and so are messages beside a total order: the agreed stream holds only messages that all members deliver in one
 * order. Returns 0, SC_COLUMNS_FULL, or SC_COLUMNS_OUTSIDE if runs or offsets point outside the batch; then `used` is
 * unchanged. */
int sc_columns_fill(const sc_columns *out, sc_columns_size room, sc_columns_size *used, int64_t idx,
                    const sc_columns_shared *shared, const uint8_t *data, uint64_t data_len, const int32_t *offsets,
                    uint32_t n, const sc_run *runs, uint32_t n_runs);

/* Evidence from one sender's messages about its clock and the receiving member's. */
typedef struct {
    int64_t sender, least_ns; /* lowest difference between delivery and sending */
} sc_columns_clock;

/* Writes one per sender of the first `runs` runs into `found`, and returns how many; senders beyond `room` are left
 * out. */
size_t sc_columns_clocks(const sc_columns *of, uint64_t runs, sc_columns_clock *found, size_t room);
