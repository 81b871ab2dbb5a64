/* Failure detection: heartbeats, doubt, verification, suspicion, local health. All without the control plane, so a
 * member whose Python is busy still pings, answers and relays. H is heartbeat_ns.
 *
 *   silent for 1.5 H      doubt: a PING by unicast, again after H/2, later every H; from the second ping on, three
 *                         others are asked to ping the member too, and their PONG vouches for it
 *   port is refused       killed: suspected once silent for 2 H if nobody has vouched for the member for 1 H (a
 *                         firewall that rejects us, or an expired address translation, can refuse for a live member)
 *   silent for S          S is suspect_ns times 1 + local health: suspected, unless others vouch for the member
 *   no multicast for S    the link from the member to us is cut, in part or entirely, and our next heartbeat says so: a
 *                         unicast answer shows life, but not that the link that the group depends on works
 *   no unicast for S      from a member that owes us an acknowledgement, or while a link without unicasts is suspected
 *                         or known; or for 4 S from any other, which may have nothing to send: each heartbeat comes
 *                         with a ping, until a PONG. The ping also counts at the other end, so that an idle pair costs
 *                         two datagrams in 4 S
 *   none for 2 S more     while multicasts of the member come: unicasts in one direction are lost, and our next
 *                         heartbeat says so: acknowledgements, requests and answers do not come through
 *
 * Any datagram directly from the member ends the first three; reports of others end only the suspicion. A multicast
 * from the member ends the fourth, a unicast the last two. Members that do not hear each other's multicasts also
 * exchange heartbeats by unicast, so that all members learn of the same cut links.
 *
 * Local health (after Lifeguard, arXiv:1707.00788): a member that finds its own heartbeat late by more than H, or reads
 * in another's that its own are not heard, has reason to doubt its own judgement: S grows by suspect_ns up to
 * suspect_ns_max, and shrinks by as much after each 8 suspect_ns without such a sign. */
#include "engine/internal.h"

#define RELAYS 3 /* asked at a time to ping for us */
#define PINGS_MIN 2 /* unanswered, before a member is suspected */
#define PINGS_QUICK 4
#define RECOVERY 8
#define QUIET 4 /* suspicion times in which a member may have no unicast for us */
#define BOTH 2 /* heartbeats for which a member that hears multicasts again gets both */
#define BACK_NS_MIN ((int64_t)10 * 1000000000) /* between two returns of one member to multicast; */
#define BACK_NS_MAX ((int64_t)600 * 1000000000) /* doubling, until one has lasted for this long */
#define APART 20 /* heartbeats of another view until its coordinator should have met ours */
#define SILENT 5 /* heartbeats of one that is heard by unicast, and whose multicasts do not come */
#define QUICK 3 /* the same for a new member */
#define ASKED 2 /* suspicion times in which unicasts are requested: by about 16 pings, so that one comes through */

static int has_bit(const uint8_t *bits, uint32_t rank) { return bits[rank / 8] >> rank % 8 & 1; }

static int hears_not(const sc_peer *peer, uint32_t rank) { return has_bit(peer->detect.unheard, rank); }

static int64_t doubt_after(const sc_engine *e) { return e->config.heartbeat_ns + e->config.heartbeat_ns / 2; }

static int64_t suspect_after(const sc_engine *e) { return e->config.suspect_ns * (1 + e->detect.health); }

static void health_worse(sc_engine *e, int64_t now) {
    if (suspect_after(e) < e->config.suspect_ns_max) e->detect.health++;
    e->detect.health_due = now + RECOVERY * e->config.suspect_ns;
}

static void links_changed(sc_engine *e) {
    if (e->detect.links_told) return;
    e->detect.links_told = 1;
    sc_push_event(e, SC_EVENT_LINKS, 0, e->view.tag, NULL, NULL, 0);
}

/* ---- signs of life ------------------------------------------------------------------------------------------- */

