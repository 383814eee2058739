# pyright: basic
"""A training step on the GPU: trc against PyTorch, interleaved in one run.

    python bench/gpu_step.py [--models mlp,resnet50] [--contenders trc,eager,compile,graph] [--seconds 20]

The recipe of shared/measurements.md: synthetic data that is on the GPU already, half precision with a loss scale
(PyTorch: autocast and GradScaler, channels_last, fused optimizer, cudnn.benchmark), cross entropy with label smoothing
0.1, SGD with Nesterov momentum (MLP: AdamW). Contenders:

- trc: `trc.compile(..., target="cuda", precision="amp-fp16")`, one graph launch a step;
- eager, compile: PyTorch without and with torch.compile;
- graph: PyTorch with torch.compile, the whole step captured in one CUDA graph (the default for the MLP only).

Each contender is a process of its own (step_contenders.py), and one at a time is at work: trc starts alone, then
PyTorch's are imported together and started in turn, so that cudnn.benchmark and Triton choose undisturbed. Each round
runs a group of steps of every contender and waits for its end; the figure is the median group, by step.

Also recorded: host time of a step (the device idle before it; trc launches a prepared step), of trc's the part that is
the driver's cuGraphLaunch, launches and waits that trc's driver counted, peak memory, time from the beginning to the
end of the first step (without imports), the clocks during the rounds, and all versions. A contender that fails is
recorded with its error, and the others go on; the result is written after every network. With all five networks it
takes about 8 minutes.
"""

from __future__ import annotations

import argparse
import contextlib
import statistics
import subprocess
import sys
import time
import traceback
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from children import Answer, Child, ChildError
from results_file import save
from step_contenders import CONTENDERS, MODELS, Setting, child

GROUP_SECONDS = 0.4
HOST_SECONDS = 1.0
"""For each pass over host times, which runs steps one by one."""


@dataclass
class Entry:
    """A contender under measurement: its process, its groups, and what is known of it."""

    process: Child
    facts: Answer = field(default_factory=dict)
    milliseconds: list[float] = field(default_factory=list)
    steps: int = 1


def parse() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", default=",".join(MODELS), help=f"of {', '.join(MODELS)}")
    parser.add_argument(
        "--contenders", help=f"of {', '.join(CONTENDERS)} (default: trc, eager, compile; graph for the mlp too)"
    )
    parser.add_argument("--rounds", type=int, default=9, help="groups of steps of each contender at most (default 9)")
    parser.add_argument("--seconds", type=float, default=20.0, help="measuring time a model at most (default 20)")
    parser.add_argument("--batch", type=int, help="instead of the models' own batch")
    parser.add_argument("--precision", default="amp-fp16", choices=("amp-fp16", "amp-bf16"))
    parser.add_argument("--autotune", metavar="FILE", help="trc measures cuDNN's engines and keeps the choices here")
    parser.add_argument("--output", type=Path, help="write the result here too")
    parser.add_argument("--child", nargs=2, help=argparse.SUPPRESS)
    return parser.parse_args()


def setting_of(contender: str, name: str, args: argparse.Namespace) -> Setting:
    """What a child is to run."""
    model = MODELS[name]
    return Setting(contender, name, model, args.batch or model.batch, args.precision, args.autotune)


def command_of(contender: str, name: str, args: argparse.Namespace) -> list[str]:
    """The command that starts a child."""
    command = [sys.executable, __file__, "--child", contender, name, "--precision", args.precision]
    if args.batch:
        command += ["--batch", str(args.batch)]
    if args.autotune:
        command += ["--autotune", args.autotune]
    return command


# ---------------------------------------------------------------- measuring

Failed = dict[str, Answer]
"""Contenders that failed: their errors, and what was known of them."""


