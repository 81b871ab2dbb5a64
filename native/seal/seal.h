/* How a datagram is protected on its way, and so who may have sent it. Other folders finish, close and check datagrams
 * by these functions, with the engine's seal: NULL without a key.
 *
 * Without a key, a datagram carries the CRC32C of all its bytes, its CRC field taken as zero: damage is noticed, and
 * anybody may send one. With a key, datagrams are sealed by a cipher of a library: all after the common header is
 * encrypted, and followed by a tag, which proves that the sealer has the key and that no byte has changed, and by the
 * number of the sealing.
 *
 *     header (40 bytes, readable) | body, encrypted | tag (32) | number (8)
 *
 * The secret of the file seals with XChaCha20-Poly1305, which each machine has; the secret of a view with the cipher
 * that its VIEW names. Some have tags of 16 bytes: 16 zeros are then encrypted with the body, so a datagram is as long
 * with one cipher as with another, and a view with another cipher takes packets that were built before.
 *
 * If the secret of the file seals, a member of a view puts two tags of 8 bytes in the place of those zeros, made
 * with the secrets of its view and of its view before. By them those who have one of these know that a member speaks:
 * with the file alone, nobody uses up the numbers of a member, nor the time that is kept for its frames.
 *
 * There are two kinds of secrets:
 *
 *     of the file   for those outside a view, or who speak to them: control frames of some kinds (core/frames says
 *                   which: JOIN, WAIT, SEEN, REFUSED, VIEW, INSTALLED, DECLINED, RECALL, RECALLED, BEACON, MET,
 *                   MERGE_*, UNBLOCK, BLOCKED), a PING to a member that has not shown itself in the view, and whatever
 *                   a process sends that is in no view: PONG
 *     of a view     all else: packets of all streams, whether they belong to the view or to a pair of members, repairs
 *                   by holders, ACK, NAK, PROBE, HEARTBEAT, ASK, TAKEN, TOTAL, WANT, GRANT, PING, PONG, SIZE, SIZED,
 *                   PIECE, and the other frames
 *
 * The secret of a view is new with each, so outsiders can read nothing of a view, and say nothing there. The secret
 * opens from its arrival, seals while this member is in the view, and opens for a while after: members enter a view one
 * after the other.
 *
 * Each sealer has a key of its own, derived from the secret, its incarnation, and the view's tag. No number is used
 * twice under one secret, and the header has 32 random bits in place of the CRC, drawn for each transmit: number
 * and random bits are the nonce. So a process that is copied at run time, with its numbers, seals nothing under a nonce
 * of the other copy, but with a chance of 1 in 2^32. The number says of which view the secret is, as the header does
 * not: streams of a pair have the tag of another one.
 *
 * Members share the secret, so a packet for one of them would open at another, too, to which somebody on the way has
 * sent that packet: the copy would be taken for that one's. A datagram for one member is therefore sealed with its
 * incarnation, as if that stood after the header.
 *
 * Sealing always makes a copy: the send rings stay readable to their owner, and a packet that is sent again is sealed
 * again. */
#pragma once

#include "wire/wire.h"

#define SC_SEAL_ROOM 40 /* bytes that a sealed datagram has beyond those of the plain one */
#define SC_SEAL_TAG 32
#define SC_SEAL_SECRET 32
#define SC_SEAL_SECRETS 4 /* that a member can open, so that a group can replace one without a stop */
#define SC_SEAL_MARKS 32 /* a mark tells the secrets of one member apart, and is below this */
#define SC_SEAL_KEY_MAX 32
#define SC_SEAL_NONCE_MAX 32
#define SC_SEAL_VIEWS 4 /* whose secrets are known at a time: the view that this member is in, and those before */

/* The functions of a library, as libsodium declares them: crypto_aead_xchacha20poly1305_ietf_encrypt and _decrypt, and
 * those of the other ciphers; crypto_generichash_blake2b_salt_personal; and randombytes. The last one is the only
 * source of chance that an engine has. */
