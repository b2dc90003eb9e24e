/* cmd_diff.c - `titan diff RUN_A RUN_B`: two dump folders. IDENTICAL when every logged loss and
 * gradient norm and every final weight has the same bits; else the first step and quantity that
 * differs, or the first tensor, and exit status 1. Times are not compared, weights where both runs
 * have them: a recorded curve is metrics alone. */
#include "checkpoints/diff.h"
#include "engine/base/file.h"
#include "engine/base/json.h"
#include "engine/base/mem.h"
#include "lua/commands.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

static const char *const quantities[] = {
    "loss", "grad_norm", "lr", "tokens", "valid_tokens", "validation_loss", "validation_tokens"};

enum { MAX_METRICS = 1 << 30 };

typedef struct metrics {
    char path[4096];
    char *text;
    int64_t n, at, line;
} metrics;

static tn_status open_metrics(const char *folder, metrics *m)
{
    if (!tn_file_is_folder(folder))
        TN_FAIL(TN_BAD_INPUT, "%s: no such folder; name the dump folder of a run", folder);
    snprintf(m->path, sizeof m->path, "%s/metrics.jsonl", folder);
    if (!tn_file_exists(m->path))
        TN_FAIL(TN_BAD_INPUT, "%s: no metrics.jsonl; a run writes it unless metrics.jsonl = false",
                folder);
    return tn_file_read(m->path, MAX_METRICS, &m->text, &m->n);
}

/* The next line as an object; NULL at the end. */
static tn_status next(metrics *m, const tn_json **out)
{
    char where[4160];
    *out = NULL;
    if (m->at >= m->n) return TN_OK;
    const char *begin = m->text + m->at, *end = memchr(begin, '\n', (size_t)(m->n - m->at));
    int64_t len = end ? end - begin : m->n - m->at;
    m->at += len + 1;
    m->line++;
    snprintf(where, sizeof where, "%s:%lld", m->path, (long long)m->line);
    return tn_json_parse(where, begin, len, out);
}

static bool same(const tn_json *a, const tn_json *b, double *x, double *y)
{
    bool in_a = tn_json_number(a, x), in_b = tn_json_number(b, y);
    if (!in_a && !in_b) return tn_json_kind_of(a) == tn_json_kind_of(b);
    return in_a && in_b && !memcmp(x, y, sizeof *x);
}

/* Compares one pair of lines; true when they agree. */
static bool compare_line(const tn_json *a, const tn_json *b)
{
    int64_t step = 0, other = 0;
    tn_json_int(tn_json_find(a, "step"), &step);
    tn_json_int(tn_json_find(b, "step"), &other);
    if (step != other) {
        printf("DIFFERENT: one run logs step %lld where the other logs step %lld\n",
               (long long)step, (long long)other);
        return false;
    }
    for (int i = 0; i < TN_COUNT(quantities); i++) {
        double x = NAN, y = NAN;
        if (same(tn_json_find(a, quantities[i]), tn_json_find(b, quantities[i]), &x, &y)) continue;
        printf("DIFFERENT: step %lld: %s %.17g and %.17g, difference %.3g\n", (long long)step,
               quantities[i], x, y, fabs(x - y));
        return false;
    }
    return true;
}

static tn_status compare_metrics(metrics *a, metrics *b, bool *equal, int64_t *lines)
{
    *equal = true;
    *lines = 0;
    while (*equal) {
        const tn_json *x, *y = NULL;
        TN_TRY(next(a, &x));
        tn_status st = next(b, &y);
        if (st) {
            tn_json_free(x);
            return st;
        }
        if (!x && !y) return TN_OK;
        if (!x || !y) {
            printf("DIFFERENT: %s ends after %lld lines, the other goes on\n",
                   x ? b->path : a->path, (long long)*lines);
            *equal = false;
        } else {
            *equal = compare_line(x, y);
        }
        tn_json_free(x);
        tn_json_free(y);
        ++*lines;
    }
    return TN_OK;
}

static tn_status compare_weights(const tn_args *a, bool *equal, int64_t *tensors)
{
    char x[4096], y[4096], text[1024];
    tn_diff_result r;
    snprintf(x, sizeof x, "%s/final", a->paths[0]);
    snprintf(y, sizeof y, "%s/final", a->paths[1]);
    if (!tn_file_is_folder(x) || !tn_file_is_folder(y)) return TN_OK;
    TN_TRY(tn_diff_folders(x, y, NULL, NULL, &r));
    *equal = r.identical;
    *tensors = r.n_tensors;
    if (!r.identical)
        printf("DIFFERENT: final: %lld of %lld tensors differ; %s\n", (long long)r.n_differ,
               (long long)r.n_tensors,
               tn_diff_text(&r.first, a->paths[0], a->paths[1], text, sizeof text));
    return TN_OK;
}

static tn_status diff(const tn_args *a, metrics *m)
{
    bool equal;
    int64_t lines, tensors = 0;
    TN_TRY(open_metrics(a->paths[0], &m[0]));
    TN_TRY(open_metrics(a->paths[1], &m[1]));
    TN_TRY(compare_metrics(&m[0], &m[1], &equal, &lines));
    if (equal) TN_TRY(compare_weights(a, &equal, &tensors));
    if (!equal)
        TN_FAIL(TN_FAILED, "diff: %s and %s are not the same run", a->paths[0], a->paths[1]);
    printf("IDENTICAL: %lld lines of metrics, %lld tensors\n", (long long)lines,
           (long long)tensors);
    return TN_OK;
}

tn_status tn_command_diff(const tn_args *a)
{
    void *mem;
    TN_TRY(tn_alloc(2 * sizeof(metrics), &mem));
    metrics *m = mem;
    tn_status st = diff(a, m);
    tn_free(m[0].text);
    tn_free(m[1].text);
    tn_free(mem);
    return st;
}
