"""Two training steps and an evaluation of a small network, for compute-sanitizer.

compute-sanitizer --tool memcheck python -m tests.gpu.one_step
"""

from __future__ import annotations

import numpy as np

from tests.gpu.harness import batch_of, open_session
from trc_runtime.train.runner import Runner

KEY = ("small_conv", "amp-fp16", 4, (16, 16, 3))


def main() -> None:
    """Run them kernel by kernel: the tool then names the launch."""
    plan, session = open_session(*KEY, graphs=False)
    with session:
        runner = Runner(plan, session)
        losses = [runner.step(*batch_of(plan, i)).loss for i in range(2)]
        losses.append(runner.evaluate(*batch_of(plan, 3)).loss)
        assert np.isfinite(losses).all()
        print("losses", losses)


if __name__ == "__main__":
    main()
