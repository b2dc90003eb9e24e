/* test_data_sources.c - batches from a safetensors file, exact to the last value and refused with
 * the place of what is wrong; random ids, uniform and reproducible. */
#include "engine/data.h"
#include "tests/scratch.h"
#include "tests/test.h"

#include <math.h>

enum { N = 3, B = 4, S = 5, ALL = N * B * S, V = 50 };

/* ------------------------------------------------------------ a file of batches */

/* What the test files hold; shapes and types are text, so that each test can spoil one. */
typedef struct content {
    const char *names[4], *dtypes[4], *shapes[4];
    int64_t x[4][ALL];
    int n_tensors;
} content;

static content make_content(int n_tensors)
{
    content c = {.names = {"input_ids", "labels", "positions", "documents"},
                 .n_tensors = n_tensors};
    for (int k = 0; k < 4; k++) {
        c.dtypes[k] = "I32";
        c.shapes[k] = "[3,4,5]";
        for (int i = 0; i < ALL; i++)
            c.x[k][i] = k == 0 ? i % V : k == 1 ? (i * 7 + 1) % V : k == 2 ? i % S % 3 : i % S / 3;
    }
    for (int i = 0; i < ALL; i += 6) c.x[1][i] = TN_DATA_NO_TARGET;
    return c;
}

/* Header and bytes by hand: the reader is judged by the format, not by titan's own writer. */
static const char *write_content(const char *name, const content *c)
{
    static char file[1 << 14];
    char header[1024];
    size_t at = 0, n = 0;
    int h = snprintf(header, sizeof header, "{");
    for (int k = 0; k < c->n_tensors; k++) {
        size_t bytes = strcmp(c->dtypes[k], "I64") == 0 ? 8 : 4;
        h += snprintf(header + h, sizeof header - (size_t)h,
                      "%s\"%s\":{\"dtype\":\"%s\",\"shape\":%s,\"data_offsets\":[%zu,%zu]}",
                      k ? "," : "", c->names[k], c->dtypes[k], c->shapes[k], at, at + ALL * bytes);
        at += ALL * bytes;
    }
    h += snprintf(header + h, sizeof header - (size_t)h, "}");
    uint64_t length = (uint64_t)h;
    memcpy(file, &length, 8);
    memcpy(file + 8, header, (size_t)h);
    n = 8 + (size_t)h;
    for (int k = 0; k < c->n_tensors; k++) {
        for (int i = 0; i < ALL; i++) {
            int32_t small = (int32_t)c->x[k][i];
            size_t bytes = strcmp(c->dtypes[k], "I64") == 0 ? 8 : 4;
            memcpy(file + n, bytes == 8 ? (const void *)&c->x[k][i] : (const void *)&small, bytes);
            n += bytes;
        }
    }
    return tn_scratch_write(name, file, n);
}

static tn_data_options batches(const tn_data_path *path)
{
    return (tn_data_options){.source = "batches",
                             .paths = path,
                             .n_paths = 1,
                             .seq_len = S,
                             .global_batch = B,
                             .vocab_size = V,
                             .shuffle = true}; /* must mean nothing here */
}

/* All steps of a split, one row at a time, backwards, against elements [first, ...) of the file. */
static void compare(const tn_data *d, tn_data_split split, int64_t steps, const content *c,
                    int64_t first)
{
    bool good = true;
    TN_CHECK(tn_data_steps(d, split) == steps);
    for (int64_t step = steps - 1; step >= 0; step--) {
        for (int64_t row = B - 1; row >= 0; row--) {
            int32_t x[4][S];
            tn_data_batch out = {x[0], x[1], x[2], x[3]};
            if (!TN_CHECK_OK(tn_data_rows(d, split, step, row, 1, &out))) return;
            for (int i = 0; i < S; i++) {
                int64_t at = first + (step % N * B + row) * S + i;
                good &= x[0][i] == c->x[0][at] && x[1][i] == c->x[1][at];
                good &= x[2][i] == (c->n_tensors > 2 ? c->x[2][at] : i);
                good &= x[3][i] == (c->n_tensors > 3 ? c->x[3][at] : 0);
            }
        }
    }
    TN_CHECK_MSG(good, "batches differ from the file");
}

