#!/usr/bin/env python3
"""Recipes that cannot work, and what titan says: one clear line, exit 2, nothing written. And the recipes that can."""
# variants: asan
import os
import re
import subprocess

from testing import TITAN, TOP, check, done, listing, run, temporary

HEAD = 'local titan = require "titan"\nlocal llama3 = require "models.llama3"\n'
GOOD = HEAD + """return titan.recipe {
  model = llama3.debug { vocab_size = 256, n_layers = 2 },
  data = { source = "random" },
  training = { steps = 2, seq_len = 32, local_batch_size = 2 },
  optimizer = { lr = 1e-3 },
  device = "cpu",
}
"""
MODEL = "llama3.debug { vocab_size = 256, n_layers = 2 }"


def with_line(line):
    """A good recipe with one more line, which is line 9 (device stands in line 8)."""
    return GOOD.replace('  device = "cpu",\n', '  device = "cpu",\n  %s\n' % line)


def section(keys, name="training"):
    return HEAD + "return titan.recipe {\n  model = llama3.debug {},\n  %s = { %s },\n}\n" % (name, keys)


# (what the recipe is, what the first line of the error must hold); LINE is r.lua's line of the wrong thing
RECIPES = [
    # keys
    (section("stps = 3"), "r.lua:5: training.stps: unknown key; did you mean steps?"),
    (section("learning_rate = 1"), "r.lua:5: training.learning_rate: unknown key; did you mean optimizer.lr?"),
    (section("batch_size = 1"), "r.lua:5: training.batch_size: unknown key; did you mean local_batch_size?"),
    (section("tp_degree = 2", "parallelism"), "r.lua:5: parallelism.tp_degree: unknown key; did you mean tensor_parallel_degree?"),
    (section("tensor_model_parallel_size = 1", "parallelism"), "unknown key; did you mean tensor_parallel_degree?"),
    (section("warmup_steps = 3"), "r.lua:5: training.warmup_steps: unknown key; did you mean lr_scheduler.warmup_steps?"),
    (section("zzzzqqqq = 3"), "r.lua:5: training.zzzzqqqq: unknown key; `titan help training` lists its keys"),
    (section("[1] = 3"), "r.lua:5: training[1]: values need names; training = { key = value }"),
    (section("x = 1", "optimiser"), "r.lua:5: optimiser: unknown section; did you mean optimizer?"),
    (section("enable = true", "compile"), "r.lua:5: compile: unknown section; leave it out: every run is a planned"),
    (section("enable = true", "validator"), "r.lua:5: validator: unknown section; did you mean validation?"),
    (with_line("steps = 3,"), "r.lua:9: steps: unknown section; did you mean training = { steps = ... }?"),
    (with_line("{},"), "[1]: sections have names; training = { ... }"),
    (section("tp = 1, tensor_parallel_degree = 1", "parallelism"), "is another name of parallelism."),
    (section("seed = 1 }, debug = { seed = 2"), "training.seed: is another name of debug.seed, which is given too; keep one of them"),
    # values
    (section("steps = 0"), "r.lua:5: training.steps = 0: must be an integer of at least 1; the nearest is 1"),
    (section("steps = 2.5"), "training.steps = 2.5: must be an integer of at least 1; the nearest is 3"),
    (section('steps = "10"'), 'training.steps = "10": must be an integer of at least 1; write 10, without quotes'),
    (section("steps = {}"), "training.steps = {}: must be an integer of at least 1"),
    (section("steps = print"), "training.steps = a function: must be an integer of at least 1"),
    (section("max_norm = 0/0"), "training.max_norm = 0/0: must be a finite number"),
    (section("max_norm = math.huge"), "training.max_norm = math.huge: must be a finite number"),
    (section('dtype = "bf16"'), 'training.dtype = "bf16": must be one of float32, bfloat16; did you mean "bfloat16"?'),
    (section('name = "adamw"', "optimizer"), 'optimizer.name = "adamw": must be one of AdamW, Adam, SGD, Muon; did you mean "AdamW"?'),
    (section('name = "Muon"', "optimizer"), 'optimizer.name = "Muon": this build cannot do that yet; use AdamW or Adam or SGD'),
    (section("betas = { 0.9 }", "optimizer"), "must be a list of 2 numbers, each of at least 0 and below 1, not of 1"),
    (section("betas = { 0.9, 1.5 }", "optimizer"), "item 2 = 1.5: must be a number of at least 0 and below 1"),
    (section("groups = { { lr = 1 } }", "optimizer"), "optimizer.groups = { { lr = 1 } }: item 1 = { lr = 1 }: needs pattern"),
    (section("groups = { { pattern = 'x', lrr = 1 } }", "optimizer"), "has no key \"lrr\"; did you mean lr?"),
    (section("decay_ratio = 1.5", "lr_scheduler"), "lr_scheduler.decay_ratio = 1.5: must be a number from 0 to 1; the nearest is 1"),
    (section("reduce_grid = { 8, 6, 8 }", "debug"), "item 2 = 6: must be a power of two from 1 to 256; the nearest is 8"),
    (section("enable = 1", "validation"), "validation.enable = 1: must be true or false; write true"),
    (section("path = 3", "data"), 'data.path = 3: must be a path, or a list of items; write "3"'),
    (section("path = {}", "data"), "data.path = {}: must not be empty"),
    (section("tp = 2", "parallelism"), "parallelism.data_parallel_shard_degree: pp 1 x dp_replicate 1 x dp_shard 1 x cp 1 x tp 2 is 2, the run has 1 rank"),
    (section("cp = 2", "parallelism"), "parallelism.context_parallel_degree = 2: this build cannot do that yet; leave it at 1"),
    (section("enable = true", "checkpoint"), "checkpoint.enable = true: this build has no checkpoints yet; leave it at false"),
    (with_line("training = 3,"), "training = 3: must be a table; training = { ... }"),
    (GOOD.replace('"cpu"', '"gpu"'), 'r.lua:8: device.kind = "gpu": must be one of auto, cpu, cuda; did you mean "cuda"?'),
    # the model
    (HEAD + "return titan.recipe { training = {} }", "r.lua:3: model: is missing; for example model = llama3.debug"),
    (GOOD.replace("llama3.debug {", "{"), "r.lua:4: model: is a table that no model function returned"),
    (GOOD.replace(MODEL, '"llama3"'), 'r.lua:4: model: must be what a model function returns, not "llama3"'),
    (GOOD.replace("n_layers", "n_layer"), "r.lua:4: "),
    (GOOD.replace("llama3.debug", "llama3.debgu"), "r.lua:4: "),
    (GOOD.replace(MODEL, '{ hf = "nowhere" }'), "nowhere"),
    # the file
    ("return {}", "r.lua: must end with `return titan.recipe { ... }`"),
    ("", "r.lua: must end with `return titan.recipe { ... }`"),
    (HEAD + "return titan.recipe(3)", "takes a table of sections, not 3"),
    (HEAD + "return titan.recipe {\n  model = \n}", "r.lua:5: unexpected symbol near '}'"),
    (HEAD + "return titan.recipe {", "r.lua:3: unexpected symbol near <eof>"),
    ("return titan.recipe {}", "r.lua:1: undefined name 'titan'"),
    (HEAD + "retrun titan.recipe {}", "r.lua:3: syntax error near 'titan'"),
    (HEAD + "x = 3", "r.lua:3: 'x' would be a global; write 'local x = ...'"),
    (HEAD + "local t = titan.recipee {}", "r.lua:3: "),
    ('require "modles.llama3"', "r.lua:1: no module 'modles.llama3'"),
    ('require "../secret"', "r.lua:1: '../secret' is no module name"),
    ('require "/etc/passwd"', "is no module name"),
    ("os.execute 'touch made'", "r.lua:1: 'os' is not available in a recipe; a recipe cannot reach"),
    ("io.open('made', 'w')", "r.lua:1: 'io' is not available in a recipe"),
    ("debug.getregistry()", "r.lua:1: 'debug' is not available in a recipe"),
    ("dofile('/etc/passwd')", "r.lua:1: 'dofile' is not available in a recipe; use require"),
    ("error 'stop'", "r.lua:1: stop"),
    ("error {}", "r.lua:1: an error that is no text but table"),
    ("local t = nil\nreturn t.x", "r.lua:2: attempt to index a nil value (local 't')"),
    ("local function f() return 1 + f() end\nf()", "r.lua:1: stack overflow; a function calls itself without end"),
    ("return ('x'):rep(1 << 40)", "string.rep: a text of 1048576"),
    ("load('\\27Lua')", "load takes text; precompiled Lua is refused"),
    ("setmetatable({}, { __gc = function() end })", "a recipe cannot have finalizers"),
]

