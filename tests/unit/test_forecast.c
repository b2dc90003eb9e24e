/* test_forecast.c - the predicted step of a pipeline: with the times of its segments the schedule's
 * own simulator comes to the same bubble; hops, faster links and more microbatches do what they
 * must. */
#include "graph/forecast.h"
#include "graph/pipeline.h"
#include "lua/stage_plan.h"
#include "tests/programs.h"

#include <math.h>

static const char recipe[] =
    "return require('titan').recipe { model = require('models.llama3').debug { n_layers = 14 }, "
    "training = { seq_len = 64, local_batch_size = 8 }, device = 'cuda' }";

static bool build(int pp, const char *schedule, const char *rows, tn_programs *out)
{
    char a[64], b[96], c[64];
    const char *overrides[] = {a, b, c};
    tn_recipe *r;
    tn_mesh mesh;
    snprintf(a, sizeof a, "parallelism.pp=%d", pp);
    snprintf(b, sizeof b, "parallelism.pipeline_parallel_schedule=%s", schedule);
    snprintf(c, sizeof c, "training.local_batch_size=%s", rows);
    tn_recipe_options o = {.text = recipe,
                           .name = "r.lua",
                           .overrides = overrides,
                           .n_overrides = 3,
                           .host = {.share = "."}};
    if (!TN_CHECK_OK(tn_recipe_open(&o, &r))) return false;
    tn_build_options q = {.kind = TN_BUILD_TRAIN};
    tn_status st = tn_build_mesh(r, pp, &mesh);
    if (!st) st = tn_build_shape(r, &mesh, &q.shape);
    if (!st) st = tn_build_programs(r, &q, out);
    tn_recipe_close(r);
    return TN_CHECK_OK(st);
}

/* Seconds of each stage by kind, from the segments: F of every stage, then, from the last stage of
 * the rank on, B and W. A segment that does all at once counts as B. */
static void stage_times(const tn_programs *all, const tn_cost_machine *m, tn_schedule_time *times)
{
    for (int r = 0; r < all->n; r++) {
        const tn_program *p = all->of[r];
        const tn_pipeline *plan = p->pipeline;
        bool forward_seen[32] = {false}, backward_seen[32] = {false};
        for (int64_t i = 0; i < plan->n_segments; i++) {
            const tn_segment *s = &plan->segments[i];
            tn_cost_step c;
            bool f = false, b = false;
            if (!TN_CHECK_OK(tn_cost_range(p->g, m, s->begin, s->end, &c))) return;
            int64_t ns = (int64_t)llround(c.compute_end_s * 1e12);
            for (int64_t k = s->begin; k < s->end; k++) { /* loss chunks are forward, all of them */
                const tn_node *n = &p->g->nodes[k];
                if (n->scope != TN_SCOPE_MICROBATCH) continue;
                f |= n->phase == TN_PHASE_F && !b;
                b |= n->phase == TN_PHASE_B || n->phase == TN_PHASE_W;
            }
            int32_t at = s->stage;
            if (!forward_seen[at] && !(f && b && at == all->stages->n_stages - 1))
                times[at].f = ns, forward_seen[at] = true;
            else if (!backward_seen[at])
                times[at].b = ns, forward_seen[at] = backward_seen[at] = true;
            else times[at].w = ns;
        }
    }
}

