#!/usr/bin/env python3
"""titan graph --format dot and json: every value and arrow of the text form is there, behind any pass; Graphviz draws it."""
# variants: asan
import json
import os
import re
import shutil
import subprocess

from testing import check, done, run, skip, temporary

RECIPE = "recipes/llama3_debug.lua"
SMALL = ("model.n_layers=2", "training.seq_len=64")
PASSES = ["trace", "differentiate", "lower", "fuse", "storage", "boundary", "recompute", "overlap"]


def graph(*args):
    got = run("graph", RECIPE, *SMALL, *args)
    check(got.returncode == 0, "graph %s: %s" % (args, got.stderr))
    return got.stdout


def parse_dot(text):
    """Boxes {id: label} and arrows [(from, to, label)] of a DOT text; every line must be one of the forms we know."""
    boxes, arrows = {}, []
    lines = text.split("\n")
    check(lines[0] == "digraph titan {" and lines[-2:] == ["}", ""], "a digraph from begin to end")
    for line in lines[1:-2]:
        box = re.match(r'^  (b\d+) \[label="((?:[^"\\]|\\.)*)"[^\]]*\];$', line)
        arrow = re.match(r'^  (b\d+) -> (b\d+) \[(?:label|tooltip)="((?:[^"\\]|\\.)*)"\];$', line)
        if box:
            check(box.group(1) not in boxes, "a box once")
            boxes[box.group(1)] = box.group(2)
        elif arrow:
            arrows.append(arrow.groups())
        else:
            check(re.match(r"^  (rankdir|node|edge|nslimit)", line), "a line of DOT: %r" % line)
    for a, b, _ in arrows:
        check(a in boxes and b in boxes and a != b, "an arrow between boxes: %s -> %s" % (a, b))
    return boxes, arrows


for step in PASSES:
    text = graph("--pass", step)
    made = re.findall(r"^(%.*?) = (\w+)\((.*?)\).* @(\S*) (\w+) (\w+)", text, re.M)
    listing = json.loads(graph("--pass", step, "--format", "json"))
    check(len(listing["nodes"]) == len(made), "%s: as many nodes in JSON as in text" % step)
    owner, pairs = {}, set()
    for i, (node, (results, op, ins, path, phase, scope)) in enumerate(zip(listing["nodes"], made)):
        names = re.findall(r"%(\S+) : ", results)
        check(node["op"] == op and node["path"] == path and node["phase"] == phase and node["scope"] == scope and
              [v["name"] for v in node["out"]] == names and node["in"] == [x[1:] for x in ins.split(", ") if x] and
              all(v["placement"] in results and ",".join(map(str, v["shape"])) in re.sub(r"/\d+", "", results) for v in node["out"]),
              "%s: node %d is the same in JSON: %s" % (step, i, node))
        for name in names:
            owner[name] = i
        pairs |= {(owner[x], i) for x in node["in"]}
    boxes, arrows = parse_dot(graph("--pass", step, "--format", "dot", "--collapse", "none"))
    check(len(boxes) == len(made) and len(arrows) == len(pairs), "%s: %d boxes of %d nodes, %d arrows of %d" % (
        step, len(boxes), len(made), len(arrows), len(pairs)))
    # collapsed: each node is counted in one box
    for how in ("module", "layer", "stage"):
        boxes, arrows = parse_dot(graph("--pass", step, "--format", "dot", "--collapse", how))
        counted = sum(int(re.search(r"\\n(\d+) nodes?", label).group(1)) for label in boxes.values())
        check(counted == len(made) and (how == "stage" or len(boxes) > 4), "%s by %s: %d of %d nodes" % (step, how, counted, len(made)))

# around one place: more with every arrow that is followed
sizes = []
for depth in range(3):
    boxes, arrows = parse_dot(graph("--format", "dot", "--focus", "layers.0.attention.rope", "--depth", depth))
    sizes.append(len(boxes))
    check(any("layers.0.attention.rope" in label for label in boxes.values()), "the focus is there")
check(sizes[0] < sizes[1] < sizes[2], "focus: %s" % sizes)
boxes, _ = parse_dot(graph("--format", "dot", "--module", "layers.1.feed_forward", "--pass", "trace"))
check(any("linear" in b for b in boxes.values()) and not any("layers.0.attention.rope" in b for b in boxes.values()), "one module")
boxes, _ = parse_dot(run("graph", RECIPE, "--format", "dot", "--collapse", "stage", "--pass", "stages", "--world", "2", "parallelism.pp=2",
                         "training.local_batch_size=8").stdout)
check(any(b.startswith("stage 1 forward") for b in boxes.values()), "stages: %s" % boxes)

for words, text in (("--format svg", "must be text, dot or json"), ("--collapse layers --format dot", "must be module"),
                    ("--collapse layer", "add --format dot"), ("--focus layers.0.attentoin.rope --format dot", "layers.0.attention.rope"),
                    ("--module layers.77 --format dot", "no node"), ("--focus x --depth -1 --format dot", "at least 0")):
    got = run("graph", RECIPE, *words.split())
    check(got.returncode == 2 and text in got.stderr and not got.stdout, "%s: exit %d: %s" % (words, got.returncode, got.stderr))

with temporary() as folder:
    for form in ("dot", "json"):
        got = run("graph", RECIPE, *SMALL, "--format", form, "--dump-to", os.path.join(folder, form), "--dump-pass", "trace|fuse")
        check(sorted(os.listdir(os.path.join(folder, form))) == ["00-trace." + form, "03-fuse." + form], "dumps as " + form)
    if shutil.which("dot"):
        for args in ((), ("--module", "layers.0.attention", "--pass", "trace"), ("--collapse", "module", "--pass", "trace"),
                     ("--focus", "norm.rmsnorm", "--depth", "1")):
            source = graph("--format", "dot", *args)
            boxes, arrows = parse_dot(source)
            got = subprocess.run(["dot", "-Tsvg"], input=source, stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=120,
                                 universal_newlines=True)
            check(got.returncode == 0 and not got.stderr and got.stdout.count('class="node"') == len(boxes) and
                  got.stdout.count('class="edge"') == len(arrows), "Graphviz draws %s: %s" % (args, got.stderr))
    else:
        skip("Graphviz", "not installed")
done("drawings")
