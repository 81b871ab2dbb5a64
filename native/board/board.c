#include "board/board.h"

#include <string.h>

#include "base/atomic.h"

#define FIELDS 4 /* of an event, before its text: number, at, member, length */

void sc_board_begin(sc_board *b) {
    b->version = SC_BOARD_VERSION;
    b->bytes = SC_BOARD_BYTES;
    b->n_parts = 0;
    b->end = sizeof *b;
}

/* The magic comes last: a reader of a board that is being made sees none. */
void sc_board_open(sc_board *b) {
    int64_t magic;
    memcpy(&magic, "seqcast\n", sizeof magic);
    sc_store((sc_atomic *)(void *)b->magic, magic);
}

sc_board_part *sc_board_add(sc_board *b, const char *name, const char *fields, uint32_t entry, uint32_t n) {
    uint32_t len = (uint32_t)strlen(fields), at = (b->end + len + 63) & ~63u;
    if (b->n_parts == SC_BOARD_PARTS || entry % 8 || at > b->bytes || (uint64_t)entry * n > b->bytes - at) return NULL;
    sc_board_part *part = &b->parts[b->n_parts++];
    memset(part, 0, sizeof *part);
    for (size_t i = 0; name[i] && i + 1 < SC_BOARD_NAME; i++) part->name[i] = name[i];
    part->entry = entry;
    part->n = n;
    part->fields_at = b->end;
    part->fields_len = len;
    part->at = at;
    memcpy((uint8_t *)b + b->end, fields, len);
    b->end = at + entry * n;
    return part;
}

void sc_board_write(sc_board_part *part) { sc_add((sc_atomic *)&part->lock, 1); }

void sc_board_written(sc_board_part *part, uint64_t used) {
    part->used = used;
    sc_add((sc_atomic *)&part->lock, 1);
}

void sc_board_note(sc_board *b, sc_board_part *events, int64_t now, uint64_t member, const char *text, size_t len) {
    uint64_t number = events->used, room = events->entry - FIELDS * sizeof(uint64_t);
    uint64_t *entry = sc_board_at(b, events, (uint32_t)(number % events->n));
    if (len > room) len = room;
    sc_board_write(events);
    entry[0] = number + 1;
    entry[1] = (uint64_t)now;
    entry[2] = member;
    entry[3] = len;
    memcpy(entry + FIELDS, text, len);
    sc_board_written(events, number + 1);
}
