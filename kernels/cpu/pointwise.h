/* pointwise.h - fused pointwise chains: a small program that runs over blocks which stay in the
 * first cache level.
 *
 * A program has up to 32 registers. Register i < n_in is input i and is only read; instructions
 * write the others; output k is register out[k] at the end. Every instruction rounds to fp32 and
 * works on each element alone, so a program gives the bits of its instructions run one by one
 * through memory, and how it is cut into blocks cannot be seen. With bf16 all inputs and outputs
 * are bf16, and what every instruction gives is rounded to it, computed in fp32.
 *
 * Outputs may lie over inputs of the same extent (the same address), in any pairing; not over each
 * other.
 */
#ifndef TN_KERNELS_CPU_POINTWISE_H
#define TN_KERNELS_CPU_POINTWISE_H
#include "kernels/cpu/isa.h"

TN_C_BEGIN

enum {
    TN_POINTWISE_INPUTS = 8,
    TN_POINTWISE_OUTPUTS = 4,
    TN_POINTWISE_REGISTERS = 32,
    TN_POINTWISE_INS = 64,
};

/* dst = f(a), f(a, c) or f(a, b). Gradients take (upstream gradient, x), of sigmoid and tanh
 * (upstream gradient, y). */
typedef enum tn_pointwise_op {
    TN_POINTWISE_ADD,      /* a + b */
    TN_POINTWISE_SUB,      /* a - b */
    TN_POINTWISE_MUL,      /* a b */
    TN_POINTWISE_DIV,      /* a / b */
    TN_POINTWISE_SILU_BWD, /* a s (1 + b (1 - s)), s = sigmoid(b) */
    TN_POINTWISE_GELU_TANH_BWD,
    TN_POINTWISE_GELU_ERF_BWD,
    TN_POINTWISE_RELU_BWD,    /* a where b > 0, else 0 */
    TN_POINTWISE_RELU2_BWD,   /* a (2 max(b, 0)) */
    TN_POINTWISE_SIGMOID_BWD, /* a b (1 - b) */
    TN_POINTWISE_TANH_BWD,    /* a (1 - b^2) */
    TN_POINTWISE_NEG,         /* -a; from here on b is not read */
    TN_POINTWISE_SCALE,       /* c a */
    TN_POINTWISE_OFFSET,      /* a + c */
    TN_POINTWISE_SILU,        /* a / (1 + exp(-a)) */
    TN_POINTWISE_GELU_TANH, /* a / (1 + exp(-2 sqrt(2/pi) (a + 0.044715 a^3))), the same as a/2 (1 +
                               tanh(...)) */
    TN_POINTWISE_GELU_ERF,  /* a Phi(a), Phi the normal distribution */
    TN_POINTWISE_RELU,
    TN_POINTWISE_RELU2, /* max(a, 0)^2 */
    TN_POINTWISE_SIGMOID,
    TN_POINTWISE_TANH,
    TN_POINTWISE_EXP, /* of min(a, 88.3) */
    TN_POINTWISE_SQUARE,
    TN_POINTWISE_SQRT,
    TN_POINTWISE_COPY,
    TN_N_POINTWISE,
} tn_pointwise_op;

typedef struct tn_pointwise_ins {
    uint8_t op, dst, a, b;
    float c;
    bool wide; /* with bf16: not rounded, because the op that it is a part of keeps it inside */
} tn_pointwise_ins;

typedef enum tn_pointwise_kind {
    TN_POINTWISE_FULL,   /* [n] */
    TN_POINTWISE_ROW,    /* [d], repeated n / d times */
    TN_POINTWISE_SCALAR, /* one float */
} tn_pointwise_kind;

typedef struct tn_pointwise_program {
    int n_in, n_out, n_ins;
    uint8_t kind[TN_POINTWISE_INPUTS];
    uint8_t out[TN_POINTWISE_OUTPUTS];
    tn_pointwise_ins ins[TN_POINTWISE_INS];
} tn_pointwise_program;

/* Does the op read b? */
bool tn_pointwise_binary(tn_pointwise_op op);

/* Counts and numbers in range, nothing read before it is written, inputs never written: once, when
 * the program is made. */
tn_status tn_pointwise_check(const tn_pointwise_program *p) TN_MUST_USE;

typedef struct tn_pointwise_args {
    const tn_pointwise_program *program; /* checked */
    int64_t n, d;                        /* elements; extent of TN_POINTWISE_ROW inputs */
    const void *in[TN_POINTWISE_INPUTS];
    void *out[TN_POINTWISE_OUTPUTS];
    bool bf16; /* then all inputs are TN_POINTWISE_FULL */
} tn_pointwise_args;

void tn_pointwise_run(const tn_cpu *cpu, const tn_pointwise_args *a);

/* y = a + b; y = value; y = x (apart) */
void tn_pointwise_add(const tn_cpu *cpu, int64_t n, const float *a, const float *b, float *y);
void tn_pointwise_fill(const tn_cpu *cpu, int64_t n, float value, float *y);
void tn_pointwise_copy(const tn_cpu *cpu, int64_t n, const float *x, float *y);

/* From pointwise_isa.c, once per instruction set; n is a multiple of 16. Outputs are inputs of the
 * same call, or apart. op        dst[i] = f(a[i], b[i], c) gate      dst[i] = f(g[i]) u[i];
 * gate_bwd  du[i] = dy[i] f(g[i]), dg[i] = (dy[i] u[i]) f'(g[i]);  f: silu, gelu_tanh, gelu_erf The
 * gates are what the plan puts in the place of instructions that it recognises: the same roundings,
 * half the work. rounded: the same with what the first of the instructions gives rounded to bf16.
 */
enum { TN_POINTWISE_GATES = 3 };
typedef struct tn_pointwise_fns {
    void (*op[TN_N_POINTWISE])(float *dst, const float *a, const float *b, float c, int64_t n);
    void (*gate[TN_POINTWISE_GATES])(float *dst, const float *g, const float *u, int64_t n);
    void (*gate_bwd[TN_POINTWISE_GATES])(float *dg, float *du, const float *dy, const float *g,
                                         const float *u, int64_t n);
    void (*rounded_gate[TN_POINTWISE_GATES])(float *dst, const float *g, const float *u, int64_t n);
    void (*rounded_gate_bwd[TN_POINTWISE_GATES])(float *dg, float *du, const float *dy,
                                                 const float *g, const float *u, int64_t n);
} tn_pointwise_fns;

TN_C_END
#endif