static void unsuspect(sc_engine *e, sc_peer *peer) {
    if (!peer->detect.suspected) return;
    peer->detect.suspected = 0;
    sc_push_event(e, SC_EVENT_ALIVE, peer->id, e->view.tag, NULL, NULL, 0);
}

/* A sign of life directly from a member; `multicast`: this also shows that the member's multicasts arrive. */
void sc_detect_heard(sc_engine *e, sc_peer *peer, int64_t now, int multicast) {
    peer->detect.heard = now;
    if (multicast) {
        peer->detect.overheard = now;
        if (peer->detect.silent) links_changed(e);
        peer->detect.silent = 0;
    }
    if (!peer->detect.doubted) return;
    peer->detect.doubted = 0;
    peer->detect.refused = 0;
    if (peer->detect.silent) links_changed(e); /* links of a suspected member are not reported */
    unsuspect(e, peer);
}

/* A unicast directly from a member. */
void sc_detect_reached(sc_engine *e, sc_peer *peer, int64_t now) {
    peer->detect.reached = now;
    peer->detect.asked = 0;
    if (peer->detect.mute) links_changed(e);
    peer->detect.mute = 0;
}

void sc_engine_refused(sc_engine *e, const sc_address *to, int evidence, int64_t now) {
    for (uint32_t r = 0; e->in_view && r < e->view.n; r++) {
        sc_peer *peer = e->peers[r];
        if (r == e->view.rank || peer->detect.refused || !sc_same_address(to, &peer->address)) continue;
        e->counters->ports_refused++;
        if (!peer->detect.doubted) peer->detect.pings = 0;
        peer->detect.doubted = 1;
        peer->detect.refused = peer->detect.ping_due = now;
        peer->detect.refused_by = evidence;
    }
}

/* ---- pings --------------------------------------------------------------------------------------------------- */

static void say(sc_engine *e, uint8_t type, const sc_address *to, uint64_t target, uint64_t origin, int outside) {
    uint8_t *p = sc_out_new(e, to, type, SC_PING_LEN);
    if (!p) return;
    if (outside) sc_out_outside(e, p);
    sc_put_ping_target(p, target);
    sc_put_ping_origin(p, origin);
    e->counters->pings_sent += type == SC_TYPE_PING;
}

/* A joiner that has not entered the view does not have its secret. */
static void say_ping(sc_engine *e, const sc_peer *to, uint64_t target, uint64_t origin) {
    say(e, SC_TYPE_PING, &to->address, target, origin, !to->detect.present);
}

static void ping(sc_engine *e, sc_peer *peer, int64_t now) {
    say_ping(e, peer, peer->id, e->config.member);
    int asked = peer->detect.pings || peer->detect.refused ? 0 : RELAYS;
    for (uint32_t i = 0; i < e->view.n && asked < RELAYS; i++) { /* different members each time */
        const sc_peer *relay = e->peers[(peer->rank + i + peer->detect.pings) % e->view.n];
        if (relay == peer || relay->rank == e->view.rank || relay->detect.doubted) continue;
        say_ping(e, relay, peer->id, e->config.member);
        asked++;
    }
    peer->detect.ping_due =
        now + (peer->detect.pings++ < PINGS_QUICK ? e->config.heartbeat_ns / 2 + 1 : e->config.heartbeat_ns);
}

/* `sender` is NULL for a stranger: a member that is in no view yet answers for itself, and does nothing else. */
void sc_on_ping(sc_engine *e, const sc_peer *sender, const uint8_t *p, const sc_address *from) {
    uint64_t target = sc_get_ping_target(p), origin = sc_get_ping_origin(p);
    if (target == e->config.member) {
        if (!e->in_view && e->epoch) return; /* left for good, or excluded */
        say(e, SC_TYPE_PONG, from, target, origin, 0);
        return;
    }
    const sc_peer *peer = sc_find_peer(e, target);
    if (!sender || !peer || sender->id != origin) { /* only the origin itself may ask for a relay: no chains */
        e->counters->drop_stranger++;
        return;
    }
    say_ping(e, peer, target, origin);
}

