# Scratch memory of one call. Buffers of the host are kept for the next call and shared by all tasks: a task takes one
# out, runs, and puts it back.

const KEPT_BUFFERS = Vector{UInt8}[]
const KEPT_LOCK = ReentrantLock()
const KEPT_BYTES = 256 * 2^20  # in all; what is beyond goes to the garbage collector
const ALIGNMENT = 64

function take_buffer(bytes)
    lock(KEPT_LOCK)
    try
        for i in length(KEPT_BUFFERS):-1:1
            length(KEPT_BUFFERS[i]) >= bytes || continue
            buffer = KEPT_BUFFERS[i]
            deleteat!(KEPT_BUFFERS, i)
            return buffer
        end
    finally
        unlock(KEPT_LOCK)
    end
    return Vector{UInt8}(undef, bytes)
end

function keep_buffer(buffer)
    lock(KEPT_LOCK)
    try
        push!(KEPT_BUFFERS, buffer)
        # The oldest go first; one that has become too small for its program is never taken again.
        while length(KEPT_BUFFERS) > 1 && mapreduce(length, +, KEPT_BUFFERS) > KEPT_BYTES ||
              length(KEPT_BUFFERS) > 2 * Threads.nthreads()
            popfirst!(KEPT_BUFFERS)
        end
    finally
        unlock(KEPT_LOCK)
    end
    return nothing
end

# Calls f(address) with so many bytes of memory on the device of `like`, aligned to 64.
function with_workspace(f, ::Array, bytes::Integer)
    bytes == 0 && return f(C_NULL)
    buffer = take_buffer(bytes + ALIGNMENT)
    result = GC.@preserve buffer begin
        start = UInt(pointer(buffer))
        f(Ptr{Cvoid}((start + ALIGNMENT - 1) & ~UInt(ALIGNMENT - 1)))
    end
    keep_buffer(buffer)  # not after an error: then the collector has it
    return result
end
