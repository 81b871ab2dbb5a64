/* Messages whose end has not been delivered yet, one per sender. */
#include "engine/internal.h"

sc_assembly *sc_assembly_of(sc_engine *e, uint64_t sender, int unicast) {
    sc_assembly *a = &e->assembly.of[e->assembly.last];
    if (a->sender == sender && a->unicast == unicast) return a;
    sc_assembly *spare = NULL;
    for (uint32_t i = 0; i < SC_ASSEMBLIES; i++) {
        a = &e->assembly.of[i];
        if (a->sender == sender && a->unicast == unicast) {
            e->assembly.last = i;
            return a;
        }
        if (!spare && (!a->sender || !a->active)) spare = a;
    }
    if (!spare) return NULL;
    spare->sender = sender;
    spare->unicast = unicast;
    spare->active = spare->skip = spare->owed = 0;
    spare->len = 0;
    e->assembly.last = (uint32_t)(spare - e->assembly.of);
    return spare;
}

void sc_assembly_close(sc_engine *e, sc_assembly *a) {
    e->assembly.active -= (uint32_t)a->active;
    e->assembly.owed -= (uint32_t)a->owed;
    a->active = a->skip = a->owed = 0;
}

/* Pieces that follow each other often lie in one slab, which is borrowed once. */
int sc_assembly_holds(const sc_assembly *a, uint32_t piece) {
    return !piece || a->kept[piece].slab != a->kept[piece - 1].slab;
}

static void give_back(sc_engine *e, sc_assembly *a) {
    for (; a->n_kept; a->n_kept--)
        if (sc_assembly_holds(a, a->n_kept - 1)) sc_unborrow(e, a->kept[a->n_kept - 1].slab);
}

void sc_assembly_release(sc_engine *e, sc_assembly *a) { /* a large message leaves no large buffer behind */
    give_back(e, a);
    a->len = 0;
    if (a->cap <= (1u << 20)) return;
    free(a->p);
    a->p = NULL;
    a->cap = 0;
}

void sc_assembly_drop(sc_engine *e, sc_assembly *a) {
    if (a->active) e->counters->drop_partial_message++;
    sc_assembly_close(e, a);
    sc_assembly_release(e, a);
}

/* The pieces stay in their packets, as long as these are few. */
int sc_assembly_keep(sc_engine *e, sc_assembly *a, const sc_piece *pieces, uint32_t n) {
    if (a->kept_cap < n) {
        sc_piece *kept = realloc(a->kept, n * sizeof *kept);
        if (!kept) return 0;
        a->kept = kept;
        a->kept_cap = n;
    }
    for (uint32_t i = 0; i < n; i++) {
        a->kept[i] = pieces[i];
        if (sc_assembly_holds(a, i) && !sc_borrow(e, pieces[i].slab)) {
            give_back(e, a);
            return 0;
        }
        a->n_kept++;
    }
    return 1;
}

static void skip(sc_engine *e, sc_assembly *a) {
    a->skip = 1;
    e->counters->drop_message_too_large++;
    sc_assembly_release(e, a);
}

static void append(sc_engine *e, sc_assembly *a, const uint8_t *p, uint64_t len) {
    if (a->skip) return;
    if (a->len + len > e->config.message_bytes_max) {
        skip(e, a);
        return;
    }
    if (a->len + len > a->cap) {
        uint64_t cap = a->cap ? a->cap : 65536;
        while (cap < a->len + len) cap *= 2;
        uint8_t *grown = realloc(a->p, cap);
        if (!grown) {
            skip(e, a);
            return;
        }
        a->p = grown;
        a->cap = cap;
    }
    if (len) memcpy(a->p + a->len, p, len);
    a->len += len;
}

void sc_assembly_append(sc_engine *e, sc_assembly *a, const uint8_t *p, uint64_t len) {
    for (uint32_t i = 0; i < a->n_kept; i++) append(e, a, a->kept[i].data, a->kept[i].len);
    give_back(e, a);
    append(e, a, p, len);
}

/* A message continues in the next packet of its sender. */
void sc_assembly_open(sc_engine *e, sc_assembly *a) {
    e->assembly.active += (uint32_t)!a->active;
    a->active = 1;
    a->skip = 0;
    a->len = 0;
}

void sc_assembly_miss(sc_engine *e, sc_assembly *a, int owed) {
    sc_assembly_close(e, a);
    sc_assembly_open(e, a);
    a->skip = 1;
    a->owed = owed;
    e->assembly.owed += (uint32_t)owed;
}

/* A message ends in the view of its beginning, or never. One to a single member may end later, as long as both are
 * members: after the newest view nothing of a departed one is in the queue. */
void sc_assembly_view_ends(sc_engine *e, int newest) {
    for (uint32_t i = 0; i < SC_ASSEMBLIES; i++) {
        sc_assembly *a = &e->assembly.of[i];
        if (a->sender && (!a->unicast || (newest && !sc_find_peer(e, a->sender)))) sc_assembly_drop(e, a);
    }
}

void sc_assembly_free(sc_engine *e) {
    for (uint32_t i = 0; i < SC_ASSEMBLIES; i++) {
        sc_assembly_release(e, &e->assembly.of[i]);
        free(e->assembly.of[i].p);
        free(e->assembly.of[i].kept);
    }
}
