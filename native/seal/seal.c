/* With a key: sealing and opening; and the check of either kind. */
#include <stdlib.h>
#include <string.h>

#include "seal/seal_internal.h"
#include "seal/secret.h"

/* key_id: the kind of secret in the upper bits, then the mark of the secret, SC_SEALED_FOR_ONE, and who sealed. */
#define KIND 0xc000
#define KIND_OF_FILE 0x4000
#define KIND_OF_VIEW 0x8000
#define MARK_SHIFT 9
/* A number: the highest bit is set for a data packet, which has a seqno; then bits of the view's tag, 0 with a secret
 * of the file; then the count of the sealings. */
#define OF_DATA ((uint64_t)1 << 63)
#define TAG_SHIFT 48
#define TAG_BITS 0x7fff
#define COUNTS ((uint64_t)1 << TAG_SHIFT)
#define SECRETS (SC_SEAL_SECRETS + SC_SEAL_VIEWS) /* of the file, then of views */
#define KEYS 512 /* a power of two; some for each member of a view */
#define TRIES 8

/* Bytes of a cipher's parts. */
static const struct {
    uint8_t key, nonce, tag;
} sizes[SC_CIPHERS] = {
    [SC_CIPHER_XCHACHA20_POLY1305] = {32, 24, 16},
    [SC_CIPHER_AEGIS_128L] = {16, 16, 32},
    [SC_CIPHER_AEGIS_256] = {32, 32, 32},
    [SC_CIPHER_AES_256_GCM] = {32, 12, 16},
};

typedef struct {
    uint64_t sealer;
    uint32_t which; /* of the secrets */
    uint8_t key[SC_SEAL_KEY_MAX];
} sealer_key;

typedef struct {
    uint64_t tag; /* 0: none */
    uint32_t cipher;
    uint8_t secret[SC_SEAL_SECRET];
    uint8_t own[SC_SEAL_KEY_MAX];
} view_secret;

/* All that must stay secret, in memory of its own. */
typedef struct {
    uint32_t alive; /* 0: in a child process, which gets zeros from its system */
    uint32_t replaced; /* keys of sealers, ever */
    sc_seal_secret from[SC_SEAL_SECRETS];
    uint8_t own[SC_SEAL_KEY_MAX]; /* of the first one */
    view_secret views[SC_SEAL_VIEWS]; /* newest first */
    sealer_key keys[KEYS]; /* of sealers of whom a datagram was opened */
    uint8_t derived[SC_SEAL_KEY_MAX]; /* of the last one whose key was not kept */
} secrets;

struct sc_seal {
    sc_cipher_library library;
    uint64_t sealings[2]; /* how many: of packets, of the rest */
    uint64_t before; /* how many of them before the view was entered */
    uint64_t worn; /* since then: the number at which the secret is next called worn */
    uint32_t chance; /* of this transmit */
    uint64_t own; /* incarnation */
    uint32_t n; /* secrets of the file */
    uint64_t view; /* tag of the one whose secret seals; 0: none */
    uint64_t view_before; /* in which this member was before; 0: in none */
    secrets *secrets;
};

static const view_secret *view_of(const sc_seal *s, uint64_t tag) {
    for (uint32_t i = 0; i < SC_SEAL_VIEWS; i++)
        if (tag && s->secrets->views[i].tag == tag) return &s->secrets->views[i];
    return NULL;
}

/* The cipher of the secret `which`; for that of a view, the secrets must be here. */
static unsigned cipher_of(const sc_seal *s, uint32_t which) {
    return which < SC_SEAL_SECRETS ? SC_CIPHER_XCHACHA20_POLY1305 : s->secrets->views[which - SC_SEAL_SECRETS].cipher;
}

static void derive(const sc_seal *s, uint32_t which, uint64_t sealer, uint8_t *key) {
    static const uint8_t person[16] = "seqcast sealer";
    const view_secret *view = which < SC_SEAL_SECRETS ? NULL : &s->secrets->views[which - SC_SEAL_SECRETS];
    uint8_t of[16];
    sc_put64(of, sealer);
    sc_put64(of + 8, view ? view->tag : 0);
    s->library.hash(key, sizes[cipher_of(s, which)].key, of, view ? sizeof of : 8,
                    view ? view->secret : s->secrets->from[which].secret, SC_SEAL_SECRET, NULL, person);
}

