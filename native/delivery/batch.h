#pragma once

#include "engine/engine.h"

int sc_deliver(sc_engine *e, sc_batch *batch, uint64_t bytes_max, uint64_t *marker, int keeps, int64_t now);
