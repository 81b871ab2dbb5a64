/* The engine's reports to the control plane: received frames, and its own findings. */
#include "engine/internal.h"

static const char *const NOTED[] = {[SC_EVENT_SUSPECT] = "suspected",
                                    [SC_EVENT_ALIVE] = "heard again",
                                    [SC_EVENT_STARVED] = "no slabs left",
                                    [SC_EVENT_SLOW] = "holds up all",
                                    [SC_EVENT_HOLDUP] = "senders begin or cease to wait",
                                    [SC_EVENT_LINKS] = "links changed",
                                    [SC_EVENT_CUT_REACHED] = "cut reached",
                                    [SC_EVENT_DRAINED] = "all is sent",
                                    [SC_EVENT_WAY] = "another way to",
                                    [SC_EVENT_LOST] = "packets do not reach"};

/* On the board, even if no Python runs that would read the event. */
static void note(sc_engine *e, int kind, uint64_t member) {
    size_t kinds = sizeof NOTED / sizeof *NOTED;
    const char *text = (size_t)kind < kinds ? NOTED[kind] : NULL;
    if (text && e->posts.board) sc_board_note(e->posts.board, e->posts.events, e->now, member, text, strlen(text));
}

/* The bound applies to frames of others; the engine's own reports are few, and are made once. Strangers get at most
 * half. */
static sc_event *push(sc_engine *e, int kind, int strange, uint64_t sender, uint64_t view_tag, const sc_address *from,
                      const uint8_t *p, size_t len) {
    sc_event_node *node = NULL;
    uint64_t most = e->config.control_bytes_max, cost = len + sizeof *node;
    int fits = e->events.bytes + cost <= most && !(strange && e->events.stranger_bytes + cost > most / 2);
    if (kind != SC_EVENT_CONTROL || fits) node = calloc(1, sizeof *node);
    if (node && len && !(node->event.payload = malloc(len))) {
        free(node);
        node = NULL;
    }
    if (!node) {
        e->counters->drop_control_full++;
        return NULL;
    }
    note(e, kind, sender);
    node->event.kind = kind;
    node->event.sender = sender;
    node->event.view_tag = view_tag;
    if (from) node->event.from = *from;
    if (len) memcpy(node->event.payload, p, len);
    node->event.len = len;
    *e->events.last = node;
    e->events.last = &node->next;
    node->strange = strange;
    e->events.bytes += cost;
    if (strange) e->events.stranger_bytes += cost;
    return &node->event;
}

sc_event *sc_push_event(sc_engine *e, int kind, uint64_t sender, uint64_t view_tag, const sc_address *from,
                        const uint8_t *p, size_t len) {
    return push(e, kind, 0, sender, view_tag, from, p, len);
}

sc_event *sc_push_frame(sc_engine *e, int strange, const uint8_t *p, size_t len, const sc_address *from) {
    return push(e, SC_EVENT_CONTROL, strange, sc_get_sender(p), sc_get_view_tag(p), from, p + SC_COMMON_HEADER,
                len - SC_COMMON_HEADER);
}

int sc_engine_event(sc_engine *e, sc_event *out) {
    sc_event_node *node = e->events.first;
    if (!node) return 0;
    *out = node->event;
    e->events.first = node->next;
    if (!e->events.first) e->events.last = &e->events.first;
    e->events.bytes -= node->event.len + sizeof *node;
    if (node->strange) e->events.stranger_bytes -= node->event.len + sizeof *node;
    free(node);
    return 1;
}

int sc_engine_has_event(const sc_engine *e) { return e->events.first != NULL; }

void sc_events_init(sc_engine *e) { e->events.last = &e->events.first; }

void sc_events_free(sc_engine *e) {
    for (sc_event event; sc_engine_event(e, &event);) free(event.payload);
}
