/* test_exchange.c - one exchange between any two placements, on real ranks: every element of a
 * rank's part of the result is the sum of the members' elements, or the holder's; the steps that
 * tn_pass_boundary makes of it have the same bits and receive no more; and what graph/traffic.c
 * says that a rank receives is what the blocks say. */
#include "engine/comm.h"
#include "engine/device.h"
#include "engine/exchange.h"
#include "graph/op.h"
#include "graph/passes.h"
#include "graph/traffic.h"
#include "tests/blocks.h"
#include "tests/ranks.h"

#include <stdlib.h>

enum { PAIRS = 250, RANKS = 8, REGION = MAX_ELEMENTS * 4 };

typedef struct pair {
    const tn_mesh *mesh;
    tn_value v;
    tn_layout to;
} pair;

/* What an exchange may be asked for: P goes anywhere, S and copies to copies and shards. */
static void draw_pair(pair *p, int i)
{
    static const tn_mesh meshes[] = {
        {1, {2, 2, 1, 2}}, {1, {1, 4, 1, 2}}, {1, {1, 2, 2, 2}}, {1, {2, 1, 1, 4}}};
    static const int64_t extents[][3] = {{8, 8, 4}, {7, 12, 5}, {3, 9, 12}, {12, 6, 6}};
    p->mesh = &meshes[i % TN_COUNT(meshes)];
    tn_layout from = tn_layout_all(TN_TYPE_R), to = tn_layout_all(TN_TYPE_R);
    int first = draw(TN_N_AXES), second = draw(TN_N_AXES);
    for (int k = 0; k < TN_N_AXES; k++) {
        int a = (first + k) % TN_N_AXES, t = draw(5);
        if (t < 3) tn_layout_shard(&from, (tn_axis)a, t);
        else from.type[a] = (uint8_t)(t == 3 ? TN_TYPE_P : draw(2) ? TN_TYPE_R : TN_TYPE_I);
    }
    for (int k = 0; k < TN_N_AXES; k++) {
        int a = (second + k) % TN_N_AXES, t = draw(5);
        bool same_sum = from.type[a] == TN_TYPE_P && draw(4) == 0;
        if (same_sum) to.type[a] = TN_TYPE_P;
        else if (t < 3) tn_layout_shard(&to, (tn_axis)a, t);
        else to.type[a] = (uint8_t)(from.type[a] == TN_TYPE_R || t == 3 ? TN_TYPE_R : TN_TYPE_I);
    }
    p->v = value_of(3, extents[draw(TN_COUNT(extents))], from);
    if (draw(3) == 0) p->v.dim[1].units = p->v.dim[1].extent / (p->v.dim[1].extent % 3 ? 1 : 3);
    p->to = to;
}

/* Element i on the rank at `at`: parts of a pending sum differ, copies do not. */
static int part(const tn_layout *l, const int *at, int64_t i)
{
    static const int weight[TN_N_AXES] = {1, 10, 100, 1000};
    int k = 1;
    for (int a = 0; a < TN_N_AXES; a++)
        if (l->type[a] == TN_TYPE_P) k += weight[a] * at[a];
    return (int)(i % 1000) * k;
}

static int expected(const pair *p, const int *at, int64_t i)
{
    int sum = 0;
    for (int r = 0; r < tn_mesh_ranks(p->mesh); r++) {
        int other[TN_N_AXES];
        bool in = true;
        tn_mesh_coordinates(p->mesh, r, other);
        for (int a = 0; a < TN_N_AXES; a++) {
            bool added = p->v.layout.type[a] == TN_TYPE_P && p->to.type[a] != TN_TYPE_P;
            in &= added || other[a] == at[a];
        }
        if (in) sum += part(&p->v.layout, other, i);
    }
    return sum;
}

typedef struct setup {
    tn_value values[2];
    tn_node nodes[2];
    int32_t operands[1];
    tn_graph g;
    tn_place places[2];
    tn_program p;
} setup;

static void set_up(setup *s, const pair *p, int rank)
{
    *s = (setup){.values = {p->v, p->v}};
    s->values[1].layout = p->to;
    s->values[1].node = 1;
    for (int i = 0; i < 2; i++) {
        s->places[i] = (tn_place){.region = (int8_t)i};
        s->nodes[i] = (tn_node){.op = TN_OP_redistribute, .n_out = 1, .out0 = i, .path = "t"};
    }
    s->nodes[1].n_in = 1;
    s->g = (tn_graph){.n_values = 2,
                      .n_nodes = 2,
                      .values = s->values,
                      .nodes = s->nodes,
                      .operands = s->operands,
                      .mesh = *p->mesh};
    s->p = (tn_program){.g = &s->g, .local = s->values, .places = s->places};
    tn_mesh_coordinates(p->mesh, rank, s->p.at);
}

