// The kernels of packed_rows.h. Not part of the build: tools/make_ptx.py turns this file into
// packed_rows.cpp, which is, so that building Fovea needs no nvcc.
#include "packed_rows.h"

using namespace fovea::cudnn;

// Tables of starts and lengths, one thread for each sequence.
extern "C" __global__ void fovea_packed_tables(const PackedTables p) {
  const std::int64_t b = std::int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (b <= p.graph_batch) write_tables(p, b);
}

// x: before which sequence, y: every so many-th row, z: which tensor.
extern "C" __global__ void fovea_packed_clear(const PackedGaps p) {
  Cleared to = p.tensors[0];
  if (blockIdx.z == 1) to = p.tensors[1];
  if (blockIdx.z == 2) to = p.tensors[2];
  const RowsOfNone rows = rows_of_none(to.of_keys != 0 ? p.k : p.q, blockIdx.x, p.batch);
  for (std::int64_t row = rows.first + blockIdx.y; row < rows.last; row += gridDim.y) {
    clear_row(to, row, threadIdx.x, blockDim.x);
  }
}

extern "C" __global__ void fovea_packed_transpose(const Transposed t) {
  const std::int64_t step = std::int64_t{gridDim.x} * blockDim.x;
  for (std::int64_t i = std::int64_t{blockIdx.x} * blockDim.x + threadIdx.x; i < t.rows * t.heads;
       i += step) {
    transpose_one(t, i);
  }
}
