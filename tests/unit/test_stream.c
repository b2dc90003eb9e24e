/* test_stream.c - text that is tokenised while training reads it: the samples of a token file, in
 * any order of asking, from several threads, over epochs; shuffled, every sample once an epoch. */
#include "engine/data_built.h"
#include "tests/packed.h"
#include "tests/scratch.h"
#include "tests/test.h"

#include <pthread.h>
#include <stdlib.h>

#ifdef TN_HOSTILE /* smaller blocks */
enum { S = 512, B = 3, TEXT = 200 << 10, BLOCK = 64 };
#else
enum { S = 512, B = 3, TEXT = 3 << 20, BLOCK = 1024 };
#endif

static uint32_t lcg = 5;
static char cache[300];

static uint32_t draw(uint32_t n)
{
    lcg = lcg * 1664525 + 1013904223;
    return (lcg >> 8) % n;
}

typedef struct rows {
    int32_t x[4][B][S];
} rows;

static tn_status get(tn_data *d, int64_t step, rows *out)
{
    tn_data_batch b = {out->x[0][0], out->x[1][0], out->x[2][0], out->x[3][0]};
    return tn_data_rows(d, TN_DATA_TRAIN, step, 0, B, &b);
}

/* JSONL of `bytes` bytes of text or so, one of two packed. */
static const char *write_source(const char *name, int64_t bytes, bool packed)
{
    static char paths[8][300];
    static int next;
    char *text = malloc((size_t)bytes + 4096);
    uint8_t *zst = packed ? malloc((size_t)bytes * 2 + 4096) : NULL;
    int64_t n = 0;
    while (n < bytes) {
        n += sprintf(text + n, "{\"text\":\"%d ", (int)n);
        for (uint32_t k = draw(1200); k > 0; k--) text[n++] = (char)('a' + draw(26));
        n += sprintf(text + n, "\"}\n");
    }
    size_t m = packed ? tn_packed_zstd(text, (size_t)n, 100000, zst) : (size_t)n;
    snprintf(paths[next], sizeof paths[0], "%s",
             tn_scratch_write(name, packed ? (void *)zst : (void *)text, m));
    free(text);
    free(zst);
    return paths[next++];
}

static tn_data_options options(const tn_data_path *paths, int64_t n, const char *mode)
{
    return (tn_data_options){.source = "jsonl",
                             .paths = paths,
                             .n_paths = n,
                             .mode = mode,
                             .packing = "documents",
                             .cache_folder = cache,
                             .threads = 2,
                             .seq_len = S,
                             .global_batch = B,
                             .vocab_size = 256};
}

/* Steps of the run, so chosen that blocks and epochs are crossed in both directions. */
static void same_samples(const tn_data_path *paths, int64_t n, const char *what)
{
    static rows want, got;
    tn_data_options o = options(paths, n, "built");
    tn_data *built = NULL, *stream = NULL;
    if (!TN_CHECK_OK(tn_data_open(&o, &built))) return;
    o.mode = "stream";
    if (!TN_CHECK_OK(tn_data_open(&o, &stream))) return;
    int64_t samples = tn_data_about(built)->samples[TN_DATA_TRAIN], steps = samples / B, wrong = 0;
    TN_CHECK_MSG(samples > 2 * BLOCK, "%lld samples: one block", (long long)samples);
    for (int64_t s = 0; s < steps + 40; s += s % 7 ? 1 : 13)
        wrong += get(built, s, &want) || get(stream, s, &got) || memcmp(&want, &got, sizeof want);
    TN_CHECK_MSG(!wrong, "%s: %lld steps differ", what, (long long)wrong);
    for (int i = 0; i < 6; i++) {
        int64_t s = draw((uint32_t)steps * 3);
        wrong += get(built, s, &want) || get(stream, s, &got) || memcmp(&want, &got, sizeof want);
    }
    TN_CHECK_MSG(!wrong, "%s: steps in any order differ", what);
    tn_data_close(stream);

    /* A resumed run: nothing was read before. */
    if (!TN_CHECK_OK(tn_data_open(&o, &stream))) return;
    TN_CHECK_OK(get(built, steps - 3, &want));
    TN_CHECK_OK(get(stream, steps - 3, &got));
    TN_CHECK_MSG(!memcmp(&want, &got, sizeof want), "%s: resumed differs", what);
    tn_data_close(built);
    tn_data_close(stream);
}

typedef struct job {
    tn_data *data;
    const rows *want;
    int64_t row, wrong;
} job;

static void *run_job(void *arg)
{
    job *j = arg;
    static _Thread_local int32_t ids[S], labels[S];
    for (int64_t s = 0; s < 60; s++) {
        tn_data_batch b = {ids, labels, NULL, NULL};
        j->wrong += tn_data_rows(j->data, TN_DATA_TRAIN, s, j->row, 1, &b) != TN_OK ||
                    memcmp(ids, j->want[s].x[0][j->row], sizeof ids) ||
                    memcmp(labels, j->want[s].x[1][j->row], sizeof labels);
    }
    return NULL;
}

/* A row does not depend on who asks for which part of the batch. */
static void threads(const tn_data_path *paths)
{
    static rows want[60];
    tn_data_options o = options(paths, 1, "stream");
    o.shuffle = true;
    tn_data *d = NULL;
    pthread_t ids[B];
    job jobs[B];
    if (!TN_CHECK_OK(tn_data_open(&o, &d))) return;
    for (int64_t s = 0; s < 60; s++) TN_CHECK_OK(get(d, s, &want[s]));
    for (int k = 0; k < B; k++) {
        jobs[k] = (job){d, want, k, 0};
        TN_CHECK(pthread_create(&ids[k], NULL, run_job, &jobs[k]) == 0);
    }
    for (int k = 0; k < B; k++) {
        pthread_join(ids[k], NULL);
        TN_CHECK_MSG(!jobs[k].wrong, "row %d: %lld steps differ", k, (long long)jobs[k].wrong);
    }
    tn_data_close(d);
}

