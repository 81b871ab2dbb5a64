/* A board: memory that other processes read, in which a member keeps its counters, gauges, a row for each member, and
 * its last events. The memory is a mapped file, readable while the member hangs, and after its death.
 *
 * The memory describes itself: a header lists its parts by name, and each part the names of its fields, so that a
 * reader of an older release finds the known fields. Counters are written where they are, by the code that counts.
 * Every other part has a sequence lock: odd during writes. One thread writes at a time, under the lock of the board's
 * owner. */
#pragma once

#include <stddef.h>
#include <stdint.h>

#define SC_BOARD_BYTES (128u << 10)
#define SC_BOARD_VERSION 1
#define SC_BOARD_PARTS 8
#define SC_BOARD_NAME 16

typedef struct {
    char name[SC_BOARD_NAME];
    uint32_t at; /* offset of its entries */
    uint32_t entry; /* bytes of each */
    uint32_t n; /* entries that have room */
    uint32_t fields_at,
        fields_len; /* names of the 64-bit fields at the beginning of each entry, each followed by a space */
    uint32_t reserved;
    int64_t lock; /* odd during writes */
    uint64_t used; /* entries that hold something; of events: how many there have been */
} sc_board_part;

typedef struct sc_board {
    char magic[8];
    uint32_t version;
    uint32_t bytes; /* of the board */
    uint32_t n_parts;
    uint32_t end; /* of the bytes in use */
    sc_board_part parts[SC_BOARD_PARTS];
} sc_board;

/* Makes an empty board of SC_BOARD_BYTES zero bytes, aligned to 8. A reader knows the place once sc_board_open was
 * called. */
void sc_board_begin(sc_board *b);
void sc_board_open(sc_board *b);
/* A new part; NULL without room. `fields`: separated by spaces, with one at the end. */
sc_board_part *sc_board_add(sc_board *b, const char *name, const char *fields, uint32_t entry, uint32_t n);
/* Entry `i` of a part, as its 64-bit fields. */
static inline uint64_t *sc_board_at(sc_board *b, const sc_board_part *part, uint32_t i) {
    return (uint64_t *)((uint8_t *)b + part->at + (size_t)i * part->entry);
}

/* Between the two calls the part is written. */
void sc_board_write(sc_board_part *part);
void sc_board_written(sc_board_part *part, uint64_t used);

/* The flight recorder: a ring of the last events, each with the time, a member's id or 0, and a text, which is cut to
 * its room. */
#define SC_BOARD_EVENT 256
void sc_board_note(sc_board *b, sc_board_part *events, int64_t now, uint64_t member, const char *text, size_t len);
