/* args.c - the command line: the table of commands and options, and the parser that obeys it.
 *
 * The first word that is neither option nor override is a command or, when it is none, the recipe
 * to train. Options may stand anywhere, "--x V" and "--x=V"; "--" ends them; "-" is a path:
 * standard input. */
#include "lua/commands.h"

#include "engine/base/file.h"
#include "engine/base/mem.h"
#include "engine/base/text.h"

#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>

#define LUA_OPTIONS " --lua-seconds --lua-memory "

const tn_command tn_commands[] = {
    {"train", "titan RECIPE [section.key=value ...]",
     "train; RECIPE is a Lua file, - is standard input", 1, 1, true,
     " -n --log-ranks --quiet --print-config" LUA_OPTIONS, tn_command_train},
    {"plan", "titan plan RECIPE [section.key=value ...]",
     "what is known before a run: parameters, FLOPs, memory and its owners, traffic, step time", 1,
     1, true,
     " --world --json --rank --tensor --from --to --shape --dtype --print-config" LUA_OPTIONS,
     tn_command_plan},
    {"graph", "titan graph RECIPE|FILE.graph [section.key=value ...]",
     "print the graph behind any pass, or check a graph that was printed", 1, 1, true,
     " --world --format --collapse --focus --depth --rank --pass --module --dump-to --dump-pass"
     " --print-config" LUA_OPTIONS,
     tn_command_graph},
    {"parity", "titan parity DIR [section.key=value ...]",
     "compute a Hugging Face folder's golden values and compare", 1, 1, true,
     " -n --log-ranks --out" LUA_OPTIONS, tn_command_parity},
    {"diff", "titan diff RUN_A RUN_B",
     "compare two dump folders: IDENTICAL, or the first step and quantity that differs", 2, 2,
     false, " ", tn_command_diff},
    {"tokenize", "titan tokenize TOKENIZER.json [FILE ...]",
     "text to token ids and back; each line of standard input or the files is a text", 1, INT_MAX,
     false, " --jsonl --special --decode --literal --skip-special --whole --threads ",
     tn_command_tokenize},
    {"doctor", "titan doctor",
     "what this build and this machine offer, and why the rest is not used", 0, 0, false, " ",
     tn_command_doctor},
    {"help", "titan help [COMMAND|SECTION|KEY|OP]", "this text, or one subject", 0, 1, false, " ",
     tn_command_help},
    {"version", "titan --version", "the version", 0, 0, false, " ", tn_command_version},
    {"data", "titan data build|info|show RECIPE|FILE... [section.key=value ...]",
     "tokenise once into a token file, say what is in it, print a sample of a run", 2, INT_MAX,
     true, " --out --json --check --sample --split --threads" LUA_OPTIONS, tn_command_data},
    {"generate", "titan generate FOLDER --prompt TEXT [section.key=value ...]",
     "sample from a Hugging Face folder, also a run's final/", 1, 1, true,
     " --prompt --max-tokens --temperature --top-k --top-p --seed --json" LUA_OPTIONS,
     tn_command_generate},
    {"ckpt", "titan ckpt ls|verify|diff|view|reindex|reshard|cat ...", "look after checkpoints", 0,
     INT_MAX, false, " ", NULL},
    {"convert", "titan convert --to hf|titan|single IN OUT", "Hugging Face folders in and out", 0,
     INT_MAX, false, " ", NULL},
    {"simulate", "titan simulate RECIPE", "step time on hardware that is not here", 0, INT_MAX,
     false, " ", NULL},
    {"import", "titan import FILE.toml", "a TorchTitan configuration as a recipe", 0, INT_MAX,
     false, " ", NULL},
    {"-i", "titan -i [RECIPE] [section.key=value ...]",
     "look at a recipe interactively, or run a script from standard input", 0, 1, true,
     " --world" LUA_OPTIONS, tn_command_repl},
};
const int tn_n_commands = TN_COUNT(tn_commands);

