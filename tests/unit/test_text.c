/* Growing text, short texts, numbers that read back, the nearest word. */
#include "engine/base/text.h"

#include <float.h>
#include <math.h>
#include <stdlib.h>

#include "tests/test.h"

static tn_status build(void *arg)
{
    tn_text t = {0};
    for (int i = 0; i < 1000; i++)
        tn_text_add(&t, "%d %s\n", i, "and a tail that makes the line longer");
    tn_text_add(&t, "%0500d", 7); /* longer than the buffer of one append */
    tn_status st = tn_text_end(&t);
    if (st == TN_OK) *(int64_t *)arg = t.n_bytes;
    tn_text_fini(&t);
    return st;
}

static void growing(void)
{
    tn_text t = {0};
    TN_CHECK_TEXT(tn_text_str(&t), "");
    tn_text_put(&t, "ab\0c", 4);
    tn_text_add(&t, "-%d", 12);
    TN_CHECK(t.n_bytes == 7 && memcmp(tn_text_str(&t), "ab\0c-12", 8) == 0);
    tn_text_cut(&t, 2);
    tn_text_cut(&t, 100);
    TN_CHECK_TEXT(tn_text_str(&t), "ab");
    TN_CHECK_OK(tn_text_end(&t));
    tn_text_fini(&t);
    int64_t n = 0;
    TN_CHECK(tn_test_each_alloc(build, &n) > 0);
    TN_CHECK_MSG(n == 10 * 3 + 90 * 4 + 900 * 5 + 1000 * 38 + 500 - 10 - 90 - 900, "%lld bytes",
                 (long long)n);
}

static void units(void)
{
    TN_CHECK_TEXT(tn_text_bytes(0).s, "0 B");
    TN_CHECK_TEXT(tn_text_bytes(1023).s, "1023 B");
    TN_CHECK_TEXT(tn_text_bytes(1536).s, "1.50 KiB");
    TN_CHECK_TEXT(tn_text_bytes(-1536).s, "-1.50 KiB");
    TN_CHECK_TEXT(tn_text_bytes((int64_t)613 << 20).s, "613 MiB");
    TN_CHECK_TEXT(tn_text_bytes(((int64_t)1 << 30) - 1).s, "1.00 GiB");
    TN_CHECK_TEXT(tn_text_bytes(INT64_MAX).s, "8.00 EiB");
    TN_CHECK_TEXT(tn_text_bytes(INT64_MIN).s, "-8.00 EiB");
    TN_CHECK_TEXT(tn_text_count(7).s, "7");
    TN_CHECK_TEXT(tn_text_count(999).s, "999");
    TN_CHECK_TEXT(tn_text_count(1234).s, "1.23K");
    TN_CHECK_TEXT(tn_text_count(999600).s, "1.00M");
    TN_CHECK_TEXT(tn_text_count(8.03e9).s, "8.03B");
    TN_CHECK_TEXT(tn_text_seconds(3.12e-4).s, "312 us");
    TN_CHECK_TEXT(tn_text_seconds(8.7e-3).s, "8.70 ms");
    TN_CHECK_TEXT(tn_text_seconds(1.29).s, "1.29 s");
    TN_CHECK_TEXT(tn_text_seconds(59.96).s, "1m00s");
    TN_CHECK_TEXT(tn_text_seconds(7512).s, "2h05m");
}

static uint64_t next(uint64_t *state)
{
    *state = *state * 6364136223846793005u + 1442695040888963407u;
    return *state ^ *state >> 29;
}

/* Every bit pattern reads back; what a person wrote with few figures comes back as written. */
static void numbers(void)
{
    TN_CHECK_TEXT(tn_text_double(0.1).s, "0.1");
    TN_CHECK_TEXT(tn_text_double(1e22).s, "1e+22");
    TN_CHECK_TEXT(tn_text_double(-0.0).s, "-0");
    TN_CHECK_TEXT(tn_text_double(1.0 / 3).s, "0.3333333333333333");
    TN_CHECK_TEXT(tn_text_float(0.1f).s, "0.1");
    TN_CHECK_TEXT(tn_text_float(3e-4f).s, "0.0003");
    TN_CHECK_TEXT(tn_text_float(16777216.0f).s, "16777216");
    TN_CHECK_TEXT(tn_text_double(-INFINITY).s, "-inf");
    TN_CHECK_TEXT(tn_text_double((double)NAN).s, "nan");
    TN_CHECK_TEXT(tn_text_float(-(float)NAN).s, "nan");
    uint64_t state = 1;
    int wrong = 0;
    for (int i = 0; i < 100000; i++) {
        uint64_t bits = next(&state), back;
        double d, e;
        memcpy(&d, &bits, 8);
        if (isnan(d)) continue;
        e = strtod(tn_text_double(d).s, NULL);
        memcpy(&back, &e, 8);
        wrong += back != bits;
        uint32_t bits4 = (uint32_t)(bits >> 20), back4;
        float f, g;
        memcpy(&f, &bits4, 4);
        if (isnan(f)) continue;
        g = strtof(tn_text_float(f).s, NULL);
        memcpy(&back4, &g, 4);
        wrong += back4 != bits4;
    }
    TN_CHECK_MSG(wrong == 0, "%d numbers do not read back", wrong);
    TN_CHECK(strtod(tn_text_double(DBL_TRUE_MIN).s, NULL) == DBL_TRUE_MIN);
    TN_CHECK(strtod(tn_text_double(DBL_MAX).s, NULL) == DBL_MAX);
    TN_CHECK(strtof(tn_text_float(FLT_TRUE_MIN).s, NULL) == FLT_TRUE_MIN);
}

static void nearest(void)
{
    static const char *const keys[] = {"steps", "seq_len", "local_batch_size", "max_norm",
                                       "seed",  "lr",      "weight_decay"};
    int n = TN_COUNT(keys);
    TN_CHECK_TEXT(tn_text_nearest("setps", keys, n), "steps");
    TN_CHECK_TEXT(tn_text_nearest("step", keys, n), "steps");
    TN_CHECK_TEXT(tn_text_nearest("seqlen", keys, n), "seq_len");
    TN_CHECK_TEXT(
        tn_text_nearest("batch_size", (const char *const[]){"local_batch_size"}, 1) ? "x" : "none",
        "none");
    TN_CHECK_TEXT(tn_text_nearest("local_batchsize", keys, n), "local_batch_size");
    TN_CHECK_TEXT(tn_text_nearest("wieght_deacy", keys, n), "weight_decay");
    TN_CHECK(tn_text_nearest("dropout", keys, n) == NULL);
    TN_CHECK(tn_text_nearest("x", (const char *const[]){"y"}, 1) == NULL);
    TN_CHECK(tn_text_nearest("", keys, n) == NULL);
    char longest[300];
    memset(longest, 'a', sizeof longest - 1);
    longest[sizeof longest - 1] = 0;
    TN_CHECK(tn_text_nearest(longest, keys, n) == NULL);
    TN_CHECK_TEXT(tn_text_hint("sed", keys, n).s, "; did you mean 'seed'?");
    TN_CHECK_TEXT(tn_text_hint("dropout", keys, n).s, "");
}

int main(void)
{
    growing();
    units();
    numbers();
    nearest();
    return tn_test_done("text");
}
