/* classes.h - the rank classes of a plan: all ranks of one pipeline rank run one program, so what
 * holds for one of them holds for all. Memory, traffic and time of each, and which is largest. */
#ifndef TN_LUA_CLASSES_H
#define TN_LUA_CLASSES_H
#include "engine/base/text.h"
#include "graph/forecast.h"
#include "graph/traffic.h"
#include "lua/session.h"

TN_C_BEGIN

typedef struct tn_class {
    const tn_program *p;
    tn_session_bytes bytes;
    tn_traffic traffic;
    int64_t received; /* bytes that a rank gets from others in a step */
} tn_class;

typedef struct tn_classes {
    int n, largest; /* by planned peak */
    tn_class *of;
    tn_forecast forecast;
    tn_arena arena;
} tn_classes;

/* What a rank of this session has. */
tn_cost_machine tn_classes_machine(const tn_session *s);

tn_status tn_classes_make(const tn_session *s, tn_classes *out) TN_MUST_USE;
void tn_classes_fini(tn_classes *c);

/* A block of lines, or nothing, where there is one class; `"classes": [...]`. */
void tn_classes_print(const tn_session *s, const tn_classes *c, tn_text *out);
void tn_classes_json(const tn_session *s, const tn_classes *c, tn_text *out);
/* {"all_gather": {"tp": 12}} */
void tn_classes_json_traffic(const tn_traffic *t, tn_text *out);

TN_C_END
#endif
