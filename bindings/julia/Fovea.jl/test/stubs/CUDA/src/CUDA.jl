# A stand-in for CUDA.jl if there is none: as much of it as Fovea calls, on memory of the host.
module CUDA

primitive type CuPtr{T} 64 end

struct CuArray{T,N} <: DenseArray{T,N}
    data::Array{T,N}
end
CuArray{T}(::UndefInitializer, dims::Integer...) where {T} = CuArray(Array{T}(undef, dims...))

Base.size(x::CuArray) = size(x.data)
Base.getindex(x::CuArray, i::Int...) = error("scalar indexing of a CuArray")
Base.similar(x::CuArray, ::Type{T}, dims::Dims) where {T} = CuArray(Array{T}(undef, dims))
Base.copyto!(to::CuArray, from::Array) = (copyto!(to.data, from); to)
Base.Array(x::CuArray) = copy(x.data)
Base.broadcasted(::Type{Int32}, x::CuArray) = CuArray(Int32.(x.data))
Base.pointer(x::CuArray{T}) where {T} = reinterpret(CuPtr{T}, UInt(pointer(x.data)))

struct CuDevice
    handle::Cint
end
const CURRENT = Ref{Cint}(0)
device(::CuArray) = CuDevice(0)
device() = CuDevice(CURRENT[])
deviceid(x::CuDevice) = x.handle

struct CuStream
    handle::Ptr{Cvoid}
end
const HANDLE = Ref(C_NULL)
stream() = CuStream(HANDLE[])

const CALLS = Symbol[]
context() = push!(CALLS, :context)
unsafe_free!(::CuArray) = push!(CALLS, :free)

end