/* Shuffled: the samples of an epoch are those of the unshuffled one, each once, in another order
 * every epoch. Samples are told apart by a hash of their ids. */
static int by_value(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return (x > y) - (x < y);
}

static uint64_t mix(const int32_t *ids)
{
    uint64_t h = 1469598103934665603u;
    for (int i = 0; i < S; i++) h = (h ^ (uint32_t)ids[i]) * 1099511628211u;
    return h;
}

static void shuffled(const tn_data_path *paths)
{
    tn_data_options o = options(paths, 1, "built");
    tn_data *d = NULL;
    if (!TN_CHECK_OK(tn_data_open(&o, &d))) return;
    int64_t n = tn_data_about(d)->samples[TN_DATA_TRAIN];
    tn_data_close(d);
    uint64_t *seen[4];
    for (int e = 0; e < 4; e++) seen[e] = malloc((size_t)n * sizeof(uint64_t));
    o.mode = "stream";
    o.global_batch = 1;
    for (int e = 0; e < 4; e++) { /* 0: in order; 1, 2: two epochs; 3: another seed */
        static int32_t ids[S];
        tn_data_batch b = {ids, NULL, NULL, NULL};
        o.shuffle = e > 0;
        o.seed = e == 3;
        if (!TN_CHECK_OK(tn_data_open(&o, &d))) return;
        for (int64_t i = 0; i < n; i++) {
            if (!TN_CHECK_OK(tn_data_rows(d, TN_DATA_TRAIN, e == 2 ? n + i : i, 0, 1, &b))) break;
            seen[e][i] = mix(ids);
        }
        tn_data_close(d);
    }
    for (int e = 0; e < 4; e++) {
        for (int f = e + 1; f < 4; f++) {
            int64_t equal = 0;
            for (int64_t i = 0; i < n; i++) equal += seen[e][i] == seen[f][i];
            TN_CHECK_MSG(equal < n / 20, "%lld of %lld samples stand where they stood",
                         (long long)equal, (long long)n);
        }
    }
    for (int e = 0; e < 4; e++) qsort(seen[e], (size_t)n, sizeof(uint64_t), by_value);
    for (int64_t i = 1; i < n; i++)
        if (seen[0][i] == seen[0][i - 1]) TN_CHECK_MSG(false, "two samples look alike");
    for (int e = 1; e < 4; e++)
        TN_CHECK_MSG(!memcmp(seen[0], seen[e], (size_t)n * sizeof(uint64_t)),
                     "epoch %d: not every sample once", e);
    for (int e = 0; e < 4; e++) free(seen[e]);
}

static void refused(const tn_data_path *paths)
{
    static rows got;
    tn_data *d = NULL;
    tn_data_options o = options(paths, 1, "stream");
    o.validation = 0.1;
    TN_CHECK_FAILS(tn_data_open(&o, &d), TN_BAD_INPUT, "data.validation: mode = \"stream\"");
    o.validation = 0;
    o.mode = "live";
    TN_CHECK_FAILS(tn_data_open(&o, &d), TN_BAD_INPUT, "data.mode: 'live' is unknown; use built");
    o.mode = "stream";
    o.source = "tokens";
    TN_CHECK_FAILS(tn_data_open(&o, &d), TN_BAD_INPUT, "data.mode: only text and jsonl");
    o.source = "jsonl";
    tn_data_path small = {.pattern = tn_scratch_text("small.jsonl", "{\"text\":\"abc\"}\n")};
    o.paths = &small;
    if (TN_CHECK_OK(tn_data_open(&o, &d)))
        TN_CHECK_FAILS(get(d, 0, &got), TN_BAD_INPUT, "holds 3 tokens, fewer than one sample");
    tn_data_close(d);
    tn_data_path bad = {.pattern = tn_scratch_text("bad.jsonl", "{\"text\":\"abc\"}\n{]\n")};
    o.paths = &bad;
    if (TN_CHECK_OK(tn_data_open(&o, &d))) {
        TN_CHECK_FAILS(get(d, 0, &got), TN_BAD_INPUT, "bad.jsonl: line 2: ");
        TN_CHECK_FAILS(get(d, 0, &got), TN_BAD_INPUT, "bad.jsonl: line 2: ");
    }
    tn_data_close(d);
    o.paths = paths;
    o.epochs = 1;
    if (TN_CHECK_OK(tn_data_open(&o, &d))) {
        TN_CHECK_OK(get(d, 0, &got));
        TN_CHECK_FAILS(get(d, 100000, &got), TN_BAD_INPUT, "data.epochs: all ");
    }
    tn_data_close(d);
}

int main(void)
{
    snprintf(cache, sizeof cache, "%s", tn_scratch_path("cache"));
    tn_data_path paths[2] = {{.pattern = write_source("a.jsonl", TEXT, false)},
                             {.pattern = write_source("b.jsonl.zst", TEXT, true)}};
    same_samples(paths, 2, "files");
    paths[0].weight = 3;
    paths[1].weight = 1;
    same_samples(paths, 2, "mixture");
    paths[0].weight = 0;
    threads(paths);
    shuffled(paths);
    refused(paths);
    return tn_test_done("stream");
}
