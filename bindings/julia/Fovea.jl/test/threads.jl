# Many tasks on four threads, with garbage collections and emptied caches in between: in a process of its own, since
# the number of threads is fixed when Julia starts.

# Julia before 1.7 starts no more threads than there are processors: there a library is put before the C library's that
# counts four.
function four_processors(folder)
    Sys.CPU_THREADS >= 4 || VERSION >= v"1.7" && return ""
    compiler = Sys.which("cc")
    compiler === nothing && return ""
    write(joinpath(folder, "four.c"), "#include <unistd.h>\nlong __sysconf(int);\nlong sysconf(int name) { return name == _SC_NPROCESSORS_ONLN || name == _SC_NPROCESSORS_CONF ? 4 : __sysconf(name); }\n")
    run(`$compiler -w -shared -fPIC -o $folder/four.so $folder/four.c`)
    return joinpath(folder, "four.so")
end

@testset "four threads" begin
    good, text = other_process("-t", 4, joinpath(@__DIR__, "stress.jl"), SEED; LD_PRELOAD = four_processors(mktempdir()))
    print(text)
    @test good
    @test occursin("all right", text)
end