static void test_schedules(void)
{
    static const char *const names[] = {"1F1B",      "GPipe", "Interleaved1F1B",
                                        "LoopedBFS", "ZBH1",  "ZBVZeroBubble"};
    for (int i = 0; i < TN_COUNT(names); i++)
        for (int pp = 2; pp <= 4; pp += 2) {
            tn_programs all;
            tn_arena arena = {0};
            tn_forecast f;
            tn_schedule_report report;
            tn_schedule_time times[32] = {{0}};
            if (!build(pp, names[i], "8", &all)) continue;
            tn_mesh mesh = {pp, {1, 1, 1, 1}};
            tn_cost_machine m = tn_cost_guess(&mesh, true, 8);
            m.stage = (tn_reshard_link){0, 0, 1e300};
            m.start_s = 1e-4; /* all nodes alike, nearly */
            stage_times(&all, &m, times);
            tn_schedule_costs costs = {.stages = times};
            bool ok =
                TN_CHECK_OK(tn_forecast_make(all.of, all.n, &m, &arena, &f)) &&
                TN_CHECK_OK(tn_schedule_simulate(all.stages->schedule, &costs, true, &report));
            if (ok) {
                double want = (double)report.makespan / (double)report.ideal - 1;
                /* a rank's head may take longer than the first microbatch takes to reach it */
                TN_CHECK_MSG(f.bubble > want - 1e-6 && f.bubble < want + 5e-3,
                             "%s on %d: bubble %.6f, simulated %.6f", names[i], pp, f.bubble, want);
                for (int r = 0; r < pp; r++)
                    TN_CHECK_MSG(fabs(f.classes[r].busy_s * 1e12 - (double)report.ranks[r].busy) <
                                     1e4,
                                 "%s on %d: rank %d works %.9f s, simulated %.9f s", names[i], pp,
                                 r, f.classes[r].busy_s, (double)report.ranks[r].busy * 1e-12);
                tn_schedule_report_fini(&report);
            }
            tn_arena_fini(&arena);
            tn_build_destroy(&all);
        }
}

static double forecast(const tn_programs *all, const tn_cost_machine *m, double *bubble)
{
    tn_arena arena = {0};
    tn_forecast f = {0};
    TN_CHECK_OK(tn_forecast_make(all->of, all->n, m, &arena, &f));
    double sum = 0;
    for (int i = 0; i < f.n; i++) {
        const tn_forecast_class *c = &f.classes[i];
        TN_CHECK(c->busy_s > 0 && c->idle_s > -1e-9 &&
                 c->busy_s + c->idle_s + c->outside_s <= f.seconds * (1 + 1e-9));
        sum += c->compute_s;
    }
    TN_CHECK(f.seconds >= sum / f.n * (1 - 1e-9));
    *bubble = f.bubble;
    tn_arena_fini(&arena);
    return f.seconds;
}

static void test_links(void)
{
    tn_programs few, many;
    double bubble, slow_bubble, many_bubble;
    if (!build(4, "1F1B", "4", &few)) return;
    if (!build(4, "1F1B", "16", &many)) return;
    tn_mesh mesh = {4, {1, 1, 1, 1}};
    tn_cost_machine m = tn_cost_guess(&mesh, true, 8), slow = m;
    slow.stage.hop_s = 1e-3;
    double base = forecast(&few, &m, &bubble), late = forecast(&few, &slow, &slow_bubble);
    /* the first microbatch comes through 3 hops and back */
    TN_CHECK_MSG(late > base + 6e-3 && slow_bubble > bubble, "%g, with hops %g", base, late);
    double more = forecast(&many, &m, &many_bubble);
    TN_CHECK_MSG(more > 2 * base && more < 4 * base && many_bubble < bubble,
                 "4 microbatches %g (%.3f), 16 %g (%.3f)", base, bubble, more, many_bubble);
    tn_build_destroy(&few);
    tn_build_destroy(&many);
}

static tn_status make_once(void *arg)
{
    tn_programs *all = arg;
    tn_arena arena = {0};
    tn_forecast f;
    tn_cost_machine m = tn_cost_guess(&all->of[0]->g->mesh, true, 8);
    tn_status st = tn_forecast_make(all->of, all->n, &m, &arena, &f);
    tn_arena_fini(&arena);
    return st;
}

int main(void)
{
    tn_programs all;
    test_schedules();
    test_links();
    if (build(2, "1F1B", "4", &all)) {
        TN_CHECK(tn_test_each_alloc(make_once, &all) >= 1);
        tn_build_destroy(&all);
    }
    return tn_test_done("forecast");
}
