/* Pipelines cut from a traced model: every node on one rank, channels that match, slots that
 * suffice whatever the times; and what verify says of plans that were broken on purpose. */
#include "lua/build.h"
#include "tests/programs.h"
#include "tests/test.h"

#include <stdlib.h>

static uint64_t state = 1;

static int64_t draw(int64_t n)
{
    state = state * 6364136223846793005u + 1442695040888963407u;
    return (int64_t)((state >> 33) % (uint64_t)n);
}

static bool build_set(const char *const *overrides, int world, tn_build_kind kind, tn_programs *out)
{
    tn_recipe *r;
    tn_mesh mesh;
    tn_recipe_options o = {
        .text = tiny_recipe, .name = "r.lua", .overrides = overrides, .host = {.share = "."}};
    while (overrides[o.n_overrides]) o.n_overrides++;
    if (!TN_CHECK_OK(tn_recipe_open(&o, &r))) return false;
    tn_build_options b = {.kind = kind};
    bool ok = TN_CHECK_OK(tn_build_mesh(r, world, &mesh)) &&
              TN_CHECK_OK(tn_build_shape(r, &mesh, &b.shape)) &&
              TN_CHECK_MSG(!tn_build_programs(r, &b, out), "%s %s: %s", overrides[0], overrides[1],
                           tn_error_text());
    tn_recipe_close(r);
    return ok;
}

/* ------------------------------------------------------------ slots under random times */

enum { MAX_CHANNELS = 256, MAX_SLOTS = 64, MAX_RANKS = 8 };

typedef struct slot {
    bool full;
    int32_t microbatch;
} slot;

typedef struct world {
    const tn_programs *set;
    slot at[MAX_CHANNELS][MAX_SLOTS];
    int64_t next[MAX_RANKS]; /* action */
    bool running[MAX_RANKS]; /* it has begun and not ended */
    int64_t sends, full;     /* sends to a slot that was not read for good: an error */
} world;

static bool in_segment(const tn_pipeline *p, const tn_mail *m, int32_t segment)
{
    return m->node >= p->segments[segment].begin && m->node < p->segments[segment].end;
}

/* The last action of this rank that reads what arrives by m for a microbatch. */
static int64_t last_reader(const tn_program *p, const tn_mail *m, int32_t microbatch)
{
    int64_t last = -1;
    for (int64_t i = 0; i < p->pipeline->n_actions; i++) {
        const tn_action *a = &p->pipeline->actions[i];
        const tn_segment *s = &p->pipeline->segments[a->segment];
        if (a->microbatch != microbatch) continue;
        if (in_segment(p->pipeline, m, a->segment)) last = i;
        for (int64_t n = s->begin; n < s->end; n++)
            for (int k = 0; k < p->g->nodes[n].n_in; k++) {
                int32_t v = tn_node_in(p->g, &p->g->nodes[n], k);
                while (v != m->value && p->g->nodes[p->g->values[v].node].n_in &&
                       tn_node_is_view(p->g, &p->g->nodes[p->g->values[v].node]))
                    v = tn_node_in(p->g, &p->g->nodes[p->g->values[v].node], 0);
                if (v == m->value) last = i;
            }
    }
    return last;
}

/* Begins an action if its messages are there. */
static bool begin_action(world *w, int r)
{
    const tn_pipeline *p = w->set->of[r]->pipeline;
    if (w->next[r] == p->n_actions) return false;
    const tn_action *a = &p->actions[w->next[r]];
    for (int64_t i = 0; i < p->n_mails; i++) {
        const tn_mail *m = &p->mails[i];
        if (!m->arrives || !in_segment(p, m, a->segment)) continue;
        const slot *s = &w->at[m->channel][m->slot[a->microbatch]];
        if (!s->full || s->microbatch != a->microbatch) return false;
    }
    w->running[r] = true;
    return true;
}

