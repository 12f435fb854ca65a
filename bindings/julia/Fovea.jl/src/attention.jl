# Attention forward.

"""
    attention(q, k, v; options...)
    attention(q, k, v, captured::NamedTuple; options...)

Fused attention: `softmax(scale * kᵀq) * v` per head, with scores modified and masked as the options say.

`q` is `(head_dim, heads, seq, batch)`; `k` and `v` may have another length, fewer heads (a divisor of q's) and `v` another
head_dim. Float32, Float16, `Fovea.BFloat16` or BFloat16s.jl's. Views and permuted arrays are read where they lie.

# Options
- `score_mod`: changes a score. A function `(score, b, h, q, k)` of the score and 0-based batch, head, query and key
  position (see [`Fovea.Sym`](@ref)), or a text like `"score + slopes[h] * (k - q)"`. With one more argument `c` the
  function gets sizes (`c.B`, `c.H`, `c.Hkv`, `c.Sq`, `c.Skv`) and what is captured by keyword (`c.slopes[h]`).
- `mask_mod`: which scores count. A function `(b, h, q, k)`, a text, or an array of Bool that broadcasts to
  `(keys, queries, heads, batch)`.
- `bprop`: a derivative by hand, `(grad, score, b, h, q, k)` or a text; without it Fovea derives it.
- `causal`: `true` (or `:top_left`), `:bottom_right`, `false`. `window`: keeps so many keys before (and, unless causal,
  after) a query, itself counted; or `(before, after)`, -1 for all.
- `scale`: of the scores; `1 / sqrt(head_dim)`. `bias`: an array that broadcasts to `(keys, queries, heads, batch)`, added
  to what `score_mod` returns.
- `q_lengths`, `kv_lengths`: lengths of the sequences. `sinks`: one more logit per head that only joins the sum.
- `dropout`, which needs a `seed`, and `offset`: the same numbers drop the same scores, on every engine.
- `return_lse`: return `(o, lse)`, what a backward needs. `engine`: "cpu", "cudnn", ... instead of the fastest.
- `deterministic`, `q_offset`, `k_offset` (added to positions), `one_based` (positions and indices of functions count from
  1; those of texts count from 0 always).
- every other keyword, or field of `captured`: an array or a number that formulas use by its name.

```jldoctest
julia> q = reshape(Float32.(0:15), 4, 2, 2, 1) ./ 10; k = reverse(q; dims = 3); v = q .+ 1;

julia> o = attention(q, k, v; causal = true, score_mod = (score, b, h, q, k) -> 20 * tanh(score / 20));

julia> size(o), o[:, :, 1, 1] == v[:, :, 1, 1]
((4, 2, 2, 1), true)

julia> o == attention(q, k, v; causal = true, score_mod = "cap * tanh(score / cap)", cap = 20f0)
true
```
"""
function attention(q, k, v, captured::NamedTuple = NamedTuple(); return_lse::Bool = false, options...)
    o, lse = forward(q, k, v, read_options(values(options), captured), return_lse)
    return one_type(return_lse ? (o, lse) : o)
end

# An array or a tuple, by the value of a keyword. Old versions of Julia split `o, lse = attention(...)` into both cases,
# and the LLVM of Debian's build aborts on what that gives; there the type stays open.
one_type(x) = VERSION < v"1.7" ? Base.inferencebarrier(x) : x

"""
    attention!(o, q, k, v; lse = nothing, options...)

[`attention`](@ref) into `o`, which may be a view and may have another element type; `lse`, if it is given, is a dense
Float32 array `(seq, heads, batch)` that is written as well. Returns `o`.

```jldoctest
julia> q = rand(Float32, 8, 2, 5, 1); o = similar(q);

julia> attention!(o, q, q, q) === o, o == attention(q, q, q)
(true, true)
```
"""
function attention!(o, q, k, v; lse = nothing, options...)
    forward!(o, lse, q, k, v, read_options(values(options)))
    return o
end

function forward(q, k, v, o::Options, return_lse)
    sizes = sizes_of(q, k, v)
    check_types(q, k, v, o.engine)
    out = similar(owner(q), eltype(q), output_size(sizes))
    lse = return_lse ? similar(owner(q), rows_type(eltype(q)), rows_size(sizes)) : nothing
    forward!(out, lse, q, k, v, o)
    return out, lse
end

function forward!(out, lse, q, k, v, o::Options)
    sizes = sizes_of(q, k, v)
    code = check_types(q, k, v, o.engine)
    check_size("o", out, output_size(sizes))
    check_rows("lse", lse, sizes, eltype(q))
    device = device_of(q)
    check_engine(o.engine, device)
    check_seed(o)
    program = program_of(o, sizes, eltype(q))
    check_devices(device, program, (("k", k), ("v", v), ("o", out), ("lse", lse)))
    slots = Slots(out)
    flags = (lse = lse !== nothing, grad_lse = false)
    config = config_of(FORWARD, sizes, code, o, (q, k, v), slots, flags)
    key = PlanKey(config, program, "", o.engine, device)
    run(key, program, o, (q, k, v), slots, extras_of(o, q, sizes, lse))
    return nothing
end

function extras_of(o::Options, q, sizes::CSizes, lse, grad_lse = nothing, grad_sinks = nothing)
    return Extras(lse, grad_lse, sinks_of(o.sinks, q, sizes.h, rows_type(eltype(q))), grad_sinks,
                  lengths_of("q_lengths", o.q_lengths, q, sizes.b, sizes.sq),
                  lengths_of("kv_lengths", o.kv_lengths, q, sizes.b, sizes.skv))
end

check_rows(name, ::Nothing, sizes::CSizes, T) = nothing
function check_rows(name, rows::AbstractArray, sizes::CSizes, T)
    check_size(name, rows, rows_size(sizes))
    eltype(rows) === rows_type(T) || refuse("$name has elements of type $(eltype(rows)), but must have $(rows_type(T))")
    layout(rows).strides == dense_strides(size(rows)) || refuse("$name must be dense; copy it first")
    return nothing
end
