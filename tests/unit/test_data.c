/* test_data.c - a batch is a pure function of step and row; epochs, documents, the held-out share,
 * mixtures; wrong settings. Safetensors batches and random ids: test_data_sources.c. Files and
 * document starts: test_corpus.c. */
#include "engine/data.h"
#include "tests/scratch.h"
#include "tests/test.h"

#include <math.h>
#include <pthread.h>

enum { S = 8, B = 5, POISON = 0x5a5a5a5a }; /* seq_len and global batch of most tests */

static uint32_t lcg = 1;

static uint32_t draw(uint32_t n)
{
    lcg = lcg * 1664525 + 1013904223;
    return (lcg >> 8) % n;
}

/* Lines of 1 to 12 letters; every third is followed by an empty one. */
static const char *write_lines(const char *name, int n_lines)
{
    static char text[1 << 16];
    size_t n = 0;
    for (int i = 0; i < n_lines; i++) {
        for (uint32_t k = 1 + draw(12); k > 0; k--) text[n++] = (char)('a' + draw(26));
        text[n++] = '\n';
        if (i % 3 == 2) text[n++] = '\n';
    }
    return tn_scratch_write(name, text, n);
}

static tn_data_options text_options(const tn_data_path *paths, int64_t n_paths)
{
    return (tn_data_options){.source = "text",
                             .paths = paths,
                             .n_paths = n_paths,
                             .shuffle = true,
                             .seed = 42,
                             .seq_len = S,
                             .global_batch = B,
                             .vocab_size = 256};
}

/* One step, all rows: [4][B][S] (ids, labels, positions, documents). */
typedef struct step {
    int32_t x[4][B][S];
} step;

static tn_data_batch whole(step *s)
{
    return (tn_data_batch){s->x[0][0], s->x[1][0], s->x[2][0], s->x[3][0]};
}

static bool get(const tn_data *d, tn_data_split split, int64_t at, step *out)
{
    memset(out, 0x11, sizeof *out); /* nothing of the last call may shine through */
    tn_data_batch batch = whole(out);
    return TN_CHECK_OK(tn_data_rows(d, split, at, 0, B, &batch));
}

/* ------------------------------------------------------------ purity */

/* Rows [first, first + n) of a step equal those of `want`, and nothing beside them is written. */
static bool same_rows(const tn_data *d, int64_t at, int64_t first, int64_t n, unsigned wanted,
                      const step *want)
{
    int32_t x[4][B * S + 2];
    for (int k = 0; k < 4; k++) {
        for (int i = 0; i < B * S + 2; i++) x[k][i] = POISON;
    }
    tn_data_batch out = {wanted & 1 ? x[0] + 1 : NULL, wanted & 2 ? x[1] + 1 : NULL,
                         wanted & 4 ? x[2] + 1 : NULL, wanted & 8 ? x[3] + 1 : NULL};
    if (!TN_CHECK_OK(tn_data_rows(d, TN_DATA_TRAIN, at, first, n, &out))) return false;
    for (int k = 0; k < 4; k++) {
        int64_t written = wanted >> k & 1 ? n * S : 0;
        if (memcmp(x[k] + 1, want->x[k][first], (size_t)written * sizeof(int32_t)) != 0)
            return false;
        for (int64_t i = written + 1; i < B * S + 2; i++) {
            if (x[k][i] != POISON) return false;
        }
        if (x[k][0] != POISON) return false;
    }
    return true;
}

static void purity_of(const tn_data_options *o, const char *what)
{
    enum { STEPS = 40 };
    static step want[STEPS];
    tn_data *d = NULL, *again = NULL;
    if (!TN_CHECK_OK(tn_data_open(o, &d))) return;
    for (int64_t s = 0; s < STEPS; s++) get(d, TN_DATA_TRAIN, s, &want[s]);

    /* A run that is resumed is a new process: nothing but the step's number may matter. */
    if (!TN_CHECK_OK(tn_data_open(o, &again))) return;
    bool same = true;
    int64_t allocs = tn_mem_count();
    for (int i = 0; i < 2000; i++) {
        int64_t at = draw(STEPS), first = draw(B + 1), n = draw((uint32_t)(B - first + 1));
        same &= same_rows(i % 2 ? d : again, at, first, n, i < 1000 ? 15 : draw(16), &want[at]);
    }
    TN_CHECK_MSG(same, "%s: rows differ by order, split or process", what);
    TN_CHECK_MSG(tn_mem_count() == allocs, "%s: rows allocate", what);

    tn_data *other = NULL;
    tn_data_options reseeded = *o;
    reseeded.seed++;
    if (TN_CHECK_OK(tn_data_open(&reseeded, &other))) {
        step first;
        get(other, TN_DATA_TRAIN, 0, &first);
        TN_CHECK_MSG(memcmp(&first, &want[0], sizeof first) != 0, "%s: the seed means nothing",
                     what);
    }
    tn_data_close(d);
    tn_data_close(again);
    tn_data_close(other);
}

