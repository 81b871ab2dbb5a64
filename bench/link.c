/* Carries Ethernet frames between two taps, as a link with a rate, a queue and a delay does. For shared_link.py.
 *
 *     link TAP TAP BYTES_PER_S QUEUE_S DELAY_S LOSS NARROW_AT NARROW [SEED]
 *
 * The taps are open descriptors without blocking. LOSS: this part of the frames is dropped, at random by SEED (1). From
 * NARROW_AT (monotonic seconds; 0: never) frames of more than NARROW bytes vanish. Prints the frames that the link
 * carried and that its queues dropped when it gets SIGTERM. */
#define _GNU_SOURCE
#include <poll.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#define FRAME_MAX 2048
#define FRAMES 65536u /* that a direction holds; a power of two */
#define READ_AT_ONCE 64

typedef struct {
    double due;
    ssize_t len;
    char bytes[FRAME_MAX];
} frame;

typedef struct {
    int in, out;
    double free; /* the frames before have left the queue at this time */
    uint32_t head, tail;
    frame *waiting;
} direction;

static struct {
    double bytes_per_s, queue_s, delay_s, loss, narrow_at;
    ssize_t narrow;
    uint64_t carried, dropped;
} link_;
static volatile sig_atomic_t ends;

static void end(int signal_number) {
    (void)signal_number;
    ends = 1;
}

static double now_s(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

static void take(direction *d) {
    for (int k = 0; k < READ_AT_ONCE; k++) {
        frame *f = &d->waiting[d->tail % FRAMES];
        if ((f->len = read(d->in, f->bytes, FRAME_MAX)) <= 0) return;
        double now = now_s(), begins = d->free > now ? d->free : now;
        if (link_.narrow_at > 0 && now > link_.narrow_at && f->len > link_.narrow) continue;
        if (begins - now > link_.queue_s || d->tail - d->head == FRAMES - 1) {
            link_.dropped++;
        } else if (drand48() >= link_.loss) {
            link_.carried++;
            d->free = begins + (double)f->len / link_.bytes_per_s;
            f->due = d->free + link_.delay_s;
            d->tail++;
        }
    }
}

/* Returns when the next frame is due. */
static double give(direction *d, double now) {
    while (d->head != d->tail && d->waiting[d->head % FRAMES].due <= now) {
        frame *f = &d->waiting[d->head++ % FRAMES];
        if (write(d->out, f->bytes, (size_t)f->len) < 0) link_.dropped++;
    }
    return d->head == d->tail ? now + 0.1 : d->waiting[d->head % FRAMES].due;
}

int main(int argc, char **argv) {
    if (argc != 9 && argc != 10) return fprintf(stderr, "link: eight arguments are needed, or nine\n"), 2;
    direction d[2] = {{.in = atoi(argv[1]), .out = atoi(argv[2])}, {.in = atoi(argv[2]), .out = atoi(argv[1])}};
    for (int side = 0; side < 2; side++)
        if (!(d[side].waiting = malloc(FRAMES * sizeof(frame)))) return perror("link"), 1;
    link_.bytes_per_s = atof(argv[3]), link_.queue_s = atof(argv[4]), link_.delay_s = atof(argv[5]);
    link_.loss = atof(argv[6]), link_.narrow_at = atof(argv[7]), link_.narrow = atoi(argv[8]);
    srand48(argc == 10 ? atol(argv[9]) : 1);
    signal(SIGTERM, end);
    puts("ready"), fflush(stdout);
    while (!ends) {
        double now = now_s(), one = give(&d[0], now), other = give(&d[1], now),
               wait = (one < other ? one : other) - now;
        struct pollfd taps[2] = {{.fd = d[0].in, .events = POLLIN}, {.fd = d[1].in, .events = POLLIN}};
        struct timespec timeout = {.tv_nsec = wait > 0 ? (long)(1e9 * wait) : 0};
        if (ppoll(taps, 2, &timeout, NULL) <= 0) continue;
        for (int side = 0; side < 2; side++)
            if (taps[side].revents & POLLIN) take(&d[side]);
    }
    printf("{\"carried\": %llu, \"dropped\": %llu}\n", (unsigned long long)link_.carried,
           (unsigned long long)link_.dropped);
    return 0;
}