# run with --lua-seconds 0.2
LOOPS = [
    "while true do end",
    "while true do pcall(error) end",
    "while true do pcall(function() while true do end end) end",
    "local function f() while true do end end xpcall(f, f)",
    # inside Lua's C libraries, where no hook looks
    'local s = ("a"):rep(300) return s:find(("a*"):rep(20) .. "b")',
    "table.move({}, 1, 1 << 60, 2)",
    "table.insert(setmetatable({}, { __len = function() return 1 << 60 end }), 1, 1)",
]

# run with --lua-memory 16
BOMBS = [
    "local t = {}\nwhile true do t[#t + 1] = { #t } end",
    "local s = 'x'\nwhile true do s = s .. s end",
    "local t = {}\nwhile true do t[#t + 1] = ('x'):rep(1 << 20) .. #t end",
    "local t = {}\nwhile true do pcall(function() for i = 1, 1e9 do t[#t + 1] = { i } end end) end",
]

# (arguments behind a good recipe r.lua, what the error must hold)
COMMAND_LINES = [
    (["training.stps=3"], "command line: training.stps: unknown key; did you mean steps?"),
    (["trainning.steps=3"], "command line: trainning.steps: unknown section; did you mean training?"),
    (["steps=3"], "command line: steps=3: overrides are section.key=value; write training.steps=3"),
    (["training={steps=3}"], "command line: training={steps=3}: overrides are section.key=value"),
    (["training.steps="], "command line: training.steps=: a value is missing; must be an integer of at least 1"),
    (["training.steps=ten"], 'command line: training.steps = "ten": must be an integer of at least 1'),
    (["training.steps=0"], "command line: training.steps = 0: must be an integer of at least 1; the nearest is 1"),
    (["optimizer.betas=0.9"], "optimizer.betas = { 0.9 }: must be a list of 2 numbers"),
    (["optimizer.betas={0.9,0.95"], "command line: optimizer.betas={0.9,0.95: a list ends with }"),
    (["parallelism.tp=1", "parallelism.tensor_parallel_degree=1"], "is another name of parallelism.tp, which is given too; keep one"),
    (["model.n_layer=4"], "command line: model.n_layer: "),
    (["model.hidden_size=64"], "command line: model.hidden_size: unknown key; did you mean dim?"),
    (["model.n_layers=4.5"], "command line: model.n_layers: "),
    (["model.rope.thetta=1e4"], "command line: model.rope.thetta: "),
    (["device=tpu"], "command line: device.kind = \"tpu\": must be one of auto, cpu, cuda"),
    (["--training.steps", "10"], "command line: --training.steps: settings are written without dashes; write training.steps=10"),
    (["--training.steps=10"], "write training.steps=10"),
    (["--print-confg"], "command line: --print-confg: no such option; did you mean --print-config?"),
    (["--zzz"], "command line: --zzz: no such option; settings are written section.key=value"),
    (["--world"], "command line: --world: its value is missing; write --world N"),
    (["--world", "4"], "--world: not an option of `titan RECIPE [section.key=value ...]`; it belongs to `titan plan RECIPE"),
    (["--json=yes"], "command line: --json: takes no value"),
    (["-n", "0"], "command line: -n 0: must be an integer of at least 1"),
    (["-n", "0"], "command line: -n 0: must be an integer of at least 1"),
    (["-n"], "command line: -n: its value is missing; write -n RANKS"),
    (["--lua-seconds", "0"], "command line: --lua-seconds 0: must be seconds above 0"),
    (["--lua-memory", "1", "--lua-memory", "2"], "command line: --lua-memory: given twice; keep one"),
    (["second.lua"], "command line: 'second.lua' is too much; write titan RECIPE"),
]

