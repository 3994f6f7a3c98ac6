// What this machine can do at best: bytes read per second, and operations per second. One line of JSON.
//
// Usage: limits THREADS MODEL_BYTES
//
// read_model, read_memory: GB/s of adding up MODEL_BYTES, and 512 MB, again and again, by all threads together.
// f32, int8: 1e9 operations per second of multiplying and adding in registers; an addition and a multiplication count
// as two. int8 is the better of vector instructions (VNNI where the CPU has it) and AMX tiles.

#define _GNU_SOURCE
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#if defined(__AVX2__)
#include <immintrin.h>
#endif
#if defined(__AMX_INT8__) && defined(__linux__)
#include <sys/syscall.h>
#include <unistd.h>
#define HAVE_AMX 1
#endif

enum { REPEATS = 1 << 15, ROUNDS = 7 };

struct job {
    const uint64_t * words;
    size_t n_words;
    double operations;
    volatile uint64_t sink;
};

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double) t.tv_sec + 1e-9 * (double) t.tv_nsec;
}

typedef uint64_t words8 __attribute__((vector_size(64)));

static void * read_words(void * data) {
    struct job * job = data;
    const words8 * words = (const words8 *) job->words;
    words8 s0 = {0}, s1 = {0}, s2 = {0}, s3 = {0};
    for (size_t i = 0; i + 4 <= job->n_words / 8; i += 4) {
        s0 += words[i];
        s1 += words[i + 1];
        s2 += words[i + 2];
        s3 += words[i + 3];
    }
    words8 sum = s0 + s1 + s2 + s3;
    job->sink = sum[0] + sum[7];
    return NULL;
}

// Eight sums that do not depend on each other fill the pipelines of two units.
#if defined(__AVX512F__)
enum { WIDTH = 16 };
#elif defined(__AVX__)
enum { WIDTH = 8 };
#else
enum { WIDTH = 4 };
#endif
typedef float vec __attribute__((vector_size(4 * WIDTH)));

static void * multiply_f32(void * data) {
    struct job * job = data;
    vec a, b;
    for (int k = 0; k < WIDTH; ++k) {
        a[k] = 1.0f + 1e-7f * (float) k;
        b[k] = 1e-7f * (float) (k + 1);
    }
    vec s0 = b, s1 = a, s2 = b, s3 = a, s4 = b, s5 = a, s6 = b, s7 = a;
    const int n = 16 * REPEATS;
    for (int i = 0; i < n; ++i) {
        s0 = s0 * a + b;
        s1 = s1 * a + b;
        s2 = s2 * a + b;
        s3 = s3 * a + b;
        s4 = s4 * a + b;
        s5 = s5 * a + b;
        s6 = s6 * a + b;
        s7 = s7 * a + b;
    }
    vec sum = s0 + s1 + s2 + s3 + s4 + s5 + s6 + s7;
    job->sink = (uint64_t) (sum[0] + sum[WIDTH - 1] != 0.0f);
    job->operations = 2.0 * WIDTH * 8 * n;
    return NULL;
}

// Dot products of bytes, added up in 32 bits, by the widest instructions that the compiler was allowed to use.
#if defined(__AVX512VNNI__)
typedef __m512i bytes;
#define BYTES_OF(x) _mm512_set1_epi8(x)
#define DOT(sum, a, b) _mm512_dpbusd_epi32(sum, a, b)
#elif defined(__AVX2__)
typedef __m256i bytes;
#define BYTES_OF(x) _mm256_set1_epi8(x)
#define DOT(sum, a, b) _mm256_add_epi32(sum, _mm256_madd_epi16(_mm256_maddubs_epi16(a, b), _mm256_set1_epi16(1)))
#else
typedef int32_t bytes __attribute__((vector_size(16)));  // without instructions for bytes
#define PRODUCTS 4
#define BYTES_OF(x) ((bytes) {x, x, x, x})
#define DOT(sum, a, b) ((sum) + (a) * (b))
#endif

#ifndef PRODUCTS
#define PRODUCTS sizeof(bytes)
#endif

#if defined(__x86_64__)
#define SAME_VALUE(v) __asm__ volatile("" : "+v"(v))
#else
#define SAME_VALUE(v) __asm__ volatile("" : "+w"(v))
#endif

static void * multiply_int8(void * data) {
    struct job * job = data;
    bytes a = BYTES_OF(3), b = BYTES_OF(2), s0 = a, s1 = b, s2 = a, s3 = b, s4 = a, s5 = b, s6 = a, s7 = b;
    const int n = 16 * REPEATS;
    for (int i = 0; i < n; ++i) {
        SAME_VALUE(a);  // the compiler must not know that it is
        SAME_VALUE(b);
        s0 = DOT(s0, a, b);
        s1 = DOT(s1, a, b);
        s2 = DOT(s2, a, b);
        s3 = DOT(s3, a, b);
        s4 = DOT(s4, b, a);
        s5 = DOT(s5, b, a);
        s6 = DOT(s6, b, a);
        s7 = DOT(s7, b, a);
    }
    bytes sums[8] = {s0, s1, s2, s3, s4, s5, s6, s7};
    unsigned char first[8];
    for (int k = 0; k < 8; ++k) {
        memcpy(&first[k], &sums[k], 1);
        job->sink += first[k];
    }
    job->operations = 2.0 * PRODUCTS * 8 * n;
    return NULL;
}

