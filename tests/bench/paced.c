/* paced.c - a training run that takes its next step when it is told to, so that two programs can be
 * measured turn and turn about.
 *
 *     paced RECIPE [section.key=value ...]
 *
 * Says `ready PARAMETERS`; then each line on standard input runs one step, which is answered with
 * its milliseconds, those of processor time over all threads, and its loss. The steps are those of
 * the training loop itself (engine/train.h). Ends at the end of the input. torch_step.py speaks the
 * same way; bench_step.py listens.
 */
#include "graph/cost.h"
#include "lua/session.h"

#include <stdio.h>
#include <time.h>

typedef struct run {
    tn_session s;
    volatile int stop;
    double cpu_s; /* when the step began */
} run;

static double cpu_s(void)
{
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static bool told(run *q)
{
    char line[64];
    bool more = fgets(line, sizeof line, stdin) != NULL;
    q->cpu_s = cpu_s();
    return more;
}

static tn_status on_step(void *user, const tn_train_report *r)
{
    run *q = user;
    printf("%.4f %.4f %.6f\n", 1e3 * r->step_s, 1e3 * (cpu_s() - q->cpu_s), r->loss);
    fflush(stdout);
    if (!told(q)) q->stop = 1;
    return TN_OK;
}

static tn_status steps(run *q)
{
    const tn_session *s = &q->s;
    int64_t n = tn_recipe_int(s->recipe, "training.steps");
    tn_train_options o = {.train = s->train_exec,
                          .data = s->data,
                          .steps = n,
                          .global_batch = s->global_batch,
                          .seq = s->shape.seq,
                          .stop = &q->stop,
                          .user = q,
                          .on_step = on_step};
    TN_TRY(tn_lr_init(&(tn_lr_options){.steps = n, .warmup_steps = n, .decay_ratio = -1}, &o.lr));
    printf("ready %lld\n", (long long)s->trains.cost.parameters);
    fflush(stdout);
    if (!told(q)) return TN_OK;
    tn_status st = tn_train_run(&o);
    return st == TN_STOPPED ? TN_OK : st;
}

int main(int argc, char **argv)
{
    run q = {.stop = 0};
    tn_recipe *recipe;
    if (argc < 2) {
        fprintf(stderr, "usage: paced RECIPE [section.key=value ...]\n");
        return 2;
    }
    tn_recipe_options o = {
        .path = argv[1], .overrides = (const char *const *)&argv[2], .n_overrides = argc - 2};
    tn_status st = tn_recipe_open(&o, &recipe);
    if (!st) {
        st = tn_session_plan(recipe, false, 0, &q.s);
        if (!st) st = tn_session_ready(&q.s);
        if (!st) st = steps(&q);
        tn_session_close(&q.s);
    }
    if (st) fprintf(stderr, "paced: %s\n", tn_error_text());
    return st ? 1 : 0;
}