# whole command lines
OTHERS = [
    ([], "command line: no recipe; `titan RECIPE` trains, `titan help` lists the commands"),
    (["missing.lua"], "missing.lua: cannot open: No such file or directory"),
    (["plann", "r.lua"], "command line: plann: neither a recipe nor a command; did you mean 'plan'?"),
    (["train", "r.lua"], "command line: train: not a command; `titan RECIPE` trains"),
    (["."], ".: a folder; name the recipe's file"),
    (["plan"], "command line: too few words; write titan plan RECIPE"),
    (["plan", "r.lua", "training.stps=3"], "command line: training.stps: unknown key; did you mean steps?"),
    (["graph", "r.lua", "training.stps=3"], "command line: training.stps: unknown key; did you mean steps?"),
    (["diff", "a"], "command line: too few words; write titan diff RUN_A RUN_B"),
    (["doctor", "training.steps=3"], "command line: training.steps=3: doctor takes no settings; leave it out"),
    (["help", "training.stps"], "command line: help training.stps: no such subject; did you mean training.steps?"),
    (["ckpt", "x", "y"], "command line: ckpt: this build does not have it yet"),
    (["-i", "training.steps=3"], "command line: training.steps=3: settings belong to a recipe"),
    (["graph", "r.lua", "--format", "svg"], "command line: --format svg: must be text, dot or json"),
]