sc_seal *sc_seal_new(const sc_cipher_library *library, const sc_seal_secret *from, size_t n, uint64_t own) {
    sc_seal *s = calloc(1, sizeof *s);
    if (!s) return NULL;
    if (!(s->secrets = sc_secret_new(sizeof *s->secrets))) {
        free(s);
        return NULL;
    }
    s->library = *library;
    s->own = own;
    s->secrets->alive = 1;
    sc_seal_refile(s, from, n);
    return s;
}

void sc_seal_free(sc_seal *s) {
    if (!s) return;
    sc_secret_free(s->secrets, sizeof *s->secrets);
    free(s);
}

/* ---- secrets of the file and of views ---------------------------------------------------------------------------- */

/* The keys that were derived from secrets that are not there any more, or have another place. */
static void drop_keys(secrets *known, int of_views) {
    sc_secret_overwrite(known->derived, sizeof known->derived);
    for (uint32_t i = 0; i < KEYS; i++)
        if ((known->keys[i].which >= SC_SEAL_SECRETS) == of_views)
            sc_secret_overwrite(&known->keys[i], sizeof known->keys[i]);
}

/* Numbers go on, so a member that seals again with an earlier secret uses no number twice. */
void sc_seal_refile(sc_seal *s, const sc_seal_secret *from, size_t n) {
    s->n = (uint32_t)(n < SC_SEAL_SECRETS ? n : SC_SEAL_SECRETS);
    sc_secret_overwrite(s->secrets->from, sizeof s->secrets->from);
    memcpy(s->secrets->from, from, s->n * sizeof *from);
    derive(s, 0, s->own, s->secrets->own);
    drop_keys(s->secrets, 0);
    sc_secret_clean_stack();
}

int sc_seal_differs(const sc_seal *s, const uint8_t *p) {
    unsigned mark = sc_get_key_id(p) >> MARK_SHIFT & (SC_SEAL_MARKS - 1);
    return !sc_sealed_inside(p) && mark != s->secrets->from[0].mark;
}

int sc_seal_know(sc_seal *s, uint64_t tag, unsigned cipher, const uint8_t *secret) {
    view_secret *views = s->secrets->views;
    if (cipher >= SC_CIPHERS || !s->library.ciphers[cipher].seal) return -1;
    if (view_of(s, tag)) return 0; /* a view has one secret */
    int keeps = s->view && views[SC_SEAL_VIEWS - 1].tag == s->view; /* VIEWs may come that nobody enters */
    memmove(views + 1, views, (size_t)(SC_SEAL_VIEWS - 1 - keeps) * sizeof *views);
    views[0].tag = tag;
    views[0].cipher = cipher;
    memcpy(views[0].secret, secret, SC_SEAL_SECRET);
    derive(s, SC_SEAL_SECRETS, s->own, views[0].own);
    drop_keys(s->secrets, 1);
    sc_secret_clean_stack();
    return 0;
}

int sc_seal_knows(const sc_seal *s, uint64_t tag) { return view_of(s, tag) != NULL; }

int sc_seal_enter(sc_seal *s, uint64_t tag) {
    if (tag && !view_of(s, tag)) return -1;
    if (tag != s->view) s->view_before = tag ? s->view : 0;
    s->view = tag;
    s->before = s->sealings[0] + s->sealings[1];
    s->worn = 0;
    return 0;
}

int sc_seal_worn(sc_seal *s, uint64_t most) {
    uint64_t count = s->sealings[0] + s->sealings[1] - s->before;
    if (!s->view || count <= most || count < s->worn) return 0;
    s->worn = count + 1 + most / 16;
    return 1;
}

