/* commands.h - the command line, taken apart, and the commands behind it.
 *
 * titan.c parses (args.c), calls one of these and turns its status into the exit status: TN_OK 0,
 * TN_FAILED 1, TN_BAD_INPUT 2, TN_STOPPED 128 + the signal given to tn_command_stopped. A command
 * prints its answer on standard output and everything else through the log; it never exits and
 * never prints its error.
 */
#ifndef TN_LUA_COMMANDS_H
#define TN_LUA_COMMANDS_H
#include "engine/tokens_build.h"
#include "lua/recipe.h"

#include <stdio.h>

TN_C_BEGIN

#define TN_VERSION "0.1.0"

typedef struct tn_args tn_args;
typedef tn_status (*tn_command_fn)(const tn_args *a);

/* One command of the table in args.c. */
typedef struct tn_command {
    const char *name; /* "train" is what a recipe without a command means */
    const char *usage, *doc;
    int min_paths, max_paths;
    bool recipe; /* the first path is a recipe (or what stands for one) and overrides are legal */
    const char *options; /* names, with spaces around each: " --json --out " */
    tn_command_fn run;   /* NULL: not in this build */
} tn_command;

struct tn_args {
    const tn_command *command;
    const char **paths; /* what is neither option nor override: recipe, folders, topic */
    int n_paths;
    const char **overrides; /* "section.key=value" */
    int n_overrides;
    int ranks;             /* -n; 1 if not given */
    const char *log_ranks; /* --log-ranks; NULL if not given */
    int64_t world;         /* --world; 0 if not given */
    int rank;              /* --rank; 0 */
    bool quiet, has_rank, json, print_config, check;
    bool jsonl, special, decode, literal, skip_special, whole; /* of tokenize */
    int threads;                                               /* --threads; 0 if not given */
    int64_t sample;                                            /* data show: 0 */
    const char *split, *out, *format, *pass, *module, *dump_to, *dump_pass, *tensor, *from, *to,
        *shape, *dtype;   /* NULL if not given; format "text" */
    const char **prompts; /* --prompt, as often as it is given */
    int n_prompts;
    int64_t max_tokens, top_k, seed; /* generate: 64, 0, 42 */
    double temperature, top_p;       /* 0.8, 1 */
    const char **owned[3];
    const char *collapse, *focus;  /* graph --format dot; NULL if not given */
    int depth;                     /* of focus; 2 */
    const char *home, *state_home; /* HOME, XDG_STATE_HOME; NULL if not set */
    tn_host_options host; /* for tn_recipe_open: --lua-seconds, --lua-memory, print, overrun */
};

/* The strings of argv are kept. TN_BAD_INPUT "command line: WHAT; MEND". */
tn_status tn_args_parse(int argc, char **argv, tn_args *out) TN_MUST_USE;
void tn_args_fini(tn_args *a);

/* The recipe paths[0] with the overrides of the command line. */
tn_status tn_args_recipe(const tn_args *a, tn_recipe **out) TN_MUST_USE;

extern const tn_command tn_commands[];
extern const int tn_n_commands;
const tn_command *tn_command_find(const char *name); /* or NULL */

/* Options and what they mean, for help: "--json", "N" or NULL, text. */
typedef struct tn_option {
    const char *name, *value, *doc;
} tn_option;
extern const tn_option tn_options[];
extern const int tn_n_options;

tn_status tn_command_train(const tn_args *a) TN_MUST_USE;
tn_status tn_command_plan(const tn_args *a) TN_MUST_USE;
tn_status tn_command_graph(const tn_args *a) TN_MUST_USE;
tn_status tn_command_parity(const tn_args *a) TN_MUST_USE;
tn_status tn_command_repl(const tn_args *a) TN_MUST_USE;
tn_status tn_command_diff(const tn_args *a) TN_MUST_USE;
tn_status tn_command_tokenize(const tn_args *a) TN_MUST_USE;
tn_status tn_command_doctor(const tn_args *a) TN_MUST_USE;
tn_status tn_command_help(const tn_args *a) TN_MUST_USE;
tn_status tn_command_generate(const tn_args *a) TN_MUST_USE;
tn_status tn_command_data(const tn_args *a) TN_MUST_USE;
tn_status tn_command_version(const tn_args *a) TN_MUST_USE;

/* Tells on standard error how far a token file is: a bar on a terminal, else a line now and then.
 */
void tn_command_progress(void *user, const tn_tokens_progress *p);

/* Which signal a run that returns TN_STOPPED was stopped by. */
void tn_command_stopped(int signal_number);

TN_C_END
#endif
