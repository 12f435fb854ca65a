# Indexing captured arrays with symbolic positions. An index counts from 0 as positions do, or from 1 under
# `one_based = true`; so does a plain number beside a symbolic one.

const Index = Union{Sym,Integer}

Base.getindex(x::AbstractArray, i::Sym) = load(x, i)
Base.getindex(x::AbstractArray, i::Sym, rest::Index...) = load(x, i, rest...)
Base.getindex(x::AbstractArray, i::Integer, j::Sym, rest::Index...) = load(x, i, j, rest...)
Base.getindex(x::AbstractArray, i::Integer, j::Integer, k::Sym, rest::Index...) = load(x, i, j, k, rest...)
Base.getindex(x::AbstractArray, i::Integer, j::Integer, k::Integer, l::Sym, rest::Index...) = load(x, i, j, k, l, rest...)

# A captured array of the argument `c`: the same, also where it has no dimensions.
struct Captured{A<:AbstractArray}
    trace::Trace
    array::A
end
Base.getindex(x::Captured, indices::Index...) = load_in(x.trace, x.array, indices...)
Base.size(x::Captured, dims...) = size(x.array, dims...)
Base.length(x::Captured) = length(x.array)

function load(x::AbstractArray, indices::Index...)
    for i in indices
        i isa Sym && i.trace !== nothing && return load_in(i.trace, x, indices...)
    end
    refuse("an array is indexed by symbolic constants alone; write numbers")
end

function load_in(trace::Trace, x::AbstractArray{T,N}, indices::Index...) where {T,N}
    name = captured_name(trace, x)
    length(indices) == N || refuse("the captured array '$name' has $N dimensions, but is indexed by $(length(indices))")
    ids = Int32[node_of(trace, index_of(trace, name, i)) for i in indices]
    return Sym(trace, push_node(trace, Load, ATOM_LEVEL, name, ids), load_kind(name, T))
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
    node.form === Infix && node.text == "+" && trace.nodes[node.args[2]].text == "1" && return Sym(trace, node.args[1], KindI32)
    return i - literal(1)
end

function load_kind(name, ::Type{T}) where {T}
    code = dtype(T)
    is_float(code) && return KindF32
    code in (I32, I64, U8) && return KindI32
    code === BOOL && return KindBool
    refuse("the captured array '$name' has elements of type $T, but formulas read Float32, Float16, BFloat16, Int32, ",
           "Int64, UInt8 and Bool", T === Float64 ? "; give Float32.($name)" : "")
end

# ---- names ----

const WORDS = Set(["score", "grad", "b", "h", "q", "k", "B", "H", "Hkv", "Sq", "Skv", "let", "true", "false", "inf", "nan"])

# What the formula calls an array: as the program does where that is a name of the language and not taken.
function captured_name(trace::Trace, x::AbstractArray)
    for i in eachindex(trace.arrays)
        trace.arrays[i] === x && return trace.names[i]
    end
    wanted = "captured"
    for hint in trace.hints
        hint.second === x && (wanted = String(hint.first); break)
    end
    push!(trace.arrays, x)
    push!(trace.names, free_name(trace, wanted))
    return trace.names[end]
end

is_name(text) = 0 < length(text) <= 60 && !isdigit(first(text)) && all(c -> isascii(c) && is_word(c), text)
is_word(c::Char) = c == '_' || isletter(c) || isdigit(c)
# What `let` of a traced formula is called.
is_let_name(text) = length(text) > 1 && text[1] == 't' && all(isdigit, SubString(text, 2))

function free_name(trace::Trace, wanted)
    is_name(wanted) || (wanted = "captured")
    name, n = wanted, 1
    while name in trace.names || name in WORDS || is_let_name(name)
        name = string(wanted, "_", n += 1)
    end
    return name
end
