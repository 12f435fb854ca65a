# Attention backward: gradients of q, k, v, of the sinks and of all captured float arrays and numbers.

"""
    attention_backward(dO, o, lse, q, k, v; grads = nothing, grad_lse = nothing, options...)
    attention_backward(dO, o, lse, q, k, v, captured::NamedTuple; ...)

The gradients of [`attention`](@ref), called with the same options, as a named tuple: `q`, `k`, `v`, then each captured
float array and number by its name, then `bias` and `sinks` if there are some. `o` and `lse` are what
`attention(...; return_lse = true)` returned. `grads = (:q, :slopes)` computes only those. `grad_lse` is the gradient of
`lse`, if it was used.

```jldoctest
julia> q, k, v = (randn(Float32, 16, 2, 8, 1) for _ in 1:3); slopes = Float32[0.5, 0.25];

julia> mod(score, b, h, q, k, c) = c.cap * tanh(score / c.cap) + c.slopes[h] * (k - q);

julia> o, lse = attention(q, k, v; score_mod = mod, slopes = slopes, cap = 30f0, return_lse = true);

julia> g = attention_backward(one.(o), o, lse, q, k, v; score_mod = mod, slopes = slopes, cap = 30f0);

julia> keys(g), size(g.q), size(g.slopes), typeof(g.cap)
((:q, :k, :v, :slopes, :cap), (16, 2, 8, 1), (2,), Float32)
```
"""
function attention_backward(dO, o, lse, q, k, v, captured::NamedTuple = NamedTuple();
                            grads = nothing, grad_lse = nothing, options...)
    return backward(dO, o, lse, (q, k, v), read_options(values(options), captured), grads, grad_lse)
end

"""
    attention_backward!(gradients::NamedTuple, dO, o, lse, q, k, v; grad_lse = nothing, options...)

[`attention_backward`](@ref) into given arrays: `gradients` names them, as in `(q = dq, slopes = dslopes, cap = dcap)`,
and only those are computed. The gradient of a number is an array of one Float32. Returns `gradients`.

```jldoctest
julia> q = randn(Float32, 8, 1, 4, 1); o, lse = attention(q, q, q; return_lse = true); dq = similar(q);

julia> attention_backward!((q = dq,), o, o, lse, q, q, q);

julia> dq == attention_backward(o, o, lse, q, q, q).q
true
```
"""
function attention_backward!(gradients::NamedTuple, dO, o, lse, q, k, v; grad_lse = nothing, options...)
    opts = read_options(values(options))
    program = program_of(opts, sizes_of(q, k, v), eltype(q))
    backward!(Gradients(gradients), dO, o, lse, (q, k, v), opts, program, grad_lse)
    return gradients
end

# Where gradients go, by name. One type for whatever is asked for: a NamedTuple would compile all below for each set.
const Gradients = Vector{Pair{Symbol,Any}}
Gradients(@nospecialize(given::NamedTuple)) = Pair{Symbol,Any}[name => getfield(given, name) for name in keys(given)]

function given(gradients::Gradients, name::Symbol)
    for gradient in gradients
        gradient.first === name && return gradient.second
    end
    return nothing
end

function backward(dO, o, lse, arrays, opts::Options, grads, grad_lse)
    sizes = sizes_of(arrays...)
    check_types(arrays..., opts.engine)
    program = program_of(opts, sizes, eltype(arrays[1]))
    gradients = Pair{Symbol,Any}[name => new_gradient(name, arrays, program, opts) for name in wanted(program, opts, grads)]
    backward!(gradients, dO, o, lse, arrays, opts, program, grad_lse)
    # Gradients of numbers come back as numbers.
    is_number(name) = any(s -> s.key === name, program.scalars)
    names = Tuple(Symbol[name for (name, _) in gradients])
    return NamedTuple{names}(Tuple(Any[is_number(name) ? Array(x)[1] : x for (name, x) in gradients]))
end

# Everything that has a gradient, in the order of the result.
function differentiable(program::Program, o::Options)
    names = [:q, :k, :v]
    append!(names, (t.key for t in program.tensors if eltype(t.array) <: AbstractFloat && t.key !== :bias))
    append!(names, (s.key for s in program.scalars if s.is_float))
    o.bias === nothing || push!(names, :bias)
    o.sinks === nothing || push!(names, :sinks)
    return names
