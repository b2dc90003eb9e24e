#include "graph/sig.h"

#include <string.h>

typedef struct reader {
    const char *p;
    const char *text;
} reader;

static void skip(reader *r)
{
    while (*r->p == ' ') r->p++;
}

static bool eat(reader *r, const char *word)
{
    size_t n = strlen(word);
    skip(r);
    if (strncmp(r->p, word, n)) return false;
    r->p += n;
    return true;
}

static bool letter(reader *r, uint8_t *out)
{
    skip(r);
    if (*r->p < 'a' || *r->p > 'z') return false;
    *out = (uint8_t)(*r->p++ - 'a');
    return true;
}

static tn_status bad(const reader *r)
{
    TN_FAIL(TN_FAILED, "factor string '%s': malformed at '%s'", r->text, r->p);
}

static tn_status read_dim(reader *r, tn_sig_dim *d)
{
    *d = (tn_sig_dim){0};
    if (eat(r, "(")) {
        while (d->n < 3 && letter(r, &d->factor[d->n])) d->n++;
        if (d->n < 2 || !eat(r, ")")) return bad(r);
    } else if (letter(r, &d->factor[0])) {
        d->n = 1;
    } else {
        return bad(r);
    }
    if (*r->p == '!') {
        r->p++;
        d->whole = true;
    }
    return TN_OK;
}

static tn_status read_operand(reader *r, tn_sig_operand *o)
{
    bool braces = eat(r, "{");
    *o = (tn_sig_operand){.repeat = braces};
    if (eat(r, "...")) o->ellipsis = true;
    else if (eat(r, "1")) return eat(r, "?") ? (o->optional = true, TN_OK) : TN_OK;
    for (;;) {
        skip(r);
        if (!(*r->p == '(' || (*r->p >= 'a' && *r->p <= 'z'))) break;
        if (o->n_dims == TN_MAX_RANK) return bad(r);
        TN_TRY(read_dim(r, &o->dim[o->n_dims++]));
    }
    if (braces && !eat(r, "}")) return bad(r);
    if (braces) eat(r, "+");
    if (eat(r, "?")) o->optional = true;
    return TN_OK;
}

static void note_shared(tn_sig *s, const tn_sig_operand *o)
{
    if (o->repeat) return;
    for (int d = 0; d < o->n_dims; d++)
        for (int f = 0; f < o->dim[d].n; f++) s->shared |= 1u << o->dim[d].factor[f];
}

tn_status tn_sig_parse(const char *text, tn_sig *out)
{
    reader r = {text, text};
    tn_sig s = {0};
    while (!eat(&r, "->")) {
        if (s.n_in == TN_SIG_OPERANDS) return bad(&r);
        tn_sig_operand *o = &s.in[s.n_in++];
        TN_TRY(read_operand(&r, o));
        s.n_repeat = (uint8_t)(s.n_repeat + o->repeat);
        s.n_optional = (uint8_t)(s.n_optional + o->optional);
        note_shared(&s, o);
        eat(&r, ",");
    }
    do {
        if (s.n_out == 8) return bad(&r);
        TN_TRY(read_operand(&r, &s.out[s.n_out]));
        note_shared(&s, &s.out[s.n_out++]);
    } while (eat(&r, ","));
    skip(&r);
    if (*r.p) return bad(&r);
    *out = s;
    return TN_OK;
}

bool tn_sig_count(const tn_sig *s, int n_in, int *repeats, int *n_out)
{
    int rep = 1, fixed = s->n_in - s->n_repeat - s->n_optional;
    if (s->n_repeat) {
        int left = n_in - fixed;
        if (left < s->n_repeat || left % s->n_repeat) return false;
        rep = left / s->n_repeat;
    } else if (n_in < fixed || n_in > s->n_in) {
        return false;
    }
    *repeats = rep;
    *n_out = 0;
    for (int i = 0; i < s->n_out; i++) *n_out += s->out[i].repeat ? rep : 1;
    return true;
}