const tn_option tn_options[] = {
    {"-n", "RANKS", "local processes to start"},
    {"--log-ranks", "all|0,3", "whose output to show (0)"},
    {"--quiet", NULL, "show nothing but errors; files are written all the same"},
    {"--world", "N", "ranks to plan for"},
    {"--json", NULL, "the answer for programs"},
    {"--print-config", NULL,
     "print the resolved recipe as Lua and where each value came from, and stop"},
    {"--format", "text|dot|json", "how to print the graph (text)"},
    {"--collapse", "module|layer|stage|none", "what is one box of a drawing (layer)"},
    {"--focus", "NAME", "draw only what is around this value or module"},
    {"--depth", "N", "how many arrows around it (2)"},
    {"--out", "FILE", "where to write: a safetensors file (parity), a token file (data build)"},
    {"--check", NULL, "look at every byte of the token file"},
    {"--sample", "I", "which sample of the run (0)"},
    {"--split", "NAME", "training or validation (training)"},
    {"--rank", "R", "whose program; in a plan: whose place in the mesh, whose slice"},
    {"--tensor", "NAME", "where a parameter, or what a module computes, lies and who holds what"},
    {"--from", "LAYOUT", "a placement, {dp:0 cp:1 tp:R} or ACT(R); the tensor's own if not given"},
    {"--to", "LAYOUT", "how the tensor, or a --shape, would move there, with its bytes"},
    {"--shape", "N,N,...", "global extents of what moves, where it is no --tensor"},
    {"--dtype", "T", "its dtype (f32)"},
    {"--prompt", "TEXT", "what to continue; several times: a batch; - reads standard input"},
    {"--max-tokens", "N", "tokens to add at most (64)"},
    {"--temperature", "T", "0: always the most likely token (0.8)"},
    {"--top-k", "K", "only the K most likely tokens; 0: all (0)"},
    {"--top-p", "P", "only the most likely tokens that reach this share (1)"},
    {"--seed", "S", "of what is drawn (42)"},
    {"--pass", "NAME", "the graph behind this pass"},
    {"--module", "PATH", "only nodes of this module"},
    {"--dump-to", "DIR", "write the graph behind every pass into this folder"},
    {"--dump-pass", "RE", "only passes whose name matches"},
    {"--jsonl", NULL, "a line is an object: \"text\" in and \"ids\" out, or the reverse"},
    {"--special", NULL, "with the ids that the template puts around a text"},
    {"--decode", NULL, "ids to text"},
    {"--literal", NULL, "\"<|eot|>\" in a text is text, not the special token"},
    {"--skip-special", NULL, "leave special tokens out of decoded text"},
    {"--whole", NULL, "a file, not each of its lines, is a text"},
    {"--threads", "N", "threads (all cores)"},
    {"--lua-seconds", "S", "processor time that a recipe may take (10)"},
    {"--lua-memory", "MIB", "memory that a recipe may take (256)"},
};
const int tn_n_options = TN_COUNT(tn_options);

enum { MAX_NAME = 64 };

const tn_command *tn_command_find(const char *name)
{
    for (int i = 0; i < tn_n_commands; i++) {
        if (strcmp(tn_commands[i].name, name) == 0) return &tn_commands[i];
    }
    return NULL;
}

/* ------------------------------------------------------------ values */

static tn_status read_int(const char *option, const char *text, int64_t least, int64_t most,
                          int64_t *out)
{
    char *end;
    errno = 0;
    long long v = strtoll(text, &end, 10);
    if (errno || end == text || *end || v < least || v > most)
        TN_FAIL(TN_BAD_INPUT, "command line: %s %s: must be an integer of at least %lld", option,
                text, (long long)least);
    *out = v;
    return TN_OK;
}

static tn_status read_num(const char *option, const char *text, double least, double most,
                          double *out)
{
    char *end;
    double v = strtod(text, &end);
    if (end == text || *end || !(v >= least && v <= most))
        TN_FAIL(TN_BAD_INPUT, "command line: %s %s: must be a number from %g to %g", option, text,
                least, most);
    *out = v;
    return TN_OK;
}