#ifdef HAVE_AMX
// GCC's intrinsics do not say what memory they read, so the two loads are written out.
static void * multiply_tiles(void * data) {
    struct job * job = data;
    struct {
        uint8_t palette, start, reserved[14];
        uint16_t row_bytes[16];
        uint8_t rows[16];
    } config;
    static _Alignas(64) int8_t tile[16 * 64];
    memset(&config, 0, sizeof config);
    config.palette = 1;
    for (int k = 0; k < 8; ++k) {
        config.row_bytes[k] = 64;
        config.rows[k] = 16;
    }
    __asm__ volatile("ldtilecfg\t%0" : : "m"(config));
    __asm__ volatile("tileloadd\t(%0,%1,1), %%tmm6" : : "r"(tile), "r"(64L) : "memory");
    __asm__ volatile("tileloadd\t(%0,%1,1), %%tmm7" : : "r"(tile), "r"(64L) : "memory");
    const int n = REPEATS / 16;
    for (int i = 0; i < n; ++i) {
        __asm__ volatile(
            "tdpbssd %%tmm7, %%tmm6, %%tmm0\n\ttdpbssd %%tmm7, %%tmm6, %%tmm1\n\t"
            "tdpbssd %%tmm7, %%tmm6, %%tmm2\n\ttdpbssd %%tmm7, %%tmm6, %%tmm3" : :);
    }
    __asm__ volatile("tilerelease" : :);
    job->operations = 2.0 * 16 * 16 * 64 * 4 * n;
    return NULL;
}

static int may_use_tiles(void) {
    enum { ARCH_REQ_XCOMP_PERM = 0x1023, XTILEDATA = 18 };
    return syscall(SYS_arch_prctl, ARCH_REQ_XCOMP_PERM, XTILEDATA) == 0;
}
#endif

// The quickest of some rounds, in seconds.
static double best_of(void * (*work)(void *), struct job * jobs, int threads) {
    double best = 1e9;
    for (int round = 0; round < ROUNDS; ++round) {
        pthread_t others[256];
        double start = now();
        for (int i = 1; i < threads; ++i) {
            pthread_create(&others[i], NULL, work, &jobs[i]);
        }
        work(&jobs[0]);
        for (int i = 1; i < threads; ++i) {
            pthread_join(others[i], NULL);
        }
        double seconds = now() - start;
        best = seconds < best ? seconds : best;
    }
    return best;
}

static double read_rate(size_t bytes, int threads, struct job * jobs) {
    size_t part = bytes / (size_t) threads / 128 * 128;
    uint64_t * words = aligned_alloc(128, part * (size_t) threads);
    if (words == NULL) {
        return 0;
    }
    memset(words, 1, part * (size_t) threads);
    for (int i = 0; i < threads; ++i) {
        jobs[i] = (struct job) {.words = words + (size_t) i * part / 8, .n_words = part / 8};
    }
    double seconds = best_of(read_words, jobs, threads);
    free(words);
    return 1e-9 * (double) (part * (size_t) threads) / seconds;
}

static double operation_rate(void * (*work)(void *), int threads, struct job * jobs) {
    double seconds = best_of(work, jobs, threads);
    return 1e-9 * jobs[0].operations * threads / seconds;
}

int main(int argc, char ** argv) {
    int threads = argc > 1 ? atoi(argv[1]) : 1;
    size_t model = argc > 2 ? strtoull(argv[2], NULL, 10) : 0;
    if (threads < 1 || threads > 256 || model == 0) {
        fprintf(stderr, "usage: limits THREADS MODEL_BYTES\n");
        return 2;
    }
    static struct job jobs[256];
    double read_model = read_rate(model, threads, jobs);
    double read_memory = read_rate((size_t) 512 << 20, threads, jobs);
    double f32 = operation_rate(multiply_f32, threads, jobs);
    double int8 = operation_rate(multiply_int8, threads, jobs);
    const char * by = "vector instructions";
#ifdef HAVE_AMX
    if (may_use_tiles()) {
        double tiles = operation_rate(multiply_tiles, threads, jobs);
        if (tiles > int8) {
            int8 = tiles;
            by = "AMX tiles";
        }
    }
#endif
    printf("{\"read_model\": %.2f, \"read_memory\": %.2f, \"f32\": %.1f, \"int8\": %.1f, \"int8_by\": \"%s\"}\n",
           read_model, read_memory, f32, int8, by);
    return 0;
}