/* A rank's block of one layout: its elements in order, as global indices. */
static int64_t block_of(const pair *p, const tn_layout *l, const int *at, int64_t *index)
{
    int64_t b[3], n[3], k = 0;
    for (int d = 0; d < 3; d++)
        n[d] = tn_layout_local(l, p->mesh, at, d, p->v.dim[d].extent, p->v.dim[d].units, &b[d]);
    for (int64_t x = 0; x < n[0]; x++)
        for (int64_t y = 0; y < n[1]; y++)
            for (int64_t z = 0; z < n[2]; z++)
                index[k++] =
                    ((b[0] + x) * p->v.dim[1].extent + b[1] + y) * p->v.dim[2].extent + b[2] + z;
    return k;
}

static tn_status fail(const pair *p, int64_t i, double got, int want)
{
    char a[96], b[96];
    tn_layout_print(&p->v.layout, a, sizeof a);
    tn_layout_print(&p->to, b, sizeof b);
    TN_FAIL(TN_FAILED, "%s to %s on %d %d %d %d, [%lld %lld %lld]: element %lld is %g, not %d", a,
            b, p->mesh->size[0], p->mesh->size[1], p->mesh->size[2], p->mesh->size[3],
            (long long)p->v.dim[0].extent, (long long)p->v.dim[1].extent,
            (long long)p->v.dim[2].extent, (long long)i, got, want);
}

static tn_status exchange(const pair *p, const tn_world *w, tn_comm *c, const tn_device *d,
                          float *mine, float *result)
{
    static int64_t index[MAX_ELEMENTS];
    tn_arena arena = {0};
    setup s;
    set_up(&s, p, w->rank);
    int64_t n = block_of(p, &p->v.layout, s.p.at, index);
    for (int64_t i = 0; i < n; i++) mine[i] = (float)part(&p->v.layout, s.p.at, index[i]);
    n = block_of(p, &p->to, s.p.at, index);
    TN_TRY(tn_comm_sync(c, TN_COMM_WORLD, "filled", 0));
    if (tn_node_is_exchange(&s.g, &s.nodes[1])) {
        const tn_exchange *x;
        TN_TRY(tn_exchange_build(
            &s.p, &(tn_entry){1, TN_STREAM_TENSOR, TN_MEETS_BEFORE | TN_MEETS_BEHIND},
            &(tn_exchange_memory){.comm = c}, &arena, &x));
        TN_TRY(tn_exchange_run(x, &d->cpu, 0, 0));
    } else {
        memcpy(result, mine, (size_t)n * sizeof *mine); /* a view */
    }
    tn_status st = TN_OK;
    for (int64_t i = 0; i < n && !st; i++) {
        int want = expected(p, s.p.at, index[i]);
        if (result[i] != (float)want) st = fail(p, index[i], (double)result[i], want);
    }
    tn_arena_fini(&arena);
    if (!st) st = tn_comm_sync(c, TN_COMM_WORLD, "read", 0);
    return st;
}

/* ------------------------------------------------------------ in steps */

static float noise(uint64_t i)
{
    i = (i + 1) * 0x9E3779B97F4A7C15u;
    i ^= i >> 29;
    i *= 0xBF58476D1CE4E5B9u;
    return (float)(int32_t)(i >> 32) / (float)(1 << 20);
}

/* The pair as a graph, and what tn_pass_boundary makes of it where meetings cost nothing. */
static tn_status split(const pair *p, tn_graph **out)
{
    static const tn_reshard_links links = {
        .axis = {{0, 0, 1e9}, {0, 0, 1e9}, {0, 0, 1e9}, {0, 0, 1e9}}};
    tn_named_attr attrs[2] = {{"name", {.kind = 's', .u.s = "x"}},
                              {"kind", {.kind = 's', .u.s = "buffer"}}},
                  grad = {"grad", {.kind = 'i', .u.i = 1}};
    tn_graph *g;
    int32_t x;
    TN_TRY(tn_graph_create(p->mesh, (tn_order_grid){8, 8, 8}, true, &g));
    tn_node_desc d = {
        .op = TN_OP_state, .n_attrs = 2, .attrs = attrs, .layout = &p->v.layout, .like = &p->v};
    tn_status st = tn_graph_add(g, &d, &x);
    d = (tn_node_desc){.op = TN_OP_redistribute,
                       .n_in = 1,
                       .in = &x,
                       .n_attrs = 1,
                       .attrs = &grad,
                       .path = "t",
                       .layout = &p->to};
    if (!st) st = tn_graph_add(g, &d, NULL);
    if (!st) st = tn_pass_boundary(g, &links, out);
    tn_graph_destroy(g);
    return st;
}

