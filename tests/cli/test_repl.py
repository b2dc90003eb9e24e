#!/usr/bin/env python3
"""titan -i: a dialogue through a pseudo terminal (completion, history, multi-line input, an error, an interruption), a script from
standard input, and that every answer fits 80 columns and says the same as the commands."""
# variants: asan
import json
import os
import pty
import re
import select
import signal
import subprocess
import time

from testing import TITAN, TOP, check, done, run, skip, temporary

RECIPE = "recipes/llama3_debug.lua"


def script(text, *args, **kw):
    return run("-i", *args, stdin=text, **kw)


# ---------------------------------------------------------------------------------------------------- a script
got = script('x = 41\nx + 1\nfor i = 1, 2 do\n  print(i * x)\nend\n"two", 3\nlocal a = 1\nnil\nreturn 7\n{ 1, b = "c" }\n')
check(got.returncode == 0 and got.stdout == '42\n41\n82\ntwo\n3\n7\n{\n  1 = 1\n  b = "c"\n}\n',
      "a script: exit %d, %r %r" % (got.returncode, got.stdout, got.stderr))

# errors are told with their line, and the next piece runs
got = script('nope\nprnt(1)\nlayout("norm.weight")\nfor\n', )
check(got.returncode == 1 and "input:1: undefined name 'nope'" in got.stderr and "did you mean 'print'" in got.stderr and
      "no recipe is open" in got.stderr and "<eof>" in got.stderr and "4 of its pieces" in got.stderr,
      "errors: exit %d, %s" % (got.returncode, got.stderr))
got = script('1 + nil\nsyntax error here\nerror("boom")\npcall(error, "held")\n"after"\n')
check("input:1: attempt to perform arithmetic" in got.stderr and "input:2: " in got.stderr and "input:3: boom" in got.stderr and
      got.stdout == "false\nheld\nafter\n", "errors do not end it: %r %r" % (got.stdout, got.stderr))
got = script('os.exit(1)\nlocal function f() return f() + 1 end f()\nstring.rep("x", 1 << 40)\n'
             'local t = {} while true do t[#t + 1] = ("x"):rep(1e6) .. #t end\n"after"\n')
check(got.stdout == "after\n" and got.stderr.count("error: ") == 5, "limits do not end it: %r %r" % (got.stdout, got.stderr))
for words, text in ((("-i", "nothing.lua"), "nothing.lua"), (("-i", RECIPE, "training.stepz=3"), "did you mean steps"),
                    (("-i", "training.steps=3"), "titan -i RECIPE"), (("-i", "a.lua", "b.lua"), "too much"), (("-i", "-"), "standard input")):
    got = run(*words, stdin="1\n")
    check(got.returncode == 2 and text in got.stderr and not got.stdout, "%s: exit %d: %s" % (words, got.returncode, got.stderr))

# ---------------------------------------------------------------------------------------------------- answers
ANSWERS = ['model()', 'mesh()', 'mesh(3)', 'layout("layers.0.attention.wq.weight")', 'layout("layers.1.feed_forward", 2)',
           'move("layers.0.attention.wq.weight", "{dp:R cp:R tp:R}")', 'graph("layers.0")', 'graph("norm", "trace")', 'memory()',
           'plan()', 'config("training")', 'help()', 'help("training")', 'help("training.steps")', 'help("rmsnorm")',
           'help("layout")']
LAYOUTS = [(), ("--world", "4", "parallelism.tp=2"), ("--world", "8", "parallelism.pp=2", "parallelism.tp=2", "training.local_batch_size=8")]
for layout in LAYOUTS:
    for ask in ANSWERS:
        if "3" in ask and not layout or ", 2)" in ask and not layout:
            ask = ask.replace("3", "0").replace("2", "0")
        got = script(ask + "\n", RECIPE, *layout)
        wide = [l for l in got.stdout.split("\n") if len(l) > 80]
        check(got.returncode == 0 and len(got.stdout) > 20 and (not wide or ask.startswith("config")),
              "%s of %s: exit %d %s: %s" % (ask, layout, got.returncode, got.stderr, wide[:1]))

