/* golden_types.h - reading golden/types (its README.md has the notation), verdicts against it, and
 * the table of where titan differs.
 *
 * A program sets `differences`, reads the rows of a file with each_line, hands each verdict to
 * judge or says with skip why titan cannot express it, and ends with report. Axes that a row does
 * not name are R (of a loss: I).
 */
#ifndef TN_TESTS_GOLDEN_TYPES_H
#define TN_TESTS_GOLDEN_TYPES_H
#include "engine/base/json.h"
#include "graph/op.h"
#include "tests/test.h"

#include <stdlib.h>

typedef enum verdict { SKIPPED, REFUSED, ACCEPTED } verdict;

/* Rows of `file` and `op` ("": any) whose quirk is `quirk` ('#': whose id), or whose golden `why`
 * is `why` and that have no quirk; and whose operands `pending` (a bit each, 0: any) are P
 * somewhere. The first that fits says titan's verdict and, where it accepts, the type on tp of the
 * result ('=': as the package says). */
typedef struct difference {
    const char *file, *op, *quirk, *why;
    unsigned pending;
    verdict titan;
    char type;
    const char *reason;
    int rows;
} difference;

static difference *differences;
static int n_differences;

typedef struct reason {
    const char *file, *text;
    int rows;
} reason;

static reason reasons[64];
static int n_expressed, n_different, n_skipped;

TN_UNUSED static void skip(const char *file, const char *text)
{
    int i = 0;
    while (reasons[i].text && (strcmp(reasons[i].text, text) || strcmp(reasons[i].file, file))) i++;
    reasons[i].file = file;
    reasons[i].text = text;
    reasons[i].rows++;
    n_skipped++;
}

TN_UNUSED static const char *text_of(const tn_json *j, const char *key)
{
    const char *s = tn_json_string(tn_json_find(j, key));
    return s ? s : "";
}

/* Operands that are P on some axis. */
TN_UNUSED static unsigned pending_of(const tn_json *row)
{
    const tn_json *in = tn_json_find(row, "in");
    unsigned set = 0;
    for (int64_t i = 0; i < tn_json_count(in); i++)
        for (tn_json_pair p = tn_json_first(tn_json_find(tn_json_at(in, i), "type")); p.key;
             p = tn_json_next(p)) {
            const char *t = tn_json_string(p.value);
            if (t && t[0] == 'P') set |= 1u << i;
        }
    return set;
}

TN_UNUSED static difference *find_difference(const char *file, const tn_json *row, const char *op,
                                             const char *why)
{
    const char *quirk = text_of(row, "quirk");
    for (int i = 0; i < n_differences; i++) {
        difference *d = &differences[i];
        if (strcmp(d->file, file) || (d->op[0] && strcmp(d->op, op)) ||
            (d->pending && d->pending != pending_of(row)))
            continue;
        if (d->quirk && d->quirk[0] == '#' ? !strcmp(d->quirk + 1, text_of(row, "id"))
            : d->quirk                     ? !strcmp(d->quirk, quirk)
                                           : !quirk[0] && !strcmp(d->why, why))
            return d;
    }
    return NULL;
}

typedef struct row {
    const tn_json *j;
    const char *op, *form, *why_skipped;
    tn_graph *g;
    bool unwritten; /* an operand says nothing about an axis */
    tn_value out;
    int8_t dim[TN_MAX_RANK]; /* golden dim of the result -> titan's */
} row;

static const struct {
    const char *name;
    tn_axis axis;
} axes[] = {{"dp", TN_AXIS_DP_SHARD}, {"cp", TN_AXIS_CP}, {"tp", TN_AXIS_TP}};

TN_UNUSED static bool is(const char *a, const char *b)
{
    return !strcmp(a, b);
}

TN_UNUSED static tn_mesh mesh_of(const tn_json *j)
{
    tn_mesh m = {1, {1, 1, 1, 1}};
    for (int i = 0; i < TN_COUNT(axes); i++) {
        int64_t n;
        if (tn_json_int(tn_json_find(j, axes[i].name), &n)) m.size[axes[i].axis] = (int)n;
    }
    return m;
}

/* The placement of a golden value; dims through `dim` (NULL: as they are). False: an axis of the
 * mesh is not written. */
