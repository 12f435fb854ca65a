# What the structs of fovea.h are made of, and how one is made.

const Handle = Ptr{Cvoid}

@enum Status::Cint OK INVALID_ARGUMENT UNSUPPORTED DEVICE_ERROR OUT_OF_MEMORY INTERNAL_ERROR
@enum DType::Cint DTYPE_DEFAULT F32 F16 BF16 F64 I32 I64 U8 BOOL
@enum Direction::Cint FORWARD BACKWARD
const LAYOUT_BSHD = Cint(1)  # what (head_dim, heads, seq, batch) is, column-major
const ZERO_STRIDE = typemin(Int64)

include("structs.jl")

# A struct with these fields, its size, and zeros elsewhere, which mean defaults.
filled(::Type{T}; fields...) where {T} = filled_from(T, values(fields))

@generated function filled_from(::Type{T}, fields::NamedTuple{names}) where {T,names}
    all(in(fieldnames(T)), names) || error("$T has no field $(setdiff(names, fieldnames(T)))")
    value(name, type) = name in names ? :(fields.$name) : name === :struct_size ? sizeof(T) : :(zeroed($type))
    return :(T($(map(value, fieldnames(T), fieldtypes(T))...)))
end

zeroed(::Type{T}) where {T<:Number} = zero(T)
zeroed(::Type{T}) where {T<:Ptr} = T(C_NULL)
zeroed(::Type{T}) where {T<:Enum} = T(0)
zeroed(::Type{NTuple{N,T}}) where {N,T} = ntuple(_ -> zeroed(T), Val(N))
zeroed(::Type{T}) where {T} = filled(T)

const NO_STRIDES = (0, 0, 0, 0)  # by batch, head, position, feature
const NO_ARRAY = filled(CArray)
