/* config.json: values come back checked or are refused with their key; both generations of rope
 * keys read the same.
 */
#include "checkpoints/hf_config.h"

#include <stdlib.h>

#include "tests/weights.h"

static tn_hf_config config_of(const char *text)
{
    tn_hf_config c = {0};
    TN_CHECK_OK(tn_hf_config_parse("d/config.json", text, (int64_t)strlen(text), &c));
    return c;
}

static void config_values(void)
{
    tn_hf_config c = config_of("{\"dim\": 64, \"heads\": null, \"eps\": 1e-5, \"tie\": true, "
                               "\"act\": \"silu\", \"neg\": -3,"
                               " \"point\": 64.0, \"deep\": {\"a\": {\"b\": 7}}, \"list\": [1]}");
    const int64_t four = 4;
    const double half = 0.5;
    const bool yes = true;
    static const char *const acts[] = {"gelu", "silu"};
    const tn_hf_config_words any = {0}, legal = {acts, 2, NULL}, gelu_only = {acts, 1, NULL},
                             fallback = {acts, 2, "gelu"};
    int64_t n = 0;
    double x = 0;
    bool b = false;
    const char *s = NULL;
    TN_CHECK_OK(tn_hf_config_int(&c, "dim", 1, 64, NULL, &n));
    TN_CHECK(n == 64);
    TN_CHECK_OK(tn_hf_config_int(&c, "heads", 1, 64, &four, &n)); /* null is absent */
    TN_CHECK(n == 4);
    TN_CHECK_OK(tn_hf_config_int(&c, "deep.a.b", 7, 7, NULL, &n));
    TN_CHECK(n == 7 && !tn_hf_config_find(&c, "deep.b") && !tn_hf_config_find(&c, "dim.a") &&
             tn_hf_config_find(&c, "deep.a"));
    TN_CHECK_FAILS(tn_hf_config_int(&c, "heads", 1, 64, NULL, &n), TN_BAD_INPUT,
                   "d/config.json: heads: missing; it must be a whole number from 1 to 64");
    TN_CHECK_FAILS(
        tn_hf_config_int(&c, "dim", 65, 99, NULL, &n), TN_BAD_INPUT,
        "d/config.json: dim: 64 is no whole number from 65 to 99; nearest legal value 65");
    TN_CHECK_FAILS(tn_hf_config_int(&c, "dim", 1, 63, NULL, &n), TN_BAD_INPUT,
                   "nearest legal value 63");
    TN_CHECK_FAILS(tn_hf_config_int(&c, "neg", 0, 9, &four, &n), TN_BAD_INPUT,
                   "nearest legal value 0");
    TN_CHECK_FAILS(tn_hf_config_int(&c, "point", 1, 99, NULL, &n), TN_BAD_INPUT,
                   "point: is a number; it must be a whole number from 1 to 99");
    TN_CHECK_FAILS(tn_hf_config_int(&c, "act", 1, 99, &four, &n), TN_BAD_INPUT, "act: is a string");
    TN_CHECK(n == 7); /* written on success only */
    TN_CHECK_OK(tn_hf_config_number(&c, "eps", 0, 1, NULL, &x));
    TN_CHECK(x == 1e-5);
    TN_CHECK_OK(tn_hf_config_number(&c, "dim", 0, 100, NULL, &x));
    TN_CHECK(x == 64);
    TN_CHECK_OK(tn_hf_config_number(&c, "absent", 0, 100, &half, &x));
    TN_CHECK(x == 0.5);
    TN_CHECK_FAILS(tn_hf_config_number(&c, "eps", 1e-4, 1, NULL, &x), TN_BAD_INPUT,
                   "eps: 1e-05 is no number from 0.0001 to 1; nearest legal value 0.0001");
    TN_CHECK_FAILS(tn_hf_config_number(&c, "tie", 0, 1, NULL, &x), TN_BAD_INPUT,
                   "tie: is true or false; it must be a number");
    TN_CHECK_FAILS(tn_hf_config_number(&c, "absent", 0, 1, NULL, &x), TN_BAD_INPUT,
                   "absent: missing");
    TN_CHECK_OK(tn_hf_config_bool(&c, "tie", NULL, &b));
    TN_CHECK(b);
    b = false;
    TN_CHECK_OK(tn_hf_config_bool(&c, "absent", &yes, &b));
    TN_CHECK(b);
    TN_CHECK_FAILS(tn_hf_config_bool(&c, "dim", &yes, &b), TN_BAD_INPUT,
                   "dim: is a whole number; it must be true or false");
    TN_CHECK_FAILS(tn_hf_config_bool(&c, "absent", NULL, &b), TN_BAD_INPUT, "absent: missing");
    TN_CHECK_OK(tn_hf_config_string(&c, "act", &any, &s));
    TN_CHECK_TEXT(s, "silu");
    TN_CHECK_OK(tn_hf_config_string(&c, "act", &legal, &s));
    TN_CHECK_OK(tn_hf_config_string(&c, "absent", &fallback, &s));
    TN_CHECK_TEXT(s, "gelu");
    TN_CHECK_FAILS(tn_hf_config_string(&c, "act", &gelu_only, &s), TN_BAD_INPUT,
                   "act: 'silu' is none of 'gelu'; nearest legal value 'gelu'");
    TN_CHECK_FAILS(tn_hf_config_string(&c, "list", &any, &s), TN_BAD_INPUT,
                   "list: is a list; it must be a string");
    TN_CHECK_FAILS(tn_hf_config_string(&c, "absent", &any, &s), TN_BAD_INPUT,
                   "absent: missing; it must be a string");
    tn_hf_config_free(&c);
    tn_hf_config_free(&c);
}