void sc_seal_forget(sc_seal *s) {
    view_secret *views = s->secrets->views;
    int dropped = 0;
    for (uint32_t i = 0; i < SC_SEAL_VIEWS; i++) {
        if (!views[i].tag || views[i].tag == s->view) continue;
        sc_secret_overwrite(&views[i], sizeof views[i]);
        dropped = 1;
    }
    if (dropped) drop_keys(s->secrets, 1);
}

/* ---- sealing ------------------------------------------------------------------------------------------------- */

/* Proven by the tag though not encrypted: the header, and whom the datagram is for. */
#define PROVEN (SC_COMMON_HEADER + 8)
static void put_proven(uint8_t *proven, const uint8_t *p, uint64_t target) {
    memcpy(proven, p, SC_COMMON_HEADER);
    sc_put64(proven + SC_COMMON_HEADER, target);
}

static int is_for_one(const uint8_t *p) {
    uint8_t type = sc_get_type(p);
    return type == SC_TYPE_UNICAST || type == SC_TYPE_FORWARD || type == SC_TYPE_STATE;
}

static void put_nonce(uint8_t *nonce, uint64_t number, uint32_t chance) {
    memset(nonce, 0, SC_SEAL_NONCE_MAX);
    sc_put64(nonce, number);
    sc_put32(nonce + 8, chance);
}

void sc_seal_begin(sc_seal *s) {
    uint8_t drawn[4];
    s->library.random(drawn, sizeof drawn);
    s->chance = sc_get32(drawn);
}

/* Packets queued before a view belong to the one before. NULL: the datagram is outside any. */
static const view_secret *sealing_view(const sc_seal *s, const uint8_t *p) {
    uint64_t tag = sc_get_view_tag(p);
    const view_secret *named = view_of(s, tag);
    if (named && (tag == s->view || !sc_is_of_pair(p))) return named;
    return tag ? view_of(s, s->view) : NULL;
}

/* ---- tags of members, if the secret of the file seals */

#define MEMBER_TAG 8 /* bytes: whoever guesses one has won little, and must ask the member for each guess */
#define MEMBER_TAGS (2 * MEMBER_TAG)
#define DIGEST 32

static void digest_body(const sc_seal *s, uint8_t *digest, const uint8_t *body, size_t len, const uint8_t *proven) {
    static const uint8_t person[16] = "seqcast body";
    s->library.hash(digest, DIGEST, body, len, proven, PROVEN, NULL, person);
}

/* The tag of a datagram under the secret of a view. */
static void put_member_tag(const sc_seal *s, uint8_t *to, const view_secret *view, const uint8_t *digest,
                           uint64_t number) {
    static const uint8_t person[16] = "seqcast member";
    uint8_t said[16 + DIGEST], tag[16]; /* the least that the library makes */
    sc_put64(said, view->tag);
    sc_put64(said + 8, number);
    memcpy(said + 16, digest, DIGEST);
    s->library.hash(tag, sizeof tag, said, sizeof said, view->secret, SC_SEAL_SECRET, NULL, person);
    memcpy(to, tag, MEMBER_TAG);
}

/* The tags for our view and for the previous one; zeros if there is none. */
static void put_member_tags(const sc_seal *s, uint8_t *to, const uint8_t *body, size_t len, const uint8_t *proven,
                            uint64_t number) {
    const view_secret *views[2] = {view_of(s, s->view), view_of(s, s->view_before)};
    uint8_t digest[DIGEST];
    memset(to, 0, MEMBER_TAGS);
    if (!views[0]) return;
    digest_body(s, digest, body, len, proven);
    for (size_t i = 0; i < 2; i++)
        if (views[i]) put_member_tag(s, to + i * MEMBER_TAG, views[i], digest, number);
}

enum { NEITHER, OF_ITS_VIEW, OF_THE_ONE_BEFORE };
static int which_tag(const uint8_t *tags, const uint8_t *tag) {
    uint8_t differs[2] = {0};
    for (size_t i = 0; i < MEMBER_TAGS; i++) differs[i / MEMBER_TAG] |= tags[i] ^ tag[i % MEMBER_TAG];
    return !differs[0] ? OF_ITS_VIEW : !differs[1] ? OF_THE_ONE_BEFORE : NEITHER;
}

