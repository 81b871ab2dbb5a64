/* Naps, polls and yields. The constants were found by trial; docs/latency.md shows what polls gain and cost. */
#include "io/pace.h"

/* Load is measured in periods of a millisecond. More bytes or packets than these in one: a load, under which naps
 * pay. */
#define PERIOD_NS 1000000
#define LOAD_BYTES (256u << 10)
#define LOAD_PACKETS 32
#define FEW 4 /* packets of a conversation in a round, at most */
#define WORTH 2 /* a nap pays, too, if half of a load would gather */

/* A nap gathers at most this much, and never more than triggers an ack. */
#define GATHER_BYTES (768u << 10)
/* A thread that gets a core late may nap LATER times its delay, but at most LONGER times the setting. */
#define LATER 4
#define LONGER 8
#define LATENESSES 8 /* the average is over about this many */

/* A poll that finds something pays for two in vain, and many good ones for at most eight. If polls do not pay, every
 * 16th wait tries one. A sequencer gets messages whether it polls or not, so its polls must pay sooner and are tried
 * less often. */
#define POLL_PAYS 2
#define POLLS_MAX 8
#define POLL_TRIES 16
#define ORDERED_POLL_PAYS 1
#define ORDERED_POLL_TRIES 64

/* A thread that keeps the core for longer than KEPT_NS computes: no yields for a pause, which grows fourfold each time.
 * YIELD_FINDS looks that find something take two thirds off the pause. */
#define KEPT_NS 200000
#define YIELD_PAUSE_NS_MIN 1000000
#define YIELD_PAUSE_NS_MAX 500000000
#define YIELD_BACKS_OFF 4
#define YIELD_FINDS 256
/* A yield takes about as long as a look, and a message that comes meanwhile waits: yields between all looks make a hop
 * 5 % longer. If a yield takes less than ALONE_NS, no other thread wanted the core, and the next looks do without. */
#define ALONE_NS 1000
#define ALONE_LOOKS 15

static int64_t earlier(int64_t a, int64_t b) { return a < b ? a : b; }

/* Where more threads want to run than there are cores, a wake-up delays the others, and each message waits for a core
 * anyway. But a thread of this process that sends may wait for acks, and others wait for a sequencer. */
static int64_t longest_nap(const sc_pace *p, int awaited) {
    int64_t ns = earlier(LATER * p->late_ns, LONGER * p->nap_ns_max);
    return awaited || ns < p->nap_ns_max ? p->nap_ns_max : ns;
}

/* Many bytes; or many packets that are not a conversation. */
static int is_load(const sc_pace *p, int talk, int64_t ns, int64_t period, unsigned part) {
    return p->bytes * (uint64_t)ns / (uint64_t)period >= LOAD_BYTES / part ||
           (!talk && p->packets * (uint64_t)ns / (uint64_t)period >= LOAD_PACKETS / part);
}

int sc_pace_count(sc_pace *p, uint64_t bytes, int64_t now) {
    p->bytes += bytes;
    p->rounds += bytes > 0;
    return now - p->since >= PERIOD_NS;
}

/* A conversation: answers to messages of the application, or few packets at a time whose senders wait for this member
 * to order them. */
void sc_pace_measure(sc_pace *p, const sc_pace_load *load, int64_t now) {
    int64_t period = now - p->since;
    int sent = load->packed_at >= p->since, orders = p->ordered_at > p->since;
    int talk = sent || (orders && p->packets <= FEW * p->rounds);
    int64_t nap_ns = longest_nap(p, sent || orders || load->waiting);
    uint64_t gather = load->gather < GATHER_BYTES ? load->gather : GATHER_BYTES;
    p->loaded = is_load(p, talk, PERIOD_NS, period, 1);
    int worth = p->loaded || is_load(p, talk, nap_ns, period, WORTH);
    p->nap_ns = worth ? earlier(nap_ns, (int64_t)(gather * (uint64_t)period / (p->bytes + 1))) : 0;
    p->nap_bytes = (uint64_t)p->nap_ns * p->bytes / (uint64_t)period;
    p->since = now;
    p->bytes = p->packets = p->rounds = 0;
}

void sc_pace_late(sc_pace *p, int64_t late) {
    late = earlier(late, LONGER * p->nap_ns_max);
    if (late >= 0) p->late_ns += (late - p->late_ns) / LATENESSES;
}

int64_t sc_pace_nap(const sc_pace *p, int64_t came, int64_t until, int64_t now) {
    int64_t end = earlier(came + p->nap_ns, until);
    return p->nap_ns > 0 && now < end ? end : 0;
}

/* In a conversation each wake-up delays the others: those that wait for a sequencer, or for the consequences of an
 * answer. The next message often comes sooner than a thread is woken, so this thread polls as long as that is so and no
 * other thread keeps the core. */
int sc_pace_polls(sc_pace *p, int64_t until, int64_t now) {
    if (p->nap_ns > 0 || until - now < SC_PACE_POLL_NS) return 0;
    if (!p->talks && now - p->ordered_at >= PERIOD_NS) return 0;
    unsigned tries = p->talks ? POLL_TRIES : ORDERED_POLL_TRIES;
    return now >= p->yields_at && (p->polls > 0 || ++p->unpolled % tries == 0);
}

void sc_pace_polled(sc_pace *p, int found) {
    int pays = p->talks ? POLL_PAYS : ORDERED_POLL_PAYS;
    if (found)
        p->polls = p->polls + pays < POLLS_MAX ? p->polls + pays : POLLS_MAX;
    else
        p->polls -= p->polls > 0;
}

/* A datagram wakes no thread that is ready to run already, so a thread that yields to one that computes waits for a
 * whole slice. */
int sc_pace_yields(sc_pace *p, int64_t now) {
    if (p->loaded || now < p->yields_at) return 0;
    if (!p->alone) return 1;
    p->alone--;
    return 0;
}

void sc_pace_yielded(sc_pace *p, int64_t now, int64_t back) {
    p->alone = back - now < ALONE_NS ? ALONE_LOOKS : 0;
    if (back - now < KEPT_NS) return;
    p->yield_pause = earlier(p->yield_pause * YIELD_BACKS_OFF + YIELD_PAUSE_NS_MIN, YIELD_PAUSE_NS_MAX);
    p->yields_at = back + p->yield_pause;
}

void sc_pace_found(sc_pace *p) { p->yield_pause -= p->yield_pause / YIELD_FINDS; }
