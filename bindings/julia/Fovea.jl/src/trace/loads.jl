# Indexing captured arrays with symbolic positions. An index counts from 0 as positions do, or from 1 under
# `one_based = true`; so does a plain number beside a symbolic one.

const Index = Union{Sym,Integer}

Base.getindex(x::AbstractArray, i::Sym) = load(x, i)
Base.getindex(x::AbstractArray, i::Sym, rest::Index...) = load(x, i, rest...)
Base.getindex(x::AbstractArray, i::Integer, j::Sym, rest::Index...) = load(x, i, j, rest...)
Base.getindex(x::AbstractArray, i::Integer, j::Integer, k::Sym, rest::Index...) = load(x, i, j, k, rest...)
Base.getindex(x::AbstractArray, i::Integer, j::Integer, k::Integer, l::Sym, rest::Index...) = load(x, i, j, k, l, rest...)

# A captured array of the argument `c`: the same, also if it has no dimensions.
struct Captured{A<:AbstractArray}
    trace::Trace
    slot::Int
    array::A
end
Base.getindex(x::Captured, indices::Index...) = load_slot(x.trace, x.slot, x.array, indices)
Base.size(x::Captured, dims...) = size(x.array, dims...)
Base.length(x::Captured) = length(x.array)
# `begin` and `end` count as the other indices do.
Base.firstindex(x::Captured, d = 1) = x.trace.one_based ? 1 : 0
Base.lastindex(x::Captured) = length(x.array) - !x.trace.one_based
Base.lastindex(x::Captured, d) = size(x.array, d) - !x.trace.one_based
Base.axes(x::Captured, d) = firstindex(x, d):lastindex(x, d)

function load(x::AbstractArray, indices::Index...)
    for i in indices
        i isa Sym && i.trace !== nothing && return load_slot(i.trace, slot_of(i.trace, x), x, indices)
    end
    refuse("an array is indexed by symbolic constants alone; write numbers")
end

# Indices stay in Julia's order here; a formula has them in the order of the memory (captured.jl).
function load_slot(trace::Trace, slot::Int, x::AbstractArray{T,N}, indices::Tuple) where {T,N}
    name = trace.wanted[slot]
    length(indices) == N || refuse("the captured array '$name' has $N dimensions, but is indexed by $(length(indices))")
    kind = load_kind(trace, name, T)
    map((i, n) -> check_number_index(trace, name, i, n), indices, size(x))
    ids = map(i -> node_of(trace, index_of(trace, name, i)), indices)
    args = ntuple(i -> i <= N ? ids[i] : Int32(0), Val(MOST_INDICES))
    return Sym(trace, push_node(trace, Node(Load, kind, ATOM_LEVEL, N, :load, slot, args)), kind)
end

# A number beside a position. Julia's own `end` of an array counts from 1, so it shows here.
check_number_index(trace::Trace, name, ::Sym, n) = nothing
function check_number_index(trace::Trace, name, index::Integer, n)
    first = trace.one_based ? 1 : 0
    first <= index < n + first || n == 0 ||
        refuse("an index of '$name' is $index, but beside a position indices count from $first, here to $(n + first - 1)",
               trace.one_based ? "" : "; `end` of an array counts from 1")
end

function index_of(trace::Trace, name, index)
    i = convert(Sym, index)
    is_int(i) || refuse("an index of '$name' is $(kind_name(i.kind)); write Int(x) or floor(Int, x)")
    return trace.one_based ? less_one(trace, i) : i
end

# An index that counts from 1 as one that counts from 0: positions lose what was added to them, so that their index
# reads as it would from 0.
function less_one(trace::Trace, i::Sym)
    i.trace === nothing && return literal(Int(i.value) - 1)
    node = trace.nodes[i.id]
    node.form === Infix && node.text === :+ && is_one(trace.nodes[node.args[2]]) && return Sym(trace, node.args[1], KindI32)
    return i - literal(1)
end
is_one(node::Node) = node.form === Literal && node.kind === KindI32 && node.number == 1

function load_kind(trace::Trace, name, ::Type{T}) where {T}
    code = dtype(T)
    (is_float(code) || code === F64 && trace.doubles) && return KindF32
    code in (I32, I64, U8) && return KindI32
    code === BOOL && return KindBool
    refuse("the captured array '$name' has elements of type $T, but formulas read Float32, Float16, BFloat16, Int32, ",
           "Int64, UInt8 and Bool", T === Float64 ? "; give Float32.($name)" : "")
end

# ---- which array, and what the program calls it ----

function add_array!(trace::Trace, wanted::Symbol, x::AbstractArray)
    push!(trace.arrays, x)
    push!(trace.wanted, wanted)
    return length(trace.arrays)
end

function slot_of(trace::Trace, x::AbstractArray)
    for i in eachindex(trace.arrays)
        trace.arrays[i] === x && return i
    end
    return add_array!(trace, wanted_name(trace, x), x)
end

# The field of the closure that is traced, or the global of its code, that holds this array.
function wanted_name(trace::Trace, x::AbstractArray)
    f = trace.modifier
    for i in 1:nfields(f)
        isdefined(f, i) || continue
        value = getfield(f, i)
        value isa Core.Box && isdefined(value, :contents) && (value = value.contents)
        value === x && return fieldname(typeof(f), i)
    end
    f === nothing && return :captured
    for ref in facts_of(f, trace.arguments).globals
        isdefined(ref.mod, ref.name) && getfield(ref.mod, ref.name) === x && return ref.name
    end
    return :captured
end