def refused(what, got, want, folder, before):
    """One clear line, exit 2, nothing on standard output, nothing written."""
    lines = got.stderr.splitlines()
    said = "%s\n  exit %d, stdout %r, stderr:\n%s" % (what, got.returncode, got.stdout[:200], got.stderr)
    good = check(got.returncode == 2, "exit status: " + said)
    good = good and check(lines and lines[0].startswith("titan: error: ") and len(lines[0]) < 400, "form: " + said)
    good = good and check(all(line.startswith("    ") for line in lines[1:]), "one error, then indented context: " + said)
    good = good and check(want in lines[0] or any(want in line for line in lines), "expected %r: %s" % (want, said))
    good = good and check(got.stdout == "", "standard output: " + said)
    return good and check(listing(folder) == before, "files were written: " + said)


def put(folder, name, text):
    with open(os.path.join(folder, name), "w") as f:
        f.write(text)


def test_wrong_inputs(folder):
    for text, want in RECIPES:
        put(folder, "r.lua", text)
        before = listing(folder)
        refused(text, run("r.lua", cwd=folder), want, folder, before)
    for text in LOOPS:
        put(folder, "r.lua", text)
        before = listing(folder)
        got = run("r.lua", "--lua-seconds", "0.2", cwd=folder, timeout=60)
        refused(text, got, "r.lua:1: the recipe ran longer than 0.2 s; is there a loop without an end?", folder, before)
    for text in BOMBS:
        put(folder, "r.lua", text)
        before = listing(folder)
        got = run("r.lua", "--lua-memory", "16", cwd=folder)
        refused(text, got, "r.lua:2: the recipe needs more than 16 MiB of memory", folder, before)
    put(folder, "r.lua", GOOD)
    before = listing(folder)
    for args, want in COMMAND_LINES:
        refused(args, run("r.lua", *args, cwd=folder), want, folder, before)
    for args, want in OTHERS:
        refused(args, run(*args, cwd=folder), want, folder, before)