static void purity(void)
{
    tn_data_path paths[] = {{.pattern = write_lines("p0", 70)}, {.pattern = write_lines("p1", 40)}};
    tn_data_options o = text_options(paths, 2);
    purity_of(&o, "text");
    o.packing = "documents";
    o.document = "blank_line";
    o.validation = 0.2;
    purity_of(&o, "documents");
    paths[0].weight = 3;
    paths[1].weight = 1;
    purity_of(&o, "mixture");
    purity_of(
        &(tn_data_options){.source = "random", .seq_len = S, .global_batch = B, .vocab_size = 1000},
        "random");
}

typedef struct job {
    const tn_data *data;
    int64_t first, n;
    step *out;
    tn_status st;
} job;

static void *run_job(void *arg)
{
    job *j = arg;
    for (int64_t at = 0; at < 50 && !j->st; at++) {
        tn_data_batch out = {j->out[at].x[0][j->first], j->out[at].x[1][j->first],
                             j->out[at].x[2][j->first], j->out[at].x[3][j->first]};
        j->st = tn_data_rows(j->data, TN_DATA_TRAIN, at, j->first, j->n, &out);
    }
    return NULL;
}

static void threads(void)
{
    static step out[50], want;
    tn_data_path path = {.pattern = write_lines("t", 90)};
    tn_data_options o = text_options(&path, 1);
    tn_data *d = NULL;
    o.packing = "documents";
    if (!TN_CHECK_OK(tn_data_open(&o, &d))) return;
    job jobs[] = {{.data = d, .first = 0, .n = 2, .out = out},
                  {.data = d, .first = 2, .n = 3, .out = out}};
    pthread_t ids[2];
    for (int i = 0; i < 2; i++) TN_CHECK(pthread_create(&ids[i], NULL, run_job, &jobs[i]) == 0);
    for (int i = 0; i < 2; i++) pthread_join(ids[i], NULL);
    bool same = true;
    for (int64_t at = 0; at < 50; at++)
        same &= get(d, TN_DATA_TRAIN, at, &want) && !memcmp(&want, &out[at], sizeof want);
    TN_CHECK_MSG(same && !jobs[0].st && !jobs[1].st, "two threads get other rows than one");
    tn_data_close(d);
}

/* ------------------------------------------------------------ epochs */

enum { N_SAMPLES = 103 }; /* B does not divide it: batches run across epochs */

/* Window i of the file starts with the number i; 5 bytes behind the last window are left out. */
static const char *write_numbered(const char *name)
{
    static uint8_t text[N_SAMPLES * S + 1 + 5];
    for (int i = 0; i < N_SAMPLES; i++) text[i * S] = (uint8_t)i;
    return tn_scratch_write(name, text, sizeof text);
}