enum { SC_CIPHER_XCHACHA20_POLY1305, SC_CIPHER_AEGIS_128L, SC_CIPHER_AEGIS_256, SC_CIPHER_AES_256_GCM, SC_CIPHERS };
typedef int (*sc_cipher_seal)(uint8_t *c, unsigned long long *c_len, const uint8_t *m, unsigned long long m_len,
                              const uint8_t *ad, unsigned long long ad_len, const uint8_t *unused, const uint8_t *nonce,
                              const uint8_t *key);
typedef int (*sc_cipher_open)(uint8_t *m, unsigned long long *m_len, uint8_t *unused, const uint8_t *c,
                              unsigned long long c_len, const uint8_t *ad, unsigned long long ad_len,
                              const uint8_t *nonce, const uint8_t *key);
typedef int (*sc_cipher_hash)(uint8_t *out, size_t out_len, const uint8_t *in, unsigned long long in_len,
                              const uint8_t *key, size_t key_len, const uint8_t *salt, const uint8_t *person);
typedef void (*sc_cipher_random)(uint8_t *p, unsigned long long len);
typedef struct {
    sc_cipher_seal seal; /* NULL: this machine does not have the cipher */
    sc_cipher_open open;
} sc_cipher;
typedef struct {
    sc_cipher ciphers[SC_CIPHERS];
    sc_cipher_hash hash;
    sc_cipher_random random;
} sc_cipher_library;

typedef struct sc_seal sc_seal; /* NULL stands for: no key */

/* ---- in place, when all fields are known; with a key nothing, as sc_seal_close seals a copy ---------------------- */

/* Puts the CRC32C into a datagram. */
void sc_seal_finish(const sc_seal *seal, uint8_t *p, size_t len);
/* The header of a valid data packet is about to change: its sum, for sc_seal_again. 0: the packet is so small that
 * computing the whole CRC again costs less. */
uint64_t sc_seal_before(const sc_seal *seal, const uint8_t *p, size_t len);
/* As sc_seal_finish. `before` is not 0: only the header has changed since, so the CRC of the whole packet follows from
 * that of the headers. */
void sc_seal_again(const sc_seal *seal, uint8_t *p, size_t len, uint64_t before);

/* ---- with a key -------------------------------------------------------------------------------------------------- */

typedef struct {
    uint8_t mark;
    uint8_t secret[SC_SEAL_SECRET];
} sc_seal_secret;

/* `from`: the `n` secrets of the file. The first one seals; datagrams that any of them has sealed are opened. They are
 * copied into memory that is not swapped out, dumped, or given to child processes, if the system can do that. NULL
 * without memory. */
sc_seal *sc_seal_new(const sc_cipher_library *library, const sc_seal_secret *from, size_t n, uint64_t own);
void sc_seal_free(sc_seal *seal); /* its memory is overwritten */
/* Other secrets of the file take the place of those before. */
void sc_seal_refile(sc_seal *seal, const sc_seal_secret *from, size_t n);
/* Was this opened datagram sealed with another file secret than ours? */
int sc_seal_differs(const sc_seal *seal, const uint8_t *p);

/* The secret of the view with this tag, and its cipher. The new one takes the place of the oldest, but not of the one
 * that seals. 0, or -1: there is no such cipher. */
int sc_seal_know(sc_seal *seal, uint64_t tag, unsigned cipher, const uint8_t *secret);
int sc_seal_knows(const sc_seal *seal, uint64_t tag);
/* From now on the secret of this view seals; 0: this member is in none. 0, or -1: unknown. */
int sc_seal_enter(sc_seal *seal, uint64_t tag);
/* Were more than `most` datagrams sealed since the view was entered? Says so once, and again after a sixteenth of
 * `most` more: asking for another view takes a few itself. */
int sc_seal_worn(sc_seal *seal, uint64_t most);
/* Only the secret that seals is kept. */
void sc_seal_forget(sc_seal *seal);

/* In key_id of a datagram that is to be sealed: readers outside the view included; and whatever their incarnation. */
#define SC_SEAL_OUTSIDE 1
#define SC_SEAL_ANYBODY 2

