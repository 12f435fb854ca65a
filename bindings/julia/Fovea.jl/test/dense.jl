# Attention by its definition, in Float64: a loop over heads, all scores at once. The same modifiers run here on numbers
# that run in Fovea on symbolic values.

# Indexed from 0, as modifiers do.
struct FromZero{A<:AbstractArray}
    array::A
end
Base.getindex(x::FromZero, i::Integer...) = x.array[(i .+ 1)...]
Base.getindex(x::FromZero) = x.array[]

from_zero(x::AbstractArray) = FromZero(x)
from_zero(x) = x

# What Fovea.Given is for symbolic values; one type, so that nothing is compiled per modifier.
struct Numbers
    values::Dict{Symbol,Any}
end
Base.getproperty(c::Numbers, name::Symbol) = getfield(c, :values)[name]

function captured_argument(sizes, @nospecialize(captured))
    values = Dict{Symbol,Any}(pairs(sizes))
    for name in keys(captured)
        values[name] = from_zero(captured[name])
    end
    return Numbers(values)
end

struct DenseCase
    mod::Any   # (score, b, h, q, k, c), or nothing
    mask::Any  # (b, h, q, k, c), or nothing
    captured::Any  # a NamedTuple
    scale::Float64
    sinks::Any
    q_lengths::Any
    kv_lengths::Any
end
DenseCase(; mod = nothing, mask = nothing, captured = NamedTuple(), scale = NaN, sinks = nothing, q_lengths = nothing,
          kv_lengths = nothing) = DenseCase(mod, mask, captured, scale, sinks, q_lengths, kv_lengths)

scale_of(case, q) = isnan(case.scale) ? 1 / sqrt(size(q, 1)) : case.scale

function argument(case, q, k)
    sizes = (B = size(q, 4), H = size(q, 2), Hkv = size(k, 2), Sq = size(q, 3), Skv = size(k, 3))
    return captured_argument(sizes, case.captured)
end

# Raw scores (keys, queries) of one head, and which are kept.
function head_scores(case, q, k, b, h)
    g = (h - 1) ÷ (size(q, 2) ÷ size(k, 2)) + 1
    raw = scale_of(case, q) .* (transpose(k[:, g, :, b]) * q[:, h, :, b])
    c = argument(case, q, k)
    nq = case.q_lengths === nothing ? size(q, 3) : case.q_lengths[b]
    nk = case.kv_lengths === nothing ? size(k, 3) : case.kv_lengths[b]
    keep = [i <= nq && j <= nk && (case.mask === nothing || case.mask(b - 1, h - 1, i - 1, j - 1, c))
            for j in axes(k, 3), i in axes(q, 3)]
    return raw, keep, g, c
end

modified(case, raw, b, h, c) =
    case.mod === nothing ? raw : [Float64(case.mod(raw[j, i], b - 1, h - 1, i - 1, j - 1, c)) for j in axes(raw, 1), i in axes(raw, 2)]

function softmax_head(case, s, keep, h)
    sink = case.sinks === nothing ? -Inf : case.sinks[h]
    s = ifelse.(keep, s, -Inf)
    top = max.(vec(maximum(s; dims = 1)), sink)
    lse = [t == -Inf ? -Inf : t + log(sum(exp.(s[:, i] .- t)) + exp(sink - t)) for (i, t) in enumerate(top)]
    p = [keep[j, i] && lse[i] > -Inf ? exp(s[j, i] - lse[i]) : 0.0 for j in axes(s, 1), i in axes(s, 2)]
    return p, lse
end

function dense_forward(case, q, k, v)
    o = zeros(size(v, 1), size(q, 2), size(q, 3), size(q, 4))
    lse = zeros(size(q, 3), size(q, 2), size(q, 4))
    for b in axes(q, 4), h in axes(q, 2)
        raw, keep, g, c = head_scores(case, q, k, b, h)
        p, row = softmax_head(case, modified(case, raw, b, h, c), keep, h)
        o[:, h, :, b] = v[:, g, :, b] * p
        lse[:, h, b] = row
    end
    return o, lse
end

# Gradients of q, k and v. The derivative of a modifier by its score is a central difference.
function dense_backward(case, dO, q, k, v)
    dq, dk, dv = zero(q), zero(k), zero(v)
    e = 1e-6
    for b in axes(q, 4), h in axes(q, 2)
        raw, keep, g, c = head_scores(case, q, k, b, h)
        p, _ = softmax_head(case, modified(case, raw, b, h, c), keep, h)
        dp = transpose(v[:, g, :, b]) * dO[:, h, :, b]
        ds = p .* (dp .- sum(p .* dp; dims = 1))
        slope = (modified(case, raw .+ e, b, h, c) .- modified(case, raw .- e, b, h, c)) ./ 2e
        draw = scale_of(case, q) .* ifelse.(p .> 0, ds .* slope, 0.0)
        dq[:, h, :, b] += k[:, g, :, b] * draw
        dk[:, g, :, b] += q[:, h, :, b] * transpose(draw)
        dv[:, g, :, b] += dO[:, h, :, b] * transpose(p)
    end
    return dq, dk, dv
end

# The loss sum(dO .* o), of which attention_backward gives the gradients.
loss(case, dO, q, k, v) = sum(dO .* dense_forward(case, q, k, v)[1])

with_captured(case, captured) =
    DenseCase(case.mod, case.mask, captured, case.scale, case.sinks, case.q_lengths, case.kv_lengths)

replaced(@nospecialize(captured), name, x) =
    NamedTuple{keys(captured)}(Tuple(key === name ? x : captured[key] for key in keys(captured)))

# Finite differences by one captured array, element by element, or by a number.
function difference(case, name, dO, q, k, v; e = 1e-5)
    value = case.captured[name]
    at(x) = loss(with_captured(case, replaced(case.captured, name, x)), dO, q, k, v)
    value isa Real && return (at(value + e) - at(value - e)) / 2e
    return map(CartesianIndices(value)) do i
        up, down = copy(value), copy(value)
        up[i] += e
        down[i] -= e
        return (at(up) - at(down)) / 2e
    end
end

relative(x, y) = (n = sqrt(sum(abs2, y)); d = sqrt(sum(abs2, Float64.(x) .- y)); n == 0 ? d : d / n)
relative(x::Real, y::Real) = abs(x - y) / max(abs(y), 1e-6)
