/* Outgoing datagrams without messages: acks, NAKs, probes, heartbeats, control frames. They have a bounded queue of
 * their own that no data window blocks. */
#include "engine/internal.h"

uint8_t *sc_out_new(sc_engine *e, const sc_address *to, uint8_t type, size_t len) {
    sc_out *o = e->out.bytes + len > e->config.control_bytes_max ? NULL : malloc(sizeof *o + len);
    if (!o) {
        e->counters->drop_control_full++;
        return NULL;
    }
    o->next = NULL;
    memset(&o->to, 0, sizeof o->to);
    if (to) o->to = *to;
    o->len = (uint32_t)len;
    memset(o->p, 0, len);
    sc_wire_head(o->p, type, e->config.group, e->config.member, e->in_view ? e->view.tag : 0);
    if (!o->to.len) sc_put_flags(o->p, SC_FLAG_GROUP);
    *e->out.last = o;
    e->out.last = &o->next;
    e->out.bytes += len;
    return o->p;
}

void sc_out_outside(const sc_engine *e, uint8_t *p) {
    if (e->seal) sc_put_key_id(p, SC_SEAL_OUTSIDE);
}

static int queue_frame(sc_engine *e, const sc_address *to, const uint8_t *p, size_t len, uint8_t flags, int outside) {
    if (len > SC_PACKET_MAX - SC_COMMON_HEADER) return -1;
    uint8_t *out = sc_out_new(e, to, SC_TYPE_CONTROL, SC_COMMON_HEADER + len);
    if (!out) return -1;
    sc_put_flags(out, sc_get_flags(out) | flags);
    if (outside) sc_out_outside(e, out);
    if (e->seal && outside == SC_FOR_ANYBODY) sc_put_key_id(out, SC_SEAL_ANYBODY);
    if (len) memcpy(out + SC_COMMON_HEADER, p, len);
    return 0;
}

int sc_engine_control_send(sc_engine *e, const sc_address *to, const uint8_t *p, size_t len, int outside) {
    return queue_frame(e, to, p, len, 0, outside);
}

int sc_engine_stand(sc_engine *e, const uint8_t *p, size_t len, int64_t every, uint32_t times, int64_t now) {
    sc_repeats *s = &e->repeats;
    sc_stand_end(e);
    if (!times) return 0;
    if (times > 1 && e->in_view) {
        s->frame = malloc(len + 1);
        if (!s->frame) return -1;
        if (len) memcpy(s->frame, p, len);
        s->len = len;
        s->every = every;
        s->due = now + every;
        s->left = times - 1;
    }
    return queue_frame(e, NULL, p, len, SC_FLAG_STANDING, 1);
}

int64_t sc_stand_deadline(const sc_engine *e) { return e->repeats.left ? e->repeats.due : SC_NEVER; }

void sc_stand_tick(sc_engine *e, int64_t now) {
    sc_repeats *s = &e->repeats;
    if (now < sc_stand_deadline(e)) return;
    s->left--;
    s->due = now + s->every;
    queue_frame(e, NULL, s->frame, s->len, SC_FLAG_STANDING, 1);
}

void sc_stand_end(sc_engine *e) {
    free(e->repeats.frame);
    e->repeats = (sc_repeats){0};
}

void sc_out_copy(sc_engine *e, const sc_out *o, const sc_address *to) {
    uint8_t *p = sc_out_new(e, to, sc_get_type(o->p), o->len);
    if (!p) return;
    memcpy(p, o->p, o->len);
    sc_put_flags(p, sc_get_flags(p) & (uint8_t)~SC_FLAG_GROUP);
}

/* Takes the first datagram, which the caller frees; NULL: there is none. */
sc_out *sc_out_pop(sc_engine *e) {
    sc_out *o = e->out.first;
    if (!o) return NULL;
    e->out.first = o->next;
    if (!e->out.first) e->out.last = &e->out.first;
    e->out.bytes -= o->len;
    return o;
}

void sc_out_init(sc_engine *e) { e->out.last = &e->out.first; }

void sc_out_free(sc_engine *e) {
    sc_stand_end(e);
    for (sc_out *o; (o = sc_out_pop(e));) free(o);
}
