/* test_reshard.c - redistribution plans: against a search written down again over whole placements,
 * run on the blocks of all ranks, never more bytes than axis by axis, in time, and as text. */
#include "tests/blocks.h"

#include <math.h>
#include <stdlib.h>
#include <time.h>

static tn_reshard_links random_links(void)
{
    tn_reshard_links l = {0};
    for (int a = 0; a < TN_N_AXES; a++)
        l.axis[a] = (tn_reshard_link){1e-7 * draw(100), 1e-8 * draw(400), 1e9 * (1 + draw(400))};
    return l;
}

/* A random placement; allow P where `pending`. Axes join their dims in a random order. */
static tn_layout random_layout(int rank, bool pending)
{
    tn_layout l = tn_layout_all(TN_TYPE_R);
    int first = draw(TN_N_AXES), step = draw(2) ? 1 : 3;
    for (int i = 0; i < TN_N_AXES; i++) {
        int a = (first + i * step) % TN_N_AXES, t = draw(rank + (pending ? 2 : 1));
        if (t < rank) tn_layout_shard(&l, (tn_axis)a, t);
        else l.type[a] = (uint8_t)(t > rank ? TN_TYPE_P : draw(2) ? TN_TYPE_R : TN_TYPE_I);
    }
    return l;
}

/* ------------------------------------------------------------ the search, written down again */

enum { MAX_PLACES = 4000 };

typedef struct brute {
    const tn_mesh *mesh;
    const tn_reshard_links *links;
    const tn_value *v;
    tn_layout to;
    int n, start, goal;
    tn_layout place[MAX_PLACES];
    int64_t local[MAX_PLACES];
    double best[MAX_PLACES];
} brute;

/* Copies are all R here. */
static tn_layout plain(tn_layout l)
{
    for (int a = 0; a < TN_N_AXES; a++)
        if (l.type[a] == TN_TYPE_I) l.type[a] = TN_TYPE_R;
    return l;
}

static void enumerate(brute *b, tn_layout l, unsigned left)
{
    if (b->n == MAX_PLACES) abort();
    b->place[b->n] = l;
    int64_t bytes = 4;
    for (int d = 0; d < b->v->rank; d++)
        bytes *= tn_layout_largest(&l, b->mesh, d, b->v->dim[d].extent, 0);
    b->local[b->n++] = bytes;
    for (int a = 0; a < TN_N_AXES; a++) {
        if (!(left >> a & 1)) continue;
        for (int d = 0; d < b->v->rank; d++) {
            tn_layout more = l;
            tn_layout_shard(&more, (tn_axis)a, d);
            bool seen = false;
            for (int i = 0; i < b->n && !seen; i++) seen = tn_layout_equal(&b->place[i], &more);
            if (!seen) enumerate(b, more, left & ~(1u << a));
        }
        if (b->v->layout.type[a] != TN_TYPE_P && b->to.type[a] != TN_TYPE_P) continue;
        tn_layout more = l;
        more.type[a] = TN_TYPE_P;
        bool seen = false;
        for (int i = 0; i < b->n && !seen; i++) seen = tn_layout_equal(&b->place[i], &more);
        if (!seen) enumerate(b, more, left & ~(1u << a));
    }
}

static bool divides(const brute *b, const tn_layout *l, int d)
{
    tn_axis axes[TN_N_AXES];
    int64_t n = 1;
    for (int i = 0, k = tn_layout_axes(l, d, axes); i < k; i++) n *= b->mesh->size[axes[i]];
    return b->v->dim[d].extent % n == 0;
}

