/* Outgoing datagrams without messages: acks, NAKs, probes, heartbeats, control frames. They have a bounded queue of their own
 * that no data window blocks. */
#include "engine/internal.h"

/* A new datagram in the queue, its common header filled; the caller fills the body. NULL when the bound is hit. */
uint8_t *sc_out_new(sc_engine *e, int lane, const sc_address *to, uint8_t type, size_t len) {
    sc_out *o = e->out.bytes + len > e->config.control_bytes_max ? NULL : malloc(sizeof *o + len);
    if (!o) {
        e->counters.drop_control_full++;
        return NULL;
    }
    o->next = NULL;
    o->lane = lane;
    memset(&o->to, 0, sizeof o->to);
    if (to) o->to = *to;
    o->len = (uint32_t)len;
    memset(o->p, 0, len);
    sc_wire_head(o->p, type, e->config.group, e->config.member, e->in_view ? e->view.tag : 0);
    *e->out.last = o;
    e->out.last = &o->next;
    e->out.bytes += len;
    return o->p;
}

int sc_engine_control_send(sc_engine *e, const sc_address *to, const uint8_t *p, size_t len, int standing) {
    if (len > SC_PACKET_MAX - SC_COMMON_HEADER) return -1;
    int lane = to && to->len ? SC_LANE_UNICAST : SC_LANE_CONTROL;
    uint8_t *out = sc_out_new(e, lane, to, SC_TYPE_CONTROL, SC_COMMON_HEADER + len);
    if (!out) return -1;
    if (standing) sc_put_flags(out, SC_FLAG_STANDING);
    if (len) memcpy(out + SC_COMMON_HEADER, p, len);
    return 0;
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
    for (sc_out *o; (o = sc_out_pop(e));) free(o);
}
