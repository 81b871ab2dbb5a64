#include "columns/scan.h"

#include <stdlib.h>
#include <string.h>

#include "columns/mix.h"

static void found(sc_scan_found *to, int64_t idx, int64_t before, int32_t before_index, int64_t value,
                  int32_t value_index) {
    if (to->count < SC_SCAN_EXAMPLES)
        to->first[to->count] = (sc_scan_example){idx, before, value, before_index, value_index};
    to->count++;
}

/* ---- tables ------------------------------------------------------------------------------------------------- */

static uint64_t key_hash(const int64_t *key) {
    return sc_mix(sc_mix((uint64_t)key[0] ^ 0x9e3779b97f4a7c15, (uint64_t)key[1] ^ 0xe7037ed1a0b428db),
                  (uint64_t)key[2] ^ 0x8ebc6af09c88c6e3);
}

static int64_t *key_at(const sc_scan_table *table, size_t i) { return (int64_t *)(table->entries + i * table->size); }

static size_t slot_of(const sc_scan_table *table, const int64_t *key) {
    size_t mask = 2 * table->cap - 1, slot = key_hash(key) & mask;
    while (table->slots[slot] && memcmp(key_at(table, table->slots[slot] - 1), key, 3 * sizeof *key))
        slot = (slot + 1) & mask;
    return slot;
}

static int grow(sc_scan_table *table) {
    size_t cap = table->cap ? 2 * table->cap : 64;
    if (cap > 1u << 30) return -1;
    uint8_t *entries = realloc(table->entries, cap * table->size);
    if (!entries) return -1;
    table->entries = entries;
    uint32_t *slots = calloc(2 * cap, sizeof *slots);
    if (!slots) return -1;
    free(table->slots);
    table->slots = slots;
    table->cap = cap;
    for (size_t i = 0; i < table->n; i++) slots[slot_of(table, key_at(table, i))] = (uint32_t)i + 1;
    return 0;
}

/* The entry with this key, a new zeroed one if there is none. Entries move when another is made. NULL without
 * memory. */
static void *entry(sc_scan_table *table, int64_t a, int64_t b, int64_t c) {
    if (table->n == table->cap && grow(table)) return NULL;
    int64_t key[3] = {a, b, c};
    size_t slot = slot_of(table, key);
    if (!table->slots[slot]) {
        memset(key_at(table, table->n), 0, table->size);
        memcpy(key_at(table, table->n), key, sizeof key);
        table->slots[slot] = (uint32_t)++table->n;
    }
    return key_at(table, table->slots[slot] - 1);
}

/* ---- rows --------------------------------------------------------------------------------------------------- */

static sc_scan_view *next_view(sc_scan *scan, const sc_scan_columns *of, size_t i) {
    if (scan->n_views == scan->cap_views) {
        size_t cap = scan->cap_views ? 2 * scan->cap_views : 8;
        sc_scan_view *views = realloc(scan->views, cap * sizeof *views);
        if (!views) return NULL;
        scan->views = views;
        scan->cap_views = cap;
    }
    sc_scan_view *view = &scan->views[scan->n_views++];
    memset(view, 0, sizeof *view);
    view->tag = of->view_tag[i];
    view->idx = of->idx[i];
    view->first = view->highest = of->global_seqno[i];
    view->counter_min = view->counter_max = of->view_counter[i];
    return view;
}

static void see_view(sc_scan_view *view, const sc_scan_columns *of, size_t i) {
    int64_t value = of->global_seqno[i], counter = of->view_counter[i];
    if (view->rows && value <= view->highest) found(&view->back, of->idx[i], view->highest, 0, value, 0);
    if (view->rows && value > view->highest && (uint64_t)value - (uint64_t)view->highest > 1)
        found(&view->jumps, of->idx[i], view->highest, 0, value, 0);
    if (value > view->highest) view->highest = value;
    if (!of->transitional[i]) {
        if (view->transitional) found(&view->decided, of->idx[i], view->transitional, 0, value, 0);
    } else if (!view->transitional) {
        view->transitional = value;
    }
    if (counter < view->counter_min) view->counter_min = counter;
    if (counter > view->counter_max) view->counter_max = counter;
    view->zeros += value == 0;
    view->rows++;
}