/* Is y one step from x? Its bytes and seconds. */
static bool one_step(const brute *b, int i, int j, double *bytes, double *seconds)
{
    const tn_layout *x = &b->place[i], *y = &b->place[j];
    int c[TN_N_AXES], n = 0, ranks = 1, s_to_r = 0, s_to_s = 0, p_to_s = 0, p_to_r = 0, r_to_s = 0,
                      to_p = 0;
    bool one_from = true, one_to = true, ordered = true;
    double start = 0, hop = 0, speed = 1e300;
    for (int a = 0; a < TN_N_AXES; a++) {
        if (x->type[a] == y->type[a] && x->dim[a] == y->dim[a] && x->order[a] == y->order[a])
            continue;
        c[n++] = a;
        ranks *= b->mesh->size[a];
        start = fmax(start, b->links->axis[a].start_s);
        hop = fmax(hop, b->links->axis[a].hop_s);
        speed = fmin(speed, b->links->axis[a].bytes_per_s);
        s_to_r += x->type[a] == TN_TYPE_S && y->type[a] == TN_TYPE_R;
        s_to_s += x->type[a] == TN_TYPE_S && y->type[a] == TN_TYPE_S;
        p_to_s += x->type[a] == TN_TYPE_P && y->type[a] == TN_TYPE_S;
        p_to_r += x->type[a] == TN_TYPE_P && y->type[a] == TN_TYPE_R;
        r_to_s += x->type[a] == TN_TYPE_R && y->type[a] == TN_TYPE_S;
        to_p += x->type[a] != TN_TYPE_P && y->type[a] == TN_TYPE_P && b->to.type[a] == TN_TYPE_P;
        if ((p_to_s || p_to_r) && x->type[a] == TN_TYPE_P && b->to.type[a] == TN_TYPE_P)
            return false;
    }
    for (int k = 1; k < n; k++) {
        one_from &= x->dim[c[k]] == x->dim[c[0]];
        one_to &= y->dim[c[k]] == y->dim[c[0]];
        for (int m = 0; m < k; m++)
            ordered &= (x->order[c[k]] > x->order[c[m]]) == (y->order[c[k]] > y->order[c[m]]);
    }
    double larger = (double)(b->local[i] > b->local[j] ? b->local[i] : b->local[j]),
           share = larger - floor(larger / ranks);
    *bytes = *seconds = 0;
    int hops = ranks - 1;
    if (n == 0) return false;
    if (n == 1 && (r_to_s || to_p)) {
        *seconds = 1e-8;
        return true;
    }
    if (s_to_r == n && one_from) *bytes = share;
    else if (p_to_s == n && one_to) *bytes = share;
    else if (p_to_r == n) *bytes = 2 * share, hops *= 2;
    else if (s_to_s == n && one_from && one_to && x->dim[c[0]] != y->dim[c[0]] && ordered)
        *bytes = share;
    else {
        if (n != 2 || s_to_s + s_to_r + r_to_s != 2 || s_to_r != r_to_s) return false;
        int p = c[0], q = c[1];
        bool trade = x->type[p] == y->type[q] && x->dim[p] == y->dim[q] &&
                     x->order[p] == y->order[q] && x->type[q] == y->type[p] &&
                     x->dim[q] == y->dim[p] && x->order[q] == y->order[p];
        bool neighbours = s_to_s == 2 && x->dim[p] == x->dim[q] &&
                          abs(x->order[p] - x->order[q]) == 1 && divides(b, x, x->dim[p]);
        if (!trade || (b->mesh->size[p] != b->mesh->size[q] && !neighbours)) return false;
        *bytes = larger;
        hops = 1;
    }
    *seconds = 1e-8 + start + hops * hop + *bytes / speed;
    return true;
}

/* The least of what `by_bytes` says, from the start to the goal. */
static double solve(brute *b, bool by_bytes)
{
    static bool done[MAX_PLACES];
    for (int i = 0; i < b->n; i++) {
        b->best[i] = i == b->start ? 0 : 1e300;
        done[i] = false;
    }
    for (;;) {
        int at = -1;
        for (int i = 0; i < b->n; i++)
            if (!done[i] && b->best[i] < 1e299 && (at < 0 || b->best[i] < b->best[at])) at = i;
        if (at < 0 || at == b->goal) return at < 0 ? -1 : b->best[at];
        done[at] = true;
        for (int j = 0; j < b->n; j++) {
            double bytes, seconds;
            if (done[j] || !one_step(b, at, j, &bytes, &seconds)) continue;
            double d = b->best[at] + (by_bytes ? bytes : seconds);
            if (d < b->best[j]) b->best[j] = d;
        }
    }
}

