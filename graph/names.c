#include "graph/names.h"

#include "engine/base/hash.h"

#include <stdio.h>
#include <string.h>

static int64_t slot(const tn_names *m, const char *key)
{
    uint64_t mask = (uint64_t)m->capacity - 1, i = tn_hash_text(key) & mask;
    while (m->key[i] && strcmp(m->key[i], key)) i = (i + 1) & mask;
    return (int64_t)i;
}

static tn_status enlarge(tn_names *m)
{
    tn_names bigger = {.capacity = m->capacity ? 2 * m->capacity : 64};
    void *mem;
    TN_TRY(tn_alloc((size_t)bigger.capacity * sizeof *m->key, &mem));
    bigger.key = mem;
    tn_status st = tn_alloc((size_t)bigger.capacity * sizeof *m->number, &mem);
    if (st) {
        tn_free(bigger.key);
        return st;
    }
    bigger.number = mem;
    for (int64_t i = 0; i < m->capacity; i++) {
        if (!m->key[i]) continue;
        int64_t k = slot(&bigger, m->key[i]);
        bigger.key[k] = m->key[i];
        bigger.number[k] = m->number[i];
        bigger.n++;
    }
    tn_names_fini(m);
    *m = bigger;
    return TN_OK;
}

tn_status tn_names_put(tn_names *m, const char *key, int64_t number)
{
    if (2 * (m->n + 1) > m->capacity) TN_TRY(enlarge(m));
    int64_t i = slot(m, key);
    m->n += !m->key[i];
    m->key[i] = key;
    m->number[i] = number;
    return TN_OK;
}

bool tn_names_find(const tn_names *m, const char *key, int64_t *out)
{
    if (!m->capacity) return false;
    int64_t i = slot(m, key);
    if (!m->key[i]) return false;
    *out = m->number[i];
    return true;
}

void tn_names_fini(tn_names *m)
{
    tn_free(m->key);
    tn_free(m->number);
    *m = (tn_names){0};
}

static tn_status name_node(const tn_node *n, tn_names *seen, tn_arena *arena, const char **names)
{
    char buf[TN_MAX_PATH + 64]; /* the longest op and its number */
    const char *base;
    int64_t k = 0;
    snprintf(buf, sizeof buf, "%s%s%s", n->path, n->path[0] ? "." : "",
             tn_op_name((tn_op_id)n->op));
    TN_TRY(tn_arena_text(arena, buf, &base));
    tn_names_find(seen, base, &k);
    TN_TRY(tn_names_put(seen, base, ++k));
    size_t len = strlen(buf);
    if (k > 1) len += (size_t)snprintf(buf + len, sizeof buf - len, "#%lld", (long long)k);
    for (int i = 0; i < n->n_out; i++) {
        if (i) snprintf(buf + len, sizeof buf - len, ":%d", i);
        TN_TRY(tn_arena_text(arena, buf, &names[n->out0 + i]));
    }
    return TN_OK;
}

tn_status tn_names_build(const tn_graph *g, tn_arena *arena, const char ***out)
{
    tn_names seen = {0};
    void *mem;
    TN_TRY(tn_arena_alloc(arena, (size_t)(g->n_values + 1) * sizeof(char *), &mem));
    tn_status st = TN_OK;
    for (int64_t i = 0; i < g->n_nodes && !st; i++) st = name_node(&g->nodes[i], &seen, arena, mem);
    tn_names_fini(&seen);
    if (!st) *out = mem;
    return st;
}

size_t tn_names_layer(const char *path)
{
    size_t n = strcspn(path, ".");
    size_t digits = path[n] ? strspn(path + n + 1, "0123456789") : 0;
    return digits && (!path[n + 1 + digits] || path[n + 1 + digits] == '.') ? n + 1 + digits : n;
}