def test_strange_files(folder):
    """Bytecode, a pipe, a huge file, a module behind a link."""
    with open(os.path.join(folder, "code.lua"), "wb") as f:
        f.write(b"\x1bLuaT\x00\x19\x93\r\n\x1a\n\x04\x08\x08xV")
    os.mkfifo(os.path.join(folder, "pipe.lua"))
    with open(os.path.join(folder, "huge.lua"), "wb") as f:
        f.truncate(1 << 33)
    put(folder, "zeros.lua", "\0" * 1000)
    own = os.path.join(folder, "own")
    os.mkdir(own)
    put(folder, "secret.lua", "return 1")
    put(own, "r.lua", 'require "link"')
    os.symlink("../secret.lua", os.path.join(own, "link.lua"))
    before = listing(folder)
    for name, want in [("code.lua", "code.lua: this is precompiled Lua; titan reads text only"),
                       ("pipe.lua", "pipe.lua: not a regular file"), ("huge.lua", "huge.lua: 8.00 GiB"),
                       ("zeros.lua", "zeros.lua:1: "), ("own/r.lua", "own/link.lua: a link that leads out of its folder")]:
        refused(name, run(name, cwd=folder), want, folder, before)


def config(folder, *args, **kw):
    got = run(*args, "--print-config", cwd=folder, **kw)
    check(got.returncode == 0 and got.stderr == "", "%s: exit %d: %s" % (args, got.returncode, got.stderr))
    return got.stdout


def value_of(text, key):
    found = re.search(r"^ *%s = (.*?),? *(?:-- (.*))?$" % key, text, re.M)
    return found.groups() if found else (None, None)


def test_config(folder):
    put(folder, "r.lua", GOOD)
    text = config(folder, "r.lua", "training.steps=7", "optimizer.betas=0.8,0.9", "job.description=two words",
                  "lr_scheduler.decay_ratio=0.5",
                  "parallelism.dp_shard=1", "debug.seed=7", "model.n_layers=3", "device=auto", "data.path={a.txt,b.txt}",
                  'optimizer.groups={{pattern="norm$",weight_decay=0}}')
    for key, want, where in [("steps", "7", "command line"), ("seq_len", "32", "r.lua:6"), ("betas", "{ 0.8, 0.9 }", "command line"),
                             ("description", '"two words"', "command line"), ("decay_ratio", "0.5", "command line"),
                             ("seed", "42", "default"), ("lr", "0.001", "r.lua:7"), ("kind", '"auto"', "command line"),
                             ("data_parallel_shard_degree", "1", "command line"), ("path", '{ "a.txt", "b.txt" }', "command line"),
                             ("groups", '{ { pattern = "norm$", weight_decay = 0.0 } }', "command line"),
                             ("mixed_precision_param", '"float32"', "default for cpu")]:
        check(value_of(text, key) == (want, where), "%s: %r" % (key, value_of(text, key)))
    check(re.search(r'model = require\("models.llama3"\).debug \{ n_layers = 3, vocab_size = 256 \}', text), "the model: " + text[:300])
    check(text.count("seed = 7") == 1, "debug.seed is training.seed")
    put(folder, "again.lua", text)
    again = config(folder, "again.lua")
    plain = [re.sub(r" *-- .*$", "", t, flags=re.M) for t in (text, again)]
    check(plain[0] == plain[1], "the printed recipe, run again, gives the same recipe")
    text = config(folder, "r.lua", "training.steps=3", "training.steps=4", "optimizer.lr=nil", "lr_scheduler.total_steps=nil")
    check(value_of(text, "steps")[0] == "4", "the last of two overrides wins")
    check(value_of(text, "lr") == ("0.0008", "default"), "nil brings the default back: %r" % (value_of(text, "lr"),))
    piped, named = config(folder, "-", stdin=GOOD), config(folder, "r.lua")
    check(piped.splitlines()[1:] == named.replace("r.lua:", "standard input:").splitlines()[1:], "standard input")
    cuda = value_of(config(folder, "r.lua", "device=cuda"), "mixed_precision_param")
    check(cuda == ('"bfloat16"', "default for cuda"), "cuda defaults: %r" % (cuda,))


