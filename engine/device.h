/* device.h - where a program runs: a small table of functions. The CPU device is always there;
 * others are plugins.
 *
 * On the CPU a stream is an order, not a thread: the executor takes entries one after another and
 * the pool computes. */
#ifndef TN_ENGINE_DEVICE_H
#define TN_ENGINE_DEVICE_H
#include "engine/base/pool.h"
#include "kernels/kernel.h"

TN_C_BEGIN

typedef struct tn_device tn_device;

typedef struct tn_device_ops {
    const char *name;
    tn_status (*alloc)(tn_device *d, int64_t bytes,
                       void **out); /* zeroed, aligned to 64, pages touched on use */
    void (*free)(tn_device *d, void *p, int64_t bytes);
    const tn_kernel *(*kernel)(tn_op_id op);
    void (*destroy)(tn_device *d);
} tn_device_ops;

struct tn_device {
    const tn_device_ops *ops;
    tn_cpu cpu; /* kernels' context without scratch, which comes with the memory of a run */
};

typedef struct tn_device_options {
    int threads; /* 0: the cores of this process */
    tn_isa isa;
} tn_device_options;

tn_status tn_device_cpu_create(const tn_device_options *o, tn_device **out) TN_MUST_USE;
void tn_device_destroy(tn_device *d); /* NULL is fine */

/* Memory of this machine that a run may use, bytes: the smaller of what is installed and the
 * cgroup's limit. */
int64_t tn_device_memory_bytes(void);

TN_C_END
#endif
