#include "graph/types.h"

#include "graph/order.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *const axis_names[TN_N_AXES] = {"dp_replicate", "dp_shard", "cp", "tp"};

const char *tn_axis_name(tn_axis axis)
{
    return axis_names[axis];
}

bool tn_axis_parse(const char *name, tn_axis *out)
{
    for (int a = 0; a < TN_N_AXES; a++)
        if (!strcmp(name, axis_names[a])) {
            *out = (tn_axis)a;
            return true;
        }
    return false;
}

char tn_type_letter(tn_type type)
{
    return "RIVPS"[type];
}

tn_layout tn_layout_all(tn_type type)
{
    tn_layout l = {0};
    for (int a = 0; a < TN_N_AXES; a++) l.type[a] = (uint8_t)type;
    return l;
}

bool tn_layout_equal(const tn_layout *a, const tn_layout *b)
{
    return !memcmp(a, b, sizeof *a);
}

tn_layout tn_layout_of_gradient(const tn_layout *a)
{
    tn_layout l = *a;
    for (int i = 0; i < TN_N_AXES; i++) {
        if (a->type[i] == TN_TYPE_R) l.type[i] = TN_TYPE_P;
        if (a->type[i] == TN_TYPE_P) l.type[i] = TN_TYPE_R;
    }
    return l;
}

int tn_layout_axes(const tn_layout *l, int dim, tn_axis out[TN_N_AXES])
{
    int n = 0;
    for (int a = 0; a < TN_N_AXES; a++)
        if (l->type[a] == TN_TYPE_S && l->dim[a] == dim) {
            out[l->order[a]] = (tn_axis)a;
            n++;
        }
    return n;
}

void tn_layout_shard(tn_layout *l, tn_axis axis, int dim)
{
    tn_axis axes[TN_N_AXES];
    int n = tn_layout_axes(l, dim, axes);
    l->type[axis] = TN_TYPE_S;
    l->dim[axis] = (uint8_t)dim;
    l->order[axis] = (uint8_t)n;
}

int tn_layout_parts(const tn_layout *l, const tn_mesh *mesh, tn_axis axis)
{
    return l->among[axis] ? l->among[axis] : mesh->size[axis];
}

/* The axes of more than one rank that cut a dim in front of and including `axis`. */
static int list_to(const tn_layout *l, const tn_mesh *mesh, tn_axis axis, tn_axis out[TN_N_AXES])
{
    tn_axis axes[TN_N_AXES];
    int n = tn_layout_axes(l, l->dim[axis], axes), k = 0;
    for (int i = 0; i < n; i++) {
        if (mesh->size[axes[i]] > 1) out[k++] = axes[i];
        if (axes[i] == axis) break;
    }
    return k;
}

bool tn_layout_moves(const tn_layout *from, const tn_layout *to, const tn_mesh *mesh, tn_axis axis)
{
    tn_axis a[TN_N_AXES], b[TN_N_AXES];
    if (mesh->size[axis] == 1) return false;
    if (from->type[axis] != to->type[axis])
        return from->type[axis] != TN_TYPE_I || to->type[axis] != TN_TYPE_R;
    if (from->type[axis] != TN_TYPE_S) return false;
    int n = list_to(from, mesh, axis, a);
    if (from->dim[axis] != to->dim[axis] || n != list_to(to, mesh, axis, b)) return true;
    for (int i = 0; i < n; i++)
        if (a[i] != b[i] || from->among[a[i]] != to->among[b[i]]) return true;
    return false;
}

/* dp_replicate directly outside dp_shard on one dim, or the same type on both: written as one axis
 * `dp`. */
static bool dp_folds(const tn_layout *l)
{
    int r = TN_AXIS_DP_REPLICATE, s = TN_AXIS_DP_SHARD;
    if (l->type[r] != l->type[s] || l->among[r] || l->among[s]) return false;
    if (l->type[r] != TN_TYPE_S) return true;
    return l->dim[r] == l->dim[s] && l->order[s] == l->order[r] + 1;
}