static void end_action(world *w, int r)
{
    const tn_program *g = w->set->of[r];
    const tn_pipeline *p = g->pipeline;
    const tn_action *a = &p->actions[w->next[r]];
    for (int64_t i = 0; i < p->n_mails; i++) {
        const tn_mail *m = &p->mails[i];
        if (g->g->nodes[m->node].scope != TN_SCOPE_MICROBATCH) continue;
        slot *s = &w->at[m->channel][m->slot[a->microbatch]];
        if (m->arrives) {
            for (int k = 0; k < m->n_slots; k++) {
                slot *t = &w->at[m->channel][k];
                if (t->full && last_reader(g, m, t->microbatch) == w->next[r]) t->full = false;
            }
        } else if (in_segment(p, m, a->segment)) {
            w->sends++;
            w->full += s->full;
            *s = (slot){true, a->microbatch};
        }
    }
    w->running[r] = false;
    w->next[r]++;
}

static void check_times(const tn_programs *set, const char *name)
{
    for (int trial = 0; trial < 6; trial++) {
        static world w;
        int64_t idle = 0, slow = draw(set->n + 1);
        w = (world){.set = set};
        while (idle < 2000) {
            int r = (int)draw(set->n);
            if (r == slow && draw(20)) continue; /* one rank far behind the others */
            if (w.running[r]) end_action(&w, r);
            else if (!begin_action(&w, r)) {
                idle++;
                continue;
            }
            idle = 0;
        }
        for (int r = 0; r < set->n; r++)
            TN_CHECK_MSG(w.next[r] == set->of[r]->pipeline->n_actions, "%s: rank %d stands still",
                         name, r);
        TN_CHECK_MSG(w.sends > 0 && !w.full, "%s: %lld of %lld messages came too early", name,
                     (long long)w.full, (long long)w.sends);
    }
}

/* ------------------------------------------------------------ nodes */

static void check_nodes(const tn_programs *set, const char *name)
{
    int64_t most = 0;
    for (int r = 0; r < set->n; r++)
        for (int64_t i = 0; i < set->of[r]->g->n_nodes; i++)
            if (set->of[r]->pipeline->origin[i] >= most) most = set->of[r]->pipeline->origin[i] + 1;
    int *owner = calloc((size_t)most, sizeof *owner);
    for (int r = 0; r < set->n && owner; r++)
        for (int64_t i = 0; i < set->of[r]->g->n_nodes; i++) {
            const tn_node *n = &set->of[r]->g->nodes[i];
            int64_t o = set->of[r]->pipeline->origin[i];
            if (n->op == TN_OP_send || n->op == TN_OP_recv || n->stage < 0) continue;
            TN_CHECK_MSG(!owner[o], "%s: node %lld is on two ranks", name, (long long)o);
            owner[o] = 1 + r;
        }
    free(owner);
}

static void check_all(tn_programs *set, const char *name)
{
    const tn_pipeline *plans[MAX_RANKS];
    const tn_graph *graphs[MAX_RANKS];
    for (int r = 0; r < set->n; r++) {
        plans[r] = set->of[r]->pipeline;
        graphs[r] = set->of[r]->g;
        TN_CHECK_OK(tn_program_verify(set->of[r]));
    }
    TN_CHECK_OK(tn_pipeline_verify(plans, graphs, set->n));
    check_nodes(set, name);
    check_times(set, name);
}

/* ------------------------------------------------------------ schedules */

static const struct {
    const char *name;
    int pp;
} schedules[] = {{"1F1B", 2},
                 {"1F1B", 4},
                 {"GPipe", 2},
                 {"GPipe", 4},
                 {"ZBH1", 2},
                 {"ZBH1", 4},
                 {"Interleaved1F1B", 2},
                 {"LoopedBFS", 2},
                 {"InterleavedZeroBubble", 2},
                 {"ZBVZeroBubble", 2}};

