# What the code of a modifier says, beside what it does.

# What an old Julia runs statement by statement (old_ifelse.jl).
struct Source
    code::Core.CodeInfo
    method::Method
    parameters::Core.SimpleVector
end

# What the code of a function says, as long as no method of anything has been defined since. Values that it reads are
# not part of it: those are looked up in every call.
struct CodeFacts
    world::UInt
    globals::Vector{GlobalRef}  # which may be arrays
    source::Union{Nothing,Source}  # of code that uses ifelse, where that takes no methods
end

const FACTS = Dict{Tuple{DataType,DataType},CodeFacts}()
const FACTS_LOCK = ReentrantLock()

function facts_of(@nospecialize(f), args::Tuple)
    key, world = (typeof(f), typeof(args)), Base.get_world_counter()
    (f isa Type || any(arg -> arg isa Type, args)) && return new_facts(f, args, world)  # which `typeof` does not tell apart
    lock(FACTS_LOCK)
    try
        known = get(FACTS, key, nothing)
        known === nothing || known.world != world || return known
        length(FACTS) < 1000 || empty!(FACTS)
        return FACTS[key] = new_facts(f, args, world)
    finally
        unlock(FACTS_LOCK)
    end
end

function new_facts(@nospecialize(f), args::Tuple, world)
    found = GlobalRef[]
    for code in code_lowered(f, Tuple{map(Core.Typeof, args)...})
        foreach(statement -> collect_globals!(found, statement), code.code)
    end
    unique!(found)
    # Functions are no arrays, and stay none.
    arrays = filter(ref -> !isconst(ref.mod, ref.name) || getfield(ref.mod, ref.name) isa AbstractArray, found)
    return CodeFacts(world, arrays, VERSION < v"1.8" && any(is_ifelse, found) ? source_of(f, args) : nothing)
end

function source_of(@nospecialize(f), args::Tuple)
    types = map(Core.Typeof, args)
    method = which(f, Tuple{types...})
    parameters = ccall(:jl_type_intersection_with_env, Any, (Any, Any), Tuple{Core.Typeof(f),types...}, method.sig)[2]
    return Source(Base.uncompressed_ast(method), method, parameters::Core.SimpleVector)
end

is_ifelse(x::GlobalRef) = x.name === :ifelse && isdefined(x.mod, x.name) && getfield(x.mod, x.name) === ifelse
collect_globals!(found, x::Expr) = foreach(arg -> collect_globals!(found, arg), x.args)
collect_globals!(found, x::GlobalRef) = push!(found, x)
collect_globals!(found, x) = nothing
