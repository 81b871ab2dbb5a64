/* Round trips: see rtt.h. */
#include "engine/internal.h"

#define SMOOTHING 8 /* as in RFC 6298 */
#define LONGEST 60000000000u /* a longer one is not a measurement */

/* The member whose heartbeat is answered next. */
static sc_peer *next(sc_engine *e, const sc_peer *only) {
    for (uint32_t i = 0; i < e->view.n; i++) {
        sc_peer *peer = e->peers[(e->answered + 1 + i) % e->view.n];
        int64_t held = e->now - peer->rtt.came;
        if (!peer->rtt.sent || (only && peer != only) || held < 0 || held > UINT32_MAX) continue;
        if (!only) e->answered = peer->rank;
        return peer;
    }
    return NULL;
}

void sc_rtt_say(sc_engine *e, const sc_peer *only, uint8_t *heartbeat) {
    sc_put_heartbeat_sent(heartbeat, (uint64_t)e->now);
    sc_peer *peer = next(e, only);
    if (!peer) return;
    sc_put_heartbeat_echo(heartbeat, peer->rtt.sent);
    sc_put_heartbeat_held(heartbeat, (uint32_t)(e->now - peer->rtt.came));
    sc_put_heartbeat_echoes(heartbeat, (uint16_t)(peer->rank + 1));
}

void sc_rtt_heard(const sc_engine *e, sc_peer *peer, const uint8_t *heartbeat, int64_t now) {
    sc_peer_rtt *rtt = &peer->rtt;
    rtt->sent = sc_get_heartbeat_sent(heartbeat);
    rtt->came = now;
    if (sc_get_heartbeat_echoes(heartbeat) != e->view.rank + 1) return;
    uint64_t echo = sc_get_heartbeat_echo(heartbeat), since = (uint64_t)now - echo;
    uint64_t took = since - sc_get_heartbeat_held(heartbeat);
    if (echo > (uint64_t)now || took == 0 || took > LONGEST) return;
    rtt->smooth = rtt->smooth ? rtt->smooth + ((int64_t)took - rtt->smooth) / SMOOTHING : (int64_t)took;
    if (!rtt->least || (int64_t)took < rtt->least) rtt->least = (int64_t)took;
}