static int print_axis(const tn_layout *l, int axis, const char *name, char *out, size_t size)
{
    tn_axis axes[TN_N_AXES];
    char among[8] = "";
    if (l->type[axis] != TN_TYPE_S)
        return snprintf(out, size, "%s:%c", name, tn_type_letter((tn_type)l->type[axis]));
    if (l->among[axis]) snprintf(among, sizeof among, "/%d", l->among[axis]);
    bool fold = axis == TN_AXIS_DP_REPLICATE && dp_folds(l);
    if (tn_layout_axes(l, l->dim[axis], axes) <= (fold ? 2 : 1))
        return snprintf(out, size, "%s:%d%s", name, l->dim[axis], among);
    return snprintf(out, size, "%s:%d.%d%s", name, l->dim[axis], l->order[axis], among);
}

int tn_layout_print(const tn_layout *l, char *out, size_t size)
{
    int n = snprintf(out, size, "{");
    for (int a = 0; a < TN_N_AXES; a++) {
        const char *name = axis_names[a];
        if (dp_folds(l)) {
            if (a == TN_AXIS_DP_SHARD) continue;
            if (a == TN_AXIS_DP_REPLICATE) name = "dp";
        }
        if (n > 1) n += snprintf(out + n, size > (size_t)n ? size - (size_t)n : 0, " ");
        n += print_axis(l, a, name, out + n, size > (size_t)n ? size - (size_t)n : 0);
    }
    return n + snprintf(out + n, size > (size_t)n ? size - (size_t)n : 0, "}");
}

static bool set_axis(tn_layout *l, int axis, const char *what, bool seen[TN_N_AXES])
{
    const char *letters = "RIVP", *p;
    if (seen[axis]) return false;
    seen[axis] = true;
    if (what[0] && !what[1] && (p = strchr(letters, what[0]))) {
        l->type[axis] = (uint8_t)(p - letters);
        return true;
    }
    if (what[0] < '0' || what[0] >= '0' + TN_MAX_RANK) return false;
    l->type[axis] = TN_TYPE_S;
    l->dim[axis] = (uint8_t)(what[0] - '0');
    what++;
    if (what[0] == '.') {
        if (what[1] < '0' || what[1] >= '0' + TN_N_AXES) return false;
        l->order[axis] = (uint8_t)(what[1] - '0');
        what += 2;
    }
    if (!what[0]) return true;
    if (what[0] != '/' || what[1] < '1' || what[1] > '9') return false;
    char *end;
    long n = strtol(what + 1, &end, 10);
    l->among[axis] = (uint8_t)n;
    return n < 256 && !*end;
}

/* Every dim's orders must be 0, 1, 2, ... once each. */
static bool orders_sound(const tn_layout *l)
{
    for (int d = 0; d < TN_MAX_RANK; d++) {
        unsigned mask = 0, n = 0;
        for (int a = 0; a < TN_N_AXES; a++)
            if (l->type[a] == TN_TYPE_S && l->dim[a] == d) {
                if (mask & 1u << l->order[a]) return false;
                mask |= 1u << l->order[a];
                n++;
            }
        if (mask != (1u << n) - 1) return false;
    }
    return true;
}