void sc_on_pong(sc_engine *e, const sc_peer *sender, const uint8_t *p, int64_t now) {
    uint64_t target = sc_get_ping_target(p), origin = sc_get_ping_origin(p);
    sc_peer *peer = sc_find_peer(e, origin == e->config.member ? target : origin);
    if (!peer || peer == sender) return;
    if (origin != e->config.member) {
        if (target == sender->id) say(e, SC_TYPE_PONG, &peer->address, target, origin, 0);
        return;
    }
    e->counters->vouched++;
    peer->detect.vouched = now;
    peer->detect.refused = 0;
    if (peer->detect.silent) links_changed(e);
    unsuspect(e, peer);
}

/* Teaches the kernel of that machine our hardware address, in place of another one. */
void sc_engine_greet(sc_engine *e, uint64_t id, const sc_address *to) {
    say(e, SC_TYPE_PING, to, id, e->config.member, 1);
}

/* Another member heard this one a moment ago. A refused port outweighs that. */
void sc_engine_vouch(sc_engine *e, uint32_t rank, int64_t now) {
    if (!e->in_view || rank >= e->view.n || e->peers[rank]->detect.refused) return;
    e->peers[rank]->detect.vouched = now;
}

/* ---- ways ---------------------------------------------------------------------------------------------------- */

static void count_ways(sc_engine *e) {
    int bounded = sc_congestion_on(e);
    e->detect.ways++;
    e->detect.deaf = 0;
    for (uint32_t r = 0; r < e->view.n; r++)
        e->detect.deaf += r != e->view.rank && e->peers[r]->detect.way != SC_WAY_MULTICAST;
    if (sc_congestion_on(e) != bounded) sc_congestion_turned(e);
}

static void take_way(sc_engine *e, sc_peer *peer, int way, int64_t now) {
    sc_peer_detection *at = &peer->detect;
    at->way = way;
    at->way_since = now;
    count_ways(e);
    if (way == SC_WAY_BOTH) return;
    sc_event *event = sc_push_event(e, SC_EVENT_WAY, peer->id, e->view.tag, NULL, NULL, 0);
    if (event) event->evidence = way;
}

/* A switch that forgets and learns again who wants multicasts would make the way change for ever, so each return waits
 * longer. */
static void turn_from_multicast(sc_engine *e, sc_peer *peer, int64_t now) {
    sc_peer_detection *at = &peer->detect;
    int again = at->way_back && now - at->way_since < BACK_NS_MAX;
    int64_t longer = 2 * at->way_wait < BACK_NS_MAX ? 2 * at->way_wait : BACK_NS_MAX;
    at->way_wait = !again ? 0 : longer ? longer : BACK_NS_MIN;
    at->way_back = now + at->way_wait;
    take_way(e, peer, SC_WAY_UNICAST, now);
}

/* The way to a member, by its last heartbeat. */
static void judge_way(sc_engine *e, sc_peer *peer, int64_t now) {
    const sc_peer_detection *at = &peer->detect;
    if (hears_not(peer, e->view.rank)) {
        if (at->way != SC_WAY_UNICAST) turn_from_multicast(e, peer, now);
    } else if (at->way == SC_WAY_UNICAST && at->present && now >= at->way_back) {
        take_way(e, peer, SC_WAY_BOTH, now);
    } else if (at->way == SC_WAY_BOTH && now - at->way_since >= BOTH * e->config.heartbeat_ns) {
        take_way(e, peer, SC_WAY_MULTICAST, now);
    }
}

/* ---- heartbeats ---------------------------------------------------------------------------------------------- */

static int is_starved(const sc_engine *e, int64_t now) {
    return e->detect.starved && now - e->detect.starved < 2 * e->config.heartbeat_ns;
}

