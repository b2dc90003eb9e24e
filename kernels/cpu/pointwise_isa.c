/* pointwise_isa.c - one function per pointwise instruction, over a multiple of 16 elements; see
 * pointwise.h.
 *
 * Negative tails keep their relative precision (x / (1 + exp(-x)), not x (1 + tanh) / 2). Arguments
 * are clamped where a factor would overflow although the result is finite. NaN in gives NaN out:
 * tn_v_min and tn_v_max return their second operand then, so it must be the variable one.
 */
#include "kernels/cpu/pointwise.h"

#include "kernels/cpu/bf16.h"

TN_VI tn_v one(void)
{
    return tn_v_set(1.0f);
}
TN_VI tn_v minus(tn_v x)
{
    return tn_v_mul(x, tn_v_set(-1.0f));
}

TN_VI tn_v op_add(tn_v a, tn_v b, tn_v c)
{
    (void)c;
    return tn_v_add(a, b);
}
TN_VI tn_v op_sub(tn_v a, tn_v b, tn_v c)
{
    (void)c;
    return tn_v_sub(a, b);
}
TN_VI tn_v op_mul(tn_v a, tn_v b, tn_v c)
{
    (void)c;
    return tn_v_mul(a, b);
}
TN_VI tn_v op_div(tn_v a, tn_v b, tn_v c)
{
    (void)c;
    return tn_v_div(a, b);
}
TN_VI tn_v op_neg(tn_v a, tn_v b, tn_v c)
{
    (void)b;
    (void)c;
    return minus(a);
}
TN_VI tn_v op_scale(tn_v a, tn_v b, tn_v c)
{
    (void)b;
    return tn_v_mul(a, c);
}
TN_VI tn_v op_offset(tn_v a, tn_v b, tn_v c)
{
    (void)b;
    return tn_v_add(a, c);
}
TN_VI tn_v op_square(tn_v a, tn_v b, tn_v c)
{
    (void)b;
    (void)c;
    return tn_v_mul(a, a);
}
TN_VI tn_v op_sqrt(tn_v a, tn_v b, tn_v c)
{
    (void)b;
    (void)c;
    return tn_v_sqrt(a);
}
TN_VI tn_v op_copy(tn_v a, tn_v b, tn_v c)
{
    (void)b;
    (void)c;
    return a;
}
TN_VI tn_v op_exp(tn_v a, tn_v b, tn_v c)
{
    (void)b;
    (void)c;
    return tn_v_exp(a);
}

TN_VI tn_v op_sigmoid(tn_v a, tn_v b, tn_v c)
{
    (void)b;
    (void)c;
    return tn_v_div(one(), tn_v_add(one(), tn_v_exp(minus(a))));
}

TN_VI tn_v op_sigmoid_bwd(tn_v dy, tn_v y, tn_v c)
{
    (void)c;
    return tn_v_mul(dy, tn_v_mul(y, tn_v_sub(one(), y)));
}

TN_VI tn_v op_relu(tn_v a, tn_v b, tn_v c)
{
    (void)b;
    (void)c;
    return tn_v_max(tn_v_zero(), a);
}

TN_VI tn_v op_relu_bwd(tn_v dy, tn_v x, tn_v c)
{
    (void)c;
    return tn_v_select(tn_v_gt(x, tn_v_zero()), dy, tn_v_zero());
}

TN_VI tn_v op_relu2(tn_v a, tn_v b, tn_v c)
{
    tn_v m = op_relu(a, b, c);
    return tn_v_mul(m, m);
}

TN_VI tn_v op_relu2_bwd(tn_v dy, tn_v x, tn_v c)
{
    tn_v m = op_relu(x, x, c);
    return tn_v_mul(dy, tn_v_add(m, m));
}

