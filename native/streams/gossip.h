#pragma once

#include "engine/engine.h"

/* Reliability by gossip. The core decides on gossips, their targets and requests (src/seqcast/core/gossip/); this file
 * applies the decisions to the group streams. Gaps, NAK service, credit and stability work as without gossip, except
 * that a gap is requested when a gossip names a holder, and digests of others take the place of their ACKs. */

void sc_gossip_vote(sc_engine *e, uint32_t rank, const sc_marks *marks, int64_t now);