plan = json.loads(run("plan", RECIPE, "--json").stdout)
got = script("model()\nmemory()\n", RECIPE)
check("(%d)" % plan["parameters"] in got.stdout, "model() counts as the plan does")
bars = [l.split("|")[1] for l in got.stdout.split("\n") if re.match(r" *[\d.]+ [mu]?s .*\|", l)]
check(len(bars) == 20 and max(len(b.rstrip()) for b in bars) == 36, "the chart's longest bar is its peak: %s" % bars)
check(plan["memory"]["parameters"] == plan["parameters"] * 4, "the plan's own sums")
got = script('layout("layers.0.attention.wq.weight", 3)\n', RECIPE, "--world", "4", "parallelism.tp=2")
same = run("plan", RECIPE, "--world", "4", "parallelism.tp=2", "--tensor", "layers.0.attention.wq.weight", "--rank", "3")
check(got.stdout == same.stdout and "rank 3" in got.stdout, "layout() is what titan plan --tensor says")
got = script('set("parallelism.tp=8")\nworld(64)\nmesh()\nset("parallelism.tp=3")\nworld(16)\nset("parallelism.tp=4", "training.seq_len=64")\nmesh()\n'
             'world(0)\nopen("recipes/llama3_8b.lua")\nmodel()\n', RECIPE)
check("64 ranks" in got.stdout and re.search(r"tp +8 ", got.stdout) and re.search(r"tp +4 ", got.stdout) and "8.03B" in got.stdout and
      "1 of its pieces" in got.stderr and "3 neither" in got.stderr, "settings and worlds: %r %s" % (got.stdout[-2000:], got.stderr))
got = script('layout("layers.0.attention.wq.wieght")\ngraph("layers.99")\nhelp("training.stepz")\nmodle()\nlayout(3, {})\nmesh(99)\nset("x")\n'
             'graph("norm", "nopass")\nconfig("trainign")\n', RECIPE)
check(got.stderr.count("did you mean") >= 4 and got.stderr.count("\nerror: ") == 8 and got.returncode == 1, "wrong names: " + got.stderr)

with temporary() as folder:
    runs = [os.path.join(folder, n) for n in "ab"]
    for i, out in enumerate(runs):
        run(RECIPE, "data.source=random", "training.steps=2", "training.seq_len=16", "metrics.log_freq=1", "job.dump_folder=" + out,
            "training.seed=%d" % i, "model.n_layers=1")
    got = script('diff("%s", "%s")\ndiff("%s", "%s")\ndiff("%s", "none")\n' % (runs[0], runs[0], runs[0], runs[1], runs[0]))
    check("IDENTICAL" in got.stdout and "DIFFERENT: step 1: loss" in got.stdout and "no such folder" in got.stderr,
          "diff: %r %r" % (got.stdout, got.stderr))


# ---------------------------------------------------------------------------------------------------- a terminal
def plain(text):
    """Without what moves the cursor: an editor goes to the end of the word and writes on."""
    return re.sub(r"\r\x1b\[\d+G|\x1b\[\d*[CK]", "", text)


class Terminal:
    """titan -i on a pseudo terminal of 80 columns; what it shows is collected until a text appears."""

    def __init__(self, folder, *args):
        self.pid, self.fd = pty.fork()
        if self.pid == 0:
            os.chdir(TOP)
            env = {"PATH": os.environ["PATH"], "TERM": "xterm", "HOME": folder, "COLUMNS": "80",
                   # libedit keeps the names of EL_ADDFN for ever
                   "ASAN_OPTIONS": os.environ.get("ASAN_OPTIONS", "") + ":detect_leaks=0"}
            os.execvpe(TITAN, [TITAN, "-i"] + list(args), env)
        self.seen, self.at = "", 0

    def wait(self, text, seconds=60):
        """Until `text` appears behind what the last wait found; what came up to it."""
        end = time.time() + seconds
        while True:
            found = self.seen.find(text, self.at)
            if found >= 0:
                out = self.seen[self.at:found + len(text)]
                self.at = found + len(text)
                return out
            if time.time() > end or not select.select([self.fd], [], [], max(0.01, end - time.time()))[0]:
                check(False, "the terminal never showed %r; it showed %r" % (text, self.seen[self.at:]))
                return ""
            try:
                self.seen = plain(self.seen + os.read(self.fd, 65536).decode("utf-8", "replace"))
            except OSError:
                check(False, "it ended before it showed %r: %r" % (text, self.seen[self.at:]))
                return ""

    def type(self, text):
        os.write(self.fd, text.encode())

    def end(self):
        """Ctrl-D until it has ended: the editor takes the terminal over just behind its prompt, and what is typed in between may
        stay on the line as something else."""
        deadline, typed = time.time() + 30, 0
        while time.time() < deadline:
            if time.time() > typed + 1:
                self.type("\x15\x04")
                typed = time.time()
            try:
                if select.select([self.fd], [], [], 0.1)[0]:
                    self.seen += os.read(self.fd, 65536).decode("utf-8", "replace")
            except OSError:
                pass
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            if pid:
                os.close(self.fd)
                return os.WEXITSTATUS(status) if os.WIFEXITED(status) else -os.WTERMSIG(status)
        os.kill(self.pid, signal.SIGKILL)
        os.waitpid(self.pid, 0)
        return "it hung"


