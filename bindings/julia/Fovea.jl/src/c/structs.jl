# The structs of fovea.h, field by field; test/layout.jl compares offsets with the C compiler's. All are plain bits, so
# that a problem can be a key of the cache as it stands.

const Handle = Ptr{Cvoid}

@enum Status::Cint OK INVALID_ARGUMENT UNSUPPORTED DEVICE_ERROR OUT_OF_MEMORY INTERNAL_ERROR
@enum DType::Cint DTYPE_DEFAULT F32 F16 BF16 F64 I32 I64 U8 BOOL
@enum Direction::Cint FORWARD BACKWARD
const LAYOUT_BSHD = Cint(1)  # what (head_dim, heads, seq, batch) is, column-major
const ZERO_STRIDE = typemin(Int64)

const Strides4 = NTuple{4,Int64}  # by batch, head, position, feature
const NO_STRIDES = (0, 0, 0, 0)

struct CSizes
    b::Int64
    h::Int64
    hkv::Int64
    sq::Int64
    skv::Int64
    d::Int64
    dv::Int64
    t_q::Int64
    t_k::Int64
end

struct CConfig
    struct_size::Csize_t
    direction::Direction
    layout::Cint
    sizes::CSizes
    dtype::DType
    o_dtype::DType
    do_dtype::DType
    dq_dtype::DType
    dk_dtype::DType
    dv_dtype::DType
    q_strides::Strides4
    k_strides::Strides4
    v_strides::Strides4
    o_strides::Strides4
    do_strides::Strides4
    dq_strides::Strides4
    dk_strides::Strides4
    dv_strides::Strides4
    program::Handle
    scale::Cfloat
    dropout::Cfloat
    rng::Cint
    has_q_lengths::Int32
    has_k_lengths::Int32
    sink::Int32
    lse::Int32
    row_max::Int32
    max_logit::Int32
    has_grad_lse::Int32
    grads::Ptr{UInt8}
    b_offset::Int32
    h_offset::Int32
    q_offset::Int32
    k_offset::Int32
    has_q_offsets::Int32
    has_k_offsets::Int32
    h_global::Int32
    deterministic::Int32
    capture::Int32
    strict::Int32
    reserved::NTuple{8,Ptr{Cvoid}}
    tensor_strides::Ptr{UInt8}
    device_values::Int32
end

struct CPlanOptions
    struct_size::Csize_t
    engine::Ptr{UInt8}
    device::Ptr{UInt8}
    partner::Handle
end

struct CArray
    data::Ptr{Cvoid}
    dtype::DType
    rank::Int32
    extent::NTuple{8,Int64}
    stride::NTuple{8,Int64}
end
const NO_ARRAY = CArray(C_NULL, DTYPE_DEFAULT, 0, ntuple(_ -> 0, 8), ntuple(_ -> 0, 8))

struct CTensorBinding
    name::Ptr{UInt8}
    array::CArray
    gradient::CArray
end

struct CScalarBinding
    name::Ptr{UInt8}
    value::Cdouble
    device::Ptr{Cvoid}
    gradient::Ptr{Cvoid}
end

struct CTensor
    data::Ptr{Cvoid}
    stride::Strides4
end

struct CF32
    value::Cfloat
    is_set::Int32
    device::Ptr{Cvoid}
end

struct CI32
    value::Int32
    is_set::Int32
    device::Ptr{Cvoid}
end

struct CU64
    value::UInt64
    device::Ptr{Cvoid}
end

struct CBindings
    struct_size::Csize_t
    sizes::Ptr{CSizes}
    q::CTensor
    k::CTensor
    v::CTensor
    o::CTensor
    grad_o::CTensor
    grad_q::CTensor
    grad_k::CTensor
    grad_v::CTensor
    lse::Ptr{Cvoid}
    grad_lse::Ptr{Cvoid}
    row_max::Ptr{Cvoid}
    max_logit::Ptr{Cvoid}
    sink::Ptr{Cvoid}
    grad_sink::Ptr{Cvoid}
    q_lengths::Ptr{Cvoid}
    k_lengths::Ptr{Cvoid}
    q_starts::Ptr{Cvoid}
    k_starts::Ptr{Cvoid}
    q_offsets::Ptr{Cvoid}
    k_offsets::Ptr{Cvoid}
    tensors::Ptr{CTensorBinding}
    tensor_count::Csize_t
    scalars::Ptr{CScalarBinding}
    scalar_count::Csize_t
    scale::CF32
    seed::CU64
    offset::CU64
    b_offset::CI32
    h_offset::CI32
    q_offset::CI32
    k_offset::CI32
    workspace::Ptr{Cvoid}
    workspace_bytes::Csize_t
    stream::Ptr{Cvoid}
    executor::Ptr{Cvoid}
end

struct CCacheStats
    struct_size::Csize_t
    hits::UInt64
    misses::UInt64
    builds::UInt64
    evictions::UInt64
    plans::UInt64
    bytes::UInt64
    build_seconds::Cdouble
    disk_hits::UInt64
    bundle_hits::UInt64
    disk_writes::UInt64
end
