#include "lua/profile.h"

#include "engine/base/file.h"
#include "engine/base/mem.h"
#include "engine/timeline.h"
#include "lua/classes.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { MAX_TRACE = 1 << 30 };

struct tn_profile {
    const tn_session *s;
    const char *folder;
    tn_timeline *timeline;
    tn_train_watch watch;
    tn_text text; /* the summary */
};

/* ------------------------------------------------------------ files */

static void path_of(const tn_profile *p, int64_t step, int rank, const char *suffix, char *out,
                    size_t size)
{
    char of[32] = "";
    if (rank >= 0) snprintf(of, sizeof of, ".rank_%d", rank);
    snprintf(out, size, "%s/trace/step_%lld%s.%s", p->folder, (long long)step, of, suffix);
}

static const char frame[] = "{\"displayTimeUnit\": \"ns\", \"traceEvents\": [\n";

/* Events, a line each, put into the frame. */
static tn_status write_events(const char *path, const tn_text *events)
{
    tn_text all = {0};
    const char *at = tn_text_str(events);
    tn_text_add(&all, "%s", frame);
    while (*at) {
        size_t n = strcspn(at, "\n");
        tn_text_put(&all, at, n);
        at += n + (at[n] == '\n');
        tn_text_add(&all, "%s\n", *at ? "," : "");
    }
    tn_text_add(&all, "]}\n");
    tn_status st = tn_text_end(&all);
    if (!st) st = tn_file_write(path, tn_text_str(&all), (size_t)all.n_bytes);
    tn_text_fini(&all);
    return st;
}

/* The lines of a rank's file that describe tracks, or the others. */
static tn_status take_lines(const char *path, bool tracks, tn_text *out)
{
    static const char track[] = "{\"ph\": \"M\"";
    char *text;
    int64_t n;
    TN_TRY(tn_file_read(path, MAX_TRACE, &text, &n));
    for (const char *at = text + sizeof frame - 1; *at && *at != ']';) {
        size_t len = strcspn(at, "\n");
        if (!strncmp(at, track, sizeof track - 1) == tracks) {
            tn_text_put(out, at, len - (at[len - 1] == ','));
            tn_text_put(out, "\n", 1);
        }
        at += len + (at[len] == '\n');
    }
    tn_free(text);
    return tn_text_end(out);
}

/* Arrows between ranks belong to the trace of all of them: they wait in a file of their own. */
static tn_status take_letters(const char *path, tn_text *out)
{
    char *text;
    int64_t n;
    TN_TRY(tn_file_read(path, MAX_TRACE, &text, &n));
    tn_text_put(out, text, (size_t)n);
    tn_free(text);
    return unlink(path) ? tn_file_error(path, "remove") : tn_text_end(out);
}

static tn_status leave_letters(const tn_profile *p, int64_t step)
{
    char path[4224];
    tn_text letters = {0};
    tn_status st = tn_timeline_letters(p->timeline, &letters);
    path_of(p, step, p->s->world.rank, "letters", path, sizeof path);
    if (!st) st = tn_file_write(path, tn_text_str(&letters), (size_t)letters.n_bytes);
    tn_text_fini(&letters);
    return st;
}

static tn_status merge(const tn_profile *p, int64_t step)
{
    char path[4224];
    tn_text all = {0};
    tn_status st = TN_OK;
    for (int tracks = 1; tracks >= 0; tracks--)
        for (int r = 0; r < p->s->world.size && !st; r++) {
            path_of(p, step, r, "json", path, sizeof path);
            st = take_lines(path, tracks, &all);
        }
    for (int r = 0; r < p->s->world.size && !st; r++) {
        path_of(p, step, r, "letters", path, sizeof path);
        st = take_letters(path, &all);
    }
    path_of(p, step, -1, "json", path, sizeof path);
    if (!st) st = write_events(path, &all);
    tn_text_fini(&all);
    return st;
}

/* ------------------------------------------------------------ watching */

static bool on_begin(void *user, int64_t step)
{
    tn_profile *p = user;
    const tn_recipe *r = p->s->recipe;
    for (int i = 0; i < tn_recipe_count(r, "profiling.trace_steps"); i++) {
        if (tn_recipe_int_at(r, "profiling.trace_steps", i) != step) continue;
        tn_timeline_begin(p->timeline, step);
        return true;
    }
    return false;
}

static bool on_entry(void *user, const tn_call *c)
{
    tn_profile *p = user;
    return tn_timeline_entry(p->timeline, c);
}

static void on_mark(void *user, const char *what)
{
    tn_profile *p = user;
    tn_timeline_mark(p->timeline, what);
}

static tn_status write_rank(tn_profile *p, int64_t step)
{
    char path[4224];
    tn_text events = {0};
    tn_timeline_sum sum;
    int rank = p->s->world.rank;
    bool memory = tn_recipe_bool(p->s->recipe, "profiling.memory_timeline");
    tn_status st = tn_timeline_print(p->timeline, memory, &events, &sum);
    path_of(p, step, rank, "json", path, sizeof path);
    if (!st) st = write_events(path, &events);
    tn_text_fini(&events);
    TN_TRY(st);
    tn_text_cut(&p->text, 0);
    tn_timeline_summary(&sum, &p->text);
    TN_TRY(tn_text_end(&p->text));
    path_of(p, step, rank, "txt", path, sizeof path);
    return tn_file_write(path, tn_text_str(&p->text), (size_t)p->text.n_bytes);
}

static tn_status on_end(void *user, int64_t step)
{
    tn_profile *p = user;
    tn_timeline_mark(p->timeline, "idle");
    TN_TRY(write_rank(p, step));
    TN_TRY(leave_letters(p, step));
    if (p->s->comm) TN_TRY(tn_comm_sync(p->s->comm, TN_COMM_WORLD, "trace", 0));
    return p->s->world.rank == 0 ? merge(p, step) : TN_OK;
}

/* ------------------------------------------------------------ life */

static tn_status open_files(tn_profile *p)
{
    char path[4224];
    tn_cost_machine m = tn_classes_machine(p->s);
    snprintf(path, sizeof path, "%s/trace", p->folder);
    TN_TRY(tn_file_mkdirs(path));
    return tn_timeline_create(p->s->train, p->s->comm, &m, p->s->world.rank, &p->timeline);
}

tn_status tn_profile_open(const tn_session *s, const char *folder, tn_profile **out)
{
    void *mem;
    *out = NULL;
    if (!tn_recipe_count(s->recipe, "profiling.trace_steps")) return TN_OK;
    TN_TRY(tn_alloc(sizeof(tn_profile), &mem));
    tn_profile *p = mem;
    *p = (tn_profile){.s = s, .folder = folder};
    p->watch = (tn_train_watch){p, on_begin, on_entry, on_mark, on_end};
    tn_status st = open_files(p);
    if (st) {
        tn_profile_close(p);
        return st;
    }
    *out = p;
    return TN_OK;
}

void tn_profile_close(tn_profile *p)
{
    if (!p) return;
    tn_timeline_destroy(p->timeline);
    tn_text_fini(&p->text);
    tn_free(p);
}

const tn_train_watch *tn_profile_watch(const tn_profile *p)
{
    return &p->watch;
}

const char *tn_profile_take(const tn_profile *p)
{
    return tn_text_str(&p->text);
}

void tn_profile_clear(tn_profile *p)
{
    tn_text_cut(&p->text, 0);
}