static void compare(const tn_mesh *mesh, const tn_reshard_links *links, const tn_value *v,
                    const tn_layout *to, int *faster)
{
    static brute b;
    tn_arena arena = {0};
    tn_reshard r;
    unsigned moves = 0;
    tn_layout base = tn_layout_all(TN_TYPE_R), from = plain(v->layout), goal = plain(*to);
    b.mesh = mesh, b.links = links, b.v = v, b.to = *to, b.n = 0;
    for (int a = 0; a < TN_N_AXES; a++) {
        bool rests =
            mesh->size[a] == 1 || (v->layout.type[a] == TN_TYPE_P && to->type[a] == TN_TYPE_P);
        if (!rests) moves |= 1u << a;
        else if (from.type[a] == TN_TYPE_P) base.type[a] = TN_TYPE_P;
    }
    enumerate(&b, base, moves);
    b.start = b.goal = -1;
    for (int i = 0; i < b.n; i++) {
        if (tn_layout_equal(&b.place[i], &from)) b.start = i;
        if (tn_layout_equal(&b.place[i], &goal)) b.goal = i;
    }
    char x[96], y[96];
    tn_layout_print(&v->layout, x, sizeof x);
    tn_layout_print(to, y, sizeof y);
    if (!TN_CHECK_OK(tn_reshard_plan(mesh, links, v, to, &arena, &r)) ||
        !TN_CHECK(b.start >= 0 && b.goal >= 0))
        return;
    double least = solve(&b, false);
    if (fabs(r.seconds - least) <= 1e-9 * least) ++*faster;
    else
        TN_CHECK_MSG((double)r.bytes == solve(&b, true),
                     "%s to %s: %.9g s and %lld bytes, there is a way in %.9g s", x, y, r.seconds,
                     (long long)r.bytes, least);
    TN_CHECK_MSG(r.seconds >= least * (1 - 1e-9), "%s to %s: %.9g s, less than there is", x, y,
                 r.seconds);
    TN_CHECK_MSG(r.bytes <= r.by_axis_bytes, "%s to %s: %lld bytes, axis by axis %lld", x, y,
                 (long long)r.bytes, (long long)r.by_axis_bytes);
    tn_arena_fini(&arena);
}

static void against_brute_force(void)
{
    static const int64_t extents[][3] = {{32, 16, 8}, {7, 12, 5}, {64, 3, 16}, {24, 24, 24}};
    static const tn_mesh meshes[] = {{1, {2, 4, 1, 2}},
                                     {1, {1, 3, 2, 4}},
                                     {1, {2, 1, 2, 2}},
                                     {1, {1, 8, 1, 4}},
                                     {1, {4, 4, 1, 4}}};
    int n = 0, fastest = 0;
    for (int i = 0; i < 500; i++) {
        int rank = 2 + draw(2);
        const tn_mesh *mesh = &meshes[i % TN_COUNT(meshes)];
        tn_reshard_links links = draw(3) ? random_links() : even_links;
        tn_layout from = random_layout(rank, true), to = random_layout(rank, draw(4) == 0);
        for (int a = 0; a < TN_N_AXES; a++) /* axes that rest are nowhere here */
            if (mesh->size[a] == 1) from.type[a] = to.type[a] = TN_TYPE_V;
        for (int k = 0; k < 2; k++) {
            tn_layout *l = k ? &to : &from, m = tn_layout_all(TN_TYPE_R);
            for (int d = 0; d < rank; d++) {
                tn_axis axes[TN_N_AXES];
                int order = 0;
                for (int o = 0; o < TN_N_AXES; o++)
                    for (int a = 0; a < TN_N_AXES; a++)
                        if (l->type[a] == TN_TYPE_S && l->dim[a] == d && l->order[a] == o)
                            axes[order++] = (tn_axis)a;
                for (int o = 0; o < order; o++) tn_layout_shard(&m, axes[o], d);
            }
            for (int a = 0; a < TN_N_AXES; a++)
                if (l->type[a] == TN_TYPE_P || l->type[a] == TN_TYPE_I) m.type[a] = l->type[a];
            *l = m;
        }
        tn_value v = value_of(rank, extents[draw(TN_COUNT(extents))], from);
        compare(mesh, &links, &v, &to, &fastest);
        n++;
    }
    for (int i = 0; i < 6; i++) { /* four axes */
        static const tn_mesh mesh = {1, {2, 4, 2, 2}};
        tn_value v = value_of(2, extents[i % 2], random_layout(2, true));
        tn_layout to = random_layout(2, false);
        tn_reshard_links links = random_links();
        compare(&mesh, &links, &v, &to, &fastest);
        n++;
    }
    TN_CHECK_MSG(fastest * 10 >= n * 8, "only %d of %d plans are the fastest", fastest, n);
}

