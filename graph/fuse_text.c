#include "graph/fuse.h"

#include "engine/base/text.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void put(char *out, size_t size, const char *text)
{
    size_t n = strlen(out);
    if (n < size) snprintf(out + n, size - n, "%s", text);
}

void tn_fuse_print(const tn_fuse_prog *p, char *out, size_t size)
{
    char buf[64];
    out[0] = 0;
    for (int i = 0; i < p->n; i++) {
        const tn_fuse_ins *s = &p->ins[i];
        if (i) put(out, size, "; ");
        if (s->op == TN_OP_unary) snprintf(buf, sizeof buf, "%s", s->f);
        else if (s->op == TN_OP_unary_bwd) snprintf(buf, sizeof buf, "%s_bwd", s->f);
        else if (s->op == TN_OP_scale)
            snprintf(buf, sizeof buf, "scale=%s", tn_text_double(s->by).s);
        else snprintf(buf, sizeof buf, "%s", tn_op_name(s->op));
        put(out, size, buf);
        for (int k = 0; k < s->n_in; k++) {
            snprintf(buf, sizeof buf, " %c%d", s->in[k] < 0 ? 'i' : 'r',
                     s->in[k] < 0 ? -1 - s->in[k] : s->in[k]);
            put(out, size, buf);
        }
    }
    put(out, size, " >");
    for (int i = 0; i < p->n_out; i++) {
        snprintf(buf, sizeof buf, " r%d", p->out[i]);
        put(out, size, buf);
    }
}

static bool parse_name(const char *w, tn_fuse_ins *s)
{
    static const char *const functions[] = {"silu",  "gelu",    "gelu_tanh", "relu",
                                            "relu2", "sigmoid", "tanh"};
    if (!strncmp(w, "scale=", 6)) {
        char *end;
        s->op = TN_OP_scale;
        s->by = strtod(w + 6, &end);
        s->n_in = 1;
        return end != w + 6 && !*end;
    }
    if (!strcmp(w, "mul") || !strcmp(w, "add")) {
        s->op = w[0] == 'm' ? TN_OP_mul : TN_OP_add;
        s->n_in = 2;
        return true;
    }
    for (int i = 0; i < TN_COUNT(functions); i++) {
        size_t n = strlen(functions[i]);
        if (strncmp(w, functions[i], n) || (w[n] && strcmp(w + n, "_bwd"))) continue;
        snprintf(s->f, sizeof s->f, "%s", functions[i]);
        s->op = w[n] ? TN_OP_unary_bwd : TN_OP_unary;
        s->n_in = w[n] ? 2 : 1;
        return true;
    }
    return false;
}

static bool parse_operand(const char *w, int n_regs, tn_fuse_prog *p, int *out)
{
    char *end;
    if (!w || (w[0] != 'i' && w[0] != 'r') || w[1] < '0' || w[1] > '9') return false;
    long k = strtol(w + 1, &end, 10);
    if (*end || k >= (w[0] == 'i' ? TN_FUSE_MAX_IN : n_regs)) return false;
    *out = w[0] == 'i' ? -1 - (int)k : (int)k;
    if (w[0] == 'i' && k >= p->n_in) p->n_in = (int)k + 1;
    return true;
}

static bool parse_ins(char *text, tn_fuse_prog *p)
{
    char *save = NULL, *w = strtok_r(text, " ", &save);
    tn_fuse_ins *s = &p->ins[p->n];
    if (p->n == TN_FUSE_MAX_INS || !w || !parse_name(w, s)) return false;
    for (int k = 0; k < s->n_in; k++)
        if (!parse_operand(strtok_r(NULL, " ", &save), p->n, p, &s->in[k])) return false;
    if (strtok_r(NULL, " ", &save)) return false;
    p->n++;
    return true;
}

bool tn_fuse_parse(const char *text, tn_fuse_prog *out)
{
    char buf[512], *save = NULL;
    tn_fuse_prog p = {0};
    if (strlen(text) >= sizeof buf) return false;
    snprintf(buf, sizeof buf, "%s", text);
    char *outs = strchr(buf, '>');
    if (!outs) return false;
    *outs++ = 0;
    for (char *ins = strtok_r(buf, ";", &save); ins; ins = strtok_r(NULL, ";", &save))
        if (!parse_ins(ins, &p)) return false;
    for (char *w = strtok_r(outs, " ", &save); w; w = strtok_r(NULL, " ", &save)) {
        int r;
        if (w[0] != 'r' || p.n_out == TN_FUSE_MAX_OUT || !parse_operand(w, p.n, &p, &r))
            return false;
        p.out[p.n_out++] = r;
    }
    if (!p.n || !p.n_out) return false;
    tn_fuse_print(&p, buf, sizeof buf);
    if (strcmp(buf, text)) return false; /* one way to write it: blanks, leading zeros, 1.0 for 1 */
    *out = p;
    return true;
}
