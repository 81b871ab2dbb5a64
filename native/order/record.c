/* Records of an order in the own group stream. */
#include "order/record.h"

#include "engine/internal.h"

uint8_t *sc_record_copy(sc_engine *e, sc_sharing *sharing, uint8_t *p, uint32_t len, sc_slab **slab) {
    sc_wire_head(p, SC_TYPE_RECORD, e->config.group, e->config.member, e->view.tag);
    sc_put_seqno(p, e->group.next);
    sc_put_origin_rank(p, (uint16_t)e->view.rank);
    return sc_slab_copy_own(e->pool, sharing, p, len, slab);
}

int sc_record_put(sc_engine *e, sc_sharing *sharing, uint8_t *p, uint32_t entries) {
    sc_rx_packet record = {.len = SC_RECORD_LEN(entries)};
    sc_put_data_len(p, record.len - SC_DATA_HEADER);
    sc_put_pieces(p, (uint16_t)entries);
    if (!(record.p = sc_record_copy(e, sharing, p, record.len, &record.slab))) return 0;
    sc_tx_insert(e, &e->group, &record, 0, 0, e->own.last);
    return 1;
}
