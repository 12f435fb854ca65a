# Plans by what they were made for. Bounded. A plan is destroyed by its last user, outside of every lock and never in a
# finalizer, so that no destruction can wait for a compilation or run that waits for it.

mutable struct Prepared
    plan::Handle
    workspace::Int
    users::Int     # calls that run it now
    evicted::Bool
    last_use::Int
end

const PLANS = Dict{PlanKey,Prepared}()
const PLANS_LOCK = ReentrantLock()
const PLANS_KEPT = 256
const USES = Ref(0)

function acquire(key::PlanKey, program::Program)
    found = Base.@lock PLANS_LOCK used(get(PLANS, key, nothing))
    found === nothing || return found
    built = build(key, program)  # without the lock: others go on
    return insert(key, built)
end


used(::Nothing) = nothing
function used(prepared::Prepared)
    prepared.users += 1
    prepared.last_use = USES[] += 1
    return prepared
end

function insert(key::PlanKey, built::Prepared)
    dropped = Handle[]
    result = Base.@lock PLANS_LOCK begin
        there = get(PLANS, key, nothing)
        if there === nothing
            length(PLANS) >= PLANS_KEPT && evict_oldest!(dropped)
            PLANS[key] = built
            used(built)
        else
            push!(dropped, built.plan)  # another task was faster
            used(there)
        end
    end
    destroy(dropped)
    return result
end

function evict_oldest!(dropped)
    key = reduce((a, b) -> PLANS[a].last_use < PLANS[b].last_use ? a : b, keys(PLANS))
    evict!(dropped, PLANS[key])
    delete!(PLANS, key)
end

function evict!(dropped, prepared::Prepared)
    prepared.evicted = true
    prepared.users == 0 && push!(dropped, prepared.plan)
end

function release(prepared::Prepared)
    last = Base.@lock PLANS_LOCK begin
        prepared.users -= 1
        prepared.evicted && prepared.users == 0
    end
    last && destroy((prepared.plan,))
    return nothing
end

function destroy(plans)
    for plan in plans
        ccall(library().functions.plan_destroy, Cvoid, (Handle,), plan)
    end
end

function build(key::PlanKey, program::Program)
    functions = library().functions
    plan, bytes = Ref{Handle}(C_NULL), Ref{Csize_t}(0)
    with_problem(key, program) do problem
        with_plan_options(key) do options
            GC.@preserve options plan begin
                check(safe_call(functions.plan_create, problem, address_of(options), address_of(plan)))
            end
        end
    end
    status = ccall(functions.plan_workspace, Cint, (Handle, Ptr{CSizes}, Ptr{Csize_t}), plan[], C_NULL, bytes)
    status == 0 || (destroy((plan[],)); fail(status))
    return Prepared(plan[], bytes[], 0, false, 0)
end

address_of(x::Base.RefValue{T}) where {T} = Ptr{Cvoid}(Base.unsafe_convert(Ptr{T}, x))

"""
    Fovea.clear_cache()

Lets go of every plan, of this package and of libfovea, and of kept scratch memory. Calls that run now are not disturbed.
"""
function clear_cache()
    dropped = Handle[]
    Base.@lock PLANS_LOCK begin
        foreach(prepared -> evict!(dropped, prepared), values(PLANS))
        empty!(PLANS)
    end
    destroy(dropped)
    Base.@lock KEPT_LOCK empty!(KEPT_BUFFERS)
    Base.@lock RECIPES_LOCK empty!(RECIPES)
    check(ccall(library().functions.cache_clear, Cint, ()))
    return nothing
end
