#include "engine/device.h"

#include "engine/base/mem.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

/* Anonymous pages, large ones where the kernel offers them: a step reads its arena many times. */
static tn_status cpu_alloc(tn_device *d, int64_t bytes, void **out)
{
    (void)d;
    if (bytes <= 0) bytes = 64;
    void *p = mmap(NULL, (size_t)bytes, PROT_READ | PROT_WRITE,
                   MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (p == MAP_FAILED)
        TN_FAIL(TN_FAILED, "memory: cannot map %lld bytes: %s", (long long)bytes, strerror(errno));
    madvise(p, (size_t)bytes, MADV_HUGEPAGE);
    *out = p;
    return TN_OK;
}

static void cpu_free(tn_device *d, void *p, int64_t bytes)
{
    (void)d;
    if (p) munmap(p, (size_t)(bytes > 0 ? bytes : 64));
}

static void cpu_destroy(tn_device *d)
{
    tn_pool_destroy(d->cpu.pool);
    tn_free(d);
}

static const tn_device_ops cpu_ops = {"cpu", cpu_alloc, cpu_free, tn_cpu_kernel, cpu_destroy};

tn_status tn_device_cpu_create(const tn_device_options *o, tn_device **out)
{
    void *mem;
    TN_TRY(tn_alloc(sizeof(tn_device), &mem));
    tn_device *d = mem;
    d->ops = &cpu_ops;
    d->cpu.isa = o->isa;
    tn_status st = tn_pool_create(o->threads > 0 ? o->threads : tn_pool_cores(), &d->cpu.pool);
    if (st) {
        tn_free(d);
        return st;
    }
    *out = d;
    return TN_OK;
}

void tn_device_destroy(tn_device *d)
{
    if (d) d->ops->destroy(d);
}

static int64_t read_limit(const char *path)
{
    long long n = 0;
    FILE *f = fopen(path, "r");
    if (!f) return INT64_MAX;
    if (fscanf(f, "%lld", &n) != 1 || n <= 0) n = INT64_MAX; /* "max" */
    fclose(f);
    return n;
}

int64_t tn_device_memory_bytes(void)
{
    int64_t have = (int64_t)sysconf(_SC_PHYS_PAGES) * (int64_t)sysconf(_SC_PAGESIZE);
    const char *limits[] = {"/sys/fs/cgroup/memory.max",
                            "/sys/fs/cgroup/memory/memory.limit_in_bytes"};
    for (int i = 0; i < TN_COUNT(limits); i++) {
        int64_t n = read_limit(limits[i]);
        if (n < have) have = n;
    }
    return have;
}