static void epochs(void)
{
    tn_data_path path = {.pattern = write_numbered("numbered")};
    tn_data_options o = text_options(&path, 1);
    tn_data *d = NULL;
    int order[3][N_SAMPLES], moved[3] = {0}, equal = 0;
    for (int shuffled = 0; shuffled < 2; shuffled++) {
        o.shuffle = shuffled;
        if (!TN_CHECK_OK(tn_data_open(&o, &d))) return;
        TN_CHECK(tn_data_about(d)->samples[TN_DATA_TRAIN] == N_SAMPLES);
        TN_CHECK(tn_data_steps(d, TN_DATA_TRAIN) == INT64_MAX);
        for (int64_t i = 0; i < 3 * N_SAMPLES; i++) {
            step s;
            if (i % B == 0 || i == 0) get(d, TN_DATA_TRAIN, i / B, &s);
            get(d, TN_DATA_TRAIN, i / B, &s);
            order[i / N_SAMPLES][i % N_SAMPLES] = s.x[0][i % B][0];
        }
        for (int e = 0; e < 3; e++) {
            int seen[N_SAMPLES] = {0}, once = 0;
            moved[e] = 0;
            for (int i = 0; i < N_SAMPLES; i++) {
                moved[e] += order[e][i] != i;
                if (order[e][i] >= 0 && order[e][i] < N_SAMPLES) once += seen[order[e][i]]++ == 0;
            }
            TN_CHECK_MSG(once == N_SAMPLES, "epoch %d visits %d of %d samples", e, once, N_SAMPLES);
        }
        tn_data_close(d);
    }
    for (int i = 0; i < N_SAMPLES; i++) equal += order[0][i] == order[1][i];
    TN_CHECK_MSG(moved[0] > 90 && moved[1] > 90 && equal < 10, "a shuffle that hardly shuffles");

    o.shuffle = false;
    TN_CHECK_OK(tn_data_open(&o, &d));
    step s;
    get(d, TN_DATA_TRAIN, N_SAMPLES / B, &s); /* 103 = 20 * 5 + 3: rows 3 and 4 begin epoch 1 */
    TN_CHECK(s.x[0][2][0] == N_SAMPLES - 1 && s.x[0][3][0] == 0 && s.x[0][4][0] == 1);
    tn_data_close(d);
}

/* `epochs` bounds the run: only whole batches, and the message says what would do. */
static void limited_epochs(void)
{
    tn_data_path path = {.pattern = write_numbered("numbered")};
    tn_data_options o = text_options(&path, 1);
    tn_data *d = NULL;
    step s;
    tn_data_batch out = whole(&s);
    o.epochs = 2;
    if (!TN_CHECK_OK(tn_data_open(&o, &d))) return;
    TN_CHECK(tn_data_steps(d, TN_DATA_TRAIN) == 41); /* 206 / 5 */
    TN_CHECK_OK(tn_data_check_steps(d, 41));
    TN_CHECK_FAILS(tn_data_check_steps(d, 42), TN_BAD_INPUT,
                   "training.steps: 42 steps of 5 samples are more than data.epochs = 2 of 103 "
                   "samples; use at most 41 "
                   "steps, or data.epochs = 3");
    TN_CHECK_OK(tn_data_rows(d, TN_DATA_TRAIN, 40, 0, B, &out));
    TN_CHECK_FAILS(tn_data_rows(d, TN_DATA_TRAIN, 41, 0, 1, &out), TN_BAD_INPUT,
                   "data: training step 41, counted from 0, is behind the last of 41; ");
    tn_data_close(d);
}

/* ------------------------------------------------------------ stream, documents, validation */

/* Everything about one row, from the bytes and the rule alone. */
static bool row_is(const step *s, int row, const char *text, int64_t first, bool packed)
{
    bool good = true;
    int32_t position = 0, document = 0;
    for (int i = 0; i < S; i++) {
        bool starts = packed && i > 0 && text[first + i - 1] == '\n',
             next = packed && text[first + i] == '\n';
        position = starts ? 0 : i > 0 ? position + 1 : 0;
        document += starts;
        good &= s->x[0][row][i] == text[first + i];
        good &= s->x[1][row][i] == (next ? TN_DATA_NO_TARGET : text[first + i + 1]);
        good &= s->x[2][row][i] == position && s->x[3][row][i] == document;
    }
    return good;
}

static int64_t read_text(const char *path, char *text, size_t size)
{
    FILE *f = fopen(path, "rb");
    size_t n = f ? fread(text, 1, size, f) : 0;
    if (f) fclose(f);
    return (int64_t)n;
}

static int64_t count_lines(const char *text, int64_t n)
{
    int64_t lines = 0;
    for (int64_t i = 0; i < n; i++) lines += text[i] == '\n';
    return lines;
}

/* Without a shuffle every row is known: training is the front of the file, validation the last
 * share of its lines. */