/* Grows with everything received in order, or taken. A view change moves this too, which counts once. */
static uint64_t progress(const sc_engine *e) {
    uint64_t sum = 0;
    for (uint32_t r = 0; r < e->view.n; r++) {
        if (r == e->view.rank) continue;
        for (int s = SC_STREAM_GROUP; s <= SC_STREAM_STATE; s++) {
            const sc_rx_stream *rx = sc_rx_of(e->peers[r], s);
            sum += rx->queued + rx->consumed;
        }
    }
    return sum;
}

/* `only`: the member whose address `to` is; NULL: for all, or for a stranger. */
static void say_heartbeat(sc_engine *e, const sc_address *to, const sc_peer *only) {
    uint8_t *p = sc_out_new(e, to, SC_TYPE_HEARTBEAT, SC_HEARTBEAT_LEN(e->view.n));
    if (!p) return;
    uint8_t unheard[SC_MEMBERS_MAX / 8] = {0}, mutes[SC_MEMBERS_MAX / 8] = {0};
    if (e->detect.stuck) sc_put_flags(p, sc_get_flags(p) | SC_FLAG_STARVED);
    if (e->loads) sc_put_flags(p, sc_get_flags(p) | SC_FLAG_LOADS);
    if (!e->config.receive) sc_put_flags(p, sc_get_flags(p) | SC_FLAG_ONLY_SENDS);
    sc_put_claim(p, e->credit.claim);
    sc_put_heartbeat_highest(p, e->group.unsent - 1);
    sc_put_heartbeat_stable(p, e->group.stable);
    sc_put_heartbeat_n(p, e->view.n);
    sc_put_heartbeat_awaits(p, (uint16_t)sc_holdup_says(e));
    sc_put_heartbeat_gives_up(p, (uint16_t)e->slow.gives_up);
    sc_put_heartbeat_path(p, (uint16_t)sc_size_says(e));
    sc_put_heartbeat_taken(p, e->queue.taken);
    sc_put_heartbeat_worked(p, sc_worked(e, e->now));
    for (uint32_t r = 0; r < e->view.n; r++) {
        const sc_rx_stream *rx = &e->peers[r]->group;
        int own = r == e->view.rank;
        sc_put_heartbeat_delivered(p, r, own ? e->group.unsent - 1 : rx->queued - 1);
        sc_put_heartbeat_received(p, r, own ? e->group.unsent - 1 : rx->highest);
        if (e->peers[r]->detect.silent) unheard[r / 8] |= (uint8_t)(1u << r % 8);
        if (e->peers[r]->detect.mute) mutes[r / 8] |= (uint8_t)(1u << r % 8);
    }
    sc_put_heartbeat_unheard(p, unheard);
    sc_put_heartbeat_mute(p, mutes);
    if (only || !to) sc_rtt_say(e, only, p);
    e->counters->heartbeats_sent++;
}

/* Does a link carry no unicast, as far as we know? Several such links may share one end, which is then excluded. */
static int is_worried(const sc_engine *e, int64_t now) {
    static const uint8_t none[SC_MEMBERS_MAX / 8];
    for (uint32_t r = 0; r < e->view.n; r++) {
        const sc_peer_detection *at = &e->peers[r]->detect;
        if ((at->asked && now - at->asked >= suspect_after(e)) || memcmp(at->mutes, none, sizeof none)) return 1;
    }
    return 0;
}

/* Has a member sent us no unicast for longer than a member may have none to send? */
static int is_quiet(const sc_engine *e, const sc_peer *peer, int worried, int64_t now) {
    return now - peer->detect.reached >= (worried || sc_owes_ack(e, peer) ? 1 : QUIET) * suspect_after(e);
}