static void see_sender(sc_scan_sender *sender, const sc_scan_columns *of, size_t i) {
    int64_t seqno = of->seqno[i], idx = of->idx[i];
    int32_t index = of->index[i];
    if (!sender->rows++) {
        sender->idx = idx;
        sender->first = sender->highest = seqno;
        sender->first_index = sender->highest_index = index;
        return;
    }
    int same = seqno == sender->highest;
    if (seqno < sender->highest || (same && index <= sender->highest_index)) {
        found(&sender->back, idx, sender->highest, sender->highest_index, seqno, index);
        return;
    }
    /* Packets in which no message ends leave no row, so seqnos may skip; the first message of a packet has index 0. */
    if (index && !(same && index == sender->highest_index + 1))
        found(&sender->jumps, idx, sender->highest, sender->highest_index, seqno, index);
    sender->highest = seqno;
    sender->highest_index = index;
}

static void see_group(sc_scan_group *group, const sc_scan_columns *of, size_t i) {
    int64_t global_seqno = of->global_seqno[i], seqno = of->seqno[i];
    int64_t low = (seqno & ((1 << SC_SCAN_FIFO_SHIFT) - 1)) * 65536 + of->index[i];
    if (global_seqno > group->global_seqno) group->global_seqno = global_seqno;
    if (seqno > group->seqno) group->seqno = seqno;
    if (low > group->low) group->low = low;
    if (low >= group->decided && !of->transitional[i]) group->decided = low + 1;
    group->rows++;
    uint64_t place = (uint64_t)(uint32_t)of->index[i] << 32 | (uint32_t)of->length[i];
    uint64_t hash = sc_mix((uint64_t)global_seqno ^ 0x2d358dccaa6c78a5, (uint64_t)of->sender[i] ^ 0x8bb84b93962eacc9);
    hash ^= sc_mix((uint64_t)seqno ^ 0x4b33a62ed433d4a3, place ^ 0x4d5a2da51de1aa47);
    group->sum += sc_mix(hash ^ 0xa0761d6478bd642f, (uint64_t)of->payload_hash[i] ^ 0xe7037ed1a0b428db);
}

static int64_t bucket_of(const sc_scan_columns *of, size_t i) {
    int64_t value = of->global_seqno[i];
    return value > 0 ? value >> SC_SCAN_ORDERED_SHIFT : of->seqno[i] >> SC_SCAN_FIFO_SHIFT;
}

int sc_scan_rows(sc_scan *scan, const sc_scan_columns *of, size_t n) {
    sc_scan_view *view = scan->n_views ? &scan->views[scan->n_views - 1] : NULL;
    sc_scan_sender *sender = NULL;
    sc_scan_group *group = NULL;
    for (size_t i = 0; i < n; i++) {
        if (!scan->rows) scan->first_idx = of->idx[i];
        if (scan->rows && (uint64_t)of->idx[i] != (uint64_t)scan->last_idx + 1)
            found(&scan->breaks, of->idx[i], scan->last_idx, 0, of->idx[i], 0);
        scan->last_idx = of->idx[i];
        scan->rows++;
        if (!view || view->tag != of->view_tag[i]) {
            if (!(view = next_view(scan, of, i))) return -1;
            group = NULL;
        }
        if (!sender || sender->key[0] != of->sender[i]) {
            if (!(sender = entry(&scan->senders, of->sender[i], 0, 0))) return -1;
            group = NULL;
        }
        int64_t bucket = bucket_of(of, i);
        if (!group || group->key[2] != bucket)
            if (!(group = entry(&scan->groups, view->tag, sender->key[0], bucket))) return -1;
        see_view(view, of, i);
        see_sender(sender, of, i);
        see_group(group, of, i);
    }
    return 0;
}

void sc_scan_begin(sc_scan *scan) {
    memset(scan, 0, sizeof *scan);
    scan->last_idx = -1;
    scan->senders.size = sizeof(sc_scan_sender);
    scan->groups.size = sizeof(sc_scan_group);
}

void sc_scan_end(sc_scan *scan) {
    free(scan->views);
    free(scan->senders.entries);
    free(scan->senders.slots);
    free(scan->groups.entries);
    free(scan->groups.slots);
}
