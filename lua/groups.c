/* groups.c - which optimizer settings a parameter has: the first pattern that matches its name,
 * else the optimizer's own. */
#include "lua/build.h"

#include "graph/op.h"

#include <regex.h>
#include <string.h>

struct tn_groups {
    int n; /* with the default group, which is last */
    tn_optimizer_group *groups;
    regex_t *regex; /* n - 1 */
    int n_compiled;
};

static tn_optimizer_group convert(const tn_recipe_group *g)
{
    return (tn_optimizer_group){.pattern = g->pattern,
                                .lr = g->lr,
                                .beta1 = g->beta1,
                                .beta2 = g->beta2,
                                .eps = g->eps,
                                .weight_decay = g->weight_decay,
                                .momentum = g->momentum};
}

static tn_status fill(tn_groups *q, const tn_recipe *r)
{
    void *mem;
    TN_TRY(tn_alloc((size_t)q->n * sizeof *q->groups, &mem));
    q->groups = mem;
    TN_TRY(tn_alloc((size_t)q->n * sizeof *q->regex, &mem));
    q->regex = mem;
    for (int i = 0; i < q->n - 1; i++) {
        tn_recipe_group g = tn_recipe_group_at(r, i);
        char text[128];
        q->groups[i] = convert(&g);
        int bad = regcomp(&q->regex[i], g.pattern, REG_EXTENDED | REG_NOSUB);
        if (!bad) {
            q->n_compiled++;
            continue;
        }
        regerror(bad, &q->regex[i], text, sizeof text);
        TN_FAIL(TN_BAD_INPUT, "%s: optimizer.groups[%d].pattern: '%s' is no regular expression: %s",
                g.where, i + 1, g.pattern, text);
    }
    tn_recipe_group own = tn_recipe_group_default(r);
    q->groups[q->n - 1] = convert(&own);
    return TN_OK;
}

tn_status tn_groups_create(const tn_recipe *r, tn_groups **out)
{
    void *mem;
    TN_TRY(tn_alloc(sizeof(tn_groups), &mem));
    tn_groups *q = mem;
    q->n = tn_recipe_groups(r) + 1;
    tn_status st = fill(q, r);
    if (st) {
        tn_groups_destroy(q);
        return st;
    }
    *out = q;
    return TN_OK;
}

void tn_groups_destroy(tn_groups *q)
{
    if (!q) return;
    for (int i = 0; i < q->n_compiled; i++) regfree(&q->regex[i]);
    tn_free(q->groups);
    tn_free(q->regex);
    tn_free(q);
}

int tn_groups_count(const tn_groups *q)
{
    return q->n;
}

const tn_optimizer_group *tn_groups_get(const tn_groups *q, int i)
{
    return &q->groups[i];
}

int tn_groups_of(void *groups, const char *param)
{
    const tn_groups *q = groups;
    for (int i = 0; i < q->n - 1; i++)
        if (!regexec(&q->regex[i], param, 0, NULL, 0)) return i;
    return q->n - 1;
}

tn_status tn_groups_check(const tn_groups *q, const tn_graph *g)
{
    for (int i = 0; i < q->n - 1; i++) {
        bool matched = false, hidden = false;
        const char *first = NULL;
        for (int64_t k = 0; k < g->n_nodes && !matched; k++) {
            const tn_node *n = &g->nodes[k];
            if (n->op != TN_OP_state || strcmp(tn_node_attr_text(n, "kind"), "param")) continue;
            const char *name = tn_node_attr_text(n, "name");
            if (!first) first = name;
            if (regexec(&q->regex[i], name, 0, NULL, 0)) continue;
            if (tn_groups_of((void *)(uintptr_t)q, name) == i) matched = true;
            else hidden = true;
        }
        if (!matched)
            TN_FAIL(TN_BAD_INPUT,
                    "optimizer.groups[%d].pattern: '%s' %s; parameters are named as %s", i + 1,
                    q->groups[i].pattern,
                    hidden ? "matches only parameters that an earlier pattern takes"
                           : "matches no parameter",
                    first ? first : "layers.0.ffn_norm.weight");
    }
    return TN_OK;
}