/* Notes the known views of which the sealer proves to be a member. */
static void see_member(const sc_seal *s, sc_opened *opened, const uint8_t *tags, const uint8_t *body, size_t len,
                       const uint8_t *proven, uint64_t number) {
    static const uint8_t none[MEMBER_TAGS];
    uint8_t digest[DIGEST], tag[MEMBER_TAG];
    if (!memcmp(tags, none, sizeof none)) return;
    digest_body(s, digest, body, len, proven);
    for (uint32_t i = 0; i < SC_SEAL_VIEWS; i++) {
        const view_secret *view = &s->secrets->views[i];
        if (!view->tag) continue;
        put_member_tag(s, tag, view, digest, number);
        int which = which_tag(tags, tag);
        if (which == NEITHER) continue;
        if (!opened->member || view->tag == s->view) opened->member = view->tag;
        if (opened->latest && which != OF_ITS_VIEW) continue;
        opened->latest = view->tag;
        opened->ahead = which != OF_ITS_VIEW;
    }
    opened->shown = sc_get64(tags);
}

/* ---- the datagram */

/* The body, then the tag: SC_SEAL_TAG bytes more. `more`: for the end of the body if the tag is short. */
static void encrypt(const sc_seal *s, unsigned cipher, uint8_t *to, const uint8_t *body, size_t len,
                    const uint8_t *more, const uint8_t *proven, const uint8_t *nonce, const uint8_t *key) {
    size_t rest = SC_SEAL_TAG - (size_t)sizes[cipher].tag;
    if (rest) {
        memcpy(to, body, len);
        memcpy(to + len, more, rest);
        body = to;
    }
    s->library.ciphers[cipher].seal(to, NULL, body, len + rest, proven, PROVEN, NULL, nonce, key);
}

int sc_seal_close(sc_seal *s, uint8_t *to, const uint8_t *p, size_t len, unsigned by, uint64_t target) {
    int data = sc_has_seqno(p);
    if (!s->secrets->alive || s->sealings[!data] >= COUNTS) return -1;
    uint16_t readers = sc_get_key_id(p);
    /* (A packet that a holder repeats has another key_id than these two.) */
    int outside = readers == SC_SEAL_OUTSIDE || readers == SC_SEAL_ANYBODY;
    const view_secret *view = outside ? NULL : sealing_view(s, p);
    if (readers == SC_SEAL_ANYBODY) target = 0;
    uint64_t bits = view ? (view->tag & TAG_BITS) << TAG_SHIFT : 0;
    uint64_t number = s->sealings[!data]++ | bits | (data ? OF_DATA : 0);
    uint8_t nonce[SC_SEAL_NONCE_MAX], proven[PROVEN], more[SC_SEAL_TAG] = {0};
    const uint8_t *body = p + SC_COMMON_HEADER;
    put_nonce(nonce, number, s->chance);
    memcpy(to, p, SC_COMMON_HEADER);
    unsigned from = view ? KIND_OF_VIEW : KIND_OF_FILE | (unsigned)s->secrets->from[0].mark << MARK_SHIFT;
    sc_put_key_id(to, (uint16_t)(from | (target ? SC_SEALED_FOR_ONE : 0) | by));
    sc_put_crc(to, s->chance);
    put_proven(proven, to, target);
    if (!view) put_member_tags(s, more, body, len - SC_COMMON_HEADER, proven, number);
    encrypt(s, view ? view->cipher : cipher_of(s, 0), to + SC_COMMON_HEADER, body, len - SC_COMMON_HEADER, more, proven,
            nonce, view ? view->own : s->secrets->own);
    sc_put64(to + len + SC_SEAL_TAG, number);
    return 0;
}

/* ---- opening -------------------------------------------------------------------------------------------------- */

/* May this datagram, which is sealed, be of a stream of a pair? The stream that an ack is for cannot be read yet. */
static int may_be_of_pair(const uint8_t *p) {
    switch (sc_get_type(p)) {
    case SC_TYPE_UNICAST:
    case SC_TYPE_STATE:
    case SC_TYPE_ACK:
    case SC_TYPE_PROBE:
    case SC_TYPE_NAK: return 1;
    default: return 0;
    }
}

