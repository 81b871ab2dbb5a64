/* Counters of the engine; src/seqcast/api/counters.py says what each counts. */
#pragma once

#include <stdint.h>

#define SC_COUNTERS(X)                                                                                                 \
    X(datagrams_received)                                                                                              \
    X(datagrams_sent)                                                                                                  \
    X(bytes_received)                                                                                                  \
    X(bytes_sent)                                                                                                      \
    X(packets_sent)                                                                                                    \
    X(packets_received)                                                                                                \
    X(packets_duplicate)                                                                                               \
    X(packets_retransmitted)                                                                                           \
    X(sent_in_pieces)                                                                                                  \
    X(pieces_dropped)                                                                                                  \
    X(sizes_asked)                                                                                                     \
    X(packets_delivered)                                                                                               \
    X(packets_skipped)                                                                                                 \
    X(messages_sent)                                                                                                   \
    X(messages_delivered)                                                                                              \
    X(messages_skipped)                                                                                                \
    X(state_bytes_sent)                                                                                                \
    X(state_bytes_read)                                                                                                \
    X(naks_sent)                                                                                                       \
    X(naks_received)                                                                                                   \
    X(acks_sent)                                                                                                       \
    X(acks_received)                                                                                                   \
    X(probes_sent)                                                                                                     \
    X(heartbeats_sent)                                                                                                 \
    X(pings_sent)                                                                                                      \
    X(doubts)                                                                                                          \
    X(vouched)                                                                                                         \
    X(ports_refused)                                                                                                   \
    X(suspicions)                                                                                                      \
    X(late)                                                                                                            \
    X(unheard_by_others)                                                                                               \
    X(stamped)                                                                                                         \
    X(policy_batches)                                                                                                  \
    X(policy_late)                                                                                                     \
    X(policy_failed)                                                                                                   \
    X(records)                                                                                                         \
    X(wants_sent)                                                                                                      \
    X(places_void)                                                                                                     \
    X(asks_sent)                                                                                                       \
    X(taken_sent)                                                                                                      \
    X(blocked_queued)                                                                                                  \
    X(blocked_queued_bytes)                                                                                            \
    X(blocked_queue_full)                                                                                              \
    X(blocked_queue_lost)                                                                                              \
    X(congestion_stalls)                                                                                               \
    X(congestion_events)                                                                                               \
    X(sends_paced)                                                                                                     \
    X(credit_stalls)                                                                                                   \
    X(lent_stalls)                                                                                                     \
    X(own_closed_stalls)                                                                                               \
    X(batch_copies)                                                                                                    \
    X(drop_short)                                                                                                      \
    X(drop_magic)                                                                                                      \
    X(drop_version)                                                                                                    \
    X(drop_group)                                                                                                      \
    X(drop_key)                                                                                                        \
    X(drop_replay)                                                                                                     \
    X(drop_crc)                                                                                                        \
    X(drop_field)                                                                                                      \
    X(drop_own)                                                                                                        \
    X(drop_address)                                                                                                    \
    X(drop_rate)                                                                                                       \
    X(drop_repeated)                                                                                                   \
    X(drop_share)                                                                                                      \
    X(drop_stranger)                                                                                                   \
    X(opened_other)                                                                                                    \
    X(drop_view)                                                                                                       \
    X(drop_frozen)                                                                                                     \
    X(drop_window)                                                                                                     \
    X(drop_slabs)                                                                                                      \
    X(drop_control_full)                                                                                               \
    X(drop_partial_message)                                                                                            \
    X(drop_message_too_large)                                                                                          \
    X(gaps_full)                                                                                                       \
    X(retransmit_held)                                                                                                 \
    X(retransmit_limited)                                                                                              \
    X(retransmit_missing)                                                                                              \
    X(slabs_in_use)                                                                                                    \
    X(slabs_exhausted)                                                                                                 \
    X(own_closed_bytes)                                                                                                \
    X(congestion_bytes)                                                                                                \
    X(window_bytes)

typedef struct {
#define X(name) uint64_t name;
    SC_COUNTERS(X)
#undef X
} sc_counters;
