#include "columns/columns.h"

#include <string.h>

#include "columns/xxh3.h"

/* Runs are written again if a batch did not fit, so the bit is cleared too. */
static void set_bit(uint8_t *bits, uint64_t at, int value) {
    uint8_t bit = (uint8_t)(1u << (at & 7));
    bits[at >> 3] = (uint8_t)(value ? bits[at >> 3] | bit : bits[at >> 3] & ~bit);
}

/* The messages of a run, whose offsets begin at `offset`, from `at` on; `last`: where the payload before them ends.
 * Returns where theirs end, or -1. */
static int64_t add_messages(const sc_columns *out, uint64_t at, uint32_t n, const uint8_t *data, uint64_t data_len,
                            const int32_t *offset, int64_t last) {
    for (uint32_t i = 0; i < n; i++, at++) {
        int64_t begin = offset[i], end = offset[i + 1];
        if (begin < last || end < begin || (uint64_t)end > data_len) return -1;
        last = end;
        out->length[at] = (int32_t)(end - begin);
        out->payload_hash[at] = (int64_t)sc_xxh3(data + begin, (size_t)(end - begin));
        if (!out->payload) continue;
        memcpy(out->payload + out->offsets[at], data + begin, (size_t)(end - begin));
        out->offsets[at + 1] = out->offsets[at] + (int32_t)(end - begin);
    }
    return last;
}

int sc_columns_fill(const sc_columns *out, sc_columns_size room, sc_columns_size *used, int64_t idx,
                    const sc_columns_shared *shared, const uint8_t *data, uint64_t data_len, const int32_t *offsets,
                    uint32_t n, const sc_run *runs, uint32_t n_runs) {
    sc_columns_size to = *used;
    int64_t last = 0; /* messages do not overlap, so the stored payloads together are no longer than the data */
    for (uint32_t r = 0; r < n_runs; r++) {
        const sc_run *run = &runs[r];
        if (run->first > n || run->n > n - run->first) return SC_COLUMNS_OUTSIDE;
        if (!run->n || run->unicast || (shared->total && !run->global_seqno)) continue;
        if (to.runs == room.runs || run->n > room.messages - to.messages) return SC_COLUMNS_FULL;
        last = add_messages(out, to.messages, run->n, data, data_len, offsets + run->first, last);
        if (last < 0) return SC_COLUMNS_OUTSIDE;
        out->idx[to.runs] = idx + (int64_t)(to.messages - used->messages);
        out->view_counter[to.runs] = shared->view_counter;
        out->view_tag[to.runs] = shared->view_tag;
        out->global_seqno[to.runs] = (int64_t)run->global_seqno;
        out->sender[to.runs] = (int64_t)run->sender;
        out->seqno[to.runs] = (int64_t)run->seqno;
        out->index[to.runs] = (int32_t)run->index;
        out->sent_ns[to.runs] = run->sent_ns;
        out->delivered_ns[to.runs] = shared->delivered_ns;
        set_bit(out->transitional, to.runs, run->transitional != 0);
        to.messages += run->n;
        out->starts[++to.runs] = (int32_t)to.messages;
    }
    *used = to;
    return 0;
}

size_t sc_columns_clocks(const sc_columns *of, uint64_t runs, sc_columns_clock *found, size_t room) {
    size_t n = 0, at = 0; /* `at`: entry of the previous run's sender */
    for (uint64_t run = 0; run < runs; run++) {
        int64_t sender = of->sender[run];
        /* unsigned: another member wrote sent_ns, and may have made it overflow */
        int64_t took_ns = (int64_t)((uint64_t)of->delivered_ns[run] - (uint64_t)of->sent_ns[run]);
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