static void heartbeat(sc_engine *e, int64_t now) {
    e->detect.heartbeat_due = now + e->config.heartbeat_ns;
    uint64_t before = e->detect.progress;
    e->detect.progress = progress(e);
    e->detect.stuck = is_starved(e, now) && e->detect.progress == before;
    sc_holdup_look(e, now);
    sc_slow_look(e, now);
    sc_size_look(e, now);
    say_heartbeat(e, NULL, NULL);
    int worried = is_worried(e, now);
    for (uint32_t r = 0; r < e->view.n; r++) {
        sc_peer *peer = e->peers[r];
        if (r == e->view.rank || peer->detect.suspected || peer->cut.lost) continue;
        if (e->config.mixed) judge_way(e, peer, now);
        int copied = peer->detect.way != SC_WAY_MULTICAST; /* like everything that is for the group */
        if (!copied && (peer->detect.silent || hears_not(peer, e->view.rank))) say_heartbeat(e, &peer->address, peer);
        if (!peer->detect.asked && is_quiet(e, peer, worried, now)) peer->detect.asked = now;
        if (peer->detect.asked) say_ping(e, peer, peer->id, e->config.member);
    }
}

/* Something was dropped here for lack of slabs. */
void sc_detect_starved(sc_engine *e, int64_t now) {
    if (!e->detect.starved || now - e->detect.starved >= e->config.suspect_ns)
        sc_push_event(e, SC_EVENT_STARVED, 0, e->view.tag, NULL, NULL, 0);
    e->detect.starved = now > 0 ? now : 1;
}

/* A member that has no slabs left and makes no progress is deaf, and all others wait. If that lasts, the member
 * is reported to the core as slow, except by a member that has no slabs itself. A short shortage only delays: dropped
 * packets are requested again. */
static void judge_starved(sc_engine *e, sc_peer *peer, int starved, int64_t now) {
    if (!starved)
        peer->detect.starved = 0;
    else if (!peer->detect.starved)
        peer->detect.starved = now > 0 ? now : 1;
    else if (!peer->detect.slow && now - peer->detect.starved >= e->config.suspect_ns_max && !is_starved(e, now)) {
        peer->detect.slow = 1;
        sc_push_event(e, SC_EVENT_SLOW, peer->id, e->view.tag, NULL, NULL, 0);
    }
}

void sc_engine_beat(sc_engine *e, int64_t now) {
    if (e->in_view && e->detect.heartbeat_due != SC_NEVER && e->detect.heartbeat_due > now) heartbeat(e, now);
}

void sc_engine_show(sc_engine *e, const sc_address *to) {
    if (e->in_view) say_heartbeat(e, to, NULL);
}

/* The place of this sender of heartbeats of other views, or the one that was heard longest ago. */
static sc_beat *place_of(sc_engine *e, const sc_address *from) {
    sc_beat *place = &e->detect.beats[0];
    for (uint32_t i = 0; i < SC_MEMBERS_MAX; i++) {
        sc_beat *beat = &e->detect.beats[i];
        if (beat->heard && sc_same_address(&beat->address, from)) return beat;
        if (beat->heard < place->heard) place = beat;
    }
    return place;
}

/* Heartbeats of another view show its number of members: its beacons only claim one. */
void sc_detect_stranger(sc_engine *e, uint64_t tag, const sc_address *from, int64_t now) {
    sc_beat *place = place_of(e, from), known = *place;
    int before = known.heard && sc_same_address(&known.address, from), same = before && known.tag == tag;
    *place = (sc_beat){.address = *from, .tag = tag, .heard = now > 0 ? now : 1};
    place->wait = same ? known.wait : APART * e->config.heartbeat_ns;
    place->due = now + place->wait;
    /* Its view may end sooner than that, and so may the next one: the sender has been elsewhere all the time. */
    if (same || (before && now - known.heard <= e->config.suspect_ns && known.due < place->due)) place->due = known.due;
    if (e->config.mixed && now >= place->due) {
        place->wait = 2 * place->wait < BACK_NS_MAX ? 2 * place->wait : BACK_NS_MAX;
        place->due = now + place->wait;
        sc_push_event(e, SC_EVENT_STRANGER, 0, tag, from, NULL, 0);
    }
}