static void exact_batches(void)
{
    for (int n_tensors = 2; n_tensors <= 4; n_tensors++) {
        for (int wide = 0; wide < 2; wide++) {
            content c = make_content(n_tensors);
            for (int k = 0; k < 4 && wide; k++) c.dtypes[k] = "I64";
            tn_data_path path = {.pattern = write_content("exact", &c)};
            tn_data_options o = batches(&path);
            tn_data *d = NULL;
            if (!TN_CHECK_OK(tn_data_open(&o, &d))) continue;
            TN_CHECK(tn_data_about(d)->samples[TN_DATA_TRAIN] == N * B);
            compare(d, TN_DATA_TRAIN, N, &c, 0);
            TN_CHECK_OK(tn_data_check_steps(d, N));
            TN_CHECK_FAILS(tn_data_check_steps(d, N + 1), TN_BAD_INPUT,
                           "training.steps: 4 steps of 4 samples are more than data.epochs = 1 of "
                           "12 samples; use at most 3 "
                           "steps, or data.epochs = 2");
            int32_t ids[S];
            tn_data_batch out = {.ids_bs = ids};
            int64_t allocs = tn_mem_count();
            TN_CHECK_OK(tn_data_rows(d, TN_DATA_TRAIN, 0, 0, 1, &out));
            TN_CHECK(tn_mem_count() == allocs);
            TN_CHECK_FAILS(tn_data_rows(d, TN_DATA_TRAIN, N, 0, 1, &out), TN_BAD_INPUT,
                           "data: training step 3, counted from 0");
            tn_data_close(d);
        }
    }
    /* The last batches may be held out, and all be seen again. */
    content c = make_content(4);
    tn_data_path path = {.pattern = write_content("held", &c)};
    tn_data_options o = batches(&path);
    tn_data *d = NULL;
    o.epochs = 2;
    if (TN_CHECK_OK(tn_data_open(&o, &d))) compare(d, TN_DATA_TRAIN, 2 * N, &c, 0);
    tn_data_close(d);
    o.epochs = 0, o.validation = 0.34;
    if (TN_CHECK_OK(tn_data_open(&o, &d))) {
        compare(d, TN_DATA_TRAIN, 2, &c, 0);
        compare(d, TN_DATA_VALIDATION, 1, &c, 2 * B * S);
        tn_data_close(d);
    }
}

static void refused(const content *c, const char *message)
{
    tn_data_path path = {.pattern = write_content("wrong", c)};
    tn_data_options o = batches(&path);
    tn_data *d = NULL;
    TN_CHECK_FAILS(tn_data_open(&o, &d), TN_BAD_INPUT, message);
    TN_CHECK(d == NULL);
}

