/* report.h - what is known before a run, as text and as JSON. */
#ifndef TN_LUA_REPORT_H
#define TN_LUA_REPORT_H
#include "engine/base/text.h"
#include "lua/session.h"

#include <stdio.h>

TN_C_BEGIN

tn_status tn_report_plan(const tn_session *s, tn_text *out) TN_MUST_USE;
tn_status tn_report_plan_json(const tn_session *s, tn_text *out) TN_MUST_USE;

/* Optimizer groups with the number of parameters in each, a line each; nothing if there is only
 * one. */
void tn_report_groups(const tn_session *s, FILE *out);

/* Bytes that one block keeps of one token from forward to backward; 0 without blocks. */
double tn_report_saved_bytes(const tn_program *p, int64_t *n_blocks_out);

TN_C_END
#endif