/* Those of generate and data. */
static tn_status set_sampling(tn_args *a, const char *name, const char *value, bool *done)
{
    *done = true;
    if (!strcmp(name, "--sample")) return read_int(name, value, 0, INT64_MAX, &a->sample);
    if (!strcmp(name, "--max-tokens"))
        return read_int(name, value, 1, (int64_t)1 << 31, &a->max_tokens);
    if (!strcmp(name, "--top-k")) return read_int(name, value, 0, (int64_t)1 << 31, &a->top_k);
    if (!strcmp(name, "--seed")) return read_int(name, value, 0, INT64_MAX, &a->seed);
    if (!strcmp(name, "--temperature")) return read_num(name, value, 0, 1000, &a->temperature);
    if (!strcmp(name, "--top-p")) return read_num(name, value, 0, 1, &a->top_p);
    if (!strcmp(name, "--prompt")) a->prompts[a->n_prompts++] = value;
    else *done = false;
    return TN_OK;
}

static tn_status set_number(tn_args *a, const char *name, const char *value, bool *done)
{
    int64_t v = 0;
    *done = true;
    if (strcmp(name, "-n") == 0) {
        TN_TRY(read_int(name, value, 1, 1 << 20, &v));
        a->ranks = (int)v;
    } else if (strcmp(name, "--world") == 0) {
        TN_TRY(read_int(name, value, 1, 1 << 20, &a->world));
    } else if (strcmp(name, "--depth") == 0) {
        TN_TRY(read_int(name, value, 0, 1 << 20, &v));
        a->depth = (int)v;
    } else if (strcmp(name, "--rank") == 0) {
        TN_TRY(read_int(name, value, 0, 1 << 20, &v));
        a->rank = (int)v;
        a->has_rank = true;
    } else if (strcmp(name, "--threads") == 0) {
        TN_TRY(read_int(name, value, 1, 1024, &v));
        a->threads = (int)v;
    } else if (strcmp(name, "--lua-memory") == 0) {
        TN_TRY(read_int(name, value, 1, 1 << 20, &v));
        a->host.memory_bytes = v << 20;
    } else if (strcmp(name, "--lua-seconds") == 0) {
        char *end;
        a->host.seconds = strtod(value, &end);
        if (end == value || *end || !(a->host.seconds > 0) || a->host.seconds > 1e6)
            TN_FAIL(TN_BAD_INPUT, "command line: %s %s: must be seconds above 0", name, value);
    } else {
        *done = false;
    }
    return TN_OK;
}

static tn_status set_option(tn_args *a, const char *name, const char *value)
{
    bool done;
    TN_TRY(set_number(a, name, value, &done));
    if (!done) TN_TRY(set_sampling(a, name, value, &done));
    if (done) return TN_OK;
    if (strcmp(name, "--json") == 0) a->json = true;
    else if (strcmp(name, "--jsonl") == 0) a->jsonl = true;
    else if (strcmp(name, "--special") == 0) a->special = true;
    else if (strcmp(name, "--decode") == 0) a->decode = true;
    else if (strcmp(name, "--literal") == 0) a->literal = true;
    else if (strcmp(name, "--skip-special") == 0) a->skip_special = true;
    else if (strcmp(name, "--whole") == 0) a->whole = true;
    else if (strcmp(name, "--print-config") == 0) a->print_config = true;
    else if (strcmp(name, "--quiet") == 0) a->quiet = true;
    else if (strcmp(name, "--check") == 0) a->check = true;
    else if (strcmp(name, "--split") == 0) a->split = value;
    else if (strcmp(name, "--out") == 0) a->out = value;
    else if (strcmp(name, "--log-ranks") == 0) a->log_ranks = value;
    else if (strcmp(name, "--pass") == 0) a->pass = value;
    else if (strcmp(name, "--module") == 0) a->module = value;
    else if (strcmp(name, "--dump-to") == 0) a->dump_to = value;
    else if (strcmp(name, "--dump-pass") == 0) a->dump_pass = value;
    else if (strcmp(name, "--tensor") == 0) a->tensor = value;
    else if (strcmp(name, "--from") == 0) a->from = value;
    else if (strcmp(name, "--to") == 0) a->to = value;
    else if (strcmp(name, "--shape") == 0) a->shape = value;
    else if (strcmp(name, "--dtype") == 0) a->dtype = value;
    else if (strcmp(name, "--format") == 0) a->format = value;
    else if (strcmp(name, "--collapse") == 0) a->collapse = value;
    else if (strcmp(name, "--focus") == 0) a->focus = value;
    return TN_OK;
}