static void splits(const char *path, double share, bool packed)
{
    static char text[1 << 16];
    tn_data_path p = {.pattern = path};
    tn_data_options o = text_options(&p, 1);
    tn_data *d = NULL;
    step s;
    int64_t n = read_text(path, text, sizeof text), lines = count_lines(text, n);
    o.shuffle = false;
    o.validation = share;
    o.packing = packed ? "documents" : "stream";
    if (!TN_CHECK_OK(tn_data_open(&o, &d))) return;
    const tn_data_info *info = tn_data_about(d);
    int64_t cut = info->tokens[TN_DATA_TRAIN], held = info->tokens[TN_DATA_VALIDATION];
    TN_CHECK(info->files == 1 && info->mapped_bytes == n && cut + held == n);
    TN_CHECK(cut == 0 || text[cut - 1] == '\n');
    TN_CHECK(count_lines(text + cut, held) == (int64_t)floor((double)lines * share + 0.5));
    TN_CHECK(info->documents[TN_DATA_VALIDATION] == count_lines(text + cut, held));
    TN_CHECK(info->documents[TN_DATA_TRAIN] == count_lines(text, cut));

    bool good = true;
    int64_t n_train = info->samples[TN_DATA_TRAIN], n_held = info->samples[TN_DATA_VALIDATION];
    TN_CHECK(n_train == (cut ? (cut - 1) / S : 0) && n_held == (held - 1) / S);
    for (int64_t i = 0; i < n_train; i++)
        good &= get(d, TN_DATA_TRAIN, i / B, &s) && row_is(&s, (int)(i % B), text, i * S, packed);
    TN_CHECK_MSG(good, "share %g, packed %d: a training row is wrong", share, packed);

    int64_t steps = tn_data_steps(d, TN_DATA_VALIDATION), targets = 0;
    TN_CHECK(steps == (n_held + B - 1) / B);
    for (int64_t i = 0; i < steps * B; i++) {
        get(d, TN_DATA_VALIDATION, i / B, &s);
        for (int k = 0; k < S; k++) targets += s.x[1][i % B][k] != TN_DATA_NO_TARGET;
        if (i < n_held) good &= row_is(&s, (int)(i % B), text, cut + i * S, packed);
        for (int k = 0; k < S && i >= n_held; k++)
            good &= s.x[0][i % B][k] == 0 && s.x[2][i % B][k] == k && s.x[3][i % B][k] == 0;
    }
    TN_CHECK_MSG(good, "share %g, packed %d: a held-out row is wrong", share, packed);
    TN_CHECK(targets == n_held * S - (packed ? count_lines(text + cut, n_held * S)
                                             : 0)); /* padding has none */
    tn_data_batch out = whole(&s);
    TN_CHECK_FAILS(tn_data_rows(d, TN_DATA_VALIDATION, steps, 0, 1, &out), TN_BAD_INPUT,
                   "data: validation step ");
    tn_data_close(d);
}

/* The held-out rows do not depend on seed or shuffle, and a shuffled epoch never shows one of them.
 */
static void held_out_stays_out(void)
{
    static uint8_t text[200 * S + 1];
    for (int i = 0; i < 200; i++) {
        text[i * S] = (uint8_t)i;
        text[i * S + S - 1] = 255;
        if (i == 159)
            text[i * S + S - 1] =
                'x'; /* 160 windows before the only line end that makes two documents */
    }
    for (int i = 0; i < 200 * S; i++) text[i] = text[i] == '\n' ? 11 : text[i];
    text[160 * S - 1] = '\n';
    tn_data_path path = {.pattern = tn_scratch_write("held", text, sizeof text)};
    tn_data_options o = text_options(&path, 1);
    tn_data *d = NULL;
    step s;
    o.validation = 0.5; /* of two documents */
    if (!TN_CHECK_OK(tn_data_open(&o, &d))) return;
    TN_CHECK(tn_data_about(d)->tokens[TN_DATA_TRAIN] == 160 * S);
    bool in = true, out = true;
    for (int64_t i = 0; i < 1000; i++)
        in &= get(d, TN_DATA_TRAIN, i / B, &s) && s.x[0][i % B][0] < 160;
    for (int64_t i = 0; i < 40; i++)
        out &= get(d, TN_DATA_VALIDATION, i / B, &s) && s.x[0][i % B][0] == 160 + i;
    TN_CHECK_MSG(in && out, "held-out samples are trained on");
    tn_data_close(d);
}