TN_UNUSED static bool layout_of(const tn_json *mesh, const tn_json *v, const int8_t *dim,
                                tn_type others, tn_layout *out)
{
    bool all = true;
    *out = tn_layout_all(others);
    const tn_json *type = tn_json_find(v, "type"), *spec = tn_json_find(v, "spec");
    for (int i = 0; i < TN_COUNT(axes); i++) {
        const char *t = text_of(type, axes[i].name);
        if (!t[0] && tn_json_find(mesh, axes[i].name)) all = false;
        if (t[0] && t[0] != 'S') out->type[axes[i].axis] = (uint8_t)(strchr("RIVP", t[0]) - "RIVP");
    }
    for (int64_t d = 0; d < tn_json_count(spec); d++)
        for (int64_t k = 0; k < tn_json_count(tn_json_at(spec, d)); k++)
            for (int i = 0; i < TN_COUNT(axes); i++)
                if (is(tn_json_string(tn_json_at(tn_json_at(spec, d), k)), axes[i].name))
                    tn_layout_shard(out, axes[i].axis, dim ? dim[d] : (int)d);
    return all;
}

TN_UNUSED static int32_t state(row *r, tn_value *like, bool grad, const tn_layout *l)
{
    int32_t id = -1;
    tn_named_attr attrs[2] = {{"name", {.kind = 's', .u.s = "x"}},
                              {"kind", {.kind = 's', .u.s = grad ? "param" : "buffer"}}};
    tn_node_desc d = {.op = TN_OP_state, .n_attrs = 2, .attrs = attrs, .layout = l, .like = like};
    if (!TN_CHECK_OK(tn_graph_add(r->g, &d, &id))) exit(1);
    return id;
}

/* Operand i with its dims at dim[d] of `rank` dims; new dims are 1. */
TN_UNUSED static verdict add(row *r, tn_op_id op, int n, const int32_t *in,
                             const tn_named_attr *attr, int32_t *out)
{
    tn_node_desc d = {
        .op = op, .n_in = n, .in = in, .n_attrs = attr != NULL, .attrs = attr, .path = "m"};
    return tn_graph_add(r->g, &d, out) ? REFUSED : ACCEPTED;
}

/* The types on the axes of the mesh that are larger than 1. */
TN_UNUSED static bool same_type(const tn_json *mesh, const tn_layout *want, const tn_layout *got)
{
    tn_mesh m = mesh_of(mesh);
    for (int a = 0; a < TN_N_AXES; a++)
        if (m.size[a] > 1 && (want->type[a] != got->type[a] || want->dim[a] != got->dim[a] ||
                              want->order[a] != got->order[a]))
            return false;
    return true;
}

/* One verdict against the golden one or the table's. */
TN_UNUSED static void judge(const char *file, const tn_json *j, const char *op, const tn_json *said,
                            verdict got, const tn_layout *type, const int8_t *dim)
{
    const tn_json *out =
                      tn_json_find(said, "out") ? tn_json_at(tn_json_find(said, "out"), 0) : said,
                  *mesh = tn_json_find(j, "mesh");
    difference *d = find_difference(file, j, op, text_of(said, "why"));
    verdict golden = is(text_of(said, "verdict"), "ok") ? ACCEPTED : REFUSED,
            want = d ? d->titan : golden;
    char a[96] = "", b[96] = "";
    tn_layout l = tn_layout_all(TN_TYPE_R);
    n_expressed++;
    if (d) {
        d->rows++;
        n_different += want != golden;
    }
    if (golden == ACCEPTED) {
        layout_of(mesh, out, dim, is(file, "loss") ? TN_TYPE_I : TN_TYPE_R, &l);
        tn_layout_print(&l, a, sizeof a);
    }
    if (type) tn_layout_print(type, b, sizeof b);
    const char *where = tn_json_string(tn_json_find(j, "id"));
    if (!TN_CHECK_MSG(want == got, "%s %s: %s %s: titan %s %s%s, expected %s %s (golden: %s %s)",
                      file, where, op, text_of(j, "form"), got == ACCEPTED ? "accepts" : "refuses",
                      b, got == ACCEPTED ? "" : tn_error_text(),
                      want == ACCEPTED ? "accept" : "refuse", d ? d->reason : "",
                      golden == ACCEPTED ? a : "error", text_of(said, "why")))
        return;
    if (got == REFUSED) {
        TN_CHECK_MSG(strlen(tn_error_text()) > 10 && strchr(tn_error_text(), ';'),
                     "%s %s: '%s' offers no mend", file, where, tn_error_text());
        return;
    }
    if (d && d->type != '=')
        TN_CHECK_MSG(tn_type_letter((tn_type)type->type[TN_AXIS_TP]) == d->type,
                     "%s %s: %s: titan says %s, expected %c: %s", file, where, op, b, d->type,
                     d->reason);
    else if (golden == ACCEPTED)
        TN_CHECK_MSG(same_type(mesh, &l, type), "%s %s: %s %s: titan says %s, golden %s", file,
                     where, op, text_of(j, "form"), b, a);
}

