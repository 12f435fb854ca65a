"""fovea.torch.explain: which engine would run a call, and why the others cannot. Runs nothing, builds nothing."""

import json

from .._options import takes
from ..report import Explanation, explain_problem
from .attention import add_formulas, attention, given_to, modifiers_of, request
from .context_plan import Seen
from .plans import device_name, forward_problem


@takes(attention)
def explain(
    q, k, v, *, device=None, prove=False, ranks=None, strategy="ring", order="contiguous", head_ranks=None, **options
) -> Explanation:
    """Takes what fovea.torch.attention takes. Tensors that require gradients ask for an engine with a backward.

    device  another one than the tensors': "h200", "cuda:0", a description's file. Works on a machine without it.
    prove   builds plans to prove support.
    ranks   also says what each of so many ranks would compute and send under fovea.torch.context_parallel, whose strategy,
            order and head_ranks go with it; q, k and v are the whole then. `to_dict()["ranks"]` has every rank's steps."""
    given = given_to(explain, options) | {"generator": None, "seed": 0}
    call, q, k, v, sinks = request(q, k, v, given)
    found = modifiers_of(given, q, k)
    add_formulas(call, found, q, k, v, sinks)
    problem, partner, _ = forward_problem(call, q, k, v, sinks, found.tensors, False)
    out = explain_problem(
        problem,
        engine=call.engine or None,
        device=device or device_name(q.device),
        partner=partner,
        prove=prove,
    )
    if ranks is None:
        return out
    seen = Seen(call, (q, k, v), found.tensors)
    how = (ranks, strategy, order, head_ranks or 0)
    return out.with_ranks([json.loads(seen.plan(how, rank)) for rank in range(ranks)], seen.plan(how, None))
