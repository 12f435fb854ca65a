# Which engine would run a call, and why the others can't.

"""
What [`explain`](@ref) returns: a text that shows itself as a table. `String(x)` is the text.
"""
struct Explanation
    text::String
end
Base.show(io::IO, ::MIME"text/plain", x::Explanation) = print(io, x.text)
Base.show(io::IO, x::Explanation) = print(io, x.text)
Base.String(x::Explanation) = x.text
Base.occursin(part::Union{AbstractString,Regex,AbstractChar}, x::Explanation) = occursin(part, x.text)

"""
    explain(q, k, v; direction = :forward, device = nothing, prove = false, options...)

Every engine's verdict on the call `attention(q, k, v; options...)`, or on its `:backward`, with reasons. Nothing is run,
and nothing built unless `prove` asks for it. `device` is where the arrays are, or a GPU that is only described, like
"h200".

```jldoctest
julia> q = zeros(Float64, 64, 8, 128, 2);

julia> occursin("engine cpu stores f32, f16 or bf16", explain(q, q, q))
true
```
"""
function explain(q, k, v; direction::Symbol = :forward, device = nothing, prove::Bool = false, options...)
    key, program = question(q, k, v, read_options(values(options)), direction, device)
    return with_problem(key, program) do problem
        with_plan_options(key) do plan_options
            return Explanation(text_of_report() do report
                ccall(library().functions.explain, Cint, (Handle, Ptr{CPlanOptions}, UInt32, Ptr{Handle}), problem,
                      plan_options, prove ? 2 : 0, report)
            end)
        end
    end
end

"""
    attention_supported(q, k, v; direction = :forward, device = nothing, options...)

Whether an engine can run the call `attention(q, k, v; options...)`, or its `:backward`. Builds nothing. What is wrong
with a call on every machine (sizes that do not fit, an unknown keyword) is an error here as there.

```jldoctest
julia> q = zeros(Float32, 64, 8, 128, 2);

julia> attention_supported(q, q, q; causal = true), attention_supported(Float64.(q), q .+ 0.0, q .+ 0.0)
(true, false)
```
"""
function attention_supported(q, k, v; direction::Symbol = :forward, device = nothing, options...)
    opts = read_options(values(options))
    try
        key, program = question(q, k, v, opts, direction, device)
        return with_problem(problem -> is_supported(problem, key), key, program)
    catch e
        e isa UnreadableArray || rethrow()
        return false
    end
end

function is_supported(problem, key)
    with_plan_options(key) do plan_options
        answer = Ref{Cint}(0)
        check(ccall(library().functions.supported, Cint, (Handle, Ptr{CPlanOptions}, Ptr{Cint}, Ptr{Handle}), problem,
                    plan_options, answer, C_NULL))
        return answer[] != 0
    end
end

# The same value that a call would make: outputs and gradients as the functions that allocate give them.
function question(q, k, v, o::Options, direction, device)
    direction in (:forward, :backward) || refuse("direction = :$direction: :forward or :backward")
    sizes = sizes_of(q, k, v)
    code = dtype(eltype(q))
    eltype(q) === eltype(k) === eltype(v) || refuse("q, k and v have elements of different types")
    code in (F32, F16, BF16, F64) || throw(UnreadableArray("q has elements of type $(eltype(q))"))
    where = device === nothing ? device_of(q) : String(device)
    program = program_of(o, sizes, eltype(q))
    back = direction === :backward
    flags = (lse = !back, grad_lse = false)
    config = config_of(back ? BACKWARD : FORWARD, sizes, code, o, (q, k, v), Slots(), flags)
    grads = back ? join(map(name -> word_of(program, name), differentiable(program, o)), ",") : ""
    return PlanKey(config, program, grads, o.engine, where), program
end
