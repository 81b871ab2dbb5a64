/* The settings of sockets and driver in the C programs of the tests: tsan, cross, interleave. */
#pragma once

#include "io/driver.h"
#include "settings.h"

/* On loopback. `group`: the last byte of the multicast address. */
static inline sc_io_config test_sockets(uint64_t member, uint8_t group, uint16_t port) {
    return (sc_io_config){
        .family = 4,
        .wanted_interface = "127.0.0.1",
        .group = {239, 255, 77, group},
        .port = port,
        .rcvbuf = 1 << 20,
        .sndbuf = 1 << 20,
        .send_batch = 32,
        .receive_batch = 32,
        .gso = 1,
        .gro = 1,
        .mmsg = 1,
        .member = member,
    };
}

static inline sc_drive_config test_drive(void) {
    return (sc_drive_config){
        .flush_bytes = 16384,
        .flush_ns_min = 20000,
        .flush_ns_max = 200000,
        .tick_ns = 1000000,
        .nap_ns = 200000,
        .look_ns = 5000000,
    };
}