def test_shipped():
    folder = os.path.join(TOP, "recipes")
    for name in sorted(os.listdir(folder)):
        if name.endswith(".lua"):
            config(TOP, "recipes/" + name)


def test_modules(folder):
    """A recipe's own folder: modules, print, and that the working folder does not matter."""
    os.mkdir(os.path.join(folder, "mine"))
    put(folder, "mine/common.lua", "return { steps = 11 }")
    put(folder, "mine/r.lua", GOOD.replace("return titan", 'local common = require "common"\nprint("said", common.steps)\nreturn titan')
        .replace("steps = 2", "steps = common.steps"))
    for cwd, path in ((folder, "mine/r.lua"), (os.path.join(folder, "mine"), "r.lua"), ("/", os.path.join(folder, "mine/r.lua"))):
        got = run(path, "--print-config", cwd=cwd)
        check(got.returncode == 0 and got.stderr == "said\t11\n", "modules from %s: %s" % (cwd, got.stderr))
        check(value_of(got.stdout, "steps")[0] == "11", "a module's value")


def test_help():
    got = run("help")
    check(got.returncode == 0 and "titan plan RECIPE" in got.stdout and "lr_scheduler" in got.stdout, "help: " + got.stderr)
    for topic, want in [("training", "local_batch_size"), ("training.steps", "default 10000"), ("steps", "training.steps"),
                        ("tp", "tensor_parallel_degree"), ("optimizer.groups", "pattern"), ("plan", "--world"), ("rmsnorm", "factors"),
                        ("ops", "attention"), ("device", "device = VALUE"), ("quantize", "float8"), ("model", "hf"), ("data", "source")]:
        got = run("help", topic)
        check(got.returncode == 0 and want in got.stdout, "help %s: exit %d %s%s" % (topic, got.returncode, got.stdout[:200], got.stderr))
    check(run("--help").stdout == run("help").stdout == run("-h").stdout, "--help and -h")
    check(run("plan", "--help").stdout == run("help", "plan").stdout, "COMMAND --help")
    check(re.match(r"titan \d+\.\d+\.\d+\n$", run("--version").stdout), "--version")
    got = run("doctor")
    check(got.returncode == 0 and all(w in got.stdout for w in ("portable", "threads", "Lua 5.4", "MPI", "cuda driver", "HDF5")),
          "doctor: " + got.stdout)


def test_output():
    """A reader that leaves is no error; a full disk is."""
    got = subprocess.run("'%s' help 2>&1 | head -1; echo ${PIPESTATUS[0]}" % TITAN, shell=True, executable="/bin/bash",
                         stdout=subprocess.PIPE, universal_newlines=True)
    check(got.stdout.endswith("\n0\n") and got.stdout.count("\n") == 2, "help | head: %r" % got.stdout)
    if os.path.exists("/dev/full"):
        with open("/dev/full", "w") as full:
            got = subprocess.run([TITAN, "help"], stdout=full, stderr=subprocess.PIPE, universal_newlines=True)
        check(got.returncode == 1 and got.stderr.startswith("titan: error: standard output: cannot write:"), "full: %r" % got.stderr)


with temporary() as one, temporary() as two, temporary() as three, temporary() as four:
    test_wrong_inputs(one)
    test_strange_files(two)
    test_config(three)
    test_modules(four)
test_shipped()
test_help()
test_output()
done("recipes")
