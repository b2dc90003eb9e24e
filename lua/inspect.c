#include "lua/inspect.h"

#include <stdio.h>
#include <string.h>

/* The mesh with pipeline stages as its outermost axis. */
enum { PP, FIRST, N_LEVELS = FIRST + TN_N_AXES };

typedef struct levels {
    int64_t size[N_LEVELS], stride[N_LEVELS], ranks;
    int node; /* ranks per node */
} levels;

/* Several neighbouring axes as one: what reads them, and the name it has. */
static const struct {
    const char *name;
    int first, last; /* levels */
    const char *made, *use;
} folded[] = {
    {"dp", FIRST + TN_AXIS_DP_REPLICATE, FIRST + TN_AXIS_DP_SHARD, "dp_replicate x dp_shard",
     "rows of a step"},
    {"storage", FIRST + TN_AXIS_DP_SHARD, FIRST + TN_AXIS_CP, "dp_shard x cp",
     "weights, moments, gradients at rest"},
    {"loss", FIRST + TN_AXIS_DP_REPLICATE, FIRST + TN_AXIS_CP, "dp x cp", "sums over tokens"},
    {"efsdp", FIRST + TN_AXIS_DP_SHARD, FIRST + TN_AXIS_TP, "dp_shard x cp x tp / ep",
     "routed experts at rest"},
};

static const char *level_name(int level)
{
    return level == PP ? "pp" : tn_axis_name((tn_axis)(level - FIRST));
}

static levels levels_of(const tn_mesh *mesh, int node)
{
    levels q = {.ranks = 1, .node = node};
    for (int i = N_LEVELS - 1; i >= 0; i--) {
        q.size[i] = i == PP ? mesh->pp : mesh->size[i - FIRST];
        q.stride[i] = q.ranks;
        q.ranks *= q.size[i];
    }
    return q;
}

int64_t tn_inspect_ranks(const tn_mesh *mesh)
{
    return (int64_t)mesh->pp * tn_mesh_ranks(mesh);
}

int tn_inspect_node(const tn_recipe *r)
{
    return tn_recipe_is_set(r, "job.ranks_per_node") ? (int)tn_recipe_int(r, "job.ranks_per_node")
                                                     : 8;
}

/* ------------------------------------------------------------ nodes */

/* The most nodes that one group over levels [first, last] lies on. */
static int64_t nodes_of(const levels *q, int first, int last)
{
    int64_t span = q->size[first] * q->stride[first], step = q->stride[last], most = 1;
    for (int64_t block = 0; block < q->ranks; block += span)
        for (int64_t i = 0; i < step; i++) {
            int64_t n = 1, before = (block + i) / q->node;
            for (int64_t r = block + i + step; r < block + span; r += step) {
                n += r / q->node != before;
                before = r / q->node;
            }
            if (n > most) most = n;
        }
    return most;
}

static void add_span(const levels *q, int first, int last, tn_text *out)
{
    int64_t n = nodes_of(q, first, last);
    if (n > 1) tn_text_add(out, "%lld nodes", (long long)n);
    else tn_text_add(out, "one node");
}

void tn_inspect_warnings(const tn_mesh *mesh, int ranks_per_node, tn_text *out)
{
    levels q = levels_of(mesh, ranks_per_node);
    int tp = FIRST + TN_AXIS_TP;
    int64_t fits = 1;
    if (q.size[tp] == 1 || nodes_of(&q, tp, tp) == 1) return;
    while (2 * fits <= q.node && q.size[tp] % (2 * fits) == 0 && q.node % (2 * fits) == 0)
        fits *= 2;
    tn_text_add(out, "tp %lld crosses nodes (job.ranks_per_node = %d); tp %lld stays inside\n",
                (long long)q.size[tp], q.node, (long long)fits);
}

/* ------------------------------------------------------------ drawing */

enum { SHOWN = 8, WIDTH = 80, BEHIND = 18 }; /* "| nodes 511 to 512" */

/* Of n things at most `most` are drawn: the first ones and the last one. Is the k-th? */
static bool drawn(int64_t k, int64_t n, int64_t most)
{
    return n <= most || k < most - 1 || k == n - 1;
}

static int digits(int64_t n)
{
    int d = 1;
    for (; n >= 10; n /= 10) d++;
    return d;
}

/* "dp_shard 1 cp 0": the levels between stages and tp that are larger than 1. */
static int row_label(const levels *q, int64_t row, char *out, size_t size)
{
    int n = 0;
    out[0] = 0;
    for (int i = FIRST; i < FIRST + TN_AXIS_TP; i++)
        if (q->size[i] > 1)
            n += snprintf(
                out + n, size - (size_t)n, "%s%s %lld", n ? " " : "", level_name(i),
                (long long)(row / (q->stride[i] / q->size[FIRST + TN_AXIS_TP]) % q->size[i]));
    return n;
}