/* Called before the datagrams of a transmit. */
void sc_seal_begin(sc_seal *seal);
/* Seals a copy of `p[0..len)` into `to`, which has SC_SEAL_ROOM bytes more. `by` is 0, or 1 + the sealer's rank in the
 * view that the datagram names, if the sealer is not its sender. `target`: the only incarnation that can open the
 * datagram; 0: all can. 0, or -1: this process has no secret, being a child of the one that had, or has sealed 2^48
 * datagrams, after which numbers would repeat. */
int sc_seal_close(sc_seal *seal, uint8_t *to, const uint8_t *p, size_t len, unsigned by, uint64_t target);

/* ---- received datagrams ------------------------------------------------------------------------------------------ */

/* The sealer: as `by` of sc_seal_close; of a datagram that sc_wire_begins approves. */
#define SC_SEALED_FOR_ONE 0x100 /* in key_id */
static inline unsigned sc_sealed_by(const uint8_t *p) { return sc_get_key_id(p) & 0xff; }

/* Did a view's secret seal the datagram? */
static inline int sc_sealed_inside(const uint8_t *p) { return sc_get_key_id(p) >> 14 == 2; }

/* Can only one member open the datagram? If so, the failure of others says nothing about their keys. */
static inline int sc_sealed_for_one(const uint8_t *p) { return (sc_get_key_id(p) & SC_SEALED_FOR_ONE) != 0; }

/* Facts about a datagram that was opened. */
typedef struct {
    uint64_t number; /* tells the datagrams of one sealer apart that are not data packets; higher than those before */
    uint64_t view; /* tag of the view whose secret sealed it; 0: one of the file did, or there is no key */
    /* Tag of the view whose secret the sealer shows to have, ours if that is one of two; 0: of none that is known. */
    uint64_t member;
    uint64_t latest; /* the later one of the two, whichever is ours: it stays the same when we enter the next view */
    uint64_t shown; /* the sealer's tag for its own view, if a secret of the file sealed; 0: none */
    uint64_t ahead; /* is that a view which is not known here? */
} sc_opened;

/* Is `p[0..*len)` unharmed, and, with a key, sealed by `sealer`? Opening is in place: afterwards `*len` and the bytes
 * are those of the plain datagram. */
sc_wire_result sc_seal_check(sc_seal *seal, uint8_t *p, size_t *len, uint64_t sealer, sc_opened *opened);
/* May a plain datagram with this key_id be of a sealer that has the secret of `view`? sc_seal_check asks this of the
 * datagram that it opens, and the engine again of one that came in pieces. */
sc_wire_result sc_seal_fits(const sc_seal *seal, uint64_t view, const uint8_t *p);

/* Which of the last numbers of one sealer, under one secret, have come: none counts twice. */
#define SC_NUMBERS_KEPT 1024
typedef struct {
    uint64_t view; /* as `latest` in sc_opened */
    uint64_t next; /* 1 + the highest that came */
    uint64_t came[SC_NUMBERS_KEPT / 64];
} sc_numbers;
/* 0: a repeat, or so old that nobody knows. */
int sc_numbers_take(sc_numbers *numbers, uint64_t number);
/* Those of one sealer: each view that is known has a place of its own, for datagrams that show membership of it; the
 * first one is for all else. Anybody with a secret can use the highest number in the name of any sealer, which must not
 * change the numbers under other secrets. */
#define SC_NUMBERS (1 + SC_SEAL_VIEWS)
sc_numbers *sc_numbers_of(const sc_seal *seal, sc_numbers *numbers, uint64_t view);
/* The last datagrams of one sealer that counted by the view before its own, as its own was not known here, by their
 * tags: their numbers are free under the secret of the later view. (Noting these numbers there would let a former
 * member, who can use any of them under the secret before, have the sealer's own dropped.) */
#define SC_AHEAD_KEPT 64
typedef struct {
    uint64_t shown[SC_AHEAD_KEPT];
    uint64_t n;
} sc_ahead;
/* 0: a repeat. */
int sc_ahead_take(sc_ahead *ahead, const sc_opened *opened);