static void test_schedules(void)
{
    for (int i = 0; i < TN_COUNT(schedules); i++)
        for (int tied = 0; tied < 2; tied++) {
            char schedule[96], pp[32], batch[64];
            snprintf(schedule, sizeof schedule, "parallelism.pipeline_parallel_schedule=%s",
                     schedules[i].name);
            snprintf(pp, sizeof pp, "parallelism.pp=%d", schedules[i].pp);
            snprintf(batch, sizeof batch, "training.local_batch_size=%d", tied ? 6 : 18);
            const char *overrides[] = {schedule,
                                       pp,
                                       batch,
                                       "loss.chunks=0",
                                       tied ? "model.tied=true" : "model.tied=false",
                                       "activation_checkpoint.mode=none",
                                       NULL};
            tn_programs set;
            if (!build_set(overrides, schedules[i].pp, TN_BUILD_TRAIN, &set)) continue;
            check_all(&set, schedule);
            tn_build_destroy(&set);
            if (!build_set(overrides, schedules[i].pp, TN_BUILD_EVAL, &set)) continue;
            check_all(&set, "evaluation");
            tn_build_destroy(&set);
        }
}

/* ------------------------------------------------------------ broken on purpose */

static bool refused(const tn_programs *set, const char *part)
{
    const tn_pipeline *plans[MAX_RANKS];
    const tn_graph *graphs[MAX_RANKS];
    for (int r = 0; r < set->n; r++) {
        plans[r] = set->of[r]->pipeline;
        graphs[r] = set->of[r]->g;
    }
    tn_status st = tn_pipeline_verify(plans, graphs, set->n);
    bool ok = TN_CHECK_MSG(st && strstr(tn_error_text(), part), "'%s' where '%s' was broken",
                           st ? tn_error_text() : "fine", part);
    tn_error_clear();
    return ok;
}

static void test_broken(void)
{
    const char *overrides[] = {"parallelism.pp=2", "loss.chunks=0", NULL};
    tn_programs set;
    if (!build_set(overrides, 2, TN_BUILD_TRAIN, &set)) return;
    tn_pipeline *a = set.of[0]->pipeline, *b = set.of[1]->pipeline;
    for (int64_t i = 0; i < b->n_mails; i++) {
        tn_mail kept = b->mails[i];
        b->mails[i].channel = 1000;
        refused(&set, "does not");
        b->mails[i] = kept;
        b->mails[i].slots += 64;
        refused(&set, "disagree");
        b->mails[i] = kept;
        b->mails[i].peer = 1;
        refused(&set, "does not");
        b->mails[i] = kept;
    }
    b->n_mails--;
    refused(&set, "does not");
    b->n_mails++;
    tn_action kept = a->actions[0]; /* its first forward is never run */
    a->actions[0] = a->actions[a->n_actions - 1];
    refused(&set, "wait for each other");
    a->actions[0] = kept;
    tn_build_destroy(&set);
}

/* A value that is saved lies where another microbatch's still is needed. */
static void test_slots(void)
{
    const char *overrides[] = {"parallelism.pp=2", "loss.chunks=0", NULL};
    tn_programs set;
    if (!build_set(overrides, 2, TN_BUILD_TRAIN, &set)) return;
    tn_program *p = set.of[0];
    TN_CHECK(p->n_saved > 0);
    for (int64_t i = 0; i < p->n_saved; i++) {
        tn_saved *s = &p->saved[i];
        const int32_t *kept = s->slot;
        static const int32_t same[64];
        if (s->n_slots < 2 || s->from < 0) continue; /* mail: the channel's business */
        s->slot = same;
        TN_CHECK_FAILS(tn_program_verify(p), TN_FAILED, "program");
        s->slot = kept;
    }
    TN_CHECK_OK(tn_program_verify(p));
    tn_build_destroy(&set);
}

int main(void)
{
    test_schedules();
    test_broken();
    test_slots();
    return tn_test_done("pipeline");
}
