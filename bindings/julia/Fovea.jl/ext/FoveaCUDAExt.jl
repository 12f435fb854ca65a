# Arrays of CUDA.jl: device addresses, the task's stream, scratch memory from its pool.
module FoveaCUDAExt

# Before Julia 1.9 Fovea reads this file itself, into a module that has both packages.
isdefined(Base, :get_extension) ? (import Fovea, CUDA) : (import ..Fovea, ..CUDA)

Fovea.device_name(x::CUDA.CuArray) = string("cuda:", CUDA.deviceid(CUDA.device(x)))

Fovea.base_address(x::CUDA.CuArray) = Ptr{Cvoid}(reinterpret(UInt, pointer(x)))

# libfovea makes the context of its device current itself. The stream and new arrays are the task's, though.
function Fovea.enter_device(x::CUDA.CuArray)
    CUDA.context()
    CUDA.device() == CUDA.device(x) && return
    Fovea.refuse("q is on $(Fovea.device_name(x)), but this task works on device $(CUDA.deviceid(CUDA.device())): ",
                 "call CUDA.device!($(CUDA.deviceid(CUDA.device(x)))) first")
end

Fovea.current_stream(::CUDA.CuArray) = Ptr{Cvoid}(CUDA.stream().handle)

function Fovea.with_workspace(f, ::CUDA.CuArray, bytes::Integer)
    bytes == 0 && return f(C_NULL)
    buffer = CUDA.CuArray{UInt8}(undef, bytes)
    try
        return GC.@preserve buffer f(Fovea.base_address(buffer))
    finally
        CUDA.unsafe_free!(buffer)  # in the order of the stream: after the call has used it
    end
end

end