/* ------------------------------------------------------------ mixtures */

/* Three quarters of the samples from one file, a quarter from the other; each file has epochs of
 * its own. */
static void mixture(void)
{
    static uint8_t text[2][N_SAMPLES * S + 1];
    for (int i = 0; i < N_SAMPLES; i++)
        text[0][i * S] = (uint8_t)i, text[1][i * S] = (uint8_t)(128 + i);
    tn_data_path paths[] = {
        {.pattern = tn_scratch_write("m0", text[0], sizeof text[0]), .weight = 0.75},
        {.pattern = tn_scratch_write("m1", text[1], 50 * S + 1), .weight = 0.25}};
    tn_data_options o = text_options(paths, 2);
    tn_data *d = NULL;
    step s;
    if (!TN_CHECK_OK(tn_data_open(&o, &d))) return;
    TN_CHECK(tn_data_about(d)->samples[TN_DATA_TRAIN] == N_SAMPLES + 50);
    int64_t seen[2] = {0}, visits[2][N_SAMPLES] = {{0}};
    bool whole_epochs = true;
    for (int64_t i = 0; i < 4000; i++) {
        get(d, TN_DATA_TRAIN, i / B, &s);
        int32_t id = s.x[0][i % B][0];
        int k = id >= 128;
        visits[k][id % 128]++;
        if (++seen[k] % (k ? 50 : N_SAMPLES)) continue;
        for (int w = 0; w < (k ? 50 : N_SAMPLES); w++)
            whole_epochs &= visits[k][w] == seen[k] / (k ? 50 : N_SAMPLES);
    }
    TN_CHECK_MSG(whole_epochs, "a source of a mixture repeats before its epoch ends");
    TN_CHECK_MSG(seen[0] == 3000 && seen[1] == 1000, "%lld to %lld samples", (long long)seen[0],
                 (long long)seen[1]);
    tn_data_close(d);

    /* The source that runs out first ends the run: 50 samples of every fourth place. */
    o.epochs = 1;
    if (!TN_CHECK_OK(tn_data_open(&o, &d))) return;
    int64_t steps = tn_data_steps(d, TN_DATA_TRAIN), most[2] = {0};
    memset(visits, 0, sizeof visits);
    for (int64_t i = 0; i < steps * B; i++) {
        get(d, TN_DATA_TRAIN, i / B, &s);
        int k = s.x[0][i % B][0] >= 128;
        int64_t *v = &visits[k][s.x[0][i % B][0] % 128];
        if (++*v > most[k]) most[k] = *v;
    }
    TN_CHECK_MSG(steps == 27 && most[0] == 1 && most[1] == 1, "%lld steps",
                 (long long)steps); /* 103 / 0.75 = 137 */
    tn_data_close(d);
}

/* ------------------------------------------------------------ edges */

static void refused(tn_data_options o, const char *message)
{
    tn_data *d = NULL;
    TN_CHECK_FAILS(tn_data_open(&o, &d), TN_BAD_INPUT, message);
    TN_CHECK(d == NULL);
}