/* Below 0.625 the polynomial of Cephes tanhf, above 1 - 2 / (exp(2|x|) + 1). */
TN_VI tn_v op_tanh(tn_v a, tn_v b, tn_v c)
{
    (void)b;
    (void)c;
    tn_v abs = tn_v_max(a, minus(a)), z = tn_v_mul(a, a), p = tn_v_set(-5.70498872745e-3f);
    p = tn_v_fma(p, z, tn_v_set(2.06390887954e-2f));
    p = tn_v_fma(p, z, tn_v_set(-5.37397155531e-2f));
    p = tn_v_fma(p, z, tn_v_set(1.33314422036e-1f));
    p = tn_v_fma(p, z, tn_v_set(-3.33332819422e-1f));
    p = tn_v_fma(tn_v_mul(p, z), a, a);
    tn_v big =
        tn_v_sub(one(), tn_v_div(tn_v_set(2.0f), tn_v_add(tn_v_exp(tn_v_add(abs, abs)), one())));
    big = tn_v_select(tn_v_gt(tn_v_zero(), a), minus(big), big);
    return tn_v_select(tn_v_gt(abs, tn_v_set(0.625f)), big, p);
}

TN_VI tn_v op_tanh_bwd(tn_v dy, tn_v y, tn_v c)
{
    (void)c;
    return tn_v_mul(dy, tn_v_fma(minus(y), y, one()));
}

/* ---- activations that gate: the value, and the slope, which shares most of the work ---- */

/* value x / (1 + e), slope s (1 + x (1 - s)), where e = exp(-x), s = 1 / (1 + e), 1 - s = s e
 * without cancellation */
TN_VI tn_v silu(tn_v x, tn_v *slope)
{
    tn_v e = tn_v_exp(minus(x)), den = tn_v_add(one(), e), s = tn_v_div(one(), den);
    *slope = tn_v_fma(s, tn_v_mul(x, tn_v_mul(s, e)), s);
    return tn_v_div(x, den);
}

/* The same with e = exp(-u), u = 2 sqrt(2/pi) (x + 0.044715 x^3) = x (A + B x^2); the slope of u
 * comes in. Beyond 20 the slope is 0 or 1 in fp32, and u would overflow. */
TN_VI tn_v gelu_tanh(tn_v x, tn_v *slope)
{
    const tn_v A = tn_v_set(1.5957691216057308f), B = tn_v_set(0.0713548162726009f);
    tn_v z = tn_v_min(tn_v_set(20.0f), tn_v_max(tn_v_set(-20.0f), x)), zz = tn_v_mul(z, z);
    tn_v e = tn_v_exp(minus(tn_v_mul(z, tn_v_fma(zz, B, A)))), den = tn_v_add(one(), e),
         s = tn_v_div(one(), den);
    tn_v du = tn_v_fma(zz, tn_v_mul(B, tn_v_set(3.0f)), A);
    *slope = tn_v_fma(tn_v_mul(s, tn_v_mul(s, e)), tn_v_mul(z, du), s);
    return tn_v_div(x, den);
}

/* value x Phi(x), slope Phi(x) + x phi(x). Phi(-a) = exp(-a^2/2) Q(a) for a >= 0, where Q(a) =
 * exp(a^2/2) erfc(a/sqrt(2)) / 2 is t P(t), t = 1/(1 + 0.35 a): minimax, relative error 3.2e-8 on
 * [0, 13.3]; Phi(-13.3) is below the smallest normal float. a^2/2 is kept in two floats: exp would
 * multiply its rounding error by a^2/2. */
