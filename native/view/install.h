#pragma once

#include "engine/engine.h"

/* A view begins, or is left. */

int sc_view_install(sc_engine *e, const sc_view *view, const uint64_t *cut, uint64_t marker, int64_t now);
void sc_view_leave(sc_engine *e);