/* ------------------------------------------------------------ the steps, done on blocks */

static void run_plans(void)
{
    static const tn_mesh meshes[] = {{1, {2, 2, 2, 2}},
                                     {1, {1, 3, 2, 4}},
                                     {1, {2, 3, 1, 2}},
                                     {1, {3, 3, 1, 3}},
                                     {1, {1, 1, 1, 3}}};
    static const int64_t extents[][3] = {{8, 8, 4}, {7, 12, 5}, {3, 9, 12}, {12, 6, 6}};
    static world w;
    static int global[MAX_ELEMENTS];
    int kinds[TN_RESHARD_KINDS] = {0};
    for (int i = 0; i < 400; i++) {
        int rank = 2 + draw(2);
        const int64_t *e = extents[draw(TN_COUNT(extents))];
        const tn_mesh *mesh = &meshes[i % TN_COUNT(meshes)];
        tn_reshard_links links = draw(3) ? random_links() : even_links;
        tn_value v = value_of(rank, e, random_layout(rank, true));
        tn_layout to = random_layout(rank, draw(4) == 0);
        tn_arena arena = {0};
        tn_reshard r;
        char x[96], y[96];
        if (i % 3 == 2) v.dim[1].units = v.dim[1].extent / (1 + draw(2) * 2);
        if (v.dim[1].units && v.dim[1].extent % v.dim[1].units) v.dim[1].units = 0;
        w.mesh = mesh, w.v = &v, w.ranks = tn_mesh_ranks(mesh), w.n = tn_value_elements(&v);
        for (int64_t k = 0; k < w.n; k++) global[k] = draw(10000);
        tn_layout_print(&v.layout, x, sizeof x);
        tn_layout_print(&to, y, sizeof y);
        if (!TN_CHECK_OK(tn_reshard_plan(mesh, &links, &v, &to, &arena, &r))) continue;
        fill(&w, global);
        bool right = all_as(&w, &v.layout, global);
        TN_CHECK_MSG(right, "%s: the test's own blocks", x);
        for (int k = 0; k < r.n_steps; k++) {
            int64_t received;
            bool did = do_step(&w, &r.step[k], &received);
            right &= did && all_as(&w, &r.step[k].after, global);
            kinds[r.step[k].kind]++;
            bool grows =
                r.step[k].kind == TN_RESHARD_ALL_GATHER; /* uneven blocks: a rank with the smallest
                                                            one receives more than the average */
            if (e == extents[0] && i % 5 == 0 && grows) TN_CHECK(received == r.step[k].bytes);
        }
        tn_text text = {0};
        tn_reshard_print(&r, &text);
        TN_CHECK_MSG(right, "%s to %s: '%s' gives something else", x, y, tn_text_str(&text));
        tn_text_fini(&text);
        if (r.n_steps) TN_CHECK(tn_layout_equal(&r.step[r.n_steps - 1].after, &to));
        TN_CHECK(r.bytes <= r.by_axis_bytes);
        tn_arena_fini(&arena);
    }
    for (int k = 0; k < TN_RESHARD_KINDS; k++)
        TN_CHECK_MSG(kinds[k] >= 5, "%s was done %d times only",
                     tn_reshard_kind_name((tn_reshard_kind)k), kinds[k]);
}

/* ------------------------------------------------------------ known plans */

