# Which device an array is on, and scratch memory for a call. The extension for CUDA.jl adds
# methods for CuArray to the first four functions and to `with_workspace`.

# "cpu", "cuda:0"; what libfovea calls a device.
device_name(::Array) = "cpu"
device_name(x::AbstractArray) = throw(UnreadableArray(unreadable(x)))

# The address of the first element of an array that owns its memory.
base_address(x::Array) = Ptr{Cvoid}(pointer(x))

# Makes the device of an array the current one; nothing to do on the host.
enter_device(::Array) = nothing

# The stream on which work with this array goes.
current_stream(::Array) = C_NULL

device_of(x::AbstractArray) = device_name(owner(x))
on_host(x::AbstractArray) = owner(x) isa Array

address(x::AbstractArray) = base_address(owner(x)) + layout(x).first * sizeof(eltype(x))

# A copy of host numbers where `like` lives, as Int32 or Float32. Host arrays of that type are taken as they are.
function beside(like::AbstractArray, x::AbstractVector, ::Type{T}) where {T}
    x isa Vector{T} && on_host(like) && return x
    eltype(x) === T && owner(x) isa DenseArray && device_of(x) == device_of(like) && layout(x).strides == (1,) && return x
    return copyto!(similar(owner(like), T, length(x)), T.(collect(x)))
end

# An array of captured bindings: extents and strides in the order of the formula's indices.
function c_array(x::AbstractArray{T,N}, order::Order) where {T,N}
    strides = in_order(layout(x).strides, order)
    # All zero would mean "not given".
    N > 0 && all(iszero, strides) && (strides = (ZERO_STRIDE, Base.tail(strides)...))
    return CArray(address(x), dtype(T), N, in_order(size(x), order), strides)
end

# --- scratch memory ---

# Buffers of the host are kept for the next call and shared by all tasks: a task takes one out, runs, and puts it back.
const KEPT_BUFFERS = Vector{UInt8}[]
const KEPT_LOCK = ReentrantLock()
const KEPT_BYTES = 256 * 2^20  # in all; what is beyond goes to the garbage collector
const ALIGNMENT = 64

function take_buffer(bytes)
    Base.@lock KEPT_LOCK for i in length(KEPT_BUFFERS):-1:1
        length(KEPT_BUFFERS[i]) >= bytes || continue
        buffer = KEPT_BUFFERS[i]
        deleteat!(KEPT_BUFFERS, i)
        return buffer
    end
    return Vector{UInt8}(undef, bytes)
end

function keep_buffer(buffer)
    Base.@lock KEPT_LOCK begin
        push!(KEPT_BUFFERS, buffer)
        # The oldest go first; one that has become too small for its program is never taken again.
        while length(KEPT_BUFFERS) > 1 && mapreduce(length, +, KEPT_BUFFERS) > KEPT_BYTES ||
              length(KEPT_BUFFERS) > 2 * Threads.nthreads()
            popfirst!(KEPT_BUFFERS)
        end
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
