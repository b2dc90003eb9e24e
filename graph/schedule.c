/* schedule.c - lists, and the faults that are found in them. */
#include "graph/schedule.h"

#include "graph/schedule_faults.h"

#include <stdarg.h>
#include <stdio.h>

enum { MAX_FAULTS = 8 };

/* ------------------------------------------------------------ faults */

void tn_schedule_fault(tn_schedule_faults *f, const char *fmt, ...)
{
    char line[800];
    const char *where = f->where ? f->where : "", *colon = f->where ? ": " : "";
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(line, sizeof line, fmt, ap);
    va_end(ap);
    if (f->n == 0) tn_error(TN_BAD_INPUT, "%s%s%s", where, colon, line);
    if (f->n > 0 && f->n < MAX_FAULTS) tn_error_note(TN_BAD_INPUT, "%s%s%s", where, colon, line);
    f->n++;
}

tn_status tn_schedule_faults_end(const tn_schedule_faults *f)
{
    if (f->n > MAX_FAULTS)
        tn_error_note(TN_BAD_INPUT, "and %lld more", (long long)(f->n - MAX_FAULTS));
    return f->n ? TN_BAD_INPUT : TN_OK;
}

/* ------------------------------------------------------------ lists */

tn_text_short tn_schedule_text(tn_schedule_action a)
{
    static const char ops[] = {'F', 'I', 'W', 'B'};
    tn_text_short t;
    snprintf(t.s, sizeof t.s, "%d%c%d", a.stage, a.kind < TN_COUNT(ops) ? ops[a.kind] : '?',
             a.microbatch);
    return t;
}

int32_t tn_schedule_v_rank(int32_t n_ranks, int32_t stage)
{
    return stage < n_ranks ? stage : 2 * n_ranks - 1 - stage;
}

tn_status tn_schedule_create(int32_t n_ranks, int32_t n_stages, int32_t n_microbatches,
                             const int32_t *rank_of, tn_schedule **out)
{
    tn_status st = TN_OK;
    tn_schedule *s = NULL;
    void *mem = NULL;
    if (n_ranks < 1 || n_stages < 1 || n_microbatches < 1)
        TN_FAIL(TN_BAD_INPUT,
                "pipeline schedule: %d ranks, %d stages, %d microbatches; each must be at least 1",
                n_ranks, n_stages, n_microbatches);
    if (n_stages % n_ranks)
        TN_FAIL(
            TN_BAD_INPUT,
            "pipeline schedule: %d ranks cannot share %d stages evenly; nearest: %d or %d stages",
            n_ranks, n_stages, n_stages < n_ranks ? n_ranks : n_stages / n_ranks * n_ranks,
            (n_stages / n_ranks + 1) * n_ranks);
    TN_TRY(tn_alloc(sizeof *s, &mem));
    s = mem;
    s->n_ranks = n_ranks;
    s->n_stages = n_stages;
    s->n_microbatches = n_microbatches;
    if ((st = tn_alloc((size_t)n_stages * sizeof *s->rank_of, &mem))) goto out;
    s->rank_of = mem;
    if ((st = tn_alloc((size_t)n_ranks * sizeof *s->lists, &mem))) goto out;
    s->lists = mem;
    for (int32_t i = 0; i < n_stages; i++) s->rank_of[i] = rank_of ? rank_of[i] : i % n_ranks;
    *out = s;
    s = NULL;
out:
    tn_schedule_destroy(s);
    return st;
}

void tn_schedule_destroy(tn_schedule *s)
{
    if (!s) return;
    for (int32_t r = 0; s->lists && r < s->n_ranks; r++) tn_free(s->lists[r].actions);
    tn_free(s->lists);
    tn_free(s->rank_of);
    tn_free(s);
}

tn_status tn_schedule_add(tn_schedule *s, int32_t rank, tn_schedule_action a)
{
    if (rank < 0 || rank >= s->n_ranks)
        TN_FAIL(TN_BAD_INPUT, "pipeline schedule: %s on rank %d; ranks are 0 to %d",
                tn_schedule_text(a).s, rank, s->n_ranks - 1);
    tn_schedule_list *l = &s->lists[rank];
    TN_TRY(tn_grow((void **)&l->actions, &l->capacity, l->n + 1, sizeof *l->actions));
    l->actions[l->n++] = a;
    return TN_OK;
}

tn_status tn_schedule_fits(const tn_schedule *s, const char *where, int32_t n_ranks,
                           int32_t n_microbatches)
{
    tn_schedule_faults f = {.where = where};
    if (s->n_ranks != n_ranks)
        tn_schedule_fault(&f,
                          "%d rows for parallelism.pipeline_parallel_degree = %d; one row per rank",
                          s->n_ranks, n_ranks);
    if (s->n_microbatches != n_microbatches)
        tn_schedule_fault(
            &f,
            "%d microbatches, the recipe makes %d (training.local_batch_size / parallelism."
            "pipeline_parallel_microbatch_size); nearest: training.local_batch_size = %d x "
            "microbatch size",
            s->n_microbatches, n_microbatches, s->n_microbatches);
    return tn_schedule_faults_end(&f);
}
