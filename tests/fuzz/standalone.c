/* A fuzzer for compilers without libFuzzer: random scripts for LLVMFuzzerTestOneInput, from one seed, without feedback.
 *
 * standalone SECONDS [SEED]    runs random inputs for a while
 * standalone FILE...           runs inputs again
 *
 * Before each input its bytes are written to ./standalone.input, so that a crash can be run again. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define INPUT_MAX 2048

static uint64_t state;

static uint64_t next(void) { /* splitmix64 */
    uint64_t z = state += 0x9E3779B97F4A7C15u;
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
    return z ^ (z >> 31);
}

static int replay(const char *path) {
    static uint8_t data[1 << 20];
    FILE *file = fopen(path, "rb");
    if (!file) return 2;
    size_t n = fread(data, 1, sizeof data, file);
    fclose(file);
    return LLVMFuzzerTestOneInput(data, n);
}

int main(int argc, char **argv) {
    static uint8_t data[INPUT_MAX];
    char *end;
    double seconds = argc > 1 ? strtod(argv[1], &end) : 10; /* no file is named by a number */
    if (argc > 1 && *end) {
        for (int i = 1; i < argc; i++)
            if (replay(argv[i])) return 1;
        return 0;
    }
    state = argc > 2 ? strtoull(argv[2], NULL, 0) : (uint64_t)time(NULL);
    printf("seed %llu\n", (unsigned long long)state);
    FILE *record = fopen("standalone.input", "wb");
    if (!record) return 2;
    setvbuf(record, NULL, _IOFBF, INPUT_MAX);
    time_t stop = time(NULL) + (time_t)seconds;
    uint64_t runs = 0;
    for (; time(NULL) < stop; runs++) {
        size_t n = next() % INPUT_MAX, small = next() % 2;
        for (size_t i = 0; i < n; i++) data[i] = (uint8_t)(small && next() % 2 ? next() % 16 : next());
        rewind(record);
        if (fwrite(data, 1, n, record) != n || fflush(record)) return 2;
        if (LLVMFuzzerTestOneInput(data, n)) return 1;
    }
    fclose(record);
    remove("standalone.input");
    printf("%llu inputs\n", (unsigned long long)runs);
    return 0;
}
