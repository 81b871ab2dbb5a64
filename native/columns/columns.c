#include "columns/columns.h"

#include <string.h>

#include "columns/xxh3.h"

/* Rows are written again where a batch did not fit, so the bit is cleared too. */
static void set_bit(uint8_t *bits, uint64_t at, int value) {
    uint8_t bit = (uint8_t)(1u << (at & 7));
    bits[at >> 3] = (uint8_t)(value ? bits[at >> 3] | bit : bits[at >> 3] & ~bit);
}

int64_t sc_columns_fill(const sc_columns *out, uint64_t at, uint64_t room, int64_t idx, const sc_columns_shared *shared,
                        const uint8_t *data, uint64_t data_len, const int32_t *offsets, uint32_t n, const sc_run *runs,
                        uint32_t n_runs) {
    uint64_t row = at;
    int64_t last = 0; /* messages do not overlap, so the stored payloads together are no longer than the data */
    for (uint32_t r = 0; r < n_runs; r++) {
        const sc_run *run = &runs[r];
        if (run->first > n || run->n > n - run->first) return -1;
        if (run->unicast || (shared->total && !run->global_seqno)) continue;
        if (run->n > room - (row - at)) return -1;
        for (uint32_t i = 0; i < run->n; i++, row++) {
            int64_t begin = offsets[run->first + i], end = offsets[run->first + i + 1];
            if (begin < last || end < begin || (uint64_t)end > data_len) return -1;
            last = end;
            out->idx[row] = idx + (int64_t)(row - at);
            out->view_counter[row] = shared->view_counter;
            out->view_tag[row] = shared->view_tag;
            out->global_seqno[row] = run->global_seqno ? (int64_t)(run->global_seqno + i) : 0;
            out->sender[row] = (int64_t)run->sender;
            out->seqno[row] = (int64_t)run->seqno;
            out->index[row] = (int32_t)(run->index + i);
            out->length[row] = (int32_t)(end - begin);
            out->sent_ns[row] = run->sent_ns;
            out->delivered_ns[row] = shared->delivered_ns;
            out->payload_hash[row] = (int64_t)sc_xxh3(data + begin, (size_t)(end - begin));
            set_bit(out->transitional, row, run->transitional != 0);
            if (out->payload) {
                memcpy(out->payload + out->offsets[row], data + begin, (size_t)(end - begin));
                out->offsets[row + 1] = out->offsets[row] + (int32_t)(end - begin);
            }
        }
    }
    return (int64_t)(row - at);
}

size_t sc_columns_clocks(const sc_columns *of, uint64_t rows, sc_columns_clock *found, size_t room) {
    size_t n = 0, at = 0; /* `at`: entry of the previous row's sender, as messages of a sender come in runs */
    for (uint64_t row = 0; row < rows; row++) {
        int64_t sender = of->sender[row];
        /* unsigned: another member wrote sent_ns, and may have made it overflow */
        int64_t took_ns = (int64_t)((uint64_t)of->delivered_ns[row] - (uint64_t)of->sent_ns[row]);
        if (at == n || found[at].sender != sender)
            for (at = 0; at < n && found[at].sender != sender;) at++;
        if (at < n) {
            if (took_ns < found[at].least_ns) found[at].least_ns = took_ns;
        } else if (n < room) {
            found[n++] = (sc_columns_clock){sender, took_ns};
        }
    }
    return n;
}
