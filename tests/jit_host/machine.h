// What kernels that run on the host call: the machine that block.h implements. Compiled into every
// kernel's shared object, so it includes nothing and has plain types only. A kernel reaches the
// machine through a pointer that is set when it is loaded.
#pragma once

namespace fovea::on_host {

// A line of a kernel's source, for messages.
struct Where {
  const char* file;
  int line;
};

// What a warp, or a block, does together.
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
  FenceRegisters,  // from here on: products of a warpgroup, each warp's rows by itself
  MultiplyTiles,
  CommitProducts,
  WaitProducts,
};

// What each thread brings to a meeting, and takes from it.
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

// d (16 x n, of this warp) += a b, of tiles in shared memory that their words describe.
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
// A box of a tensor on its way to shared memory.
struct TileLoad {
  unsigned to;
  const void* map;
  unsigned barrier;
  const int* at;
  int rank;
};
// Sums on their way to global memory, in groups.
enum class BulkAct : int { Add, Commit, WaitRead, Wait };
struct BulkCall {
  BulkAct act;
  float* to;
  unsigned from;
  int value;  // bytes, or groups that may be under way
};

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
  void (*wait_for_ever)(Where where);  // for what no one will bring about
};

}  // namespace fovea::on_host
