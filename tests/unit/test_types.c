/* test_types.c - layouts: their text, gradients, axis lists; shards against the rule written down
 * again; ranks and coordinates. */
#include "graph/types.h"
#include "tests/test.h"

#include <stdlib.h>

/* ------------------------------------------------------------ text */

static void round_trip(const tn_layout *l)
{
    char text[128];
    tn_layout back;
    int n = tn_layout_print(l, text, sizeof text);
    TN_CHECK_MSG(n == (int)strlen(text) && tn_layout_parse(text, &back) &&
                     tn_layout_equal(l, &back),
                 "'%s' reads back as another layout", text);
}

/* Every choice of a type per axis (three dims), and every order in which axes may share a dim. */
static void all_layouts(void)
{
    static const int orders[24][4] = {
        {0, 1, 2, 3}, {0, 1, 3, 2}, {0, 2, 1, 3}, {0, 2, 3, 1}, {0, 3, 1, 2}, {0, 3, 2, 1},
        {1, 0, 2, 3}, {1, 0, 3, 2}, {1, 2, 0, 3}, {1, 2, 3, 0}, {1, 3, 0, 2}, {1, 3, 2, 0},
        {2, 0, 1, 3}, {2, 0, 3, 1}, {2, 1, 0, 3}, {2, 1, 3, 0}, {2, 3, 0, 1}, {2, 3, 1, 0},
        {3, 0, 1, 2}, {3, 0, 2, 1}, {3, 1, 0, 2}, {3, 1, 2, 0}, {3, 2, 0, 1}, {3, 2, 1, 0}};
    for (int i = 0; i < 7 * 7 * 7 * 7 * 24; i++) {
        int k = i / 24;
        int type[TN_N_AXES] = {k % 7, k / 7 % 7, k / 49 % 7, k / 343};
        tn_layout l = tn_layout_all(TN_TYPE_R);
        for (int o = 0; o < TN_N_AXES; o++) {
            int a = orders[i % 24][o];
            if (type[a] < 4) l.type[a] = (uint8_t)type[a];
            else tn_layout_shard(&l, (tn_axis)a, type[a] - 4);
        }
        round_trip(&l);
        tn_layout g = tn_layout_of_gradient(&l), gg = tn_layout_of_gradient(&g);
        bool right = tn_layout_equal(&l, &gg);
        for (int a = 0; a < TN_N_AXES; a++) {
            tn_type t = (tn_type)l.type[a], want = t == TN_TYPE_R   ? TN_TYPE_P
                                                   : t == TN_TYPE_P ? TN_TYPE_R
                                                                    : t;
            right &= g.type[a] == want && g.dim[a] == l.dim[a] && g.order[a] == l.order[a];
        }
        TN_CHECK(right);
    }
}

static void texts(void)
{
    static const char *const same[] = {"{dp:0 cp:1 tp:R}",
                                       "{dp:R cp:I tp:V}",
                                       "{dp_replicate:R dp_shard:P cp:I tp:2}",
                                       "{dp:0.0 cp:1 tp:0.2}",
                                       "{dp:0.1 cp:R tp:0.0}",
                                       "{dp_replicate:0.1 dp_shard:0.0 cp:R tp:R}",
                                       "{dp_replicate:0.0 dp_shard:0.2 cp:0.1 tp:5}"};
    static const char *const wrong[] = {"",
                                        "{}",
                                        "dp:0 cp:1 tp:R",
                                        "{dp:0 cp:1}",
                                        "{dp:0 cp:1 tp:R",
                                        "{dp:0 cp:1 tp:R} ",
                                        "{dp:0 cp:1 tp:R cp:1}",
                                        "{dp:0 dp_shard:0 cp:1 tp:R}",
                                        "{dp:0 cp:1 tp:Q}",
                                        "{dp:0 cp:1 tp:RR}",
                                        "{dp:0 cp:1 tp:}",
                                        "{dp:0 cp:1 tp}",
                                        "{dp:0 cp:1 ep:R}",
                                        "{dp:0 cp:1 tp:6}",
                                        "{dp:0 cp:1 tp:-1}",
                                        "{dp:0 cp:1 tp:0}",
                                        "{dp:0 cp:0 tp:R}",
                                        "{dp:0.0 cp:0.1 tp:R}",
                                        "{dp:0.1 cp:1 tp:R}",
                                        "{dp:0 cp:1 tp:2.1}",
                                        "{dp:0 cp:1 tp:2.}",
                                        "{dp:0 cp:1 tp:2.9}",
                                        "{dp:0 cp:1 tp:2.00}",
                                        "{dp_replicate:0 cp:1 tp:R}",
                                        "{dp:0  cp:1, tp:R}",
                                        "{dp:0 cp:1 tp:r}"};
    tn_layout l;
    char text[128], longest[400];
    for (int i = 0; i < TN_COUNT(same); i++) {
        if (!TN_CHECK_MSG(tn_layout_parse(same[i], &l), "'%s' is refused", same[i])) continue;
        tn_layout_print(&l, text, sizeof text);
        TN_CHECK_TEXT(text, same[i]);
    }
    for (int i = 0; i < TN_COUNT(wrong); i++)
        TN_CHECK_MSG(!tn_layout_parse(wrong[i], &l), "'%s' is taken", wrong[i]);
    memset(longest, ' ', sizeof longest);
    longest[0] = '{';
    memcpy(longest + sizeof longest - 18, "dp:0 cp:1 tp:R}", 16);
    TN_CHECK(!tn_layout_parse(longest, &l));
    TN_CHECK(tn_layout_parse("{tp:R cp:1 dp:0}", &l) &&
             l.order[TN_AXIS_DP_SHARD] == 1); /* in any order */
}