end

wanted(program, o, ::Nothing) = differentiable(program, o)
wanted(program, o, grad::Symbol) = wanted(program, o, (grad,))
function wanted(program, o, grads)
    possible = differentiable(program, o)
    for name in grads
        name in possible || refuse("grads has '$name'; there are gradients of ", join(possible, ", "))
    end
    return Symbol[name for name in grads]
end

function new_gradient(name, (q, k, v), program::Program, o::Options)
    name === :q && return similar(owner(q), eltype(q), size(q))
    name === :k && return similar(owner(k), eltype(k), size(k))
    name === :v && return similar(owner(v), eltype(v), size(v))
    name === :sinks && return similar(owner(q), rows_type(eltype(q)), length(o.sinks))
    for t in program.tensors
        t.key === name && return similar(owner(t.array), eltype(t.array), size(t.array))
    end
    return similar(owner(q), rows_type(eltype(q)), 1)
end

function backward!(gradients::Gradients, dO, o, lse, arrays, opts::Options, program::Program, grad_lse)
    q, k, v = arrays
    sizes = sizes_of(q, k, v)
    code = check_types(q, k, v, opts.engine)
    check_backward(gradients, dO, o, lse, arrays, sizes, grad_lse)
    device = device_of(q)
    check_engine(opts.engine, device)
    check_seed(opts)
    check_devices(device, program, (("k", k), ("v", v), ("o", o), ("dO", dO), ("lse", lse), ("grad_lse", grad_lse)))
    check_devices(device, PLAIN, gradients)
    words = grad_words(program, opts, gradients, rows_type(eltype(q)))
    slots = Slots(o, dO, given(gradients, :q), given(gradients, :k), given(gradients, :v))
    config = config_of(BACKWARD, sizes, code, opts, arrays, slots, (lse = false, grad_lse = grad_lse !== nothing))
    key = PlanKey(config, program, words, opts.engine, device)
    extras = extras_of(opts, q, sizes, lse, grad_lse, given(gradients, :sinks))
    GC.@preserve gradients run(key, program, opts, arrays, slots, extras, captured -> given(gradients, captured.key))
    return nothing
end

function check_backward(gradients, dO, o, lse, (q, k, v), sizes::CSizes, grad_lse)
    isempty(gradients) && refuse("no gradient is asked for")
    check_size("o", o, output_size(sizes))
    check_size("dO", dO, output_size(sizes))
    lse === nothing && refuse("lse is nothing: call attention with return_lse = true")
    check_rows("lse", lse, sizes, eltype(q))
    check_rows("grad_lse", grad_lse, sizes, eltype(q))
    for (name, x) in (("q", q), ("k", k), ("v", v))
        gradient = given(gradients, Symbol(name))
        gradient === nothing || check_size("the gradient of $name", gradient, size(x))
    end
end

# The names in libfovea's words; arrays are checked. `rows` is the type in which it gives numbers.
function grad_words(program::Program, o::Options, gradients, rows)
    possible = differentiable(program, o)
    words = map(gradients) do (name, gradient)
        name in possible || refuse("there is no gradient of '$name'; there are gradients of ", join(possible, ", "))
        name in (:q, :k, :v) || check_captured_gradient(name, gradient, program, o, rows)
        return word_of(program, name)
    end
    return join(words, ",")
end

function check_captured_gradient(name, gradient, program::Program, o::Options, rows)
    if name === :sinks
        size(gradient) == size(o.sinks) && eltype(gradient) === rows && layout(gradient).strides == (1,) ||
            refuse("the gradient of sinks must be a dense vector of $(length(o.sinks)) numbers of type $rows")
        return
    end
    for t in program.tensors
        t.key === name && return check_size("the gradient of $name", gradient, size(t.array))
    end
    length(gradient) == 1 && eltype(gradient) === rows ||
        refuse("the gradient of the number '$name' must be an array of one $rows, not $(summary(gradient))")
end

function word_of(program::Program, name)
    name === :sinks && return "sink"
    for captured in program.tensors
        captured.key === name && return captured.name
    end
    return String(name)  # q, k, v, numbers
end