edits = "libedit" in run("doctor").stdout
with temporary() as folder:
    t = Terminal(folder, RECIPE)
    t.wait("titan> ")
    t.type("6 * 7\n")
    t.wait("42")
    t.wait("titan> ")
    # an error, and on
    t.type('error("ouch")\n')
    t.wait("error: input:2: ouch")
    t.wait("titan> ")
    # more lines than one
    t.type("function twice(x)\n")
    t.wait(".. ")
    t.type("return 2 * x\n")
    t.wait(".. ")
    t.type("end\n")
    t.wait("titan> ")
    t.type("twice(21000)\n")
    t.wait("42000")
    t.wait("titan> ")
    # a loop without an end is ended by Ctrl-C
    t.type("while true do end\n")
    t.wait("while true do end")
    time.sleep(1)
    t.type("\x03")
    t.wait("interrupted")
    t.wait("titan> ")
    t.type("pcall(function() while true do end end)\n")
    time.sleep(1)
    t.type("\x03")
    t.wait("interrupted")
    t.wait("titan> ")
    t.type('"still" .. " here"\n')
    t.wait("still here")
    t.wait("titan> ")
    # Ctrl-C at the prompt gives the line up
    t.type("half a li")
    t.wait("half a li")
    t.type("\x03")
    t.wait("titan> ")
    t.type("1000 + 1\n")
    t.wait("1001")
    t.wait("titan> ")
    t.type("if true then\n")
    t.wait(".. ")
    time.sleep(0.5)
    t.type("\x03")
    t.wait("titan> ")
    if edits:
        # completion: of a function, of a module path level by level, of a key; what is ambiguous is listed
        t.type("lay\t")
        t.wait("layout(")
        t.type('"layers.0.att\t')
        t.wait('ention')
        t.type('.wq.\t')
        t.wait('weight')
        t.type('")\n')
        t.wait("256 in 16 heads")
        t.wait("titan> ")
        t.type('help("training.st\t')
        t.wait("eps")
        t.type('")\n')
        t.wait("optimizer steps")
        t.wait("titan> ")
        t.type('help("lr_scheduler.\t')
        t.type("\t")
        t.wait("lr_scheduler.warmup_steps")
        t.type('warm\t')
        t.wait("up_steps")
        t.type('")\n')
        t.wait("linear warm-up")
        t.wait("titan> ")
        # history: the line before
        t.type("100 + 11\n")
        t.wait("111")
        t.wait("titan> ")
        t.type("\x1b[A")
        t.wait("100 + 11")
        t.type("000\n")
        t.wait("11100")
        t.wait("titan> ")
    else:
        skip("completion and history", "this build has no libedit")
    status = t.end()
    check(status == 0, "Ctrl-D ends it: %s" % status)
    if edits:
        # history of an earlier session
        history = os.path.join(folder, ".local/state/titan/history")
        check(os.path.isfile(history) and "100" in open(history).read(), "the history has a file")
        t = Terminal(folder)
        t.wait("titan> ")
        t.type("\x1b[A")
        t.wait("100 + 11000")
        t.type("\n")
        t.wait("11100")
        t.wait("titan> ")
        check(t.end() == 0, "the second session ends")
    t = Terminal(folder, "nothing.lua")
    t.wait("error: nothing.lua")
    t.wait("titan> ")
    t.type('open("recipes/llama3_8b.lua")\n')
    t.wait("llama3_8b.lua for 1 rank")
    t.wait("titan> ")
    status = t.end()
    check(status == 0, "a recipe that is not there, on a terminal: %s, %r" % (status, t.seen[-300:]))
done("repl")