static void wrong_batches(void)
{
    content c;
    c = make_content(2), c.x[0][2 * B * S + 3 * S + 1] = V;
    refused(&c, "wrong': input_ids[2, 3, 1] is 50; use 0 to 49 (model.vocab_size)");
    c = make_content(2), c.x[0][7] = TN_DATA_NO_TARGET;
    refused(&c, "wrong': input_ids[0, 1, 2] is -100; use 0 to 49 (model.vocab_size)");
    c = make_content(2), c.x[1][ALL - 1] = V;
    refused(&c,
            "wrong': labels[2, 3, 4] is 50; use 0 to 49 (model.vocab_size), or -100 for no target");
    c = make_content(2), c.x[1][0] = -1;
    refused(&c, "wrong': labels[0, 0, 0] is -1; ");
    c = make_content(4), c.x[2][20] = S;
    refused(&c, "wrong': positions[1, 0, 0] is 5; use 0 to 4 (training.seq_len)");
    c = make_content(4), c.x[3][59] = -1;
    refused(&c, "wrong': documents[2, 3, 4] is -1; ");
    c = make_content(2), c.dtypes[0] = "I64", c.x[0][8] = (1ll << 40) + 1;
    refused(&c, "input_ids");
    c = make_content(2), c.dtypes[1] = "F32";
    refused(&c, "wrong': labels is F32; write it as I32 or I64");
    c = make_content(2), c.names[1] = "targets";
    refused(&c, "wrong' has no tensor labels; a file of batches holds input_ids and labels");
    c = make_content(1);
    refused(&c, "has no tensor labels; ");
    c = make_content(2), c.shapes[0] = c.shapes[1] = "[12,5]";
    refused(&c, "wrong': input_ids is [12, 5], and the recipe asks for [N, 4, 5] ");
    c = make_content(2), c.shapes[0] = c.shapes[1] = "[4,3,5]";
    refused(&c, "wrong': input_ids is [4, 3, 5], and the recipe asks for [N, 4, 5] ");
    c = make_content(2), c.shapes[0] = c.shapes[1] = "[3,5,4]";
    refused(&c, "input_ids is [3, 5, 4], ");
    c = make_content(3), c.shapes[2] = "[1,12,5]";
    refused(&c, "wrong': positions is [1, 12, 5], and input_ids has 3 batches; ");

    content good = make_content(2);
    tn_data_path paths[] = {{.pattern = write_content("good", &good)}, {.pattern = "other"}};
    const tn_data_options o = batches(paths);
    tn_data_options x;
    tn_data *d = NULL;
    x = o, x.n_paths = 2;
    TN_CHECK_FAILS(tn_data_open(&x, &d), TN_BAD_INPUT,
                   "data.path: 2 files are given; name one safetensors file");
    x = o, x.n_paths = 0;
    TN_CHECK_FAILS(tn_data_open(&x, &d), TN_BAD_INPUT, "data.path: 0 files are given; ");
    x = o, x.packing = "documents";
    TN_CHECK_FAILS(tn_data_open(&x, &d), TN_BAD_INPUT, "data.packing: batches are exact data");
    x = o, x.validation = 0.1;
    TN_CHECK_FAILS(tn_data_open(&x, &d), TN_BAD_INPUT,
                   "data.validation: 0.1 of 3 batches is none; hold out 0.33 or more");
    x = o, x.validation = 0.9;
    TN_CHECK_FAILS(tn_data_open(&x, &d), TN_BAD_INPUT,
                   "data.validation: 0.9 of 3 batches leaves none to train on; ");
    x = o, paths[0].pattern = tn_scratch_path("nowhere.safetensors");
    TN_CHECK_FAILS(tn_data_open(&x, &d), TN_BAD_INPUT, "nowhere.safetensors");
    paths[0].pattern = tn_scratch_text("text", "this is no tensor file at all");
    TN_CHECK_FAILS(tn_data_open(&x, &d), TN_BAD_INPUT, "while opening data.path");
    paths[0].pattern = tn_scratch_text("empty", "");
    TN_CHECK_FAILS(tn_data_open(&x, &d), TN_BAD_INPUT, "while opening data.path");
    TN_CHECK(d == NULL);
}

/* A real file of the golden set, read here by its offsets: positions and documents as PyTorch wrote
 * them. */
static void golden_packed(void)
{
    enum { STEPS = 20, ROWS = 2, LENGTH = 100, COUNT = STEPS * ROWS * LENGTH };
    static const char *const names[] = {"\"input_ids\"", "\"labels\"", "\"positions\"",
                                        "\"documents\""};
    static char file[1 << 18];
    static int32_t x[4][COUNT];
    const char *name = tn_test_golden("llama/packed/train.safetensors");
    FILE *f = name ? fopen(name, "rb") : NULL;
    if (!f) return;
    size_t n = fread(file, 1, sizeof file - 1, f);
    fclose(f);
    uint64_t length;
    memcpy(&length, file, 8);
    tn_data_path path = {.pattern = name};
    tn_data_options o = {.source = "batches",
                         .paths = &path,
                         .n_paths = 1,
                         .seq_len = LENGTH,
                         .global_batch = ROWS,
                         .vocab_size = 200};
    tn_data *d = NULL;
    if (!TN_CHECK_OK(tn_data_open(&o, &d))) return;
    for (int64_t s = 0; s < STEPS; s++) {
        int64_t at = s * ROWS * LENGTH;
        tn_data_batch out = {x[0] + at, x[1] + at, x[2] + at, x[3] + at};
        TN_CHECK_OK(tn_data_rows(d, TN_DATA_TRAIN, s, 0, ROWS, &out));
    }
    tn_data_close(d);
    for (int k = 0; k < 4; k++) {
        const char *entry = strstr(file + 8, names[k]),
                   *offset = entry ? strstr(entry, "\"data_offsets\":[") : NULL;
        if (!TN_CHECK(offset)) continue;
        size_t begin = 8 + length + strtoul(offset + strlen("\"data_offsets\":["), NULL, 10);
        TN_CHECK_MSG(begin + sizeof x[k] <= n && memcmp(file + begin, x[k], sizeof x[k]) == 0,
                     "%s differs", names[k]);
    }
    o.vocab_size = 150;
    TN_CHECK_FAILS(tn_data_open(&o, &d), TN_BAD_INPUT, "use 0 to 149 (model.vocab_size)");
}