static void known(void)
{
    static const struct {
        tn_mesh mesh;
        const char *from, *to, *plan;
        int64_t bytes;
    } cases[] = {
        /* [64,1024,256] f32: 64 MiB */
        {{1, {1, 1, 1, 4}}, "{dp:0 cp:1 tp:R}", "{dp:0 cp:1 tp:R}", "nothing moves", 0},
        {{1, {1, 1, 1, 4}}, "{dp:0 cp:1 tp:R}", "{dp:0 cp:1 tp:I}", "nothing moves", 0},
        {{1, {1, 1, 1, 4}},
         "{dp:0 cp:1 tp:P}",
         "{dp:0 cp:1 tp:I}",
         "all_reduce tp: 96.0 MiB, 101 ms",
         96 << 20},
        {{1, {1, 1, 1, 4}}, "{dp:0 cp:1 tp:R}", "{dp:0 cp:1 tp:P}", "pad tp", 0},
        {{1, {1, 1, 1, 4}}, "{dp:0 cp:1 tp:2}", "{dp:0 cp:1 tp:P}", "pad tp of dim 2", 0},
        {{1, {1, 2, 1, 4}},
         "{dp:0 cp:1.0 tp:1.1}",
         "{dp:0 cp:1 tp:R}",
         "all_gather tp of dim 1: 24.0 MiB, 25.2 ms",
         24 << 20},
        {{1, {1, 2, 1, 4}},
         "{dp:0 cp:1 tp:P}",
         "{dp:0 cp:1.0 tp:1.1}",
         "reduce_scatter tp to dim 1: 24.0 MiB, 25.2 ms",
         24 << 20},
        {{1, {2, 2, 1, 1}},
         "{dp:0 cp:R tp:R}",
         "{dp:1 cp:R tp:R}",
         "all_to_all dp_replicate,dp_shard of dim 0 to dim 1: 12.0 MiB, 12.6 ms",
         12 << 20},
        {{1, {2, 2, 1, 1}},
         "{dp:0 cp:R tp:R}",
         "{dp:R cp:R tp:R}",
         "all_gather dp_replicate,dp_shard of dim 0: 48.0 MiB, 50.3 ms",
         48 << 20},
        {{1, {2, 2, 1, 1}},
         "{dp:P cp:R tp:R}",
         "{dp:I cp:R tp:R}",
         "all_reduce dp_replicate,dp_shard: 96.0 MiB, 101 ms",
         96 << 20},
        {{1, {1, 2, 1, 2}},
         "{dp:0.0 cp:R tp:0.2}",
         "{dp:0.1 cp:R tp:0.0}",
         "permute dp_shard,tp: 16.0 MiB, 16.8 ms",
         16 << 20},
        {{1, {1, 4, 1, 4}},
         "{dp:0 cp:R tp:R}",
         "{dp:R cp:R tp:0}",
         "permute dp_shard,tp: 16.0 MiB, 16.8 ms",
         16 << 20},
        {{1, {1, 2, 1, 4}},
         "{dp:0 cp:R tp:R}",
         "{dp:R cp:R tp:0}",
         "slice tp to dim 0; permute dp_shard,tp of dim 0: 8.00 MiB, 8.40 ms; all_gather dp_shard "
         "of dim 0: 8.00 MiB, 8.40 ms",
         16 << 20},
        {{1, {1, 2, 1, 4}},
         "{dp:0 cp:R tp:P}",
         "{dp:1 cp:R tp:2}",
         "reduce_scatter tp to dim 2: 24.0 MiB, 25.2 ms; all_to_all dp_shard of dim 0 to dim 1: "
         "4.00 MiB, 4.20 ms",
         28 << 20},
    };
    static const int64_t extent[3] = {64, 1024, 256};
    for (int i = 0; i < TN_COUNT(cases); i++) {
        tn_layout from, to;
        tn_arena arena = {0};
        tn_reshard r;
        tn_text text = {0};
        if (!TN_CHECK_MSG(tn_layout_parse(cases[i].from, &from) &&
                              tn_layout_parse(cases[i].to, &to),
                          "case %d", i))
            continue;
        tn_value v = value_of(3, extent, from);
        if (TN_CHECK_OK(tn_reshard_plan(&cases[i].mesh, &even_links, &v, &to, &arena, &r))) {
            tn_reshard_print(&r, &text);
            TN_CHECK_TEXT(tn_text_str(&text), cases[i].plan);
            TN_CHECK(r.bytes == cases[i].bytes);
        }
        tn_text_fini(&text);
        tn_arena_fini(&arena);
    }
    tn_mesh mesh = {1, {1, 2, 1, 2}};
    tn_layout from = tn_layout_all(TN_TYPE_R), to = from;
    tn_arena arena = {0};
    tn_reshard r;
    tn_value v = value_of(2, extent, from);
    to.type[TN_AXIS_TP] = TN_TYPE_V;
    TN_CHECK_FAILS(tn_reshard_plan(&mesh, &even_links, &v, &to, &arena, &r), TN_BAD_INPUT,
                   "axis tp: no way from R to V; V has no global meaning");
    to = from;
    tn_layout_shard(&to, TN_AXIS_TP, 2);
    TN_CHECK_FAILS(tn_reshard_plan(&mesh, &even_links, &v, &to, &arena, &r), TN_BAD_INPUT,
                   "axis tp: S(2) of a value with 2 dims; the last dim is S(1)");
    tn_arena_fini(&arena);
    tn_mesh large = {1, {2, 4, 1, 8}};
    tn_reshard_links g = tn_reshard_guess(&large, 8);
    TN_CHECK(g.axis[TN_AXIS_TP].bytes_per_s > g.axis[TN_AXIS_DP_SHARD].bytes_per_s &&
             g.axis[TN_AXIS_TP].hop_s < g.axis[0].hop_s);
}