/* Which of the views' secrets is the sealer's; SECRETS: none. Two tags may share the bits in a number. The secret is
 * then that of the view that the datagram names. A stream of a pair names the view in which it began: there it is that
 * of our view, as no other counts. (Trying one after the other would not do: opening is in place.) */
static uint32_t secret_of_view(const sc_seal *s, const uint8_t *p, uint64_t number) {
    uint64_t named = may_be_of_pair(p) ? s->view : sc_get_view_tag(p);
    uint32_t found = SECRETS;
    for (uint32_t i = 0; i < SC_SEAL_VIEWS; i++) {
        uint64_t tag = s->secrets->views[i].tag;
        if (!tag || (number >> TAG_SHIFT & TAG_BITS) != (tag & TAG_BITS)) continue;
        if (tag == named) return SC_SEAL_SECRETS + i;
        if (found == SECRETS) found = SC_SEAL_SECRETS + i;
    }
    return found;
}

/* Which of our secrets is the sealer's; SECRETS: none. */
static uint32_t secret_of(const sc_seal *s, const uint8_t *p, uint64_t number) {
    if (sc_sealed_inside(p)) return secret_of_view(s, p, number);
    unsigned mark = sc_get_key_id(p) >> MARK_SHIFT & (SC_SEAL_MARKS - 1);
    for (uint32_t i = 0; i < s->n && (sc_get_key_id(p) & KIND) == KIND_OF_FILE; i++)
        if (s->secrets->from[i].mark == mark) return i;
    return SECRETS;
}

/* The secret of a view that is over seals datagrams of that view alone: a former member has that secret, too. (A member
 * that is behind seals its packets of a stream of the pair with that secret, and again later with that of our view.) */
static int is_former(const sc_seal *s, uint64_t view, const uint8_t *p) {
    if (!view || !s->view || view == s->view) return 0;
    return sc_is_of_pair(p) || sc_get_view_tag(p) != view;
}

sc_wire_result sc_seal_fits(const sc_seal *s, uint64_t view, const uint8_t *p) {
    if (!s) return SC_WIRE_OK;
    if (is_former(s, view, p)) return SC_WIRE_VIEW_UNKNOWN;
    return is_for_one(p) && !sc_sealed_for_one(p) ? SC_WIRE_FIELD_BAD : SC_WIRE_OK;
}

/* The key of a sealer, if kept. */
static sealer_key *find(secrets *known, uint32_t which, uint64_t sealer) {
    for (uint32_t i = 0; i < TRIES; i++) {
        sealer_key *each = &known->keys[(sealer + i) % KEYS];
        if (each->sealer == sealer && each->which == which) return each;
    }
    return NULL;
}

/* Only holders of the secret get a place here, so nobody else can push out the keys of members. */
static void keep(secrets *known, uint32_t which, uint64_t sealer, const uint8_t *key) {
    uint32_t i = 0;
    while (i < TRIES && known->keys[(sealer + i) % KEYS].sealer) i++;
    if (i == TRIES) i = known->replaced++ % TRIES;
    sealer_key *place = &known->keys[(sealer + i) % KEYS];
    place->sealer = sealer;
    place->which = which;
    memcpy(place->key, key, SC_SEAL_KEY_MAX);
}