static void draw_row(const levels *q, int64_t stage, int64_t row, int label, tn_text *out)
{
    char text[96];
    int64_t tp = q->size[FIRST + TN_AXIS_TP], first = stage * q->stride[PP] + row * tp;
    int wide = digits(q->ranks - 1), room = (WIDTH - BEHIND - label - 9) / (wide + 1);
    row_label(q, row, text, sizeof text);
    tn_text_add(out, "  %-*s |", label, text);
    for (int64_t i = 0; i < tp; i++) {
        if (!drawn(i, tp, room)) {
            if (drawn(i - 1, tp, room)) tn_text_add(out, " ..");
            continue;
        }
        bool other = i && (first + i) / q->node != (first + i - 1) / q->node;
        tn_text_add(out, "%s%*lld", other ? "|" : " ", wide, (long long)(first + i));
    }
    int64_t a = first / q->node, b = (first + tp - 1) / q->node;
    if (q->ranks <= q->node) tn_text_add(out, " |\n");
    else if (a == b) tn_text_add(out, " | node %lld\n", (long long)a);
    else tn_text_add(out, " | nodes %lld to %lld\n", (long long)a, (long long)b);
}

static void draw(const levels *q, tn_text *out)
{
    char text[96];
    int64_t rows = q->stride[PP] / q->size[FIRST + TN_AXIS_TP];
    int label = row_label(q, rows - 1, text, sizeof text),
        few = q->size[PP] > 1 ? SHOWN / 2 : SHOWN;
    for (int64_t s = 0; s < q->size[PP]; s++) {
        if (q->size[PP] > 4 && s == 2) tn_text_add(out, "  ...\n");
        if (q->size[PP] > 4 && s >= 2 && s < q->size[PP] - 1) continue;
        if (q->size[PP] > 1) tn_text_add(out, "  pp %lld\n", (long long)s);
        for (int64_t i = 0; i < rows; i++) {
            if (drawn(i, rows, few)) draw_row(q, s, i, label, out);
            else if (i == few - 1) tn_text_add(out, "  %-*s | ..\n", label, "..");
        }
    }
}

void tn_inspect_mesh(const tn_mesh *mesh, int ranks_per_node, tn_text *out)
{
    levels q = levels_of(mesh, ranks_per_node);
    tn_text warnings = {0};
    tn_text_add(out, "mesh        %lld rank%s, %d per node; rank numbers, tp to the right:\n",
                (long long)q.ranks, q.ranks == 1 ? "" : "s", q.node);
    draw(&q, out);
    tn_text_add(out, "  axis          size  stride  a group lies on\n");
    for (int i = 0; i < N_LEVELS; i++) {
        tn_text_add(out, "  %-12s %5lld  %6lld  ", level_name(i), (long long)q.size[i],
                    (long long)q.stride[i]);
        if (q.size[i] > 1) add_span(&q, i, i, out);
        else tn_text_add(out, "-");
        tn_text_add(out, "\n");
    }
    tn_text_add(out, "  folded\n");
    for (int i = 0; i < TN_COUNT(folded); i++) {
        int64_t size =
            q.size[folded[i].first] * q.stride[folded[i].first] / q.stride[folded[i].last];
        tn_text_add(out, "  %-12s %5lld      = %s: %s\n", folded[i].name, (long long)size,
                    folded[i].made, folded[i].use);
    }
    tn_text_add(out, "  %-12s %5d      = 1, innermost: routed experts; not in this build\n", "ep",
                1);
    tn_inspect_warnings(mesh, ranks_per_node, &warnings);
    if (warnings.n_bytes) tn_text_add(out, "warning: %s", tn_text_str(&warnings));
    out->failed |= warnings.failed;
    tn_text_fini(&warnings);
}

/* ------------------------------------------------------------ one rank */

/* Members of the group of `rank` over levels [first, last]: they lie at equal distances. */
static void add_group(const levels *q, int64_t rank, int first, int last, tn_text *out)
{
    int64_t span = q->size[first] * q->stride[first], step = q->stride[last], n = span / step;
    int64_t begin = rank / span * span + rank % step;
    for (int64_t i = 0; i < n; i++) {
        if (drawn(i, n, SHOWN)) tn_text_add(out, " %lld", (long long)(begin + i * step));
        else if (drawn(i - 1, n, SHOWN)) tn_text_add(out, " ..");
    }
    if (n > SHOWN) tn_text_add(out, " (%lld)", (long long)n);
    tn_text_add(out, "\n");
}

tn_status tn_inspect_rank(const tn_mesh *mesh, int ranks_per_node, int64_t rank, tn_text *out)
{
    levels q = levels_of(mesh, ranks_per_node);
    if (rank < 0 || rank >= q.ranks)
        TN_FAIL(TN_BAD_INPUT, "rank %lld: the layout has %lld rank%s; 0 to %lld", (long long)rank,
                (long long)q.ranks, q.ranks == 1 ? "" : "s", (long long)q.ranks - 1);
    tn_text_add(out, "rank %-6lld", (long long)rank);
    for (int i = 0; i < N_LEVELS; i++)
        tn_text_add(out, " %s %lld", level_name(i), (long long)(rank / q.stride[i] % q.size[i]));
    tn_text_add(out, ", node %lld\n", (long long)(rank / q.node));
    for (int i = 0; i < N_LEVELS; i++) {
        if (q.size[i] == 1) continue;
        tn_text_add(out, "  %-12s", level_name(i));
        add_group(&q, rank, i, i, out);
    }
    for (int i = 0; i < TN_COUNT(folded); i++) {
        tn_text_add(out, "  %-12s", folded[i].name);
        add_group(&q, rank, folded[i].first, folded[i].last, out);
    }
    return tn_text_end(out);
}
