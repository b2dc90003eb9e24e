/* cmd_train.c - `titan RECIPE`: everything is looked at first, then the run.
 *
 * Nothing is written before recipe, model, plan, data and memory have been found sound. What a run
 * leaves behind: config.lua, plan.txt, metrics.jsonl, final/ (docs/recipes.md). */
#include "engine/base/clock.h"
#include "engine/base/file.h"
#include "engine/base/json.h"
#include "engine/base/mem.h"
#include "engine/base/text.h"
#include "engine/tensorboard.h"
#include "graph/cost.h"
#include "kernels/cpu/peak.h"
#include "lua/commands.h"
#include "lua/profile.h"
#include "lua/report.h"
#include "lua/session.h"
#include "lua/stage_plan.h"
#include "lua/weights.h"

#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

typedef struct run {
    int64_t peak, of_peers; /* bytes, when they were last looked at */
    tn_session s;
    tn_file *metrics;
    tn_profile *profile;   /* NULL: no step is traced */
    tn_tensorboard *board; /* NULL: not asked for */
    bool quiet;
    tn_text line;
    const char *folder;
    tn_cost cost;
    int64_t log_freq, machine_bytes, done;
    double since_s, data_s, begun_s; /* of what is logged next */
    int64_t since_steps;
    bool bar;
    double exec_s, first_step_s; /* when: tn_clock_s */
} run;

static volatile int stop;

static void on_signal(int number)
{
    stop = number;
}

/* Of this rank: without the memory of others that it has mapped. */
static int64_t peak_rss(run *q)
{
    struct rusage u;
    getrusage(RUSAGE_SELF, &u);
    int64_t peak = (int64_t)u.ru_maxrss * 1024;
    if (q->s.comm && peak != q->peak) q->of_peers = tn_comm_peers_resident(q->s.comm);
    q->peak = peak;
    return peak - q->of_peers;
}

/* ------------------------------------------------------------ numbers out */

/* For people, unless they asked for quiet. */
static void say(const run *q, const char *fmt, ...) TN_PRINTF(2, 3);
static void say(const run *q, const char *fmt, ...)
{
    va_list ap;
    if (q->quiet) return;
    if (q->bar) fprintf(stderr, "\r\033[K");
    va_start(ap, fmt);
    vprintf(fmt, ap);
    va_end(ap);
    fflush(stdout);
}

/* What is logged of some steps; rates are those of one rank. */
typedef struct figures {
    double lr, took_s, tps, tflops, mfu; /* mfu: percent; of fp32 multiply-adds on CPUs */
    int64_t rss;
} figures;

/* Ranks that share cores share their units. */
static double peak_of_rank(const run *q)
{
    double threads = tn_pool_threads(q->s.device->cpu.pool),
           all = threads * (double)q->s.world.local_size;
    double share = all > tn_pool_cores() ? tn_pool_cores() / all : 1;
    return tn_peak_core() * threads * share;
}

static figures figures_of(run *q, const tn_train_report *r, double now)
{
    double ranks = q->s.world.size;
    figures f = {.lr = r->lr_factor * tn_recipe_num(q->s.recipe, "optimizer.lr"),
                 .took_s = now - q->since_s,
                 .rss = peak_rss(q)};
    f.tps = (double)(q->since_steps * q->s.global_batch * q->s.shape.seq) / f.took_s / ranks;
    f.tflops = q->cost.flops_per_token * f.tps / 1e12;
    f.mfu = 100 * f.tflops * 1e12 / peak_of_rank(q);
    return f;
}

static double gib(int64_t bytes)
{
    return (double)bytes / (1 << 30);
}

/* The names that TorchTitan gives them. */
static tn_status write_board(run *q, const tn_train_report *r, const figures *f)
{
    char lr[64];
    double n = (double)q->since_steps;
    int64_t planned = tn_session_memory(&q->s).total;
    if (!q->board) return TN_OK;
    snprintf(lr, sizeof lr, "lr/%s", tn_recipe_text(q->s.recipe, "optimizer.name"));
    const tn_tensorboard_scalar s[] = {
        {"loss_metrics/global_avg_loss", r->loss},
        {"grad_norm", (double)r->grad_norm},
        {"throughput(tps)", f->tps},
        {"tflops", f->tflops},
        {"mfu(%)", f->mfu},
        {"time_metrics/end_to_end(s)", f->took_s / n},
        {"time_metrics/data_loading(s)", q->data_s / n},
        {"time_metrics/data_loading(%)", 100 * q->data_s / f->took_s},
        {"memory/max_active(GiB)", gib(planned)},
        {"memory/max_active(%)", 100.0 * (double)planned / (double)q->machine_bytes},
        {"memory/max_reserved(GiB)", gib(f->rss)},
        {"memory/max_reserved(%)", 100.0 * (double)f->rss / (double)q->machine_bytes},
        {"n_tokens_seen", (double)r->tokens},
        {lr, f->lr},
    };
    return tn_tensorboard_put(q->board, r->step, s, TN_COUNT(s));
}