static void words(void)
{
    static const char *const names[TN_N_AXES] = {"dp_replicate", "dp_shard", "cp", "tp"};
    tn_axis a;
    for (int i = 0; i < TN_N_AXES; i++) {
        TN_CHECK_TEXT(tn_axis_name((tn_axis)i), names[i]);
        TN_CHECK(tn_axis_parse(names[i], &a) && a == (tn_axis)i);
    }
    TN_CHECK(!tn_axis_parse("dp", &a) && !tn_axis_parse("pp", &a) && !tn_axis_parse("", &a) &&
             !tn_axis_parse("tp ", &a));
    TN_CHECK(tn_type_letter(TN_TYPE_R) == 'R' && tn_type_letter(TN_TYPE_I) == 'I' &&
             tn_type_letter(TN_TYPE_V) == 'V' && tn_type_letter(TN_TYPE_P) == 'P' &&
             tn_type_letter(TN_TYPE_S) == 'S');
}

static void axis_lists(void)
{
    tn_layout l = tn_layout_all(TN_TYPE_I);
    tn_axis axes[TN_N_AXES];
    TN_CHECK(tn_layout_axes(&l, 0, axes) == 0);
    tn_layout_shard(&l, TN_AXIS_TP, 1);
    tn_layout_shard(&l, TN_AXIS_DP_SHARD, 1);
    tn_layout_shard(&l, TN_AXIS_CP, 0);
    TN_CHECK(tn_layout_axes(&l, 1, axes) == 2 && axes[0] == TN_AXIS_TP &&
             axes[1] == TN_AXIS_DP_SHARD);
    TN_CHECK(tn_layout_axes(&l, 0, axes) == 1 && axes[0] == TN_AXIS_CP &&
             tn_layout_axes(&l, 2, axes) == 0);
}

/* ------------------------------------------------------------ shards */

/* DESIGN.md 7 (1): part r of n of U units is [floor(rU/n), floor((r+1)U/n)); nested axes cut the
 * local extent; heads are cut by tp. */
static void rule(int64_t extent, int64_t units, int n, const int *size, const int *at,
                 const bool *tp, int64_t *begin, int64_t *count)
{
    *begin = 0;
    *count = extent;
    for (int i = 0; i < n; i++) {
        if (size[i] == 1) continue; /* cuts nothing: heads stay heads behind it */
        int64_t u = tp[i] && units ? units : *count, each = u ? *count / u : 1;
        int64_t lo = at[i] * u / size[i] * each, hi = (at[i] + 1) * u / size[i] * each;
        units = tp[i] && units ? (at[i] + 1) * u / size[i] - at[i] * u / size[i] : 0;
        *begin += lo;
        *count = hi - lo;
    }
}

/* All ranks of a mesh: parts as the rule says, side by side in the order of the axis list, together
 * the whole. */
