// The functions that kernels on the host call, which block.h implements. This header is compiled
// into the shared object of every kernel, so it includes nothing and has plain types only. A kernel
// finds the functions through a pointer that Module sets.
#pragma once

namespace fovea::on_host {

// A line of a kernel's source, for messages.
struct Where {
  const char* file;
  int line;
};

// Operations that all threads of a warp, or of a block, carry out together.
enum class Meeting : int {
  Ballot,
  Any,
  SyncWarp,
  ShuffleXor,
  Shuffle,
  LoadMatrices,
  LoadMatricesTransposed,
  MultiplyAddF16,
  MultiplyAddBf16,
  SyncBlock,
  AnyInBlock,
  FenceRegisters,  // this and the following: products of a warpgroup, by each of its warps
  MultiplyTiles,
  CommitProducts,
  WaitProducts,
};

// What each thread gives to such an operation, and gets from it.
struct Vote {
  bool value;
  unsigned result;
};
struct Shuffled {
  unsigned long long value, result;
  int lane;  // or mask
};
struct MatrixRows {
  unsigned* r;   // [4]
  unsigned row;  // a place in shared memory
};
struct Product {
  float* c;           // [4]
  const unsigned* a;  // [4]
  unsigned b0, b1;
};

// d (16 x n, of this warp) += a b. a and b are tiles in shared memory, as descriptors of wgmma.
struct TileProduct {
  float* d;  // [n / 8][4]
  int n;
  const unsigned* a_registers;  // [4]; null: a is a tile
  unsigned long long a, b;
  bool f16, transpose_a, transpose_b, add;
};

// What threads do with a barrier in shared memory.
enum class BarrierAct : int { Init, Publish, Arrive, ArriveExpecting, Wait };
struct BarrierCall {
  BarrierAct act;
  unsigned at;
  int value;  // arrivals, bytes or parity
};
// A box of a tensor that is copied to shared memory.
struct TileLoad {
  unsigned to;
  const void* map;
  unsigned barrier;
  const int* at;
  int rank;
};
// Additions from shared to global memory, in groups.
enum class BulkAct : int { Add, Commit, WaitRead, Wait };
struct BulkCall {
  BulkAct act;
  float* to;
  unsigned from;
  int value;  // bytes, or groups that need not have ended
};

// A tensor map, as the driver of tests/host_gpu writes it and copies of tiles read it.
struct TensorMapWords {
  unsigned long long data;
  unsigned long long stride_bytes[4];  // of index 1 and the following
  unsigned extent[5];
  unsigned box[5];
  unsigned rank, element_bytes, swizzle;  // 0: none, 3: 128 bytes
  unsigned mark;                          // map_mark if the driver made it
};
inline constexpr unsigned map_mark = 0x7e4507a9;
static_assert(sizeof(TensorMapWords) <= 128);

// The thread that runs.
struct ThreadIndex {
  int thread, threads;
  int block_x, block_y, block_z;
  int grid_x;
};

struct Machine {
  const ThreadIndex* place;
  void (*meet)(Meeting kind, void* operand, Where where);
  void (*load)(void* to, unsigned at, unsigned bytes, Where where);
  void (*store)(unsigned at, const void* from, unsigned bytes, Where where);
  void (*add)(unsigned at, float value, Where where);  // atomic
  void (*copy)(unsigned to, const void* from, int bytes, int valid, Where where);
  void (*commit)();
  void (*wait)(int pending);
  void (*barrier)(const BarrierCall& call, Where where);
  void (*named_barrier)(bool waits, int id, int threads, Where where);
  void (*load_tile)(const TileLoad& load, Where where);
  void (*bulk)(const BulkCall& call, Where where);
  void (*fence_for_async)();
  void (*wait_for_ever)(Where where);  // a wait that cannot end
};

}  // namespace fovea::on_host