TN_VI tn_v gelu_erf(tn_v x, tn_v *slope)
{
    tn_v a = tn_v_min(tn_v_set(14.0f), tn_v_max(x, minus(x))), half = tn_v_mul(a, tn_v_set(0.5f));
    tn_v square = tn_v_mul(half, a), rest = tn_v_fma(half, a, minus(square)),
         bell = tn_v_exp(minus(square));
    bell = tn_v_fma(bell, minus(rest), bell);
    tn_v t = tn_v_div(one(), tn_v_fma(tn_v_set(0.35f), a, one())), p = tn_v_set(-0.0291150119f);
    p = tn_v_fma(p, t, tn_v_set(0.143818408f));
    p = tn_v_fma(p, t, tn_v_set(-0.255391032f));
    p = tn_v_fma(p, t, tn_v_set(0.158796594f));
    p = tn_v_fma(p, t, tn_v_set(-0.0228434466f));
    p = tn_v_fma(p, t, tn_v_set(0.105392158f));
    p = tn_v_fma(p, t, tn_v_set(0.119863085f));
    p = tn_v_fma(p, t, tn_v_set(0.13985756f));
    p = tn_v_fma(p, t, tn_v_set(0.13962166f));
    tn_v lower = tn_v_mul(bell, tn_v_mul(p, t));
    tn_v phi = tn_v_select(tn_v_gt(x, tn_v_zero()), tn_v_sub(one(), lower), lower);
    *slope = tn_v_fma(x, tn_v_mul(bell, tn_v_set(0.3989422804014327f)), phi);
    return tn_v_mul(x, phi);
}

typedef tn_v activation(tn_v x, tn_v *slope);

TN_VI void each(float *dst, const float *a, const float *b, float c, int64_t n,
                tn_v (*f)(tn_v, tn_v, tn_v))
{
    const tn_v k = tn_v_set(c);
    for (int64_t i = 0; i < n; i += TN_VL)
        tn_v_store(dst + i, f(tn_v_load(a + i), tn_v_load(b + i), k));
}

TN_VI void each_value(float *dst, const float *x, int64_t n, activation *f)
{
    tn_v slope;
    for (int64_t i = 0; i < n; i += TN_VL) tn_v_store(dst + i, f(tn_v_load(x + i), &slope));
}

TN_VI void each_slope(float *dst, const float *dy, const float *x, int64_t n, activation *f)
{
    tn_v slope;
    for (int64_t i = 0; i < n; i += TN_VL) {
        f(tn_v_load(x + i), &slope);
        tn_v_store(dst + i, tn_v_mul(tn_v_load(dy + i), slope));
    }
}

TN_VI void each_gate(const bool bf16, float *dst, const float *g, const float *u, int64_t n,
                     activation *f)
{
    tn_v slope;
    for (int64_t i = 0; i < n; i += TN_VL)
        tn_v_store(dst + i, tn_v_mul(tn_v_as(f(tn_v_load(g + i), &slope), bf16), tn_v_load(u + i)));
}

TN_VI void each_gate_bwd(const bool bf16, float *dg, float *du, const float *dy, const float *g,
                         const float *u, int64_t n, activation *f)
{
    tn_v slope;
    for (int64_t i = 0; i < n; i += TN_VL) {
        tn_v d = tn_v_load(dy + i), v = f(tn_v_load(g + i), &slope),
             e = tn_v_mul(tn_v_as(tn_v_mul(d, tn_v_load(u + i)), bf16), slope);
        tn_v_store(du + i, tn_v_mul(d, tn_v_as(v, bf16)));
        tn_v_store(dg + i, e);
    }
}

/* One function of the tables per operation: only their names differ. */
#define BLOCK(name)                                                                                \
    static void block_##name(float *dst, const float *a, const float *b, float c, int64_t n)       \
    {                                                                                              \
        each(dst, a, b, c, n, op_##name);                                                          \
    }
#define ACTIVATION(name)                                                                           \
    static void block_##name(float *dst, const float *a, const float *b, float c, int64_t n)       \
    {                                                                                              \
        (void)b;                                                                                   \
        (void)c;                                                                                   \
        each_value(dst, a, n, name);                                                               \
    }                                                                                              \
    static void block_##name##_bwd(float *dst, const float *a, const float *b, float c, int64_t n) \
    {                                                                                              \
        (void)c;                                                                                   \
        each_slope(dst, a, b, n, name);                                                            \
    }                                                                                              \
    static void gate_##name(float *dst, const float *g, const float *u, int64_t n)                 \
    {                                                                                              \
        each_gate(false, dst, g, u, n, name);                                                      \
    }                                                                                              \
    static void gate_##name##_bwd(float *dg, float *du, const float *dy, const float *g,           \
                                  const float *u, int64_t n)                                       \
    {                                                                                              \
        each_gate_bwd(false, dg, du, dy, g, u, n, name);                                           \
    }                                                                                              \
    static void rounded_##name(float *dst, const float *g, const float *u, int64_t n)              \
    {                                                                                              \
        each_gate(true, dst, g, u, n, name);                                                       \
    }                                                                                              \
    static void rounded_##name##_bwd(float *dg, float *du, const float *dy, const float *g,        \
                                     const float *u, int64_t n)                                    \
    {                                                                                              \
        each_gate_bwd(true, dg, du, dy, g, u, n, name);                                            \
    }
