/* cmd_help.c - `titan help` and `titan --version`: the tables of commands, options and ops, and the
 * schema (titan.help). */
#include "lua/commands.h"

#include "engine/base/text.h"
#include "graph/op.h"

#include <stdio.h>
#include <string.h>

static void print_command(const tn_command *c)
{
    printf("  %-48s %s\n", c->usage, c->doc);
}

static void print_option(const tn_option *o)
{
    printf("  %-15s %-8s %s\n", o->name, o->value ? o->value : "", o->doc);
}

static tn_status ask_lua(const tn_args *a, const char *function, int n, const char *const *args)
{
    tn_host *h = NULL;
    const char *text = NULL;
    TN_TRY(tn_host_open(&a->host, NULL, &h));
    tn_status st = tn_host_ask(h, "titan.help", function, n, args, &text);
    if (!st) fputs(text, stdout);
    tn_host_close(h);
    return st;
}

static tn_status overview(const tn_args *a)
{
    printf("titan %s - pretrains large language models from Lua recipes\n\n", TN_VERSION);
    for (int i = 0; i < tn_n_commands; i++) {
        if (tn_commands[i].run) print_command(&tn_commands[i]);
    }
    printf("\nOptions\n");
    for (int i = 0; i < tn_n_options; i++) print_option(&tn_options[i]);
    printf("\n");
    return ask_lua(a, "overview", 0, NULL);
}

static void one_command(const tn_command *c)
{
    printf("%s\n  %s\n", c->usage, c->run ? c->doc : "not in this build yet");
    for (int i = 0; i < tn_n_options; i++) {
        char padded[64];
        snprintf(padded, sizeof padded, " %s ", tn_options[i].name);
        if (strstr(c->options, padded)) print_option(&tn_options[i]);
    }
}

static void one_op(const tn_op *op)
{
    printf("op %s\n  factors     %s\n  attributes  %s\n", op->name, op->sig,
           op->attrs && op->attrs[0] ? op->attrs : "none");
}

tn_status tn_command_help(const tn_args *a)
{
    bool found;
    const char *others[64];
    int n = 0;
    if (!a->n_paths) return overview(a);
    const char *topic = a->paths[0];
    const tn_command *c = tn_command_find(topic);
    if (c && strcmp(topic, "data")) { /* the section of that name says more */
        one_command(c);
        return TN_OK;
    }
    if (strcmp(topic, "ops") == 0) {
        for (int i = 0; i < TN_N_OPS; i++)
            printf("  %-16s %s\n", tn_op_get((tn_op_id)i)->name, tn_op_get((tn_op_id)i)->sig);
        return TN_OK;
    }
    tn_op_id op = tn_op_find(topic, &found);
    if (found) {
        one_op(tn_op_get(op));
        return TN_OK;
    }
    others[n++] = topic;
    others[n++] = "ops";
    for (int i = 0; i < tn_n_commands && n < TN_COUNT(others); i++) {
        if (tn_commands[i].run) others[n++] = tn_commands[i].name;
    }
    return ask_lua(a, "topic", n, others);
}

tn_status tn_command_version(const tn_args *a)
{
    (void)a;
    printf("titan %s\n", TN_VERSION);
    return TN_OK;
}