static void check_tiles(const tn_mesh *m, const tn_layout *l, int64_t extent, int64_t units)
{
    tn_axis axes[TN_N_AXES];
    int n = tn_layout_axes(l, 0, axes), ranks = tn_mesh_ranks(m);
    int64_t covered = 0, most = 0, copies = 1;
    bool right = true, tp[TN_N_AXES];
    for (int a = 0; a < TN_N_AXES; a++)
        if (l->type[a] != TN_TYPE_S) copies *= m->size[a];
    for (int r = 0; r < ranks; r++) {
        int at[TN_N_AXES], here[TN_N_AXES], size[TN_N_AXES];
        int64_t begin, count, want_begin, want_count;
        tn_mesh_coordinates(m, r, at);
        for (int i = 0; i < n; i++) {
            here[i] = at[axes[i]];
            size[i] = m->size[axes[i]];
            tp[i] = axes[i] == TN_AXIS_TP;
        }
        rule(extent, units, n, size, here, tp, &want_begin, &want_count);
        count = tn_layout_local(l, m, at, 0, extent, units, &begin);
        right &= count == want_count && (begin == want_begin || !count) && begin >= 0 &&
                 begin + count <= extent;
        right &= tn_layout_local(l, m, at, 0, extent, units, NULL) == count &&
                 tn_layout_local(l, m, at, 1, 7, 0, &begin) == 7 && begin == 0;
        covered += count;
        if (count > most) most = count;
    }
    char text[128];
    tn_layout_print(l, text, sizeof text);
    TN_CHECK_MSG(right, "%s: extent %lld in %lld units: a shard is not the rule's", text,
                 (long long)extent, (long long)units);
    TN_CHECK_MSG(covered == extent * copies, "%s: extent %lld in %lld units: the shards have %lld",
                 text, (long long)extent, (long long)units, (long long)covered);
    TN_CHECK_MSG(tn_layout_largest(l, m, 0, extent, units) >= most,
                 "%s: extent %lld in %lld units: largest", text, (long long)extent,
                 (long long)units);
    if (n <= 1) TN_CHECK(tn_layout_largest(l, m, 0, extent, units) == most);
}

static void shards(void)
{
    static const tn_mesh meshes[] = {{1, {1, 1, 1, 1}},
                                     {1, {2, 2, 1, 2}},
                                     {1, {1, 3, 2, 4}},
                                     {1, {2, 1, 5, 3}},
                                     {2, {4, 2, 1, 8}}};
    static const tn_axis lists[][TN_N_AXES + 1] = {
        {TN_N_AXES},
        {TN_AXIS_TP, TN_N_AXES},
        {TN_AXIS_DP_SHARD, TN_N_AXES},
        {TN_AXIS_TP, TN_AXIS_DP_SHARD, TN_N_AXES},
        {TN_AXIS_DP_REPLICATE, TN_AXIS_DP_SHARD, TN_N_AXES},
        {TN_AXIS_CP, TN_AXIS_TP, TN_N_AXES},
        {TN_AXIS_TP, TN_AXIS_DP_SHARD, TN_AXIS_CP, TN_N_AXES},
        {TN_AXIS_CP, TN_AXIS_DP_SHARD, TN_AXIS_DP_REPLICATE, TN_AXIS_TP, TN_N_AXES}};
    for (int m = 0; m < TN_COUNT(meshes); m++)
        for (int k = 0; k < TN_COUNT(lists); k++) {
            tn_layout l = tn_layout_all(TN_TYPE_R);
            for (int i = 0; lists[k][i] != TN_N_AXES; i++) tn_layout_shard(&l, lists[k][i], 0);
            for (int64_t extent = 1; extent <= 40; extent++)
                for (int64_t units = 0; units <= extent; units++)
                    if (!units || extent % units == 0) check_tiles(&meshes[m], &l, extent, units);
        }
}

/* More units than elements: two key/value heads under six query heads. A part holds every head that
 * its query heads read. */