class Race:
    """The contenders of one network. One that fails drops out, with its error kept."""

    def __init__(self, commands: Mapping[str, list[str]]) -> None:
        self._commands = commands
        self.entries: dict[str, Entry] = {}
        self.failed: Failed = {}

    @contextlib.contextmanager
    def _survive(self, name: str) -> Iterator[None]:
        try:
            yield
        except ChildError as err:
            print(f"  {err}", flush=True)
            self.failed[name] = {"error": str(err)}
            if (entry := self.entries.pop(name, None)) is not None:
                self.failed[name] |= {"ms_of_groups": entry.milliseconds, **entry.facts}
                entry.process.close()

    def each(self, action: Callable[[Entry], None]) -> None:
        """Do something with every contender that is left."""
        for name, entry in list(self.entries.items()):
            with self._survive(name):
                action(entry)

    def start(self) -> None:
        """Bring every contender to its first steps: trc alone, then PyTorch's, imported together, in turn."""
        for group in (["trc"], [n for n in CONTENDERS if n != "trc"]):
            names = [n for n in group if n in self._commands]
            for name in names:
                self.entries[name] = Entry(Child(name, self._commands[name]))
                with self._survive(name):
                    self.entries[name].process.send("load")
            for name in names:
                if name in self.entries:
                    with self._survive(name):
                        self.entries[name].facts |= self.entries[name].process.receive()
            for name in names:
                if name in self.entries:
                    with self._survive(name):
                        facts = self.entries[name].process.ask("prepare", 240.0)
                        self.entries[name].facts |= facts
                        print(f"  {name}: first step after {facts['seconds_to_first_step']:.1f} s", flush=True)

    def measure(self, rounds: int, seconds: float) -> None:
        """Interleaved groups of steps until the time is used up."""

        def calibrate(entry: Entry) -> None:
            entry.process.ask("time", 60.0, steps=2)
            each = entry.process.ask("time", 60.0, steps=3)["ms"] / 1e3
            entry.steps = max(3, min(2000, round(GROUP_SECONDS / max(each, 1e-6))))

        def group(entry: Entry) -> None:
            entry.milliseconds.append(entry.process.ask("time", 60.0, steps=entry.steps)["ms"])

        self.each(calibrate)
        end = time.perf_counter() + seconds
        for n in range(rounds):
            self.each(group)
            if n >= 2 and time.perf_counter() > end:
                break

    def figures(self, batch: int) -> dict[str, Answer]:
        """What is recorded of every contender, the failed ones included."""
        found: dict[str, Answer] = {}

        def ask(entry: Entry) -> None:
            middle = statistics.median(entry.milliseconds)
            steps = max(20, min(200, round(1e3 * HOST_SECONDS / middle)))
            found[entry.process.name] = {
                "ms_per_step": middle,
                "images_per_second": batch / middle * 1e3,
                "ms_of_groups": [round(m, 4) for m in entry.milliseconds],
                "steps_a_group": entry.steps,
                **entry.process.ask("figures", 120.0, host_steps=steps),
                **entry.facts,
            }

        self.each(ask)
        order = [n for n in self._commands if n in found or n in self.failed]
        return {n: found.get(n) or self.failed[n] for n in order}

    def close(self) -> None:
        """End all processes."""
        for entry in self.entries.values():
            entry.process.close()
        self.entries.clear()


def compare(contenders: Mapping[str, Answer]) -> float | None:
    """How many times as fast trc is as the fastest of PyTorch; None where either is missing."""
    times = {k: f["ms_per_step"] for k, f in contenders.items() if "error" not in f}
    rest = [ms for k, ms in times.items() if k != "trc"]
    return min(rest) / times["trc"] if rest and "trc" in times else None


def show(name: str, found: Answer) -> None:
    """Print a contender's line."""
    if "error" in found:
        print(f"  {name:<8} failed: {found['error']}")
        return
    print(
        f"  {name:<8} {found['ms_per_step']:9.3f} ms  {found['images_per_second']:11,.0f} images/s  "
        f"host {found['host_us_per_step']:8.1f} us"
    )
    if "launch_us" in found:
        print(
            f"           cuGraphLaunch {found['launch_us']:.1f} us, beside it {found['host_us_beside_launch']:.1f} us, "
            f"{found['launches_per_step']:g} launches and {found['waits_per_step']:g} waits a step"
        )