/* ------------------------------------------------------------ words */

/* "training.steps=10", "device=cpu" */
static bool is_override(const char *word)
{
    size_t n = strspn(word, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_.");
    return n > 0 && word[n] == '=' && word[0] != '.' && !(word[0] >= '0' && word[0] <= '9');
}

static const tn_option *find_option(const char *name)
{
    for (int i = 0; i < tn_n_options; i++) {
        if (strcmp(tn_options[i].name, name) == 0) return &tn_options[i];
    }
    return NULL;
}

static tn_status unknown_option(const char *word, const char *name, const char *next)
{
    const char *names[TN_COUNT(tn_options)];
    const char *equals = strchr(word, '=');
    if (strchr(name, '.')) {
        const char *value = equals ? equals + 1 : next && next[0] != '-' ? next : "VALUE";
        TN_FAIL(TN_BAD_INPUT, "command line: %s: settings are written without dashes; write %s=%s",
                name, name + 2, value);
    }
    for (int i = 0; i < tn_n_options; i++) names[i] = tn_options[i].name;
    const char *near = tn_text_nearest(name, names, tn_n_options);
    if (near)
        TN_FAIL(TN_BAD_INPUT, "command line: %s: no such option; did you mean %s?", name, near);
    TN_FAIL(TN_BAD_INPUT,
            "command line: %s: no such option; settings are written section.key=value, `titan "
            "help` lists the options",
            name);
}

/* argv[*at] is an option; moves *at over its value. */
static tn_status take_option(tn_args *a, int argc, char **argv, int *at, const tn_option **used)
{
    const char *word = argv[*at], *equals = strchr(word, '='), *value = NULL;
    char name[MAX_NAME];
    size_t n = equals ? (size_t)(equals - word) : strlen(word);
    if (word[0] == '-' && word[1] == 'n' && word[2]) { /* -n4 */
        n = 2;
        value = word + 2;
    } else if (equals) {
        value = equals + 1;
    }
    snprintf(name, sizeof name, "%.*s", (int)n, word);
    const tn_option *o = find_option(name);
    if (!o) return unknown_option(word, name, *at + 1 < argc ? argv[*at + 1] : NULL);
    if (!o->value && value)
        TN_FAIL(TN_BAD_INPUT, "command line: %s: takes no value; leave '=%s' out", name, value);
    if (o->value && !value) {
        if (*at + 1 >= argc)
            TN_FAIL(TN_BAD_INPUT, "command line: %s: its value is missing; write %s %s", name, name,
                    o->value);
        value = argv[++*at];
    }
    if (o->value && !value[0])
        TN_FAIL(TN_BAD_INPUT, "command line: %s: its value is empty; write %s %s", name, name,
                o->value);
    *used = o;
    return set_option(a, name, value);
}

static tn_status check_option(const tn_command *c, const tn_option *o)
{
    char padded[MAX_NAME + 2];
    snprintf(padded, sizeof padded, " %s ", o->name);
    if (strstr(c->options, padded)) return TN_OK;
    const char *of = NULL;
    for (int i = 0; i < tn_n_commands && !of; i++) {
        if (strstr(tn_commands[i].options, padded)) of = tn_commands[i].usage;
    }
    TN_FAIL(TN_BAD_INPUT, "command line: %s: not an option of `%s`; it belongs to `%s %s`", o->name,
            c->usage, of, o->name);
}

/* ------------------------------------------------------------ whole */

/* The first path is a command's name, or the recipe of "train". */
static tn_status choose_command(tn_args *a)
{
    const char *names[TN_COUNT(tn_commands)];
    if (a->command) return TN_OK;
    a->command = a->n_paths ? tn_command_find(a->paths[0]) : NULL;
    if (a->command && strcmp(a->command->name, "train")) {
        a->paths++;
        a->n_paths--;
        return TN_OK;
    }
    if (a->n_paths == 0)
        TN_FAIL(TN_BAD_INPUT,
                "command line: no recipe; `titan RECIPE` trains, `titan help` lists the commands");
    const char *word = a->paths[0];
    bool file =
        strchr(word, '/') || strchr(word, '.') || strcmp(word, "-") == 0 || tn_file_exists(word);
    if (!file && strcmp(word, "train") == 0)
        TN_FAIL(TN_BAD_INPUT, "command line: train: not a command; `titan RECIPE` trains");
    for (int i = 0; i < tn_n_commands; i++) names[i] = tn_commands[i].name;
    if (!file)
        TN_FAIL(TN_BAD_INPUT, "command line: %s: neither a recipe nor a command%s", word,
                tn_text_hint(word, names, tn_n_commands).s);
    a->command = &tn_commands[0];
    return TN_OK;
}

static tn_status check_shape(const tn_args *a)
{
    const tn_command *c = a->command;
    if (!c->run)
        TN_FAIL(TN_BAD_INPUT,
                "command line: %s: this build does not have it yet; `titan help` lists what it has",
                c->name);
    if (a->n_overrides && !c->recipe)
        TN_FAIL(TN_BAD_INPUT, "command line: %s: %s takes no settings; leave it out",
                a->overrides[0], c->name);
    if (a->n_paths < c->min_paths)
        TN_FAIL(TN_BAD_INPUT, "command line: too few words; write %s", c->usage);
    if (a->n_paths > c->max_paths)
        TN_FAIL(TN_BAD_INPUT, "command line: '%s' is too much; write %s", a->paths[c->max_paths],
                c->usage);
    return TN_OK;
}

static tn_status parse(int argc, char **argv, tn_args *a)
{
    const tn_option *used[TN_COUNT(tn_options)];
    int n_used = 0;
    bool only_paths = false;
    for (int i = 1; i < argc; i++) {
        const char *word = argv[i];
        if (only_paths || strcmp(word, "-") == 0) a->paths[a->n_paths++] = word;
        else if (strcmp(word, "--") == 0) only_paths = true;
        else if (strcmp(word, "--help") == 0 || strcmp(word, "-h") == 0)
            a->command = tn_command_find("help");
        else if (strcmp(word, "--version") == 0) a->command = tn_command_find("version");
        else if (strcmp(word, "-i") == 0) a->command = tn_command_find("-i");
        else if (word[0] == '-') {
            const tn_option *o = NULL;
            TN_TRY(take_option(a, argc, argv, &i, &o));
            bool seen = false;
            for (int k = 0; k < n_used; k++) seen |= used[k] == o;
            if (seen && strcmp(o->name, "--prompt"))
                TN_FAIL(TN_BAD_INPUT, "command line: %s: given twice; keep one", o->name);
            if (!seen) used[n_used++] = o;
        } else if (is_override(word)) a->overrides[a->n_overrides++] = word;
        else a->paths[a->n_paths++] = word;
    }
    TN_TRY(choose_command(a));
    TN_TRY(check_shape(a));
    for (int k = 0; k < n_used; k++) TN_TRY(check_option(a->command, used[k]));
    return TN_OK;
}

tn_status tn_args_parse(int argc, char **argv, tn_args *out)
{
    void *paths = NULL, *overrides = NULL, *prompts = NULL;
    *out = (tn_args){
        .ranks = 1, .format = "text", .depth = 2, .max_tokens = 64, .seed = 42, .temperature = 0.8, .top_p = 1};
    TN_TRY(tn_alloc((size_t)argc * sizeof(char *), &paths));
    tn_status st = tn_alloc((size_t)argc * sizeof(char *), &overrides);
    if (!st) st = tn_alloc((size_t)argc * sizeof(char *), &prompts);
    out->owned[2] = out->prompts = prompts;
    out->owned[0] = out->paths = paths;
    out->owned[1] = out->overrides = overrides;
    if (!st) st = parse(argc, argv, out);
    if (st) tn_args_fini(out);
    return st;
}

void tn_args_fini(tn_args *a)
{
    for (int i = 0; i < TN_COUNT(a->owned); i++) tn_free((void *)a->owned[i]);
    *a = (tn_args){0};
}

tn_status tn_args_recipe(const tn_args *a, tn_recipe **out)
{
    tn_recipe_options o = {
        .path = a->paths[0],
        .overrides = a->overrides,
        .n_overrides = a->n_overrides,
        .host = a->host,
    };
    return tn_recipe_open(&o, out);
}