static void config_files(void)
{
    tn_hf_config c = {0};
    tn_weights_folder("cfg");
    TN_CHECK_FAILS(tn_hf_config_read(tn_scratch_path("cfg"), &c), TN_BAD_INPUT,
                   "cfg/config.json: cannot open");
    tn_scratch_text("cfg/config.json", "[1]");
    TN_CHECK_FAILS(tn_hf_config_read(tn_scratch_path("cfg"), &c), TN_BAD_INPUT,
                   "config.json: holds a list; it must be an object");
    tn_scratch_text("cfg/config.json", "{\"a\": 1, \"a\": 2}");
    TN_CHECK_FAILS(tn_hf_config_read(tn_scratch_path("cfg"), &c), TN_BAD_INPUT,
                   "config.json: line 1");
    tn_scratch_text("cfg/config.json", "{\"a\": 123456789012345678901234567890}");
    TN_CHECK_FAILS(tn_hf_config_read(tn_scratch_path("cfg"), &c), TN_BAD_INPUT,
                   "config.json: line 1");
    tn_scratch_text("cfg/config.json", "{\"a\": 1e999}");
    TN_CHECK_FAILS(tn_hf_config_read(tn_scratch_path("cfg"), &c), TN_BAD_INPUT,
                   "config.json: line 1");
    size_t n = (4u << 20) + 1;
    char *blanks = malloc(n);
    memset(blanks, ' ', n);
    tn_scratch_write("cfg/config.json", blanks, n);
    free(blanks);
    TN_CHECK_FAILS(tn_hf_config_read(tn_scratch_path("cfg"), &c), TN_BAD_INPUT, "at most 4.00 MiB");
    TN_CHECK(!c.root && !c.path);
}

static void rope_is(const char *text, const char *type, double theta, double factor)
{
    tn_hf_config c = config_of(text);
    tn_hf_config_rope r = {0};
    const double one = 1;
    double got = 0;
    if (TN_CHECK_OK(tn_hf_config_rope_find(&c, 10000, &r))) {
        TN_CHECK_TEXT(r.type, type);
        TN_CHECK_MSG(r.theta == theta, "%s: theta %g", text, r.theta);
        TN_CHECK_OK(
            tn_hf_config_number(&c, tn_hf_config_rope_key(&r, "factor").s, 0, 1e9, &one, &got));
        TN_CHECK_MSG(got == factor, "%s: factor %g", text, got);
    }
    tn_hf_config_free(&c);
}

static void rope_fails(const char *text, const char *part)
{
    tn_hf_config c = config_of(text);
    tn_hf_config_rope r = {0};
    TN_CHECK_FAILS(tn_hf_config_rope_find(&c, 10000, &r), TN_BAD_INPUT, part);
    tn_hf_config_free(&c);
}

