"""A modifier is what it computes, whatever changes, is dropped or runs beside it."""

import gc
import inspect
import threading
import weakref

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax_cases import H, S, SoftcapGraph, causal, softcap
from jax_setup import DEVICE, package
from jax_definition import close, differs

import fovea.jax
from fovea import _core
from fovea.jax import attention


def test_nothing_of_the_modifier_survives(qkv):
    class Modifier:
        def __init__(self):
            self.slopes = jnp.arange(H) * 0.1

        def __call__(self, score, b, h, q, k):
            return score + self.slopes[h] * (k - q)

    def run() -> weakref.ref:
        modifier = Modifier()
        attention(*qkv, score_mod=modifier)
        jax.grad(lambda q: jnp.sum(attention(q, *qkv[1:], score_mod=modifier)))(qkv[0])
        return weakref.ref(modifier)

    seen = run()
    gc.collect()
    assert seen() is None


def test_same_shapes_other_data(qkv):
    """One plan, two arrays: the pointer is bound per call, in the backward too."""

    def gradient(table):
        return jax.grad(
            lambda q: jnp.sum(attention(q, *qkv[1:], score_mod=lambda s, b, h, i, j: s * table[h]) ** 2)
        )(qkv[0])

    first, second = gradient(jnp.ones(H)), gradient(2 * jnp.ones(H))
    assert differs(first, second)
    close(gradient(jnp.ones(H)), first)


def test_an_array_of_numpy_that_changes_before_the_backward(qkv):
    """JAX's own arrays cannot change; one of NumPy is taken as it was in the forward."""
    memory = np.zeros(S * S * 4 + 64, np.uint8)
    first = -memory.ctypes.data % 64  # aligned as JAX likes it: nothing but a rule makes it copy
    table = memory[first : first + S * S * 4].view(np.float32).reshape(S, S)
    table[:] = 0.5

    def attend(q):
        return attention(
            q, *qkv[1:], bias=table[None, None], score_mod="score * t[q, k]", score_mod_tensors={"t": table}
        )

    o, backward = jax.vjp(attend, qkv[0])
    wanted = backward(o)[0]
    table[:] = 5.0
    np.testing.assert_array_equal(backward(o)[0], wanted)


@pytest.mark.parametrize("by_hand", (True, False))
def test_stateful_callbacks_and_absent_derivatives(by_hand, qkv):
    """A callback's backward uses what its forward stored; without it the derivative is derived, not 1."""
    callbacks = SoftcapGraph()
    tensors = {"softcap": jnp.full((1, 1, 1, 1), 1.5)}
    more = {"score_mod": callbacks.forward, "score_mod_tensors": tensors}
    if by_hand:
        more.update(score_mod_bprop=callbacks.backward, score_mod_bprop_tensors=tensors)
    got = jax.grad(lambda q: jnp.sum(attention(q, *qkv[1:], **more) ** 2))(qkv[0])
    want = jax.grad(lambda q: jnp.sum(attention(q, *qkv[1:], score_mod=softcap(1.5)) ** 2))(qkv[0])
    close(got, want, 1e-4)


def test_every_function_takes_modifiers():
    names = {"score_mod", "mask_mod", "score_mod_bprop", "score_mod_tensors", "score_mod_bprop_tensors"}
    for function in (attention, fovea.jax.dot_product_attention):
        assert names <= set(inspect.signature(function).parameters)
    pytest.importorskip("flax", reason="the module needs flax, which is not installed")
    module = fovea.jax.DotProductAttention
    taken = {*inspect.signature(module).parameters, *inspect.signature(module.__call__).parameters}
    assert names <= taken


def test_plans_are_bounded(qkv):
    before = _core.cache_statistics()
    try:
        _core.cache_limit(plans=3)
        for n in range(6):
            score_mod = "score" + " + tanh(score)" * n
            attention(*qkv, score_mod=score_mod)
        after = _core.cache_statistics()
        assert after["plans"] <= 3 and after["evictions"] > before["evictions"]
    finally:
        _core.cache_limit(plans=1000)


def test_the_handlers_know_no_python():
    """Nothing that runs in a compiled program could call Python: the library has no symbol of it."""
    library = (package() / "_jax_ffi.so").read_bytes()
    assert b"fovea_jax_run_cpu" in library
    for symbol in (b"PyObject", b"PyGILState", b"PyEval", b"Py_"):
        assert symbol not in library


def test_threads_compile_run_and_clear(qkv):
    """Plans are dropped while other threads build and run them."""
    wanted = {n: attention(*qkv, score_mod=f"score * {n}.5", mask_mod=causal) for n in range(3)}
    failures = []

    def work(n):
        for _ in range(3):
            got = jax.jit(lambda *a: attention(*a, score_mod=f"score * {n}.5", mask_mod=causal))(*qkv)
            if not np.array_equal(got, wanted[n]):
                failures.append(n)

    threads = [threading.Thread(target=work, args=(n,)) for n in range(3)]
    for thread in threads:
        thread.start()
    while any(thread.is_alive() for thread in threads):
        _core.cache_clear()
        gc.collect()
        threads[0].join(0.01)
    for thread in threads:
        thread.join()
    assert not failures


def test_views_and_host_arrays(qkv):
    """Strides and places are JAX's business before a custom call: every form gives the same result."""
    wanted = attention(*qkv, mask_mod=causal)
    host = [np.asarray(x) for x in qkv]
    np.testing.assert_array_equal(attention(*host, mask_mod=causal), wanted)
    turned = [np.swapaxes(np.ascontiguousarray(np.swapaxes(x, 1, 2)), 1, 2) for x in host]
    assert not turned[0].flags["C_CONTIGUOUS"]
    np.testing.assert_array_equal(attention(*turned, mask_mod=causal), wanted)
    every_second = [np.repeat(x, 2, axis=1)[:, ::2] for x in host]
    np.testing.assert_array_equal(attention(*every_second, mask_mod=causal), wanted)


def test_masked_nan_does_not_leak(qkv):
    """Through XLA: NaN in keys and values that no query keeps. Engine cudnn lets it out (docs/gpu.md)."""
    q, k, v = qkv
    k, v = (x.at[:, 20:].set(jnp.nan) for x in (k, v))
    engine = "jit" if DEVICE == "cuda" else None
    attend = lambda q: attention(q, k, v, mask_mod=lambda b, h, i, j: j < 20, engine=engine)
    o, grads = jax.value_and_grad(lambda q: jnp.sum(attend(q)))(q)
    assert np.isfinite(o) and np.isfinite(np.asarray(grads)).all()
