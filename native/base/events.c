/* What the engine tells the control plane: frames that came, and what it found out by itself. */
#include "engine/internal.h"

void sc_push_event(sc_engine *e, int kind, uint64_t sender, uint64_t view_tag, const sc_address *from, const uint8_t *p,
                   size_t len) {
    sc_event_node *node = NULL;
    /* The bound is for frames of others; what the engine itself has to say is little, and is said once. Strangers have no
     * more than half of it. */
    int strange = kind == SC_EVENT_CONTROL && !sc_find_peer(e, sender);
    uint64_t most = e->config.control_bytes_max, cost = len + sizeof *node;
    int fits = e->event_bytes + cost <= most && !(strange && e->stranger_bytes + cost > most / 2);
    if (kind != SC_EVENT_CONTROL || fits) node = calloc(1, sizeof *node);
    if (node && len && !(node->event.payload = malloc(len))) {
        free(node);
        node = NULL;
    }
    if (!node) {
        e->counters.drop_control_full++;
        return;
    }
    node->event.kind = kind;
    node->event.sender = sender;
    node->event.view_tag = view_tag;
    if (from) node->event.from = *from;
    if (len) memcpy(node->event.payload, p, len);
    node->event.len = len;
    *e->event_last = node;
    e->event_last = &node->next;
    node->strange = strange;
    e->event_bytes += cost;
    if (strange) e->stranger_bytes += cost;
}

int sc_engine_event(sc_engine *e, sc_event *out) {
    sc_event_node *node = e->event_first;
    if (!node) return 0;
    *out = node->event;
    e->event_first = node->next;
    if (!e->event_first) e->event_last = &e->event_first;
    e->event_bytes -= node->event.len + sizeof *node;
    if (node->strange) e->stranger_bytes -= node->event.len + sizeof *node;
    free(node);
    return 1;
}

int sc_engine_has_event(const sc_engine *e) { return e->event_first != NULL; }