ACTIVATION(silu)
ACTIVATION(gelu_tanh)
ACTIVATION(gelu_erf)
BLOCK(add)
BLOCK(sub)
BLOCK(mul)
BLOCK(div)
BLOCK(relu_bwd)
BLOCK(relu2_bwd)
BLOCK(sigmoid_bwd)
BLOCK(tanh_bwd)
BLOCK(neg)
BLOCK(scale)
BLOCK(offset)
BLOCK(relu)
BLOCK(relu2)
BLOCK(sigmoid)
BLOCK(tanh)
BLOCK(exp)
BLOCK(square)
BLOCK(sqrt)
BLOCK(copy)

extern const tn_pointwise_fns TN_ISA_NAME(tn_pointwise_fns);
const tn_pointwise_fns TN_ISA_NAME(tn_pointwise_fns) = {
    .op =
        {
            [TN_POINTWISE_ADD] = block_add,
            [TN_POINTWISE_SUB] = block_sub,
            [TN_POINTWISE_MUL] = block_mul,
            [TN_POINTWISE_DIV] = block_div,
            [TN_POINTWISE_SILU_BWD] = block_silu_bwd,
            [TN_POINTWISE_GELU_TANH_BWD] = block_gelu_tanh_bwd,
            [TN_POINTWISE_GELU_ERF_BWD] = block_gelu_erf_bwd,
            [TN_POINTWISE_RELU_BWD] = block_relu_bwd,
            [TN_POINTWISE_RELU2_BWD] = block_relu2_bwd,
            [TN_POINTWISE_SIGMOID_BWD] = block_sigmoid_bwd,
            [TN_POINTWISE_TANH_BWD] = block_tanh_bwd,
            [TN_POINTWISE_NEG] = block_neg,
            [TN_POINTWISE_SCALE] = block_scale,
            [TN_POINTWISE_OFFSET] = block_offset,
            [TN_POINTWISE_SILU] = block_silu,
            [TN_POINTWISE_GELU_TANH] = block_gelu_tanh,
            [TN_POINTWISE_GELU_ERF] = block_gelu_erf,
            [TN_POINTWISE_RELU] = block_relu,
            [TN_POINTWISE_RELU2] = block_relu2,
            [TN_POINTWISE_SIGMOID] = block_sigmoid,
            [TN_POINTWISE_TANH] = block_tanh,
            [TN_POINTWISE_EXP] = block_exp,
            [TN_POINTWISE_SQUARE] = block_square,
            [TN_POINTWISE_SQRT] = block_sqrt,
            [TN_POINTWISE_COPY] = block_copy,
        },
    .gate = {gate_silu, gate_gelu_tanh, gate_gelu_erf},
    .gate_bwd = {gate_silu_bwd, gate_gelu_tanh_bwd, gate_gelu_erf_bwd},
    .rounded_gate = {rounded_silu, rounded_gelu_tanh, rounded_gelu_erf},
    .rounded_gate_bwd = {rounded_silu_bwd, rounded_gelu_tanh_bwd, rounded_gelu_erf_bwd},
};
