#pragma once

#include "engine/engine.h"

/* Failure detection. */

/* A member of another view, by its last heartbeat. */
typedef struct {
    sc_address address;
    uint64_t tag;
    int64_t heard;
    int64_t due, wait; /* when the control plane is told, and then again */
} sc_beat;

typedef struct {
    sc_beat beats[SC_MEMBERS_MAX];
    int64_t starved; /* when something was last dropped because slabs were lacking; 0: never */
    int stuck; /* and nothing was received in order, or taken, between the last two heartbeats */
    uint64_t progress; /* the result of progress() at the last heartbeat */
    int64_t heartbeat_due;
    int health; /* 0: well; each step adds suspect_ns to the suspicion time */
    int64_t health_due; /* when one is forgiven */
    int links_told;
    uint64_t ways; /* changes with the way to any member */
    uint32_t deaf; /* members of the view to which the way is not by multicast alone */
} sc_detection;

/* Of each member. */
typedef struct {
    int present; /* its heartbeats report this view as installed */
    int64_t beat; /* the last one */
    int doubted; /* under verification; set as long as one of the next two is */
    int silent; /* no multicast came for the suspicion time; unicasts may be answered, others may vouch */
    int mute; /* heard, but no unicast from it came, though requested for ASKED suspicion times */
    int suspected; /* reported to the control plane */
    int64_t starved; /* since when its heartbeats report no progress for lack of slabs; 0: they do not */
    int slow; /* reported to the control plane as slow */
    uint32_t pings; /* of this verification */
    int64_t heard; /* last sign of life directly from it */
    int64_t overheard; /* last multicast directly from it */
    int64_t reached; /* last unicast directly from it */
    int64_t asked; /* since then each heartbeat requests a unicast; 0: none does */
    int64_t vouched; /* last time that another member reported an answer from it */
    int64_t refused; /* when its port was first refused since its last sign of life; 0: not refused */
    int refused_by; /* SC_EVIDENCE_PORT or SC_EVIDENCE_GUARD, whichever came first */
    int64_t ping_due; /* while doubted */
    int way; /* SC_WAY_...: of the group's traffic to this member */
    int64_t way_since; /* when the way became this one */
    int64_t way_back; /* no return to multicast before, */
    int64_t way_wait; /* least time since the last change from multicast; 0: at once */
    uint8_t unheard[SC_MEMBERS_MAX / 8]; /* members not heard there, by rank, as of its last heartbeat */
    uint8_t mutes[SC_MEMBERS_MAX / 8]; /* and those whose unicasts do not arrive there */
} sc_peer_detection;

struct sc_peer;

void sc_detect_begin(sc_engine *e, int64_t now);
void sc_detect_peer_begin(const sc_engine *e, struct sc_peer *peer, int64_t now);
void sc_detect_stop(sc_engine *e);
void sc_detect_heard(sc_engine *e, struct sc_peer *peer, int64_t now, int multicast);
void sc_detect_reached(sc_engine *e, struct sc_peer *peer, int64_t now);
void sc_on_ping(sc_engine *e, const struct sc_peer *sender, const uint8_t *p, const sc_address *from);
void sc_on_pong(sc_engine *e, const struct sc_peer *sender, const uint8_t *p, int64_t now);
void sc_detect_stranger(sc_engine *e, uint64_t tag, const sc_address *from, int64_t now);
void sc_detect_starved(sc_engine *e, int64_t now);
void sc_on_heartbeat(sc_engine *e, struct sc_peer *peer, const uint8_t *p, int64_t now);
void sc_detect_tick(sc_engine *e, int64_t now);
int64_t sc_detect_deadline(const sc_engine *e);
