// What kernels that run on the host call: the machine that block.h implements. Compiled into every
// kernel's shared object, so it includes nothing and has plain types only. A kernel reaches the
// machine through a pointer that whoever loads it sets.
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

// The thread that runs.
struct Place {
  int thread, threads;
  int block_x, block_y, block_z;
  int grid_x;
};

struct Machine {
  const Place* place;
  void (*meet)(Meeting kind, void* operand, Where where);
  void (*load)(void* to, unsigned at, unsigned bytes, Where where);
  void (*store)(unsigned at, const void* from, unsigned bytes, Where where);
  void (*add)(unsigned at, float value, Where where);  // atomic
  void (*copy)(unsigned to, const void* from, int bytes, int valid, Where where);
  void (*commit)();
  void (*wait)(int pending);
};

}  // namespace fovea::on_host