/* ------------------------------------------------------------ random */

static void random_ids(void)
{
    enum { R = 64, L = 128, WORDS = 40, STEPS = 8 };
    tn_data_options o = {.source = "random",
                         .seq_len = L,
                         .global_batch = R,
                         .vocab_size = WORDS,
                         .seed = 7,
                         .shuffle = true};
    static int32_t x[4][R * L], y[R * L];
    tn_data *d = NULL;
    if (!TN_CHECK_OK(tn_data_open(&o, &d))) return;
    TN_CHECK(tn_data_steps(d, TN_DATA_TRAIN) == INT64_MAX &&
             tn_data_steps(d, TN_DATA_VALIDATION) == 0);
    TN_CHECK_OK(tn_data_check_steps(d, 1ll << 40));

    int64_t count[WORDS] = {0}, pairs = 0, again = 0;
    bool shifted = true, inside = true, plain = true, same = true;
    for (int64_t s = 0; s < STEPS; s++) {
        tn_data_batch out = {x[0], x[1], x[2], x[3]}, labels_only = {.labels_bs = y};
        TN_CHECK_OK(tn_data_rows(d, TN_DATA_TRAIN, s << 30, 0, R, &out));
        TN_CHECK_OK(tn_data_rows(d, TN_DATA_TRAIN, s << 30, 0, R, &labels_only));
        same &= memcmp(x[1], y, sizeof y) == 0;
        for (int i = 0; i < R * L; i++) {
            inside &= x[0][i] >= 0 && x[0][i] < WORDS && x[1][i] >= 0 && x[1][i] < WORDS;
            plain &= x[2][i] == i % L && x[3][i] == 0;
            if (i % L != L - 1) shifted &= x[1][i] == x[0][i + 1];
            count[x[0][i] % WORDS]++;
            pairs += x[1][i] == x[0][i];
            again += i >= L && x[0][i] == x[0][i - L];
        }
    }
    TN_CHECK(shifted && inside && plain && same);
    double chi2 = 0, mean = (double)STEPS * R * L / WORDS;
    for (int k = 0; k < WORDS; k++)
        chi2 += ((double)count[k] - mean) * ((double)count[k] - mean) / mean;
    TN_CHECK_MSG(chi2 < 80, "chi2 %.1f with 39 degrees of freedom", chi2); /* p = 1e-4 */
    double n = (double)STEPS * R * L, sigma = sqrt(n / WORDS);
    TN_CHECK_MSG(fabs((double)pairs - n / WORDS) < 4.5 * sigma, "neighbours are alike %lld times",
                 (long long)pairs);
    TN_CHECK_MSG(fabs((double)again - n / WORDS) < 4.5 * sigma, "rows are alike %lld times",
                 (long long)again);
    tn_data_close(d);

    tn_data_path path = {.pattern = "x"};
    tn_data_options w;
    w = o, w.paths = &path, w.n_paths = 1;
    TN_CHECK_FAILS(tn_data_open(&w, &d), TN_BAD_INPUT,
                   "data.path: random ids come from no file; leave it out");
    w = o, w.validation = 0.1;
    TN_CHECK_FAILS(tn_data_open(&w, &d), TN_BAD_INPUT,
                   "data.validation: random ids have nothing to hold out");
    w = o, w.epochs = 1;
    TN_CHECK_FAILS(tn_data_open(&w, &d), TN_BAD_INPUT, "data.epochs: random ids never repeat");
    w = o, w.packing = "documents";
    TN_CHECK_FAILS(tn_data_open(&w, &d), TN_BAD_INPUT,
                   "data.packing: random ids have no documents");
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
    exact_batches();
    wrong_batches();
    golden_packed();
    random_ids();
    content c = make_content(4);
    tn_data_path path = {.pattern = write_content("alloc", &c)};
    tn_data_options o = batches(&path);
    TN_CHECK(tn_test_each_alloc(open_and_close, &o) >= 3);
    o = (tn_data_options){.source = "random", .seq_len = 4, .global_batch = 1, .vocab_size = 9};
    TN_CHECK(tn_test_each_alloc(open_and_close, &o) == 2);
    return tn_test_done("data_sources");
}
