"""Runs a bundle without the compiler: `python -m trc_runtime BUNDLE {train,eval,bench,info}`."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from trc_runtime.cpu.session import CpuSession
from trc_runtime.cuda.errors import CudaError
from trc_runtime.schema.bundle import Bundle, BundleError, read_bundle
from trc_runtime.schema.report import memory_report
from trc_runtime.train import cli
from trc_runtime.train.checkpoint import reading
from trc_runtime.train.runner import Runner, Session


def _parser() -> cli.Parser:
    parser = cli.Parser(prog="python -m trc_runtime", description="Run a compiled bundle.")
    parser.add_argument("bundle", metavar="BUNDLE", help="folder that trc-compile or Executable.save wrote")
    actions = parser.add_subparsers(dest="action", required=True, metavar="{train,eval,bench,info}")
    train = actions.add_parser("train", help="train and validate")
    cli.add_train_options(train)
    evaluate = actions.add_parser("eval", help="validate")
    cli.add_eval_options(evaluate)
    for action in (train, evaluate):
        cli.add_data_options(action)
    bench = actions.add_parser("bench", help="time training steps")
    cli.add_bench_options(bench)
    actions.add_parser("info", help="say what the bundle holds")
    return parser


def open_bundle(bundle: Bundle) -> Runner:
    """A runner on the bundle's target, in the state that the bundle carries."""
    with reading(bundle.state) as saved:
        try:
            runner = Runner(bundle.plan, _open_session(bundle), draw=bundle.state is None)
        except BundleError:
            raise
        except ValueError as err:
            raise BundleError(f"{bundle.path}: {err}") from None
        if (state := saved()) is not None:
            runner.restore(state)
        return runner


def _open_session(bundle: Bundle) -> Session:
    """A session on the bundle's target; CudaError where there is no such device."""
    if bundle.target == "cpu":
        return CpuSession(bundle.plan)
    if bundle.target == "cuda":
        from trc_runtime.cuda.session import CudaSession  # NumPy is enough for the others

        return CudaSession.of_bundle(bundle)
    raise BundleError(f"{bundle.path} is compiled for target '{bundle.target}', which this runtime does not know")


def _info(bundle: Bundle) -> None:
    plan = bundle.plan
    target = bundle.target if bundle.architecture is None else f"{bundle.target} ({bundle.architecture})"
    print(f"{plan.name}: target {target}, planner {plan.mode}, {len(plan.nodes)} nodes, {len(plan.steps)} steps")
    for variant in plan.variants:
        print(f"  {variant.name}: {variant.batch} x {variant.height} x {variant.width} x {variant.channels}")
    print(f"  {plan.config}")
    print(f"  state: {'yes' if bundle.state else 'none'}")
    print(memory_report(plan))


def main(argv: Sequence[str] | None = None) -> int:
    """The command; returns the exit code."""
    args = _parser().parse_args(argv)

    def action() -> None:
        bundle = read_bundle(args.bundle)
        if args.action == "info":
            _info(bundle)
            return
        cli.begin(args)
        if args.action == "bench":
            cli.bench(open_bundle(bundle), args)
            return
        data = cli.data_for(bundle.plan.config, args)
        runner = open_bundle(bundle)
        if args.action == "train":
            cli.train(runner, data, args)
        else:
            cli.evaluate(runner, data, args)

    return cli.guarded("trc_runtime", action, (CudaError,))


if __name__ == "__main__":
    sys.exit(main())
