/* cmd_plan.c - `titan plan RECIPE`: what is known before a run. Allocates nothing of the model's
 * size. */
#include "lua/commands.h"
#include "lua/report.h"
#include "lua/session.h"

#include <stdio.h>

static tn_status plan(const tn_args *a, tn_session *s)
{
    tn_recipe *recipe;
    tn_text text = {0};
    TN_TRY(tn_args_recipe(a, &recipe));
    TN_TRY(tn_session_plan(recipe, true, a->world, s));
    tn_status st = a->json ? tn_report_plan_json(s, &text) : tn_report_plan(s, &text);
    if (!st) fputs(tn_text_str(&text), stdout);
    tn_text_fini(&text);
    return st;
}

tn_status tn_command_plan(const tn_args *a)
{
    tn_session s = {0};
    tn_status st = plan(a, &s);
    tn_session_close(&s);
    return st;
}
