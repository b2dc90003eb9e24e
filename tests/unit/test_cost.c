/* test_cost.c - the predicted step: sums of nodes on one stream, never longer beside each other
 * than one after the other, as many microbatches and chunks as they run, and what a machine's parts
 * do to it. */
#include "graph/cost.h"
#include "graph/op.h"
#include "graph/program.h"
#include "graph/traffic.h"
#include "tests/programs.h"

#include <math.h>

static const char recipe[] =
    "return require('titan').recipe { model = require('models.llama3').debug { n_layers = 3 }, "
    "training = { seq_len = 128, local_batch_size = 2 } }";

static tn_graph *graph_of(int64_t world, const char *const *overrides)
{
    wanted w = {.recipe = recipe, .world = (int)world};
    for (int i = 0; overrides[i]; i++) w.overrides[i] = overrides[i];
    tn_graph *g = NULL;
    TN_CHECK_OK(build_graph(&w, &g));
    return g;
}

static tn_cost_step walk(const tn_graph *g, const tn_cost_machine *m)
{
    tn_cost_step s = {0};
    TN_CHECK_OK(tn_cost_walk(g, m, &s));
    return s;
}

static bool near(double a, double b)
{
    return fabs(a - b) <= 1e-9 * fabs(b);
}

/* Each node as often as it runs. */
static double sum(const tn_graph *g, const tn_cost_machine *m, bool exchanges)
{
    double s = 0;
    for (int64_t i = 0; i < g->n_nodes; i++)
        if (tn_node_is_exchange(g, &g->nodes[i]) == exchanges)
            s += tn_cost_seconds(g, &g->nodes[i], m) * (double)tn_cost_runs(g, &g->nodes[i]);
    return s;
}

static void test_walks(void)
{
    static const char *const none[] = {NULL}, *const many[] = {"parallelism.tp=2", NULL},
                             *const mbs[] = {"parallelism.tp=2", "training.global_batch_size=20",
                                             "loss.chunks=4", NULL};
    static const struct {
        int world;
        const char *const *overrides;
    } cases[] = {{1, none}, {4, many}, {2, many}, {4, mbs}, {2, mbs}};
    for (int i = 0; i < TN_COUNT(cases); i++) {
        tn_graph *g = graph_of(cases[i].world, cases[i].overrides);
        if (!g) continue;
        tn_cost_machine cpu = tn_cost_guess(&g->mesh, false, 8),
                        gpu = tn_cost_guess(&g->mesh, true, 8);
        tn_cost_step one = walk(g, &cpu), two;
        TN_CHECK_MSG(near(one.compute_s, sum(g, &cpu, false)) &&
                         (one.exchange_s < 1e-30 || near(one.exchange_s, sum(g, &cpu, true))),
                     "case %d: %g and %g, %g and %g", i, one.compute_s, sum(g, &cpu, false),
                     one.exchange_s, sum(g, &cpu, true));
        TN_CHECK(near(one.seconds, one.compute_s + one.exchange_s));
        TN_CHECK(fabs(one.exposed_s - one.exchange_s) < 1e-9);
        gpu.steal = 0;
        two = walk(g, &gpu);
        TN_CHECK(near(two.compute_s, sum(g, &gpu, false)));
        TN_CHECK(two.seconds >= two.compute_s * (1 - 1e-9) &&
                 two.seconds <= (two.compute_s + two.exchange_s) * (1 + 1e-9));
        if (cases[i].world > 1) TN_CHECK(two.seconds < two.compute_s + two.exchange_s);
        gpu.steal = 0.5;
        TN_CHECK((walk(g, &gpu).seconds > two.seconds) == (cases[i].world > 1));
        gpu.steal = 0;
        for (int a = 0; a < TN_N_AXES; a++) gpu.links.axis[a].bytes_per_s /= 1e6;
        TN_CHECK((walk(g, &gpu).seconds > 10 * two.seconds) == (cases[i].world > 1));
        tn_graph_destroy(g);
    }
}

/* A fourth microbatch takes as long as the third. */
static void test_repeats(void)
{
    double s[6];
    for (int n = 1; n <= 5; n++) {
        char global[64];
        const char *overrides[] = {"parallelism.tp=2", global, NULL};
        snprintf(global, sizeof global, "training.global_batch_size=%d", 4 * n);
        tn_graph *g = graph_of(4, overrides);
        if (!g) return;
        tn_cost_machine gpu = tn_cost_guess(&g->mesh, true, 8);
        s[n] = walk(g, &gpu).seconds;
        tn_graph_destroy(g);
    }
    TN_CHECK(near(s[4] - s[3], s[5] - s[4]) && s[2] > s[1] && s[3] > s[2]);
}

static void test_share(void)
{
    static const char *const tp[] = {"parallelism.tp=2", NULL};
    tn_graph *g = graph_of(2, tp);
    if (!g) return;
    tn_cost_machine m = tn_cost_guess(&g->mesh, false, 8), two = m, half = m;
    tn_cost_share(&two, 2, 2);
    tn_cost_share(&half, 0.5, 2);
    double one_s = walk(g, &m).seconds, two_s = walk(g, &two).seconds,
           half_s = walk(g, &half).seconds;
    TN_CHECK_MSG(two_s < one_s && two_s > one_s / 2, "two cores: %g of %g", two_s, one_s);
    TN_CHECK_MSG(half_s > 1.9 * one_s, "half a core: %g of %g", half_s, one_s);
    tn_graph_destroy(g);
}

static tn_status walk_once(void *arg)
{
    tn_cost_step s;
    tn_graph *g = arg;
    tn_cost_machine m = tn_cost_guess(&g->mesh, true, 8);
    return tn_cost_walk(g, &m, &s);
}

int main(void)
{
    static const char *const none[] = {NULL};
    test_walks();
    test_repeats();
    test_share();
    tn_graph *g = graph_of(1, none);
    if (g) TN_CHECK(tn_test_each_alloc(walk_once, g) >= 1);
    tn_graph_destroy(g);
    return tn_test_done("cost");
}