/* The quirks of the package (its README.md), each with titan's verdict: in how many rows titan
 * decides as the package does, in how many otherwise, and how many it cannot express. */
typedef struct quirk {
    const char *file, *name;
    int same, own, left;
    const char *titan;
    int is_same, is_own, is_left; /* as counted */
} quirk;

static quirk *quirks;
static int n_quirks;

static void count_quirk(const char *file, const tn_json *j, int expressed, int different, int left)
{
    const char *name = text_of(j, "quirk");
    if (!name[0]) return;
    for (int i = 0; i < n_quirks; i++) {
        if (strcmp(quirks[i].file, file) || strcmp(quirks[i].name, name)) continue;
        quirks[i].is_same += expressed - different;
        quirks[i].is_own += different;
        quirks[i].is_left += left;
        return;
    }
    TN_CHECK_MSG(false, "%s: quirk %s is not in the table", file, name);
}

TN_UNUSED static void report_quirks(void)
{
    for (int i = 0; i < n_quirks && n_expressed; i++) {
        const quirk *q = &quirks[i];
        TN_CHECK_MSG(q->is_same == q->same && q->is_own == q->own && q->is_left == q->left,
                     "%s: quirk %s: as there %d, titan's own %d, not expressed %d", q->file,
                     q->name, q->is_same, q->is_own, q->is_left);
        printf("  quirk: %s: %s: as there %d, titan's own %d, not expressed %d: %s\n", q->file,
               q->name, q->same, q->own, q->left, q->titan);
    }
}

TN_UNUSED static bool one_line(const char *where, const char *text, void (*one)(const tn_json *j))
{
    const tn_json *j;
    int before[3] = {n_expressed, n_different, n_skipped};
    if (!TN_CHECK_OK(tn_json_parse(where, text, (int64_t)strlen(text), &j))) return false;
    one(j);
    if (n_quirks)
        count_quirk(where, j, n_expressed - before[0], n_different - before[1],
                    n_skipped - before[2]);
    tn_json_free(j);
    return true;
}

TN_UNUSED static void each_line(const char *name, void (*one)(const tn_json *j))
{
    char part[64], *line = NULL;
    size_t size = 0;
    snprintf(part, sizeof part, "types/%s.jsonl", name);
    const char *path = tn_test_golden(part);
    if (!path) return;
    FILE *f = fopen(path, "r");
    if (!TN_CHECK(f)) return;
    while (getline(&line, &size, f) > 1 && one_line(name, line, one)) {
    }
    free(line);
    fclose(f);
}

TN_UNUSED static void report(void)
{
    if (!n_expressed) return;
    printf("golden types: %d rows expressed, titan decides otherwise in %d; not expressed %d\n",
           n_expressed, n_different, n_skipped);
    for (int i = 0; reasons[i].text; i++)
        printf("  not expressed: %s: %d: %s\n", reasons[i].file, reasons[i].rows, reasons[i].text);
    for (int i = 0; i < n_differences; i++) {
        const difference *d = &differences[i];
        const char *what = d->quirk ? d->quirk : d->why;
        TN_CHECK_MSG(d->rows > 0, "no row is as the table says: %s %s %s", d->file, d->op, what);
        printf("  titan's own: %s%s%s: %d: %s%s%s\n", d->file, d->op[0] ? " " : "", d->op, d->rows,
               what, what[0] ? ": " : "", d->reason);
    }
}

#endif