static void shared_heads(void)
{
    for (int heads = 1; heads <= 6; heads++)
        for (int group = 1; group <= 4; group++)
            for (int tp = 1; tp <= 8; tp++) {
                tn_mesh m = {1, {1, 1, 1, tp}};
                tn_layout l = tn_layout_all(TN_TYPE_R);
                int queries = heads * group;
                bool right = true;
                tn_layout_shard(&l, TN_AXIS_TP, 0);
                if (queries <= heads) continue;
                for (int r = 0; r < tp; r++) {
                    int at[TN_N_AXES] = {0, 0, 0, r}, q0 = r * queries / tp,
                        q1 = (r + 1) * queries / tp;
                    int64_t begin, count = tn_layout_local(&l, &m, at, 0, heads, queries, &begin);
                    for (int q = q0; q < q1; q++)
                        right &= q / group >= begin && q / group < begin + count;
                    if (q1 > q0)
                        right &= begin == q0 / group && begin + count == (q1 - 1) / group + 1;
                    right &= tn_layout_largest(&l, &m, 0, heads, queries) >= count;
                }
                TN_CHECK_MSG(right, "%d heads under %d queries over %d ranks", heads, queries, tp);
            }
}

static void ranks(void)
{
    tn_mesh m = {3, {2, 3, 1, 4}};
    int before[TN_N_AXES] = {0, 0, 0, -1};
    TN_CHECK(tn_mesh_ranks(&m) == 24);
    for (int r = 0; r < 24; r++) {
        int at[TN_N_AXES];
        tn_mesh_coordinates(&m, r, at);
        TN_CHECK(tn_mesh_rank(&m, at) == r && at[TN_AXIS_TP] == r % 4 && at[TN_AXIS_CP] == 0 &&
                 at[TN_AXIS_DP_SHARD] == r / 4 % 3 && at[0] == r / 12);
        TN_CHECK(memcmp(before, at, sizeof at) != 0);
        memcpy(before, at, sizeof at);
    }
}

/* Every so many neighbours hold all of a dim: rank r has piece r mod n, and moving from there meets
 * only them. */
static void neighbours(void)
{
    static const char *const wrong[] = {"{dp_replicate:R dp_shard:0/0 cp:R tp:R}",
                                        "{dp_replicate:R dp_shard:0/ cp:R tp:R}",
                                        "{dp_replicate:R dp_shard:0/300 cp:R tp:R}",
                                        "{dp_replicate:R dp_shard:R/2 cp:R tp:R}",
                                        "{dp:0/2 cp:R tp:R}",
                                        "{dp_replicate:R dp_shard:0/2x cp:R tp:R}"};
    const char *text = "{dp_replicate:R dp_shard:0.1/2 cp:R tp:0.0}";
    const tn_mesh mesh = {1, {2, 6, 1, 2}};
    tn_layout l, plain, whole = tn_layout_all(TN_TYPE_R);
    char out[160];
    if (!TN_CHECK(tn_layout_parse(text, &l))) return;
    tn_layout_print(&l, out, sizeof out);
    TN_CHECK_TEXT(out, text);
    for (int i = 0; i < TN_COUNT(wrong); i++)
        TN_CHECK_MSG(!tn_layout_parse(wrong[i], &plain), "%s", wrong[i]);
    plain = l;
    plain.among[TN_AXIS_DP_SHARD] = 0;
    TN_CHECK(!tn_layout_equal(&l, &plain) && tn_layout_parts(&l, &mesh, TN_AXIS_DP_SHARD) == 2 &&
             tn_layout_parts(&plain, &mesh, TN_AXIS_DP_SHARD) == 6);
    TN_CHECK(tn_layout_moves(&l, &plain, &mesh, TN_AXIS_DP_SHARD) &&
             tn_layout_moves(&l, &whole, &mesh, TN_AXIS_DP_SHARD) &&
             !tn_layout_moves(&l, &l, &mesh, TN_AXIS_DP_SHARD) &&
             !tn_layout_moves(&l, &plain, &mesh, TN_AXIS_DP_REPLICATE));
    TN_CHECK(tn_layout_largest(&l, &mesh, 0, 22, 0) == 6); /* 11 on tp, 6 and 5 of them */
    for (int r = 0; r < tn_mesh_ranks(&mesh); r++) {
        int at[TN_N_AXES];
        int64_t begin;
        tn_mesh_coordinates(&mesh, r, at);
        int64_t count = tn_layout_local(&l, &mesh, at, 0, 22, 0, &begin);
        TN_CHECK(begin == at[TN_AXIS_TP] * 11 + at[TN_AXIS_DP_SHARD] % 2 * 5 &&
                 count == 5 + at[TN_AXIS_DP_SHARD] % 2);
    }
}

int main(void)
{
    all_layouts();
    texts();
    words();
    axis_lists();
    shards();
    shared_heads();
    ranks();
    neighbours();
    return tn_test_done("types");
}
