/* Flow control by the slowest receiver, for bench/aeron_bench.py: LD_PRELOAD brings this file into the driver of Aeron
 * 1.11, which finds the function by name. Later drivers have their own ("fc=min"); 1.11 has one in Java only. */
#include <stdlib.h>

#include "aeron_flow_control.h"
#include "concurrent/aeron_logbuffer_descriptor.h"
#include "protocol/aeron_udp_protocol.h"

#define RECEIVERS_MAX 64
#define TIMEOUT_NS 2000000000

/* A receiver's last report: up to which position of the stream there is room. */
typedef struct {
    int64_t id, edge, heard_ns;
} receiver;

typedef struct {
    receiver of[RECEIVERS_MAX];
    int n;
} receivers;

/* The new limit of the sender: the least of the edges. A limit never goes back. */
static int64_t limit_of(const receivers *r, int64_t limit) {
    int64_t edge = r->n ? r->of[0].edge : limit;
    for (int i = 1; i < r->n; i++)
        if (r->of[i].edge < edge) edge = r->of[i].edge;
    return edge > limit ? edge : limit;
}

static int64_t on_status(void *state, const uint8_t *message, size_t length, struct sockaddr_storage *from,
                         int64_t limit, int32_t initial_term_id, size_t shift, int64_t now_ns) {
    receivers *r = state;
    const aeron_status_message_header_t *header = (const aeron_status_message_header_t *)message;
    int64_t position = aeron_logbuffer_compute_position(header->consumption_term_id, header->consumption_term_offset,
                                                        shift, initial_term_id);
    int i = 0;
    (void)length, (void)from;
    while (i < r->n && r->of[i].id != header->receiver_id) i++;
    if (i == RECEIVERS_MAX) return limit;
    if (i == r->n) r->n++;
    r->of[i] = (receiver){header->receiver_id, position + header->receiver_window, now_ns};
    return limit_of(r, limit);
}

static int64_t on_idle(void *state, int64_t now_ns, int64_t limit, int64_t position, bool ends) {
    receivers *r = state;
    (void)position, (void)ends;
    for (int i = 0; i < r->n;)
        if (now_ns - r->of[i].heard_ns > TIMEOUT_NS)
            r->of[i] = r->of[--r->n];
        else
            i++;
    return limit_of(r, limit);
}

static bool should_linger(void *state, int64_t now_ns) {
    (void)state, (void)now_ns;
    return false;
}

static int finish(aeron_flow_control_strategy_t *strategy) {
    free(strategy->state);
    free(strategy);
    return 0;
}

int seqcast_bench_min_flow_control(aeron_flow_control_strategy_t **strategy, const char *channel, int32_t stream_id,
                                   int64_t registration_id, int32_t initial_term_id, size_t capacity) {
    aeron_flow_control_strategy_t *made = calloc(1, sizeof *made);
    receivers *state = calloc(1, sizeof *state);
    (void)channel, (void)stream_id, (void)registration_id, (void)initial_term_id, (void)capacity;
    if (!made || !state) return free(made), free(state), -1;
    *made = (aeron_flow_control_strategy_t){on_status, on_idle, should_linger, finish, state};
    *strategy = made;
    return 0;
}
