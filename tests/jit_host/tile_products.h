// Products of warpgroups (wgmma), for each warp separately. A product that was begun is computed at
// a random time before its wait ends, from what registers and shared memory contain at that time.
// Until the wait its sums are NaN.
#pragma once

#include <deque>
#include <vector>

#include "tests/ir/random.h"
#include "tests/jit_host/machine.h"
#include "tests/jit_host/shared_memory.h"
#include "tests/jit_host/warp_functions.h"

namespace fovea::on_host {

class TileProducts {
 public:
  explicit TileProducts(SharedMemory& memory) : memory_(memory) {}

  void begin_block(test::Random& random);
  void end_block() const;

  // An operation of all lanes of this user's warp.
  void meet(Meeting kind, void* const (&operands)[lanes], const User& user, Where where);
  void do_some(int warp);

 private:
  static constexpr int most_columns = 256;
  // Sums of a warp: the first of the products that add to them takes them from the registers.
  struct Sums {
    float* registers[lanes];
    int n, users;
    std::vector<float> rows;  // [16][n]
  };
  struct Product {
    TileProduct product;
    const unsigned* a[lanes];
    int group;
    bool computed;
    std::vector<unsigned> pieces;  // of 16 bytes of shared memory that it reads
    Where where;
  };
  struct Warp {
    bool fenced = false;
    int group = 0, begun = 0;
    std::vector<Sums> sums;
    std::deque<Product> products;
  };

  void begin(Warp& warp, void* const (&operands)[lanes], const User& user, Where where);
  void wait(Warp& warp, int pending, const User& user, Where where);
  void compute_next(Warp& warp, int number);
  void compute(Warp& warp, int number, const Product& product);
  Sums& sums_of(Warp& warp, void* const (&operands)[lanes], const TileProduct& product,
                Where where);
  void give_back(Sums& sums, Where where);

  SharedMemory& memory_;
  test::Random* random_ = nullptr;
  std::vector<Warp> warps_;
};

}  // namespace fovea::on_host