size_t sc_engine_strangers(const sc_engine *e, uint64_t tag) {
    size_t n = 0;
    for (uint32_t i = 0; i < SC_MEMBERS_MAX; i++)
        n += e->detect.beats[i].heard && e->detect.beats[i].tag == tag &&
             e->now - e->detect.beats[i].heard <= e->config.suspect_ns;
    return n;
}

/* Reads whose multicasts, and whose unicasts, the sender of a heartbeat does not hear. */
static void heard_links(sc_engine *e, sc_peer *peer, const uint8_t *p, int64_t now) {
    sc_peer_detection *at = &peer->detect;
    int unheard = hears_not(peer, e->view.rank);
    if (memcmp(at->unheard, sc_get_heartbeat_unheard(p), sizeof at->unheard) == 0 &&
        memcmp(at->mutes, sc_get_heartbeat_mute(p), sizeof at->mutes) == 0)
        return;
    memcpy(at->unheard, sc_get_heartbeat_unheard(p), sizeof at->unheard);
    memcpy(at->mutes, sc_get_heartbeat_mute(p), sizeof at->mutes);
    links_changed(e);
    if (hears_not(peer, e->view.rank) && !unheard) {
        e->counters->unheard_by_others++;
        if (!e->config.mixed) health_worse(e, now); /* else the network is as likely to be the reason */
    }
    if (e->config.mixed) judge_way(e, peer, now);
}

void sc_on_heartbeat(sc_engine *e, sc_peer *peer, const uint8_t *p, int64_t now) {
    if (sc_get_heartbeat_n(p) != e->view.n) {
        e->counters->drop_field++;
        return;
    }
    for (uint32_t r = 0; r < e->view.n; r++) {
        peer->digest[r].delivered = sc_get_heartbeat_delivered(p, r);
        peer->digest[r].received = sc_get_heartbeat_received(p, r);
    }
    sc_rtt_heard(e, peer, p, now);
    judge_starved(e, peer, sc_get_flags(p) & SC_FLAG_STARVED, now);
    sc_holdup_heard(e, peer, sc_get_heartbeat_awaits(p), now);
    sc_size_heard(peer, sc_get_heartbeat_path(p));
    sc_slow_heard(e, peer, sc_get_heartbeat_gives_up(p), sc_get_flags(p));
    sc_slow_took(e, peer, (sc_work){sc_get_heartbeat_taken(p), sc_get_heartbeat_worked(p)}, now);
    heard_links(e, peer, p, now);
    sc_size_entered(e, peer, now); /* at the cut, too, which waits for packets on unknown paths */
    if (e->cut.set || peer->cut.lost) return;
    if (!peer->detect.present) sc_probe_entered(e, peer);
    peer->detect.present = 1;
    peer->detect.beat = now;
    sc_credit_claim(&peer->group, sc_get_claim(p));
    sc_rx_stable(e, &peer->group, sc_get_heartbeat_stable(p));
    sc_rx_known(e, &peer->group, sc_get_heartbeat_highest(p), now + e->config.nak_delay_ns);
    /* The maximum that any member received reveals a last message whose sender is gone (E-13). */
    for (uint32_t r = 0; r < e->view.n; r++)
        if (r != e->view.rank && r != peer->rank && !e->peers[r]->cut.lost)
            sc_rx_known(e, &e->peers[r]->group, peer->digest[r].received, now + e->config.nak_backoff_ns_min);
}

/* ---- time ---------------------------------------------------------------------------------------------------- */

/* This member did not run for `late`: it has no evidence against others for that time. By now it has read the datagrams
 * that arrived meanwhile. */
