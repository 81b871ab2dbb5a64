/* Journal columns: what a batch of delivered messages says, one row a message, in the buffers of Arrow arrays.
 * No Python, no allocation: the caller gives the buffers. */
#ifndef SEQCAST_COLUMNS_H
#define SEQCAST_COLUMNS_H

#include "engine.h"

/* XXH64 with a seed, as its specification says. With seed 42 it is what Spark SQL calls xxhash64(payload), so that any
 * SQL can check a journal's hash column against its payload column. */
#define SC_HASH_SEED 42
uint64_t sc_xxh64(const uint8_t *p, size_t len, uint64_t seed);

/* One buffer a column, each with room for the rows to come. */
typedef struct {
    int64_t *idx; /* position in the journal */
    int64_t *view_counter, *view_tag, *global_seqno, *sender, *seqno, *sent_ns, *delivered_ns, *payload_hash;
    int32_t *index, *length;
} sc_columns;

/* What all rows of one batch share. */
typedef struct {
    int64_t view_counter, view_tag, delivered_ns;
} sc_columns_shared;

/* Writes a row for each multicast message of a batch from row `at` on, the first with position `idx`; unicasts are
 * skipped, they are no part of the agreed stream. Returns the rows written, or -1 where runs or offsets point outside
 * the batch. */
int64_t sc_columns_fill(const sc_columns *out, uint64_t at, int64_t idx, const sc_columns_shared *shared,
                        const uint8_t *data, uint64_t data_len, const int32_t *offsets, uint32_t n,
                        const sc_run *runs, uint32_t n_runs);

#endif
