/* optim_isa.c - see optim.h; built once per instruction set. */
#include "kernels/cpu/optim.h"
#include "kernels/cpu/vec.h"

TN_VI void adam_step(const tn_optim_constants *k, tn_v g, tn_v *p, tn_v *m, tn_v *v)
{
    g = tn_v_mul(g, tn_v_set(k->coefficient));
    if (k->decoupled) *p = tn_v_mul(*p, tn_v_set(k->decay));
    else g = tn_v_fma(tn_v_set(k->wd), *p, g);
    *m = tn_v_fma(tn_v_set(k->c1), tn_v_sub(g, *m), *m);
    *v = tn_v_fma(tn_v_mul(tn_v_set(k->c2), g), g, tn_v_mul(tn_v_set(k->b2), *v));
    tn_v denom = tn_v_add(tn_v_div(tn_v_sqrt(*v), tn_v_set(k->root_bc2)), tn_v_set(k->eps));
    *p = tn_v_sub(*p, tn_v_mul(tn_v_set(k->step_size), tn_v_div(*m, denom)));
}

static void adam(const tn_optim_adam *a, const tn_optim_constants *k, int64_t begin, int64_t end)
{
    int64_t i = begin;
    for (; i + TN_VL <= end; i += TN_VL) {
        tn_v p = tn_v_load(a->param + i), m = tn_v_load(a->m + i), v = tn_v_load(a->v + i);
        adam_step(k, tn_v_load(a->grad + i), &p, &m, &v);
        tn_v_store(a->param + i, p);
        tn_v_store(a->m + i, m);
        tn_v_store(a->v + i, v);
    }
    if (i == end) return;
    tn_vmask t = tn_v_mask(end - i);
    tn_v p = tn_v_load_mask(a->param + i, t), m = tn_v_load_mask(a->m + i, t),
         v = tn_v_load_mask(a->v + i, t);
    adam_step(k, tn_v_load_mask(a->grad + i, t), &p, &m, &v);
    tn_v_store_mask(a->param + i, t, p);
    tn_v_store_mask(a->m + i, t, m);
    tn_v_store_mask(a->v + i, t, v);
}

TN_VI void sgd_step(const tn_optim_constants *k, tn_v g, tn_v *p, tn_v *b)
{
    g = tn_v_fma(tn_v_set(k->wd), *p, tn_v_mul(g, tn_v_set(k->coefficient)));
    *b = k->first ? g : tn_v_fma(tn_v_set(k->momentum), *b, g);
    *p = tn_v_sub(*p, tn_v_mul(tn_v_set(k->lr), *b));
}

static void sgd(const tn_optim_sgd *a, const tn_optim_constants *k, int64_t begin, int64_t end)
{
    int64_t i = begin;
    for (; i + TN_VL <= end; i += TN_VL) {
        tn_v p = tn_v_load(a->param + i), b = tn_v_load(a->buffer + i);
        sgd_step(k, tn_v_load(a->grad + i), &p, &b);
        tn_v_store(a->param + i, p);
        tn_v_store(a->buffer + i, b);
    }
    if (i == end) return;
    tn_vmask t = tn_v_mask(end - i);
    tn_v p = tn_v_load_mask(a->param + i, t), b = tn_v_load_mask(a->buffer + i, t);
    sgd_step(k, tn_v_load_mask(a->grad + i, t), &p, &b);
    tn_v_store_mask(a->param + i, t, p);
    tn_v_store_mask(a->buffer + i, t, b);
}

extern const tn_optim_fns TN_ISA_NAME(tn_optim_fns);
const tn_optim_fns TN_ISA_NAME(tn_optim_fns) = {adam, sgd};
