# Written by tools/c_structs.py from include/fovea/*.h; test/library.jl compares offsets with the C compiler's.
# All are plain bits, so that a problem can be a key of the cache as it stands.

struct CArray
    data::Ptr{Cvoid}
    dtype::DType
    rank::Int32
    extent::NTuple{8,Int64}
    stride::NTuple{8,Int64}
end

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

struct CProblemConfig
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
    q_strides::NTuple{4,Int64}
    k_strides::NTuple{4,Int64}
    v_strides::NTuple{4,Int64}
    o_strides::NTuple{4,Int64}
    do_strides::NTuple{4,Int64}
    dq_strides::NTuple{4,Int64}
    dk_strides::NTuple{4,Int64}
    dv_strides::NTuple{4,Int64}
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
    scale_f64::Cdouble
    verify::Int32
end

struct CPlanOptions
    struct_size::Csize_t
    engine::Ptr{UInt8}
    device::Ptr{UInt8}
    partner::Handle
end

struct CTensor
    data::Ptr{Cvoid}
    stride::NTuple{4,Int64}
end

struct CF32Value
    value::Cfloat
    is_set::Int32
    device::Ptr{Cvoid}
end

struct CI32Value
    value::Int32
    is_set::Int32
    device::Ptr{Cvoid}
end

struct CU64Value
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
    scale::CF32Value
    seed::CU64Value
    offset::CU64Value
    b_offset::CI32Value
    h_offset::CI32Value
    q_offset::CI32Value
    k_offset::CI32Value
    workspace::Ptr{Cvoid}
    workspace_bytes::Csize_t
    stream::Ptr{Cvoid}
    executor::Ptr{Cvoid}
    tangent_q::Ptr{Cvoid}
    tangent_k::Ptr{Cvoid}
    tangent_v::Ptr{Cvoid}
    tangent_sink::Ptr{Cvoid}
    tangent_o::Ptr{Cvoid}
    tangent_lse::Ptr{Cvoid}
    tensor_tangents::Ptr{CTensorBinding}
    tensor_tangent_count::Csize_t
    scalar_tangents::Ptr{CScalarBinding}
    scalar_tangent_count::Csize_t
    scale_f64::Cdouble
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
