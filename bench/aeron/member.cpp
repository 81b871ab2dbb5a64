// A publisher or a subscriber of Aeron, for bench/aeron_bench.py: member publish|subscribe CHANNEL SIZE
//
// AERON_DIR names the folder of its driver. It reports and takes commands in lines of JSON: the publisher sends for so
// many {"seconds": }, a subscriber receives until it has so many {"messages": }. Both stay until standard input closes.
// Each message begins with its number, which subscribers check. Times are those of CLOCK_MONOTONIC.
#include "Aeron.h"
#include "FragmentAssembler.h"

#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <sys/resource.h>
#include <thread>
#include <vector>

using namespace aeron;
typedef long long ns; // on the monotonic clock

static const int STREAM = 1001;
static const int FRAGMENTS = 256; // of one poll
static const int TURNS = 64; // between two looks at the clock
static const ns QUIET = 10000000000; // a subscriber gives up after this

static ns now() {
    return std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now().time_since_epoch())
        .count();
}

static double seconds_of(struct timeval time) { return (double)time.tv_sec + (double)time.tv_usec / 1e6; }

static double cpu_s() {
    struct rusage used;
    getrusage(RUSAGE_SELF, &used);
    return seconds_of(used.ru_utime) + seconds_of(used.ru_stime);
}

static void nap() { std::this_thread::sleep_for(std::chrono::nanoseconds(1)); } // the shortest that the timer allows

static void say_ready() {
    std::puts("{\"event\": \"ready\"}");
    std::fflush(stdout);
}

static void wait_for_parent() {
    while (std::getchar() != EOF) {}
}

static int publish(Aeron &aeron, const std::string &channel, int size) {
    std::int64_t id = aeron.addExclusivePublication(channel, STREAM);
    std::shared_ptr<ExclusivePublication> publication;
    while (!(publication = aeron.findExclusivePublication(id))) nap();
    while (!publication->isConnected()) nap();
    std::vector<std::uint8_t> memory((size_t)size);
    concurrent::AtomicBuffer buffer(memory.data(), (size_t)size);
    std::uint64_t sent = 0;
    double seconds;
    say_ready();
    if (std::scanf(" {\"seconds\": %lf}", &seconds) != 1) return 1;
    double cpu = cpu_s();
    ns begun = now();
    for (unsigned turn = 0; turn % TURNS || (double)(now() - begun) < seconds * 1e9; turn++) {
        std::memcpy(memory.data(), &sent, sizeof sent);
        if (publication->offer(buffer, 0, size) > 0)
            sent++;
        else
            nap(); // the window, or the term buffer, is full
    }
    std::printf("{\"event\": \"sent\", \"sent\": %llu, \"begun_ns\": %lld}\n", (unsigned long long)sent, begun);
    std::printf("{\"event\": \"done\", \"cpu_s\": %f}\n", cpu_s() - cpu);
    std::fflush(stdout);
    wait_for_parent(); // the publication stays until all have received
    return 0;
}

static int subscribe(Aeron &aeron, const std::string &channel, int size) {
    std::int64_t id = aeron.addSubscription(channel, STREAM);
    std::shared_ptr<Subscription> subscription;
    while (!(subscription = aeron.findSubscription(id))) nap();
    while (!subscription->isConnected()) nap();
    std::uint64_t received = 0, wrong = 0;
    FragmentAssembler assembler([&](concurrent::AtomicBuffer &buffer, util::index_t at, util::index_t len, Header &) {
        std::uint64_t number;
        std::memcpy(&number, buffer.buffer() + at, sizeof number);
        wrong += number != received || len != size;
        received++;
    });
    fragment_handler_t handler = assembler.handler();
    std::atomic<unsigned long long> expected(UINT64_MAX);
    std::thread commands([&expected] {
        unsigned long long messages;
        if (std::scanf(" {\"messages\": %llu}", &messages) == 1) expected = messages;
        wait_for_parent();
        std::_Exit(0);
    });
    say_ready();
    double cpu = cpu_s();
    ns last = now();
    while (received < expected && (expected == UINT64_MAX || now() - last < QUIET)) {
        std::uint64_t before = received;
        if (subscription->poll(handler, FRAGMENTS) == 0) nap();
        if (received != before) last = now();
    }
    std::printf("{\"event\": \"done\", \"received\": %llu, \"wrong\": %llu, \"last_ns\": %lld, \"cpu_s\": %f}\n",
                (unsigned long long)received, (unsigned long long)wrong, last, cpu_s() - cpu);
    std::fflush(stdout);
    commands.join();
    return 0;
}

int main(int argc, char **argv) {
    const char *folder = std::getenv("AERON_DIR");
    if (argc != 4 || !folder)
        return std::fputs("usage: member publish|subscribe CHANNEL SIZE, with AERON_DIR\n", stderr), 2;
    Context context;
    context.aeronDir(folder);
    Aeron aeron(context);
    int size = std::atoi(argv[3]);
    return std::string(argv[1]) == "publish" ? publish(aeron, argv[2], size) : subscribe(aeron, argv[2], size);
}
