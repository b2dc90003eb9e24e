/* cmd_graph.c - `titan graph RECIPE`: the graph behind a pass as text, drawing (DOT) or JSON;
 * `titan graph FILE.graph` reads one back, checks it and prints it again; --dump-to writes the
 * graph behind every pass. */
#include "engine/base/file.h"
#include "graph/dot.h"
#include "graph/listing.h"
#include "graph/text.h"
#include "lua/build.h"
#include "lua/commands.h"

#include <regex.h>
#include <stdio.h>
#include <string.h>

enum { MAX_GRAPH_BYTES = 256 << 20 };

/* Part of a model is drawn node by node, all of it layer by layer. */
static tn_status choose_collapse(const tn_args *a, tn_dot_collapse *out)
{
    static const char *const names[] = {"none", "module", "layer", "stage"};
    *out = a->module || a->focus ? TN_DOT_NODES : TN_DOT_LAYER;
    if (!a->collapse) return TN_OK;
    for (int i = 0; i < TN_COUNT(names); i++) {
        if (strcmp(a->collapse, names[i])) continue;
        *out = (tn_dot_collapse)i;
        return TN_OK;
    }
    TN_FAIL(TN_BAD_INPUT, "command line: --collapse %s: must be module, layer, stage or none",
            a->collapse);
}

static tn_status check_format(const tn_args *a)
{
    tn_dot_collapse collapse;
    bool dot = !strcmp(a->format, "dot");
    if (!dot && strcmp(a->format, "text") && strcmp(a->format, "json"))
        TN_FAIL(TN_BAD_INPUT, "command line: --format %s: must be text, dot or json", a->format);
    if (!dot && (a->collapse || a->focus))
        TN_FAIL(TN_BAD_INPUT, "command line: %s: belongs to drawings; add --format dot",
                a->collapse ? "--collapse" : "--focus");
    return choose_collapse(a, &collapse);
}

static tn_status format(const tn_args *a, const tn_graph *g, tn_text *out)
{
    tn_dot_options o = {.under = a->module, .focus = a->focus, .depth = a->depth};
    if (!strcmp(a->format, "json")) return tn_listing_print(g, a->module, out);
    if (strcmp(a->format, "dot")) return tn_graph_print(g, a->module, out);
    TN_TRY(choose_collapse(a, &o.collapse));
    return tn_dot_print(g, &o, out);
}

static tn_status print(const tn_args *a, const tn_graph *g)
{
    tn_text text = {0};
    tn_status st = format(a, g, &text);
    if (!st) fputs(tn_text_str(&text), stdout);
    tn_text_fini(&text);
    return st;
}

static tn_status reprint(const tn_args *a)
{
    const char *path = a->paths[0];
    char *text;
    int64_t n;
    tn_graph *g;
    if (a->n_overrides)
        TN_FAIL(TN_BAD_INPUT, "command line: %s: a dumped graph takes no settings; leave it out",
                a->overrides[0]);
    TN_TRY(tn_file_read(path, MAX_GRAPH_BYTES, &text, &n));
    tn_status st = tn_graph_parse(path, text, (size_t)n, &g);
    tn_free(text);
    if (st) return st;
    st = print(a, g);
    tn_graph_destroy(g);
    return st;
}

typedef struct dump {
    const tn_args *a;
    const char *folder;
    regex_t *wanted; /* NULL: all */
    int number;
} dump;

static tn_status dump_pass(void *user, const char *pass, const tn_graph *g, double seconds)
{
    dump *d = user;
    char path[4096];
    tn_text text = {0};
    int number = d->number++;
    if (d->wanted && regexec(d->wanted, pass, 0, NULL, 0)) return TN_OK;
    const char *suffix = !strcmp(d->a->format, "text") ? "graph" : d->a->format;
    snprintf(path, sizeof path, "%s/%02d-%s.%s", d->folder, number, pass, suffix);
    tn_status st = format(d->a, g, &text);
    if (!st) st = tn_file_write(path, tn_text_str(&text), (size_t)text.n_bytes);
    tn_text_fini(&text);
    if (!st)
        fprintf(stderr, "%-14s %8lld nodes %9s  %s\n", pass, (long long)g->n_nodes,
                tn_text_seconds(seconds).s, path);
    return st;
}

static tn_status check_pass(const char *name)
{
    for (int i = 0; tn_build_passes[i]; i++)
        if (!strcmp(tn_build_passes[i], name)) return TN_OK;
    TN_FAIL(TN_BAD_INPUT,
            "command line: --pass %s: no such pass; trace, stages, differentiate, lower, fuse, "
            "storage, boundary, recompute, overlap, pipeline",
            name);
}

static tn_status build(const tn_args *a, tn_recipe *r, dump *d)
{
    tn_build_options o = {.kind = TN_BUILD_TRAIN, .until = a->pass, .rank = (int)a->rank};
    tn_graph *g;
    if (a->pass) TN_TRY(check_pass(a->pass));
    tn_mesh mesh;
    TN_TRY(tn_build_mesh(r, a->world, &mesh));
    if (a->rank >= tn_mesh_ranks(&mesh) * mesh.pp)
        TN_FAIL(TN_BAD_INPUT, "command line: --rank %d: the layout has %d ranks; 0 to %d", a->rank,
                tn_mesh_ranks(&mesh) * mesh.pp, tn_mesh_ranks(&mesh) * mesh.pp - 1);
    TN_TRY(tn_build_shape(r, &mesh, &o.shape));
    if (a->dump_to) {
        TN_TRY(tn_file_mkdirs(a->dump_to));
        o.watch = dump_pass;
        o.user = d;
    }
    TN_TRY(tn_build_graph(r, &o, &g));
    tn_status st = a->dump_to ? TN_OK : print(a, g);
    tn_graph_destroy(g);
    return st;
}

static tn_status from_recipe(const tn_args *a)
{
    tn_recipe *r;
    regex_t wanted;
    dump d = {.a = a, .folder = a->dump_to};
    if (a->dump_pass) {
        if (regcomp(&wanted, a->dump_pass, REG_EXTENDED | REG_NOSUB))
            TN_FAIL(TN_BAD_INPUT,
                    "command line: --dump-pass %s: no regular expression; as in 'lower|fuse'",
                    a->dump_pass);
        d.wanted = &wanted;
    }
    tn_status st = tn_args_recipe(a, &r);
    if (!st) {
        st = build(a, r, &d);
        tn_recipe_close(r);
    }
    if (d.wanted) regfree(d.wanted);
    return st;
}

tn_status tn_command_graph(const tn_args *a)
{
    size_t n = strlen(a->paths[0]);
    TN_TRY(check_format(a));
    return n > 6 && !strcmp(a->paths[0] + n - 6, ".graph") ? reprint(a) : from_recipe(a);
}