def run_model(name: str, wanted: list[str], args: argparse.Namespace) -> Answer:
    """All contenders of a network."""
    batch = args.batch or MODELS[name].batch
    race = Race({c: command_of(c, name, args) for c in wanted})
    try:
        race.start()
        clocks = Clocks()
        try:
            race.measure(args.rounds, args.seconds)
        finally:
            sampled = clocks.finish()
        result: Answer = {"batch": batch, "contenders": race.figures(batch), "clocks": sampled}
    finally:
        race.close()
    for contender, found in result["contenders"].items():
        show(contender, found)
    if (speed := compare(result["contenders"])) is not None:
        result["speed_against_best_torch"] = speed
        print(f"  trc is {speed:.2f} times as fast as the fastest of PyTorch", flush=True)
    return result


# ---------------------------------------------------------------- the machine


class Clocks:
    """Clocks, power and temperature of the GPU during the rounds, twice a second."""

    FIELDS = ("clocks.sm", "clocks.mem", "power.draw", "temperature.gpu", "clocks_event_reasons.active")

    def __init__(self) -> None:
        query = [f"--query-gpu={','.join(self.FIELDS)}", "--format=csv,noheader,nounits", "-lms", "500"]
        try:
            self._process = subprocess.Popen(["nvidia-smi", *query], stdout=subprocess.PIPE, text=True)
        except OSError:
            self._process = None

    def finish(self) -> Answer:
        """Stop sampling; minimum, median and maximum of each."""
        if self._process is None:
            return {}
        self._process.terminate()
        rows = [line.split(", ") for line in (self._process.communicate()[0] or "").splitlines()]
        rows = [r for r in rows if len(r) == len(self.FIELDS)]
        found: Answer = {"samples": len(rows)}
        for n, name in enumerate(self.FIELDS):
            try:
                values = [float(r[n]) for r in rows]
            except ValueError:
                found[name] = sorted({r[n] for r in rows})
                continue
            if values:
                found[name] = {"min": min(values), "median": statistics.median(values), "max": max(values)}
        return found


def plans_of(args: argparse.Namespace) -> dict[str, list[str]]:
    """The contenders of each network."""
    plans: dict[str, list[str]] = {}
    for name in args.models.split(","):
        if name not in MODELS:
            raise SystemExit(f"unknown model '{name}'; choose of {', '.join(MODELS)}")
        default = "trc,eager,compile,graph" if name == "mlp" else "trc,eager,compile"
        plans[name] = str(args.contenders or default).split(",")
        for contender in plans[name]:
            if contender not in CONTENDERS:
                raise SystemExit(f"unknown contender '{contender}'; choose of {', '.join(CONTENDERS)}")
    return plans


def main() -> None:
    """Measure, print and save."""
    args = parse()
    if args.child:
        contender, name = args.child
        child(setting_of(contender, name, args))
        return
    results: dict[str, Any] = {}
    for name, wanted in plans_of(args).items():
        print(f"{name}, batch {args.batch or MODELS[name].batch}, {args.precision}", flush=True)
        begin = time.perf_counter()
        try:
            results[name] = run_model(name, wanted, args)
        except Exception as err:  # what is measured of the others is worth more than this one
            traceback.print_exc()
            results[name] = {"contenders": {"all": {"error": f"{type(err).__name__}: {err}"}}}
        results[name]["seconds_in_all"] = time.perf_counter() - begin
        save_all(args, results)  # what has been measured is kept if the time runs out
    failed = [f"{m}: {c}" for m, r in results.items() for c, f in r["contenders"].items() if "error" in f]
    if failed:
        raise SystemExit(f"failed: {', '.join(failed)}")


def save_all(args: argparse.Namespace, results: dict[str, Any]) -> None:
    """Write the result so far."""
    contenders = [f for r in results.values() for f in r["contenders"].values()]
    libraries = next((f["libraries"] for f in contenders if "libraries" in f), {})
    path = save("gpu_step", {"precision": args.precision, "models": results, "libraries": libraries})
    if args.output is not None:
        args.output.parent.mkdir(parents=True, exist_ok=True)
        args.output.write_bytes(path.read_bytes())
    print(f"written to {path}", flush=True)


if __name__ == "__main__":
    main()