static void was_late(sc_engine *e, int64_t late, int64_t now) {
    e->counters->late++;
    health_worse(e, now);
    for (uint32_t r = 0; r < e->view.n; r++) {
        sc_peer *peer = e->peers[r];
        if (r == e->view.rank || peer->detect.suspected) continue;
        int64_t *times[] = {&peer->detect.heard, &peer->detect.overheard, &peer->detect.reached, &peer->detect.asked,
                            &peer->detect.refused};
        for (size_t i = 0; i < sizeof times / sizeof *times; i++)
            if (*times[i]) *times[i] = *times[i] + late < now ? *times[i] + late : now;
    }
}

static void judge(sc_engine *e, sc_peer *peer, int64_t now) {
    int64_t silence = now - peer->detect.heard, limit = suspect_after(e);
    int64_t last = peer->detect.vouched > peer->detect.heard ? peer->detect.vouched : peer->detect.heard;
    if (peer->detect.pings < PINGS_MIN) return;
    int refused = peer->detect.refused && now - peer->detect.refused >= e->config.heartbeat_ns &&
                  silence >= 2 * e->config.heartbeat_ns;
    if (peer->detect.suspected || (now - last < limit && !refused)) return;
    peer->detect.suspected = 1;
    if (peer->detect.silent) links_changed(e);
    e->counters->suspicions++;
    sc_event *event = sc_push_event(e, SC_EVENT_SUSPECT, peer->id, e->view.tag, NULL, NULL, 0);
    if (event) event->evidence = refused ? peer->detect.refused_by : SC_EVIDENCE_SILENCE;
}

/* A member that has gone on to another view without us is heard there, and answers nobody of this one. */
static int is_mute(const sc_engine *e, const sc_peer *peer, int64_t now) {
    const sc_peer_detection *at = &peer->detect;
    int here = at->present && now - at->beat < suspect_after(e);
    return !at->mute && !at->silent && !at->doubted && here && at->asked && now - at->asked >= ASKED * suspect_after(e);
}

/* If unicasts take the place of multicasts: does neither come from this member, which others may hear? */
static int is_cut_off(const sc_engine *e, const sc_peer *peer, int64_t now) {
    return e->config.mixed && peer->detect.silent && !peer->detect.mute && now - peer->detect.heard >= suspect_after(e);
}

/* A member whose unicasts come, but no multicasts, is alive: copies may take their place soon. */
static int64_t silent_after(const sc_engine *e, const sc_peer *peer) {
    int64_t soon = SILENT * e->config.heartbeat_ns, limit = suspect_after(e);
    return e->config.mixed && peer->detect.reached > peer->detect.overheard && soon < limit ? soon : limit;
}

static void look_at_link(sc_engine *e, sc_peer *peer, int64_t now) {
    if (!peer->detect.silent && now - peer->detect.overheard >= silent_after(e, peer)) {
        peer->detect.silent = 1;
        links_changed(e);
    }
    if (is_mute(e, peer, now) || is_cut_off(e, peer, now)) {
        peer->detect.mute = 1;
        links_changed(e);
    }
}

void sc_detect_tick(sc_engine *e, int64_t now) {
    if (sc_credit_tells(e, now)) say_heartbeat(e, NULL, NULL); /* reports stability */
    if (e->detect.heartbeat_due <= now) {
        int64_t late = now - e->detect.heartbeat_due;
        if (late > e->config.heartbeat_ns) was_late(e, late, now);
        heartbeat(e, now);
    }
    if (e->detect.health && now >= e->detect.health_due) {
        e->detect.health--;
        e->detect.health_due = now + RECOVERY * e->config.suspect_ns;
    }
    for (uint32_t r = 0; r < e->view.n; r++) {
        sc_peer *peer = e->peers[r];
        if (r == e->view.rank) continue;
        look_at_link(e, peer, now);
        if (!peer->detect.doubted && now - peer->detect.heard >= doubt_after(e)) {
            e->counters->doubts++;
            peer->detect.doubted = 1;
            peer->detect.pings = 0;
            peer->detect.ping_due = now;
        }
        if (!peer->detect.doubted || peer->detect.ping_due > now) continue;
        judge(e, peer, now);
        ping(e, peer, now);
    }
}