static void rope(void)
{
    rope_is("{}", "default", 10000, 1);
    rope_is("{\"rope_theta\": 5e5, \"rope_scaling\": null}", "default", 5e5, 1);
    rope_is(
        "{\"rope_theta\": 500000, \"rope_scaling\": {\"rope_type\": \"llama3\", \"factor\": 8}}",
        "llama3", 5e5, 8);
    rope_is("{\"rope_scaling\": {\"type\": \"linear\", \"factor\": 2.5}}", "linear", 10000, 2.5);
    rope_is("{\"rope_scaling\": {\"type\": \"yarn\", \"rope_type\": \"yarn\", \"factor\": 4}}",
            "yarn", 10000, 4);
    rope_is("{\"rope_parameters\": {\"rope_type\": \"default\", \"rope_theta\": 1e6}}", "default",
            1e6, 1);
    rope_is(
        "{\"rope_parameters\": {\"rope_type\": \"llama3\", \"rope_theta\": 5e5, \"factor\": 8.0}}",
        "llama3", 5e5, 8);
    rope_is("{\"rope_parameters\": {\"rope_theta\": 5e5}}", "default", 5e5, 1);
    rope_is("{\"rope_theta\": 5e5, \"rope_parameters\": {\"rope_theta\": 500000, \"rope_type\": "
            "\"llama3\", "
            "\"factor\": 8},"
            " \"rope_scaling\": {\"type\": \"llama3\", \"factor\": 8.0}}",
            "llama3", 5e5, 8);
    rope_fails(
        "{\"rope_theta\": 1, \"rope_parameters\": {\"rope_theta\": 2}}",
        "d/config.json: rope_theta: 1, but rope_parameters.rope_theta says 2; keep one of them");
    rope_fails("{\"rope_theta\": 0}", "rope_theta: 0 is no number");
    rope_fails("{\"rope_theta\": \"x\"}", "rope_theta: is a string");
    rope_fails("{\"rope_parameters\": {\"rope_theta\": -5}}",
               "rope_parameters.rope_theta: -5 is no number");
    rope_fails("{\"rope_scaling\": {\"factor\": 2}}", "rope_scaling.rope_type: missing");
    rope_fails("{\"rope_scaling\": {\"type\": \"linear\", \"rope_type\": \"yarn\"}}",
               "'yarn', but rope_scaling.type says 'linear'");
    rope_fails("{\"rope_scaling\": {\"rope_type\": 4}}",
               "rope_scaling.rope_type: is a whole number");
    rope_fails("{\"rope_scaling\": 8}", "rope_scaling: is a whole number; it must be an object");
    rope_fails("{\"rope_parameters\": []}", "rope_parameters: is a list; it must be an object");
    rope_fails("{\"rope_parameters\": {\"full_attention\": {\"rope_theta\": 1}}}",
               "rope_parameters.full_attention: is an object; parameters for each layer type are "
               "not supported");
    rope_fails("{\"rope_parameters\": {\"rope_type\": \"llama3\"}, \"rope_scaling\": {\"type\": "
               "\"llama3\", "
               "\"factor\": 8}}",
               "rope_scaling.factor: differs from rope_parameters");
    rope_fails("{\"rope_parameters\": {\"factor\": 4}, \"rope_scaling\": {\"factor\": 8}}",
               "rope_scaling.factor: differs from rope_parameters");
}

static void dtype_is(const char *text, const char *want)
{
    tn_hf_config c = config_of(text);
    const char *got = "";
    TN_CHECK_OK(tn_hf_config_dtype(&c, &got));
    TN_CHECK_MSG(want ? got && strcmp(got, want) == 0 : !got, "%s: dtype %s", text,
                 got ? got : "(none)");
    tn_hf_config_free(&c);
}

static void dtypes(void)
{
    const char *got = NULL;
    dtype_is("{}", NULL);
    dtype_is("{\"dtype\": \"float32\"}", "float32");
    dtype_is("{\"torch_dtype\": \"bfloat16\"}", "bfloat16");
    dtype_is("{\"torch_dtype\": \"bfloat16\", \"dtype\": \"bfloat16\"}", "bfloat16");
    tn_hf_config c = config_of("{\"torch_dtype\": \"bfloat16\", \"dtype\": \"float16\"}");
    TN_CHECK_FAILS(tn_hf_config_dtype(&c, &got), TN_BAD_INPUT,
                   "dtype: 'float16', but torch_dtype says 'bfloat16'");
    tn_hf_config_free(&c);
}

static tn_status parse_again(void *arg)
{
    tn_hf_config c = {0};
    TN_TRY(tn_hf_config_read(arg, &c));
    tn_hf_config_free(&c);
    return TN_OK;
}

int main(void)
{
    config_values();
    config_files();
    rope();
    dtypes();
    tn_scratch_text("cfg/config.json", "{\"a\": 1}");
    TN_CHECK(tn_test_each_alloc(parse_again, (void *)(uintptr_t)tn_scratch_path("cfg")) >= 5);
    return tn_test_done("hf_config");
}
