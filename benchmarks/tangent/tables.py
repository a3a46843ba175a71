"""The section on tangent kernels."""

TARGETS = {
    ("mlp", 512, "trace"): {"recipe": 400, "neural-tangents": 2},
    ("mlp", 128, "full"): {"recipe": 400},
    ("mlp", 512, "full"): {"neural-tangents": 4},
    ("lenet", 512, "trace"): {"recipe": 15, "neural-tangents": 5},
    ("lenet", 512, "full"): {"neural-tangents": 4},
    ("resnet18", 64, "trace"): {"recipe": 5},
    ("resnet18", 256, "trace"): {"recipe": 5},
    ("resnet18", 64, "pseudo"): {"recipe": 3},
    ("transformer", 64, "trace"): {"recipe": 2},
}
"""How many times faster than each contender we want to be."""
REASONS = """### What stands between us and the limit

Goals marked as not reached are open. From profiles of single calls:

- LeNet: 36 % of the time are matrix products (25 to 60 GFLOP/s, since a convolution of 6 channels makes products of
  60 x 784 x 25); the rest is bound by memory: backward passes of convolution (14 %), ReLU (11 %) and pooling (8 %),
  clearing and stacking of gradients (11 %). Ten outputs mean ten passes over the activations.
- ResNet-18, trace: backward convolutions 34 %, building gradients 30 %, both at about 140 GFLOP/s; products of 64
  rows reach 80 GFLOP/s (12 %); unfolding patches 9 %. With channels last, convolutions would be faster.
- Transformer: products of 64 rows (24 %) reach about 80 GFLOP/s, the others about 110.
- Pseudo kernels do one pass only: what Python and the passes over memory take is not hidden by arithmetic.
"""
CONTENDERS = ("recipe", "neural-tangents", "nngeometry")


def section(record: dict) -> str:
    """In markdown."""
    rate = record["rate"]
    head = "| kernel (float32) | ours | FLOP limit | " + " | ".join(CONTENDERS) + " |"
    lines = [
        "## Tangent kernels",
        "",
        "*Recipe* is what people write by hand: `vmap(grad)` in chunks of samples (4 to 64, by the model)",
        "and one matrix product for each output. The FLOP limit is our counted FLOPs over the rate of a large matrix",
        f"product on this machine, {rate / 1e9:.0f} GFLOP/s.",
        "",
        head,
        "|---" * (3 + len(CONTENDERS)) + "|",
    ]
    for row in record["rows"]:
        cells = [f"{row['workload']}, N = {row['n']}, {row['outputs']}", _cell(row["ours"])]
        cells.append(f"{_seconds(row['flops'] / rate)} ({row['ours']['seconds'] * rate / row['flops']:.1f}x)")
        for contender in CONTENDERS:
            found = row.get(contender)
            target = TARGETS.get((row["workload"], row["n"], row["outputs"]), {}).get(contender)
            cells.append("" if found is None else _against(found, row["ours"], target))
        lines.append("| " + " | ".join(cells) + " |")
    if record.get("note"):
        lines += ["", record["note"]]
    firsts = [
        (r["workload"], r["ours"]["first"] - r["ours"]["seconds"])
        for r in record["rows"]
        if r["ours"]["first"]
    ]
    lines += [
        "",
        "The first call of a kernel also learns and verifies the structure of the model: "
        + ", ".join(f"{name} {_seconds(extra)}" for name, extra in dict(firsts).items())
        + ", including one-time work of torch itself.",
        "",
        REASONS,
        "### How cost grows",
        "",
        "![Time and memory of the trace kernel over samples, outputs, width and positions](figures/growth.png)",
        "",
    ]
    return "\n".join(lines)


def _seconds(value: float) -> str:
    return f"{value * 1e3:.0f} ms" if value < 1 else f"{value:.1f} s"


def _cell(found: dict) -> str:
    return f"{_seconds(found['seconds'])}, {found['peak'] / 1e9:.2f} GB"


def _against(found: dict | str, ours: dict, target: float | None) -> str:
    if isinstance(found, str):
        return found
    ratio = found["seconds"] / ours["seconds"]
    goal = "" if target is None else f" → {target}x {'reached' if ratio >= target else 'NOT reached'}"
    return f"{_cell(found)} ({ratio:.1f}x{goal})"
