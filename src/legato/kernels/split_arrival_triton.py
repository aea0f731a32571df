# mypy: disable-error-code="import-not-found, untyped-decorator, no-any-return"
"""The meeting of a split computation's programs on the device; :mod:`legato.kernels.split_workspace` has the rule."""

import triton
import triton.language as tl


@triton.jit
def arrive(counter: tl.tensor, num_programs: tl.tensor) -> tl.tensor:
    """Return whether this is the last of ``num_programs`` to arrive; then it sees what all of them have stored."""
    tl.debug_barrier()  # all threads have stored before one of them says so
    last = tl.atomic_add(counter, 1, sem="acq_rel", scope="gpu") == num_programs - 1
    if last:
        tl.store(counter, 0)
    return last
