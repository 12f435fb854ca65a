# Finding and opening libfovea, once per process, at its first use: `using Fovea` works without it.

const FUNCTIONS = (
    :version, :last_error, :report_text, :report_destroy, :program_parse, :program_destroy, :program_differentiate,
    :problem_create, :problem_destroy, :problem_print, :supported, :explain, :plan_create, :plan_destroy, :plan_engine,
    :plan_workspace, :plan_run, :cache_statistics, :cache_clear, :doctor, :engines, :suggest)

# Addresses of the functions above, all of them or none.
struct Library
    path::String
    functions::NamedTuple{FUNCTIONS,NTuple{length(FUNCTIONS),Ptr{Cvoid}}}
end

const OPENED = Ref{Union{Nothing,Library}}(nothing)
const OPENING = ReentrantLock()

function library()
    opened = OPENED[]
    return opened === nothing ? open_library() : opened
end

function open_library()
    lock(OPENING) do
        OPENED[] === nothing && (OPENED[] = find_library())
        return OPENED[]::Library
    end
end

# Where the library may be, in order. What FOVEA_LIBRARY names is the only place if it is set: a wrong path must not
# lead to another library in silence.
function places()
    named = get(ENV, "FOVEA_LIBRARY", "")
    isempty(named) || return [named]
    package = dirname(dirname(@__DIR__))
    checkout = normpath(package, "..", "..", "..")
    return [joinpath(package, "lib", "libfovea.so"), joinpath(checkout, "build", "libfovea.so"), "libfovea.so.0.1",
            "libfovea.so"]
end

# Without RTLD_DEEPBIND, which is Julia's default. Where Julia links libunwind as a library of its own (Debian, Fedora),
# libstdc++ raises exceptions with that one; bound deeply, libfovea would resume them with libgcc's, which aborts.
const OPEN_FLAGS = Libdl.RTLD_LAZY | Libdl.RTLD_LOCAL

function find_library()
    tried = String[]
    for path in places()
        isabspath(path) && !isfile(path) && (push!(tried, "$path: no such file"); continue)
        try
            return checked_library(path, Libdl.dlopen(path, OPEN_FLAGS))
        catch failure
            failure isa ErrorException || rethrow()
            push!(tried, "$path: $(failure.msg)")
        end
    end
    error("Fovea.jl needs the library libfovea and did not find it. Build it with `./dev build` in a checkout of ",
          "Fovea, then set the environment variable FOVEA_LIBRARY to the path of libfovea.so, or put it on the ",
          "system's library path. Tried:\n  ", join(tried, "\n  "))
end

function checked_library(path, handle)
    addresses = map(FUNCTIONS) do name
        address = Libdl.dlsym(handle, Symbol(:fovea_, name); throw_error = false)
        address === nothing && error("it is no libfovea of this version: it has no function fovea_$name")
        return address
    end
    found = Library(path, NamedTuple{FUNCTIONS}(addresses))
    version = unsafe_string(ccall(found.functions.version, Cstring, ()))
    startswith(version, "0.1.") || error("it has version $version, but this package is for 0.1")
    return found
end