/* ------------------------------------------------------------ time */

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
static const double slower = 10;
#else
static const double slower = 1;
#endif

static double cpu_s(void)
{
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void in_time(void)
{
    static const tn_mesh mesh = {1, {2, 8, 4, 8}};
    static const int64_t extent[4] = {64, 8192, 1024, 256};
    enum { N = 200 };
    static double s[N];
    for (int rank = 2; rank <= 4; rank++) {
        int states = 0;
        size_t most = 0;
        for (int i = 0; i < N; i++) {
            tn_value v = value_of(rank, extent, random_layout(rank, true));
            tn_layout to = random_layout(rank, false);
            tn_reshard_links links = tn_reshard_guess(&mesh, 8);
            tn_reshard r = {0};
            tn_arena arena = {0};
            double t = cpu_s();
            if (!TN_CHECK_OK(tn_reshard_plan(&mesh, &links, &v, &to, &arena, &r))) return;
            s[i] = cpu_s() - t;
            if (r.n_states > states) states = r.n_states;
            if (arena.used_bytes > most) most = arena.used_bytes;
            TN_CHECK(r.bytes <= r.by_axis_bytes);
            tn_arena_fini(&arena);
        }
        qsort(s, N, sizeof *s, by_value);
        printf("reshard: 4 axes, %d dims: median %.0f us, p99 %.0f us, at most %d placements, %zu "
               "KiB\n",
               rank, 1e6 * s[N / 2], 1e6 * s[N * 99 / 100], states, most >> 10);
        /* must 500 us, with room for what else the machine does; sanitizers take ten times that */
        TN_CHECK_MSG(s[N / 2] < 750e-6 * slower, "%d dims: %.0f us a pair", rank, 1e6 * s[N / 2]);
    }
}

static tn_status plan_once(void *arg)
{
    static const tn_mesh mesh = {1, {2, 2, 2, 2}};
    static const int64_t extent[2] = {8, 8};
    tn_layout from = tn_layout_all(TN_TYPE_P), to = tn_layout_all(TN_TYPE_I);
    tn_value v = value_of(2, extent, from);
    tn_arena arena = {0};
    tn_status st = tn_reshard_plan(&mesh, &even_links, &v, &to, &arena, arg);
    tn_arena_fini(&arena);
    return st;
}

int main(void)
{
    tn_reshard r;
    known();
    run_plans();
    against_brute_force();
    in_time();
    TN_CHECK(tn_test_each_alloc(plan_once, &r) >= 1);
    return tn_test_done("reshard");
}