static void progress(const run *q, const tn_train_report *r, int64_t steps)
{
    char bar[31];
    int full = (int)(30 * r->step / steps);
    for (int i = 0; i < 30; i++) bar[i] = i < full ? '#' : '.';
    bar[30] = 0;
    double left = (tn_clock_s() - q->begun_s) / (double)r->step * (double)(steps - r->step);
    fprintf(stderr, "\r[%s] %lld/%lld  loss %.4f  %s left \033[K", bar, (long long)r->step,
            (long long)steps, r->loss, tn_text_seconds(left).s);
    if (r->step == steps) fprintf(stderr, "\r\033[K");
}

static tn_status write_metrics(run *q, const tn_train_report *r, const figures *f)
{
    tn_text *t = &q->line;
    double ranks = q->s.world.size;
    if (!q->metrics) return TN_OK;
    tn_text_cut(t, 0);
    tn_text_add(t,
                "{\"step\": %lld, \"loss\": %s, \"grad_norm\": %s, \"lr\": %s, \"tokens\": %lld, "
                "\"valid_tokens\": %lld, ",
                (long long)r->step, tn_text_double(r->loss).s, tn_text_float(r->grad_norm).s,
                tn_text_double(f->lr).s, (long long)r->tokens, (long long)r->valid_tokens);
    tn_text_add(t,
                "\"tokens_per_s\": %s, \"tflops\": %s, \"mfu\": %s, \"memory\": %lld, \"data_s\": "
                "%s}\n",
                tn_text_double(f->tps * ranks).s, tn_text_double(f->tflops * ranks).s,
                tn_text_double(f->mfu).s, (long long)f->rss, tn_text_double(q->data_s).s);
    TN_TRY(tn_text_end(t));
    return tn_file_put(q->metrics, tn_text_str(t), (size_t)t->n_bytes);
}

static tn_status on_step(void *user, const tn_train_report *r)
{
    run *q = user;
    int64_t steps = tn_recipe_int(q->s.recipe, "training.steps");
    q->done = r->step;
    q->since_steps++;
    q->data_s += r->data_s;
    if (r->step == 1) q->first_step_s = tn_clock_s();
    if (r->step == 1 || r->step % q->log_freq == 0 || r->step == steps) {
        double now = tn_clock_s();
        figures f = figures_of(q, r, now);
        say(q,
            "step: %lld  loss: %8.5f  grad_norm: %7.4f  memory: %.2fGiB(%.2f%%)  tps: %lld  "
            "tflops: %.3f  mfu: %.2f%%\n",
            (long long)r->step, r->loss, (double)r->grad_norm, gib(f.rss),
            100.0 * (double)f.rss / (double)q->machine_bytes, (long long)f.tps, f.tflops, f.mfu);
        TN_TRY(write_metrics(q, r, &f));
        TN_TRY(write_board(q, r, &f));
        q->since_s = now;
        q->since_steps = 0;
        q->data_s = 0;
    }
    if (q->profile && tn_profile_take(q->profile)[0]) {
        say(q, "trace of step %lld: %s", (long long)r->step, tn_profile_take(q->profile));
        tn_profile_clear(q->profile);
    }
    if (q->bar) progress(q, r, steps);
    return TN_OK;
}

static tn_status on_validation(void *user, int64_t step, double loss, int64_t tokens,
                               double seconds)
{
    run *q = user;
    tn_text *t = &q->line;
    double tps = seconds > 0 ? (double)tokens / seconds / q->s.world.size : 0;
    const tn_tensorboard_scalar scalars[] = {
        {"validation_metrics/loss", loss},
        {"validation_metrics/throughput(tps)", tps},
        {"validation_metrics/memory/max_reserved(GiB)", gib(peak_rss(q))}};
    say(q, "validate step: %lld  loss: %8.5f  memory: %.2fGiB  tps: %lld\n", (long long)step, loss,
        gib(peak_rss(q)), (long long)tps);
    if (q->board) TN_TRY(tn_tensorboard_put(q->board, step, scalars, TN_COUNT(scalars)));
    q->since_s += seconds;
    if (!q->metrics) return TN_OK;
    tn_text_cut(t, 0);
    tn_text_add(t, "{\"step\": %lld, \"validation_loss\": %s, \"validation_tokens\": %lld}\n",
                (long long)step, tn_text_double(loss).s, (long long)tokens);
    TN_TRY(tn_text_end(t));
    return tn_file_put(q->metrics, tn_text_str(t), (size_t)t->n_bytes);
}

