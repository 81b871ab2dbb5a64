/* All orders: X(wire number, table). A build may add its own through SC_ORDERS_MORE. */
#pragma once

enum {
    SC_ORDER_FIFO = 0,
    SC_ORDER_SEQUENCER = 1,
    SC_ORDER_RECORDS = 2,
    SC_ORDER_TOTAL1999 = 5,
    SC_ORDER_GRANT = 6,
    SC_ORDER_CAUSAL = 7
};

#ifndef SC_ORDERS_MORE
#define SC_ORDERS_MORE(X)
#endif

#define SC_ORDERS(X)                                                                                                   \
    X(SC_ORDER_FIFO, sc_order_fifo)                                                                                    \
    X(SC_ORDER_SEQUENCER, sc_order_sequencer)                                                                          \
    X(SC_ORDER_RECORDS, sc_order_records)                                                                              \
    X(SC_ORDER_TOTAL1999, sc_order_total1999)                                                                          \
    X(SC_ORDER_GRANT, sc_order_grant)                                                                                  \
    X(SC_ORDER_CAUSAL, sc_order_causal)                                                                                \
    SC_ORDERS_MORE(X)
