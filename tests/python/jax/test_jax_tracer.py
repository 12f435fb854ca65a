"""What has no formula: an error that names the primitive and the line of the source."""

import jax
import jax.numpy as jnp
import pytest
from jax_definition import close

from fovea.jax import TraceError, attention
from fovea.jax._call import problem_lines


@jax.custom_jvp
def own_rule(x):
    return 2 * x


own_rule.defjvp(lambda primals, tangents: (2 * primals[0], 5 * tangents[0]))


def here(score, b, h, q, k):
    return jnp.arctan2(score, 1.0)


REFUSED = {
    "atan2": here,
    "while": lambda s, b, h, q, k: jax.lax.while_loop(lambda x: x < 3, lambda x: x + 1, s),
    "scan": lambda s, b, h, q, k: jax.lax.scan(lambda x, _: (x + 1, None), s, None, length=3)[0],
    "stop_gradient": lambda s, b, h, q, k: s * jax.lax.stop_gradient(s),
    "custom_jvp_call": lambda s, b, h, q, k: own_rule(s),
    "reduce_sum": lambda s, b, h, q, k: s + jnp.sum(jnp.ones((3, 100))[q]),
    "rem": lambda s, b, h, q, k: jnp.fmod(s, 2.0),
    "random_bits": lambda s, b, h, q, k: s + jax.random.uniform(jax.random.fold_in(jax.random.key(0), q)),
}


@pytest.mark.parametrize("primitive", REFUSED)
def test_refused_with_primitive_and_line(primitive, qkv):
    with pytest.raises(TraceError, match=r"score_mod: the primitive '\w+' at .*test_jax_tracer.py:\d+") as error:
        attention(*qkv, score_mod=REFUSED[primitive])
    if primitive != "random_bits":  # made of several primitives; the first is named
        assert f"'{primitive}'" in str(error.value)


WRONG = {
    "a branch": (lambda b, h, q, k: q >= k and k > 1, TraceError, "use jnp.where"),
    "an integer": (lambda b, h, q, k: q - k, TypeError, "must return bool"),
    "an array": (lambda b, h, q, k: jnp.arange(3) > q, TypeError, "must return a scalar"),
    "two values": (lambda b, h, q, k: (q > k, q > k), TypeError, "must return one value"),
    "too few arguments": (lambda q, k: q > k, TypeError, "must take 4 arguments"),
    "unsigned": (lambda b, h, q, k: q.astype(jnp.uint32) > 3, TraceError, "uint32"),
}


@pytest.mark.parametrize("name", WRONG)
def test_wrong_masks(name, qkv):
    function, kind, text = WRONG[name]
    with pytest.raises(kind, match=text):
        attention(*qkv, mask_mod=function)


def test_what_does_not_depend_on_positions_runs_outside(qkv):
    """Anything goes there: a loop, a random number, a whole network; its gradient is JAX's."""
    weights = jnp.linspace(0.5, 1.5, 4)

    def loss(weights):
        def score_mod(score, b, h, q, k):
            table = jax.lax.fori_loop(0, 3, lambda _, t: jnp.sin(t), weights)
            return score * table[h]

        return jnp.sum(attention(*qkv, score_mod=score_mod) ** 2)

    def outside(weights):
        table = jnp.sin(jnp.sin(jnp.sin(weights)))
        return jnp.sum(attention(*qkv, score_mod=lambda s, b, h, q, k: s * table[h]) ** 2)

    close(loss(weights), outside(weights))
    # fori_loop with a known length has a reverse derivative
    close(jax.grad(loss)(weights), jax.grad(outside)(weights), 1e-4)


def test_numbers_that_python_needs(qkv):
    """A slice, a loop and a branch over closed-over numbers: these stay numbers."""
    terms, start, use = 3, 1, True
    table = jnp.arange(8.0)

    def score_mod(score, b, h, q, k):
        total = score
        for i in range(terms):
            total = total + 0.1 * table[start:][i]
        return total if use else score

    plain = attention(*qkv, score_mod=lambda s, b, h, q, k: s + 0.1 * (1.0 + 2.0 + 3.0))
    close(attention(*qkv, score_mod=score_mod), plain, 1e-4, 1e-4)


def test_a_traced_number_is_captured_once(qkv):
    def capped(q, cap):
        return attention(q, *qkv[1:], score_mod=lambda s, b, h, i, j: cap * jnp.tanh(s / cap))

    (line,) = problem_lines(capped, qkv[0], 2.0)
    assert line.count("scalar=") == 1, line