/* All exchanges of the graph one after the other, each into the next place of region 1; where the
 * last one leaves its result. */
static tn_status run_steps(const tn_graph *g, const tn_world *w, tn_comm *c, const tn_device *d,
                           int64_t *at)
{
    tn_arena arena = {0};
    tn_place places[2 * TN_RESHARD_STEPS] = {{.region = 0}};
    tn_program p = {.g = (tn_graph *)(uintptr_t)g, .local = g->values, .places = places};
    tn_status st = TN_OK;
    tn_mesh_coordinates(&g->mesh, w->rank, p.at);
    *at = REGION;
    for (int64_t i = 1; i < g->n_nodes && !st; i++, *at += REGION) {
        const tn_exchange *x;
        places[g->nodes[i].out0] = (tn_place){.region = 1, .offset = *at};
        if (tn_node_is_exchange(g, &g->nodes[i])) {
            st = tn_exchange_build(
                &p, &(tn_entry){(int32_t)i, TN_STREAM_TENSOR, TN_MEETS_BEFORE | TN_MEETS_BEHIND},
                &(tn_exchange_memory){.comm = c}, &arena, &x);
            if (!st) st = tn_exchange_run(x, &d->cpu, 0, 0);
        } else st = tn_error(TN_FAILED, "a step that moves nothing");
    }
    *at -= REGION;
    tn_arena_fini(&arena);
    return st;
}

/* Canonical sums: whatever the steps, the bits are those of one exchange. */
static tn_status stepwise(const pair *p, const tn_world *w, tn_comm *c, const tn_device *d,
                          float *mine, float *result, int *n_split)
{
    static int64_t index[MAX_ELEMENTS];
    tn_arena arena = {0};
    setup s;
    tn_graph *g;
    int64_t at = 0;
    const tn_exchange *x;
    set_up(&s, p, w->rank);
    if (!tn_node_is_exchange(&s.g, &s.nodes[1])) return TN_OK;
    TN_TRY(split(p, &g));
    tn_status st = TN_OK;
    if (g->n_nodes > 2) {
        int64_t n = block_of(p, &p->v.layout, s.p.at, index);
        uint64_t seed = 0;
        for (int a = 0; a < TN_N_AXES; a++)
            if (p->v.layout.type[a] == TN_TYPE_P) seed = seed * 8 + (uint64_t)s.p.at[a] + 1;
        for (int64_t i = 0; i < n; i++) mine[i] = noise(seed * MAX_ELEMENTS + (uint64_t)index[i]);
        st = tn_comm_sync(c, TN_COMM_WORLD, "filled", 0);
        if (!st)
            st = tn_exchange_build(
                &s.p, &(tn_entry){1, TN_STREAM_TENSOR, TN_MEETS_BEFORE | TN_MEETS_BEHIND},
                &(tn_exchange_memory){.comm = c}, &arena, &x);
        if (!st) st = tn_exchange_run(x, &d->cpu, 0, 0);
        if (!st) st = run_steps(g, w, c, d, &at);
        n = block_of(p, &p->to, s.p.at, index);
        if (!st && memcmp(result, (char *)result + at, (size_t)n * 4) != 0)
            st = fail(p, g->n_nodes - 1, 0, 0);
        if (!st) st = tn_comm_sync(c, TN_COMM_WORLD, "read", 0);
        ++*n_split;
    }
    tn_arena_fini(&arena);
    tn_graph_destroy(g);
    return st;
}

static tn_status ranks(const tn_world *w, const void *user)
{
    int n_split = 0;
    tn_comm *c;
    tn_device *d;
    void *mine, *result;
    tn_device_options o = {.threads = 1, .isa = tn_isa_best()};
    (void)user;
    TN_TRY(tn_comm_open(w, 60, &c));
    TN_TRY(tn_device_cpu_create(&o, &d));
    TN_TRY(tn_comm_region(c, 0, REGION, &mine));
    TN_TRY(tn_comm_region(c, 1, REGION * 2 * TN_RESHARD_STEPS, &result));
    tn_status st = TN_OK;
    for (int i = 0; i < PAIRS && !st; i++) {
        pair p;
        draw_pair(&p, i);
        st = exchange(&p, w, c, d, mine, result);
        if (!st) st = stepwise(&p, w, c, d, mine, result, &n_split);
    }
    if (!st && n_split < PAIRS / 5) st = tn_error(TN_FAILED, "only %d in steps", n_split);
    if (st) tn_comm_abort(c, tn_error_text());
    tn_device_destroy(d);
    tn_comm_close(c);
    return st;
}

