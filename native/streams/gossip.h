#pragma once

#include "engine/engine.h"

/* Reliability by gossip. What is said to whom, and what is asked for, the core decides (src/seqcast/core/gossip/); here is
 * what that means for the group streams. Gaps, service of NAKs, credit and stability are those of the other kind: a gap is
 * requested when a gossip names a holder, and what others have is learned from their digests instead of from ACKs. */

void sc_gossip_vote(sc_engine *e, uint32_t rank, const sc_marks *marks, int64_t now);