bool tn_layout_parse(const char *text, tn_layout *out)
{
    char buf[160], *save = NULL;
    bool seen[TN_N_AXES] = {false};
    tn_layout l = {0};
    size_t n = strlen(text);
    if (n < 2 || n >= sizeof buf || text[0] != '{' || text[n - 1] != '}') return false;
    memcpy(buf, text + 1, n - 2);
    buf[n - 2] = 0;
    for (char *w = strtok_r(buf, " ", &save); w; w = strtok_r(NULL, " ", &save)) {
        char *colon = strchr(w, ':');
        tn_axis axis;
        if (!colon) return false;
        *colon = 0;
        if (!strcmp(w, "dp")) {
            if (strchr(colon + 1, '/')) return false; /* says whose neighbours */
            if (!set_axis(&l, TN_AXIS_DP_REPLICATE, colon + 1, seen)) return false;
            if (!set_axis(&l, TN_AXIS_DP_SHARD, colon + 1, seen)) return false;
            if (l.type[TN_AXIS_DP_SHARD] == TN_TYPE_S) l.order[TN_AXIS_DP_SHARD]++;
        } else if (!tn_axis_parse(w, &axis) || !set_axis(&l, (int)axis, colon + 1, seen)) {
            return false;
        }
    }
    for (int a = 0; a < TN_N_AXES; a++)
        if (!seen[a]) return false;
    if (!orders_sound(&l)) return false;
    *out = l;
    return true;
}

/* Part r of n of `count` elements in `units`. More units than elements: key/value heads shared by
 * more query heads than there are; a part holds every one that its query heads read, so parts
 * overlap where n exceeds the heads. */
static void cut(int64_t count, int64_t units, int64_t r, int64_t n, int64_t *lo, int64_t *hi)
{
    *lo = tn_order_cut(count, units, r, n);
    *hi = tn_order_cut(count, units, r + 1, n);
    if (units > count) *hi = ((r + 1) * units / n * count + units - 1) / units;
}

int64_t tn_layout_local(const tn_layout *l, const tn_mesh *mesh, const int at[TN_N_AXES], int dim,
                        int64_t extent, int64_t units, int64_t *begin_out)
{
    tn_axis axes[TN_N_AXES];
    int n = tn_layout_axes(l, dim, axes);
    int64_t begin = 0, count = extent, in_units = units;
    for (int i = 0; i < n; i++) {
        int64_t size = tn_layout_parts(l, mesh, axes[i]), r = at[axes[i]] % size, lo, hi;
        if (size == 1) continue;
        if (axes[i] != TN_AXIS_TP)
            in_units = 0; /* heads are cut by tensor parallelism only; storage is cut by elements */
        cut(count, in_units, r, size, &lo, &hi);
        if (in_units) in_units = (r + 1) * in_units / size - r * in_units / size;
        begin += lo;
        count = hi - lo;
    }
    if (begin_out) *begin_out = begin;
    return count;
}

int64_t tn_layout_largest(const tn_layout *l, const tn_mesh *mesh, int dim, int64_t extent,
                          int64_t units)
{
    tn_axis axes[TN_N_AXES];
    int n = tn_layout_axes(l, dim, axes);
    int64_t count = extent, in_units = units;
    for (int i = 0; i < n; i++) {
        int64_t size = tn_layout_parts(l, mesh, axes[i]), most = 0;
        if (size == 1) continue;
        if (axes[i] != TN_AXIS_TP) in_units = 0;
        for (int64_t r = 0; in_units && r < size; r++) {
            int64_t lo, hi;
            cut(count, in_units, r, size, &lo, &hi);
            if (hi - lo > most) most = hi - lo;
        }
        count = in_units ? most : (count + size - 1) / size;
        in_units = (in_units + size - 1) / size;
    }
    return count;
}

int tn_mesh_ranks(const tn_mesh *mesh)
{
    int n = 1;
    for (int a = 0; a < TN_N_AXES; a++) n *= mesh->size[a];
    return n;
}

void tn_mesh_coordinates(const tn_mesh *mesh, int rank, int at[TN_N_AXES])
{
    for (int a = TN_N_AXES - 1; a >= 0; a--) {
        at[a] = rank % mesh->size[a];
        rank /= mesh->size[a];
    }
}

int tn_mesh_rank(const tn_mesh *mesh, const int at[TN_N_AXES])
{
    int rank = 0;
    for (int a = 0; a < TN_N_AXES; a++) rank = rank * mesh->size[a] + at[a];
    return rank;
}
