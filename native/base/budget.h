#pragma once

#include <stdint.h>

/* An allowance that refills at a rate per second, up to a bound. A new one is full. */
typedef struct {
    int64_t left; /* may be a debt */
    int64_t refilled;
} sc_budget;

#define SC_BUDGET_NS 2000000000 /* a longer pause gives no more */

static inline void sc_budget_refill(sc_budget *budget, int64_t per_s, int64_t most, int64_t now) {
    int64_t elapsed = now - budget->refilled;
    if (!budget->refilled || elapsed > SC_BUDGET_NS) elapsed = SC_BUDGET_NS;
    int64_t gain = (int64_t)((double)elapsed * (double)per_s / 1e9);
    if (gain > 0) { /* else calls that follow each other fast would never refill it */
        budget->left += gain;
        budget->refilled = now > 0 ? now : 1;
    }
    if (budget->left > most) budget->left = most;
}

/* 0: it does not suffice. */
static inline int sc_budget_spend(sc_budget *budget, int64_t cost, int64_t per_s, int64_t most, int64_t now) {
    sc_budget_refill(budget, per_s, most, now);
    if (budget->left < cost) return 0;
    budget->left -= cost;
    return 1;
}