static void wrong_settings(void)
{
    tn_data_path path = {
        .pattern = tn_scratch_text("w", "one\ntwo\nthree\nfour\nfive\n")}; /* 24 bytes, 5 lines */
    const tn_data_options good = text_options(&path, 1);
    tn_data_options o;
    o = good, o.source = "txt";
    refused(o, "data.source: 'txt' is unknown; use text, jsonl, tokens, batches, random");
    o = good, o.section = "validation.data", o.document = "lines";
    refused(o, "validation.data.document: 'lines' is unknown; use line, blank_line, file");
    o = good, o.packing = "best_fit";
    refused(o, "data.packing: 'best_fit' is unknown; use stream, documents");
    o = good, o.tokenizer = "tokenizer.json";
    refused(o, "data.tokenizer: 'tokenizer.json': no such file; use bytes");
    o = good, o.validation = 1.5;
    refused(o, "data.validation: 1.5 is no share; use 0 to 1, ");
    o = good, o.validation = NAN;
    refused(o, "data.validation: nan is no share; ");
    o = good, o.epochs = -1;
    refused(o, "data.epochs: -1 is negative; ");
    o = good, o.seq_len = 0;
    refused(o, "training.seq_len: 0 is out of range; use 1 to ");
    o = good, o.global_batch = 0;
    refused(o, "training.global_batch_size: 0 is out of range; ");
    o = good, o.vocab_size = 0;
    refused(o, "model.vocab_size: 0 is out of range; ");
    o = good, o.vocab_size = 'w';
    refused(o, "w' holds id 119 at offset 5, and model.vocab_size is 119; use 256");
    o = good, o.n_paths = 0;
    refused(o, "data.path: no file is given; ");
    o = good, o.seq_len = 24;
    refused(o, "w' holds 24 tokens, fewer than one sample of training.seq_len + 1 = 25; use more "
               "text or seq_len = 23");
    o.seq_len = 23;
    tn_data *d = NULL;
    TN_CHECK_OK(tn_data_open(&o, &d)); /* what the message proposes works */
    tn_data_close(d);
    o = good, o.validation = 0.05;
    refused(o, "holds out 0 documents with 0 tokens, fewer than one sample of training.seq_len + 1 "
               "= 9; hold out "
               "about 0.38");
    o = good, o.validation = 0.2;
    refused(o, "data.validation: 0.2 of '");
    o = good, o.validation = 0.9;
    refused(o, "leaves 0 documents with 0 tokens to train on, fewer than one sample of "
               "training.seq_len + 1 = 9; "
               "hold out less");
    o = good, o.document = "file", o.validation = 0.02;
    refused(o, "holds out 0 documents with 0 tokens, ");
    path.pattern = tn_scratch_text("empty", "");
    refused(good, "empty' is empty; ");

    tn_data_path list[] = {{.pattern = write_lines("a", 40), .weight = 1},
                           {.pattern = write_lines("b", 40)}};
    const tn_data_options two = text_options(list, 2);
    refused(two, "data.path: 1 of 2 entries have a weight; give every entry one above 0, or none");
    list[1].weight = -1;
    refused(two, "data.path: weight -1 of '");
    list[1].weight = INFINITY;
    refused(two, "data.path: weight inf of '");
    list[1].weight = 1e-7;
    refused(two, "is less than 1/4096 of all; raise it or leave the entry out");
    list[1].weight = 1, list[1].pattern = tn_scratch_text("b", "short");
    refused(two, "b' holds 5 tokens, fewer than one sample");
}

/* Data that only validates, for a section of its own. */
static void only_validation(void)
{
    tn_data_path path = {.pattern = write_lines("v", 60)};
    tn_data_options o = text_options(&path, 1);
    tn_data *d = NULL;
    o.section = "validation.data", o.validation = 1;
    if (!TN_CHECK_OK(tn_data_open(&o, &d))) return;
    TN_CHECK(tn_data_about(d)->tokens[TN_DATA_TRAIN] == 0 && tn_data_steps(d, TN_DATA_TRAIN) == 0);
    TN_CHECK_FAILS(tn_data_check_steps(d, 1), TN_BAD_INPUT,
                   "validation.data.validation: 1 holds everything out, ");
    tn_data_close(d);
}

static tn_status open_and_close(void *arg)
{
    tn_data *d;
    TN_TRY(tn_data_open(arg, &d));
    tn_data_close(d);
    return TN_OK;
}

int main(void)
{
    purity();
    threads();
    epochs();
    limited_epochs();
    const char *lines = write_lines("lines", 200);
    const double shares[] = {0.02, 0.1, 0.5, 0.97, 1};
    for (int i = 0; i < TN_COUNT(shares); i++)
        splits(lines, shares[i], false), splits(lines, shares[i], true);
    held_out_stays_out();
    mixture();
    wrong_settings();
    only_validation();
    tn_data_path list[] = {{.pattern = write_lines("a", 40), .weight = 1},
                           {.pattern = write_lines("b", 40), .weight = 2}};
    tn_data_options o = text_options(list, 2);
    TN_CHECK(tn_test_each_alloc(open_and_close, &o) >= 10);
    o = (tn_data_options){.source = "nothing"};
    TN_CHECK_FAILS(open_and_close(&o), TN_BAD_INPUT, "data.source: ");
    return tn_test_done("data");
}