/* ------------------------------------------------------------ before and after */

static tn_status write_text(const char *folder, const char *name, const char *text)
{
    char path[4096];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    return tn_file_write(path, text, strlen(text));
}

static tn_status prepare_folder(run *q)
{
    char path[4096];
    tn_text plan = {0};
    TN_TRY(tn_file_mkdirs(q->folder));
    if (tn_recipe_bool(q->s.recipe, "job.save_config"))
        TN_TRY(write_text(q->folder, "config.lua", tn_recipe_config(q->s.recipe)));
    tn_status st = tn_report_plan(&q->s, &plan);
    if (!st) st = write_text(q->folder, "plan.txt", tn_text_str(&plan));
    tn_text_fini(&plan);
    snprintf(path, sizeof path, "%s/tb", q->folder);
    if (!st && tn_recipe_bool(q->s.recipe, "metrics.tensorboard"))
        st = tn_tensorboard_open(path, &q->board);
    if (st || !tn_recipe_bool(q->s.recipe, "metrics.jsonl")) return st;
    snprintf(path, sizeof path, "%s/metrics.jsonl", q->folder);
    if (tn_file_exists(path) && unlink(path)) return tn_file_error(path, "replace");
    return tn_file_append(path, &q->metrics);
}

static tn_status lr_schedule(const tn_recipe *r, tn_lr *out)
{
    tn_lr_options o = {.steps = tn_recipe_int(r, "training.steps"),
                       .total_steps = tn_recipe_int(r, "lr_scheduler.total_steps"),
                       .warmup_steps = tn_recipe_int(r, "lr_scheduler.warmup_steps"),
                       .decay_ratio = tn_recipe_is_set(r, "lr_scheduler.decay_ratio")
                                          ? tn_recipe_num(r, "lr_scheduler.decay_ratio")
                                          : -1,
                       .decay_type = tn_recipe_text(r, "lr_scheduler.decay_type"),
                       .min_lr_factor = tn_recipe_num(r, "lr_scheduler.min_lr_factor")};
    return tn_lr_init(&o, out);
}

static void banner(const run *q)
{
    const tn_session *s = &q->s;
    tn_session_bytes b = tn_session_memory(s);
    say(q, "titan %s: %s parameters, %s on %d thread%s (%s kernels)\n", TN_VERSION,
        tn_text_count((double)q->cost.parameters).s, s->device->ops->name,
        tn_pool_threads(s->device->cpu.pool), tn_pool_threads(s->device->cpu.pool) == 1 ? "" : "s",
        tn_isa_name(s->device->cpu.isa));
    say(q,
        "batch: microbatch %lld x accumulation %lld x dp %lld = global %lld rows, %lld tokens "
        "per step\n",
        (long long)s->shape.rows, (long long)s->shape.n_microbatches, (long long)s->shape.dp,
        (long long)s->global_batch, (long long)(s->global_batch * s->shape.seq));
    if (s->trains.stages) {
        tn_text t = {0};
        tn_stage_plan_print(s->recipe, s->trains.stages, &t);
        if (!tn_text_end(&t)) say(q, "pipeline: %s\n", tn_text_str(&t));
        tn_text_fini(&t);
    }
    if (!q->quiet) tn_report_groups(s, stdout);
    say(q, "memory: planned peak %s (parameters %s, optimizer %s, step %s, scratch %s)\n",
        tn_text_bytes(b.total).s, tn_text_bytes(b.parameters).s, tn_text_bytes(b.moments).s,
        tn_text_bytes(b.step).s, tn_text_bytes(b.scratch).s);
    fflush(stdout);
}

/* Whoever generates from the weights needs the tokenizer that they were trained with. */
static tn_status export_tokenizer(const run *q, const char *folder)
{
    char path[4224], *text = NULL;
    int64_t n = 0;
    if (q->s.world.rank) return TN_OK;
    snprintf(path, sizeof path, "%s/tokenizer.json", folder);
    if (!q->s.tokenizer[0]) /* one of an earlier run would be another's */
        return tn_file_exists(path) && unlink(path) ? tn_file_error(path, "remove") : TN_OK;
    TN_TRY(tn_file_read(q->s.tokenizer, TN_JSON_MAX_BYTES, &text, &n));
    tn_status st = tn_file_write(path, text, (size_t)n);
    tn_free(text);
    return st;
}