int64_t sc_detect_deadline(const sc_engine *e) {
    int64_t due = e->detect.heartbeat_due;
    for (uint32_t r = 0; r < e->view.n; r++) {
        const sc_peer *peer = e->peers[r];
        int64_t own = peer->detect.doubted ? peer->detect.ping_due : peer->detect.heard + doubt_after(e);
        int64_t unheard = peer->detect.silent ? SC_NEVER : peer->detect.overheard + silent_after(e, peer);
        if (unheard < own) own = unheard;
        if (r != e->view.rank && own < due) due = own;
    }
    return due;
}

/* ---- queries of the core ------------------------------------------------------------------------------------- */

size_t sc_engine_doubted(const sc_engine *e, uint64_t *ids) {
    size_t n = 0;
    for (uint32_t r = 0; e->in_view && r < e->view.n; r++) {
        const sc_peer *peer = e->peers[r];
        if (r == e->view.rank || !peer->detect.doubted || peer->detect.suspected) continue;
        if (peer->detect.vouched <= peer->detect.heard || e->now - peer->detect.vouched > 2 * e->config.heartbeat_ns)
            ids[n++] = peer->id;
    }
    return n;
}

/* Is the link from one to the other cut: for unicasts alone, or for multicasts and all that takes their place? */
static int is_cut(const sc_engine *e, const sc_peer *listener, const sc_peer *speaker, int unicast) {
    int own = listener->rank == e->view.rank;
    int unheard = own ? speaker->detect.silent : hears_not(listener, speaker->rank);
    int mute = own ? speaker->detect.mute : has_bit(listener->detect.mutes, speaker->rank);
    return unicast ? mute && !unheard : unheard && (mute || !e->config.mixed);
}

size_t sc_engine_links(sc_engine *e, int unicast, uint64_t *pairs, size_t max) {
    size_t n = 0;
    e->detect.links_told = 0;
    for (uint32_t r = 0; e->in_view && r < e->view.n; r++) {
        const sc_peer *listener = e->peers[r];
        if (listener->detect.suspected || listener->cut.lost) continue;
        for (uint32_t s = 0; s < e->view.n && n < max; s++) {
            const sc_peer *speaker = e->peers[s];
            if (speaker->detect.suspected || r == s || !is_cut(e, listener, speaker, unicast)) continue;
            pairs[2 * n] = listener->id;
            pairs[2 * n++ + 1] = speaker->id;
        }
    }
    return n;
}

/* ---- views --------------------------------------------------------------------------------------------------- */

void sc_detect_begin(sc_engine *e, int64_t now) {
    e->detect.heartbeat_due = now;
    count_ways(e);
}
void sc_detect_stop(sc_engine *e) { e->detect.heartbeat_due = SC_NEVER; }

void sc_detect_peer_begin(const sc_engine *e, sc_peer *peer, int64_t now) {
    sc_peer_detection before = peer->detect;
    memset(peer->digest, 0, sizeof peer->digest);
    peer->detect = (sc_peer_detection){.heard = now, .overheard = now};
    if (e->config.mixed) { /* the ways between us are as they were: finding them again would take a while */
        peer->detect.silent = before.silent;
        if (before.silent) peer->detect.overheard = before.overheard;
        if (!before.heard) peer->detect.overheard -= (SILENT - QUICK) * e->config.heartbeat_ns;
        peer->detect.way = before.way;
        peer->detect.way_since = before.way_since;
        peer->detect.way_back = before.way_back;
        peer->detect.way_wait = before.way_wait;
    }
    peer->detect.reached = now - (QUIET - 1) * e->config.suspect_ns; /* a firewall shows soon */
}
