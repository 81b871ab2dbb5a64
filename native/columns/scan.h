/* One pass over a journal's columns for the audit: finds where positions, global seqnos or a sender's messages do not
 * increase as they should, and computes a fingerprint of each group of rows. No Python. */
#ifndef SEQCAST_COLUMNS_SCAN_H
#define SEQCAST_COLUMNS_SCAN_H

#include <stddef.h>
#include <stdint.h>

#define SC_SCAN_EXAMPLES 8

/* Rows that do not follow the ones before: how many, and the first of them. A sender's message is (seqno, index);
 * positions and global seqnos have no index. */
typedef struct {
    int64_t idx, before, value;
    int32_t before_index, value_index;
} sc_scan_example;
typedef struct {
    uint64_t count;
    sc_scan_example first[SC_SCAN_EXAMPLES];
} sc_scan_found;

/* Consecutive rows of one view. */
typedef struct {
    int64_t tag, idx, rows;
    int64_t first, highest; /* global seqno */
    int64_t zeros; /* rows without a global seqno */
    int64_t counter_min, counter_max;
    int64_t transitional; /* global seqno of the first transitional row; 0: none */
    sc_scan_found back, jumps; /* not higher than one before; more than one higher than the highest before */
    sc_scan_found decided; /* not transitional, after a transitional one: (the first transitional one, this) */
} sc_scan_view;

/* The rows of one sender. */
typedef struct {
    int64_t key[3]; /* sender, 0, 0 */
    int64_t idx, rows;
    int64_t first, highest; /* seqno */
    int32_t first_index, highest_index;
    sc_scan_found back, jumps; /* not higher than one before; an index of a packet is left out */
} sc_scan_sender;

/* The rows of one sender in one bucket of one view. */
typedef struct {
    int64_t key[3]; /* tag, sender, bucket */
    int64_t rows;
    int64_t global_seqno, seqno, low; /* the highest; `low`: (seqno, index) without the bits that the bucket has */
    int64_t decided; /* one more than the highest `low` of a row that is not transitional; 0: all are */
    uint64_t sum; /* of a hash of each row, independent of their order */
} sc_scan_group;

/* Entries with three numbers as their key, found by a hash. */
typedef struct {
    uint8_t *entries;
    uint32_t *slots; /* position + 1; 0: free */
    size_t size; /* of an entry */
    size_t n, cap;
} sc_scan_table;

typedef struct {
    const int64_t *idx, *view_counter, *view_tag, *global_seqno, *sender, *seqno, *payload_hash;
    const int32_t *index, *length;
    const uint8_t *transitional; /* one byte a row */
} sc_scan_columns;

typedef struct {
    int64_t rows, first_idx, last_idx;
    sc_scan_found breaks; /* positions that are not one higher than the one before */
    sc_scan_view *views;
    size_t n_views, cap_views;
    sc_scan_table senders, groups;
} sc_scan;

/* From a global seqno to its bucket; and from a seqno, without total order. */
#define SC_SCAN_ORDERED_SHIFT 16
#define SC_SCAN_FIFO_SHIFT 12

void sc_scan_begin(sc_scan *scan);
/* The next rows. -1 without memory. */
int sc_scan_rows(sc_scan *scan, const sc_scan_columns *columns, size_t n);
void sc_scan_end(sc_scan *scan);

#endif
