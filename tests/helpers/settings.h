/* The settings of the engine in the C programs of the tests: fuzz, tsan, cross, interleave. */
#pragma once

#include "engine/engine.h"

/* Of a member with small buffers, so that its bounds are hit; of a large one for many messages on real sockets, where a
 * process that the machine leaves without a core for a while is not to be suspected. */
static inline sc_config test_config(uint64_t member, int large) {
    return (sc_config){
        .member = member,
        .group = 7,
        .deliver_own = 1,
        .receive = 1,
        .slabs_max = large ? 256 : 64,
        .ring_bytes = large ? 1 << 20 : 1 << 17,
        .unicast_bytes = large ? 1 << 18 : 1 << 16,
        .ring_packets = large ? 1024 : 256,
        .message_bytes_max = large ? 1 << 20 : 1 << 17,
        .control_bytes_max = large ? 1 << 20 : 1 << 16,
        .nak_delay_ns = 200000,
        .nak_backoff_ns_min = 2000000,
        .nak_backoff_ns_max = 200000000,
        .retransmit_hold_ns = 500000,
        .retransmit_bytes_per_s = 500000000,
        .ack_delay_ns = 2000000,
        .probe_ns_min = 4000000,
        .probe_ns_max = 100000000,
        .heartbeat_ns = 50000000,
        .suspect_ns = large ? 4000000000 : 400000000,
        .suspect_ns_max = large ? 8000000000 : 1600000000,
        .install_ns = 1000000000,
        .slow_ns = 2000000000,
        .seed = 1,
    };
}
