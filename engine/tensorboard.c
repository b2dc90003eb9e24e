#include "engine/tensorboard.h"

#include "engine/base/file.h"
#include "engine/base/mem.h"
#include "engine/base/text.h"

#include <dirent.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

struct tn_tensorboard {
    tn_file *file;
    tn_text event, value, record;
};

static const char prefix[] = "events.out.tfevents.";

/* ------------------------------------------------------------ records */

/* Castagnoli's polynomial, bit by bit: a record a log step needs no table. */
static uint32_t crc32c(const void *data, size_t n)
{
    const uint8_t *at = data;
    uint32_t crc = 0xffffffff;
    for (size_t i = 0; i < n; i++) {
        crc ^= at[i];
        for (int k = 0; k < 8; k++) crc = crc >> 1 ^ (crc & 1 ? 0x82f63b78u : 0);
    }
    return ~crc;
}

static void add_fixed(tn_text *t, uint64_t x, int n_bytes)
{
    char bytes[8];
    for (int i = 0; i < n_bytes; i++) bytes[i] = (char)(x >> 8 * i & 255);
    tn_text_put(t, bytes, (size_t)n_bytes);
}

static void add_crc(tn_text *t, const void *data, size_t n)
{
    uint32_t crc = crc32c(data, n);
    add_fixed(t, (crc >> 15 | crc << 17) + 0xa282ead8u, 4);
}

static tn_status put_record(tn_tensorboard *t)
{
    size_t n = (size_t)t->event.n_bytes;
    tn_text_cut(&t->record, 0);
    add_fixed(&t->record, n, 8);
    char length[8];
    memcpy(length, tn_text_str(&t->record), 8);
    add_crc(&t->record, length, 8);
    tn_text_put(&t->record, tn_text_str(&t->event), n);
    add_crc(&t->record, tn_text_str(&t->event), n);
    TN_TRY(tn_text_end(&t->event));
    TN_TRY(tn_text_end(&t->record));
    return tn_file_put(t->file, tn_text_str(&t->record), (size_t)t->record.n_bytes);
}

/* ------------------------------------------------------------ protobuf */

enum { VARINT = 0, FIXED64 = 1, BYTES = 2, FIXED32 = 5 };

static void add_varint(tn_text *t, uint64_t x)
{
    for (; x >= 128; x >>= 7) add_fixed(t, (x & 127) | 128, 1);
    add_fixed(t, x, 1);
}

static void add_key(tn_text *t, int field, int wire)
{
    add_varint(t, (uint64_t)(field << 3 | wire));
}

static void add_bytes(tn_text *t, int field, const char *bytes, size_t n)
{
    add_key(t, field, BYTES);
    add_varint(t, n);
    tn_text_put(t, bytes, n);
}

static void begin_event(tn_tensorboard *t)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    double wall = (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
    uint64_t bits;
    memcpy(&bits, &wall, sizeof bits);
    tn_text_cut(&t->event, 0);
    add_key(&t->event, 1, FIXED64);
    add_fixed(&t->event, bits, 8);
}

/* One value of a summary, into t->value. */
static void make_value(tn_tensorboard *t, const tn_tensorboard_scalar *s)
{
    float f = (float)s->value;
    uint32_t bits;
    memcpy(&bits, &f, sizeof bits);
    tn_text_cut(&t->value, 0);
    add_bytes(&t->value, 1, s->tag, strlen(s->tag));
    add_key(&t->value, 2, FIXED32);
    add_fixed(&t->value, bits, 4);
}

tn_status tn_tensorboard_put(tn_tensorboard *t, int64_t step, const tn_tensorboard_scalar *s, int n)
{
    for (int i = 0; i < n; i++) {
        tn_text summary = {0};
        make_value(t, &s[i]);
        TN_TRY(tn_text_end(&t->value));
        add_bytes(&summary, 1, tn_text_str(&t->value), (size_t)t->value.n_bytes);
        begin_event(t);
        add_key(&t->event, 2, VARINT);
        add_varint(&t->event, (uint64_t)step);
        add_bytes(&t->event, 5, tn_text_str(&summary), (size_t)summary.n_bytes);
        tn_status st = tn_text_end(&summary);
        tn_text_fini(&summary);
        if (!st) st = put_record(t);
        if (st) return st;
    }
    return TN_OK;
}

/* ------------------------------------------------------------ life */

static tn_status remove_old(const char *folder)
{
    char path[4608];
    DIR *d = opendir(folder);
    tn_status st = TN_OK;
    if (!d) return tn_file_error(folder, "open");
    for (struct dirent *e; !st && (e = readdir(d));) {
        if (strncmp(e->d_name, prefix, sizeof prefix - 1)) continue;
        snprintf(path, sizeof path, "%s/%s", folder, e->d_name);
        if (unlink(path)) st = tn_file_error(path, "replace");
    }
    closedir(d);
    return st;
}

static tn_status open_file(tn_tensorboard *t, const char *folder)
{
    char path[4608], host[64] = "host";
    static const char version[] = "brain.Event:2";
    TN_TRY(tn_file_mkdirs(folder));
    TN_TRY(remove_old(folder));
    (void)gethostname(host, sizeof host - 1);
    snprintf(path, sizeof path, "%s/%s%lld.%s.%d.0", folder, prefix, (long long)time(NULL), host,
             (int)getpid());
    TN_TRY(tn_file_append(path, &t->file));
    begin_event(t);
    add_bytes(&t->event, 3, version, sizeof version - 1);
    return put_record(t);
}

tn_status tn_tensorboard_open(const char *folder, tn_tensorboard **out)
{
    void *mem;
    TN_TRY(tn_alloc(sizeof(tn_tensorboard), &mem));
    tn_tensorboard *t = mem;
    tn_status st = open_file(t, folder);
    if (st) {
        tn_tensorboard_close(t);
        return st;
    }
    *out = t;
    return TN_OK;
}

void tn_tensorboard_close(tn_tensorboard *t)
{
    if (!t) return;
    tn_file_discard(t->file);
    tn_text_fini(&t->event);
    tn_text_fini(&t->value);
    tn_text_fini(&t->record);
    tn_free(t);
}