static tn_status finish(run *q, tn_status st)
{
    char path[4096];
    tn_session_bytes b = tn_session_memory(&q->s);
    snprintf(path, sizeof path, "%s/final", q->folder);
    TN_TRY(tn_weights_export(q->s.recipe, &q->s.trains, q->s.train_exec, q->s.comm, path));
    TN_TRY(export_tokenizer(q, path));
    say(q, "memory: planned peak %s, measured peak %s\n", tn_text_bytes(b.total).s,
        tn_text_bytes(peak_rss(q)).s);
    say(q, "time: first kernel %s, training %s, first step done %s after exec; run %s\n",
        tn_text_seconds(q->s.first_kernel_s - q->exec_s).s,
        tn_text_seconds(q->begun_s - q->exec_s).s, tn_text_seconds(q->first_step_s - q->exec_s).s,
        tn_text_seconds(tn_clock_s() - q->begun_s).s);
    if (st == TN_STOPPED) {
        say(q, "stopped by signal %d after %lld steps: weights in %s\n", stop, (long long)q->done,
            path);
        tn_command_stopped(stop);
    } else {
        say(q, "done: %lld steps, weights in %s\n", (long long)q->done, path);
    }
    return st;
}

static tn_status train(run *q)
{
    const tn_recipe *r = q->s.recipe;
    tn_train_options o = {.train = q->s.train_exec,
                          .comm = q->s.comm,
                          .eval = q->s.eval_exec,
                          .data = q->s.data,
                          .validation = q->s.validation ? q->s.validation : q->s.data,
                          .steps = tn_recipe_int(r, "training.steps"),
                          .global_batch = q->s.global_batch,
                          .seq = q->s.shape.seq,
                          .stop = &stop,
                          .user = q,
                          .validate_every = tn_recipe_int(r, "validation.freq"),
                          .validate_steps = tn_recipe_int(r, "validation.steps"),
                          .on_step = on_step,
                          .on_validation = on_validation};
    TN_TRY(lr_schedule(r, &o.lr));
    q->folder = tn_recipe_text(r, "job.dump_folder");
    if (q->s.world.rank == 0) TN_TRY(prepare_folder(q));
    if (q->s.comm) TN_TRY(tn_comm_sync(q->s.comm, TN_COMM_WORLD, "folder", 0)); /* rank 0 first */
    TN_TRY(tn_world_log(&q->s.world, q->folder));
    TN_TRY(tn_profile_open(&q->s, q->folder, &q->profile));
    if (q->profile) o.watch = tn_profile_watch(q->profile);
    banner(q);
    signal(SIGINT, on_signal);
    signal(SIGTERM, on_signal);
    q->since_s = q->begun_s = tn_clock_s();
    tn_status st = tn_train_run(&o);
    if (q->bar) fprintf(stderr, "\r\033[K");
    return st == TN_OK || st == TN_STOPPED ? finish(q, st) : st;
}

/* The other ranks learn why; without a launcher each rank leaves its own flight recorder. */
static void give_up(const run *q)
{
    char path[4096], why[4096];
    tn_error_take(why, sizeof why);
    tn_comm_abort(q->s.comm, why);
    if (q->folder && q->s.world.control_fd < 0) {
        snprintf(path, sizeof path, "%s/flight_rank_%d.json", q->folder, q->s.world.rank);
        if (tn_comm_record_write(q->s.comm, path)) tn_error_clear();
    }
    tn_error_give(TN_FAILED, why);
}

tn_status tn_command_train(const tn_args *a)
{
    run q = {.exec_s = tn_clock_s() - tn_clock_since_start_s(),
             .machine_bytes = tn_device_memory_bytes(),
             .quiet = a->quiet,
             .bar = !a->quiet && isatty(STDERR_FILENO) && isatty(STDOUT_FILENO)};
    tn_recipe *recipe;
    TN_TRY(tn_args_recipe(a, &recipe));
    tn_status st = tn_session_plan(recipe, false, 0, &q.s);
    if (!st && tn_recipe_bool(recipe, "job.print_config")) fputs(tn_recipe_config(recipe), stdout);
    q.s.progress = q.s.world.rank == 0 ? tn_command_progress : NULL;
    if (!st) st = tn_session_ready(&q.s);
    if (!st) {
        q.cost = q.s.trains.cost;
        q.log_freq = tn_recipe_int(recipe, "metrics.log_freq");
        st = train(&q);
    }
    if (st && st != TN_STOPPED && q.s.comm) give_up(&q);
    tn_file_discard(q.metrics);
    tn_profile_close(q.profile);
    tn_tensorboard_close(q.board);
    tn_text_fini(&q.line);
    tn_session_close(&q.s);
    return st;
}