static sc_wire_result open_sealed(sc_seal *s, uint8_t *p, size_t *len, uint64_t sealer, sc_opened *opened) {
    if (*len < SC_COMMON_HEADER + SC_SEAL_ROOM) return SC_WIRE_SHORT;
    if (!sealer || !s->secrets->alive) return SC_WIRE_KEY_BAD;
    size_t sealed = *len - sizeof opened->number;
    uint64_t number = sc_get64(p + sealed);
    uint32_t which = secret_of(s, p, number);
    if (which == SECRETS) return sc_sealed_inside(p) ? SC_WIRE_VIEW_UNKNOWN : SC_WIRE_SEAL_BAD;
    uint8_t nonce[SC_SEAL_NONCE_MAX], proven[PROVEN], *derived = s->secrets->derived;
    const sealer_key *known = find(s->secrets, which, sealer);
    if (!known) derive(s, which, sealer, derived);
    put_nonce(nonce, number, sc_get_crc(p));
    put_proven(proven, p, sc_sealed_for_one(p) ? s->own : 0);
    const sc_cipher *cipher = &s->library.ciphers[cipher_of(s, which)];
    if (cipher->open(p + SC_COMMON_HEADER, NULL, NULL, p + SC_COMMON_HEADER, sealed - SC_COMMON_HEADER, proven, PROVEN,
                     nonce, known ? known->key : derived) != 0)
        return SC_WIRE_SEAL_BAD;
    opened->number = number & (COUNTS - 1);
    opened->view = which < SC_SEAL_SECRETS ? 0 : s->secrets->views[which - SC_SEAL_SECRETS].tag;
    sc_wire_result result = sc_seal_fits(s, opened->view, p);
    if (result != SC_WIRE_OK) return result;
    if (!known) keep(s->secrets, which, sealer, derived);
    if (sc_has_seqno(p) != (number >= OF_DATA)) return SC_WIRE_FIELD_BAD;
    *len -= SC_SEAL_ROOM;
    const uint8_t *body = p + SC_COMMON_HEADER, *end = p + *len;
    opened->member = opened->latest = opened->view;
    if (!opened->view) see_member(s, opened, end, body, (size_t)(end - body), proven, number);
    return SC_WIRE_OK;
}

sc_wire_result sc_seal_check(sc_seal *s, uint8_t *p, size_t *len, uint64_t sealer, sc_opened *opened) {
    *opened = (sc_opened){0};
    if (s) return sc_get_key_id(p) ? open_sealed(s, p, len, sealer, opened) : SC_WIRE_KEY_BAD;
    if (sc_get_key_id(p)) return SC_WIRE_KEY_BAD;
    return sc_get_crc(p) == sc_seal_sum(p, *len) ? SC_WIRE_OK : SC_WIRE_CRC_BAD;
}

/* ---- numbers -------------------------------------------------------------------------------------------------- */

int sc_numbers_take(sc_numbers *n, uint64_t number) {
    if (number >= n->next) {
        uint64_t ahead = number - n->next + 1;
        if (ahead >= SC_NUMBERS_KEPT)
            memset(n->came, 0, sizeof n->came);
        else
            for (uint64_t each = n->next; each < number; each++)
                n->came[each / 64 % (SC_NUMBERS_KEPT / 64)] &= ~((uint64_t)1 << each % 64);
        n->next = number + 1;
    } else if (n->next - number > SC_NUMBERS_KEPT || n->came[number / 64 % (SC_NUMBERS_KEPT / 64)] >> number % 64 & 1) {
        return 0;
    }
    n->came[number / 64 % (SC_NUMBERS_KEPT / 64)] |= (uint64_t)1 << number % 64;
    return 1;
}

int sc_ahead_take(sc_ahead *a, const sc_opened *opened) {
    if (!opened->shown) return 1;
    if (opened->ahead) {
        a->shown[a->n++ % SC_AHEAD_KEPT] = opened->shown;
        return 1;
    }
    for (uint32_t i = 0; i < SC_AHEAD_KEPT; i++)
        if (a->shown[i] == opened->shown) return 0;
    return 1;
}

/* A view without a place takes that of one whose secret is not known any more: there is one, as this view is known. */
sc_numbers *sc_numbers_of(const sc_seal *s, sc_numbers *numbers, uint64_t view) {
    sc_numbers *place = &numbers[1];
    if (!view) return &numbers[0];
    for (uint32_t i = 1; i < SC_NUMBERS; i++) {
        if (numbers[i].view == view) return &numbers[i];
        if (!view_of(s, numbers[i].view)) place = &numbers[i];
    }
    *place = (sc_numbers){.view = view};
    return place;
}