/* ------------------------------------------------------------ what a rank receives */

/* The steps never receive more than one exchange does, nor, where no order is asked for, than one
 * axis after the other. */
static void steps_pay(void)
{
    int saves = 0;
    for (int i = 0; i < 1000; i++) {
        pair p;
        tn_graph *g;
        tn_traffic_move m = {0};
        int64_t direct = 0, bytes = 0;
        draw_pair(&p, i);
        if (tn_traffic_of_move(p.mesh, &p.v, &p.to, &m)) direct = m.bytes;
        if (!TN_CHECK_OK(split(&p, &g))) continue;
        for (int64_t k = 1; k < g->n_nodes; k++)
            if (tn_traffic_of_node(g, &g->nodes[k], &m)) bytes += m.bytes;
        TN_CHECK_MSG(bytes <= direct, "pair %d: %lld in steps, %lld in one", i, (long long)bytes,
                     (long long)direct);
        TN_CHECK(tn_layout_equal(&g->values[g->n_values - 1].layout, &p.to));
        saves += bytes < direct;
        tn_graph_destroy(g);
    }
    TN_CHECK_MSG(saves > 200, "steps save in %d of 1000", saves);
}

/* Counted element by element: whose copy is not here, once per member of a sum. */
static int64_t counted(const pair *p, int rank)
{
    static int64_t index[MAX_ELEMENTS];
    static bool own[MAX_ELEMENTS];
    int at[TN_N_AXES];
    int64_t bytes = 0, sums = 1, n;
    memset(own, 0, sizeof own);
    tn_mesh_coordinates(p->mesh, rank, at);
    n = block_of(p, &p->v.layout, at, index);
    for (int64_t i = 0; i < n; i++) own[index[i]] = true;
    for (int a = 0; a < TN_N_AXES; a++)
        if (p->v.layout.type[a] == TN_TYPE_P && p->to.type[a] != TN_TYPE_P)
            sums *= p->mesh->size[a];
    n = block_of(p, &p->to, at, index);
    for (int64_t i = 0; i < n; i++) bytes += 4 * (sums - own[index[i]]);
    return bytes;
}

static void traffic(void)
{
    int seen[TN_TRAFFIC_KINDS] = {0};
    for (int i = 0; i < 2000; i++) {
        pair p;
        tn_traffic_move m = {0};
        int64_t most = 0;
        draw_pair(&p, i);
        for (int r = 0; r < tn_mesh_ranks(p.mesh); r++) {
            int64_t n = counted(&p, r);
            if (n > most) most = n;
        }
        bool moves = tn_traffic_of_move(p.mesh, &p.v, &p.to, &m);
        char a[96], b[96];
        tn_layout_print(&p.v.layout, a, sizeof a);
        tn_layout_print(&p.to, b, sizeof b);
        TN_CHECK_MSG(moves || !most, "%s to %s: nothing travels, counted %lld", a, b,
                     (long long)most);
        TN_CHECK_MSG(!moves || m.bytes == most, "%s to %s: %lld, counted %lld", a, b,
                     (long long)m.bytes, (long long)most);
        if (moves) seen[m.kind]++;
    }
    for (int k = 0; k < TN_TRAFFIC_SEND_RECV; k++)
        TN_CHECK_MSG(seen[k] > 20, "%s occurs %d times", tn_traffic_kind_name((tn_traffic_kind)k),
                     seen[k]);
    TN_CHECK_TEXT(tn_traffic_axes(3).s, "dp");
    TN_CHECK_TEXT(tn_traffic_axes(2 | 4).s, "dp_shard,cp");
    TN_CHECK_TEXT(tn_traffic_axes(TN_TRAFFIC_PP).s, "pp");
}

int main(void)
{
    TN_CHECK_OK(ranks_run(RANKS, ranks, NULL, NULL));
    TN_CHECK(PAIRS > 0);
    traffic();
    steps_pay();
    ranks_check_clean();
    return tn_test_done("exchange");
}
