#include "tests/jit_host/tile_products.h"

#include <algorithm>
#include <bit>
#include <cstdint>

#include "tests/jit_host/shared_memory.h"

namespace fovea::on_host {
namespace {

constexpr std::uint32_t poison = 0x7fbadbad;  // a NaN

float to_float(std::uint16_t x, bool f16) {
  if (!f16) return std::bit_cast<float>(static_cast<std::uint32_t>(x) << 16);
  const std::uint32_t sign = (x & 0x8000u) << 16, rest = x & 0x7fffu;
  if (rest >= 0x7c00u) return std::bit_cast<float>(sign | 0x7f800000u | (rest & 0x3ffu) << 13);
  return std::bit_cast<float>(
      sign | std::bit_cast<std::uint32_t>(std::bit_cast<float>(rest << 13) * 0x1p112f));
}

// A tile, from its descriptor.
struct Tile {
  unsigned start, leading, stride;
  bool transposed;

  Tile(unsigned long long words, bool transposed_, const Where& where)
      : start(static_cast<unsigned>(words & 0x3fff) << 4),
        leading(static_cast<unsigned>(words >> 16 & 0x3fff) << 4),
        stride(static_cast<unsigned>(words >> 32 & 0x3fff) << 4),
        transposed(transposed_) {
    if (words >> 62 != 1 || (words >> 49 & 7) != 0) {
      throw Mistake("a tile of a product at " + text(where) + " has no swizzle of 128 bytes");
    }
  }

  // Where element k of row (or column) i lies.
  unsigned at(unsigned i, unsigned k) const {
    const unsigned plain =
        transposed ? start + i / 64 * leading + k / 8 * stride + k % 8 * 128 + i % 64 * 2
                   : start + i / 8 * stride + i % 8 * 128 + k * 2;
    return plain ^ (plain >> 7 & 7) << 4;
  }
  // All pieces of 16 bytes of rows [first, end).
  void add_pieces(unsigned first, unsigned end, std::vector<unsigned>& out) const {
    for (unsigned i = first; i < end; i += transposed ? 8 : 1) {
      for (unsigned k = 0; k < 16; k += transposed ? 1 : 8) out.push_back(at(i, k));
    }
  }
};

}  // namespace

void TileProducts::begin_block(test::Random& random) {
  random_ = &random;
  warps_.assign(32, {});
}

void TileProducts::end_block() const {
  for (std::size_t i = 0; i < warps_.size(); ++i) {
    if (!warps_[i].products.empty()) {
      throw Mistake("a block ends while products are under way, which were begun at " +
                    text(warps_[i].products.front().where));
    }
    if (warps_[i].begun != warps_[i / 4 * 4].begun) {
      throw Mistake("warp " + std::to_string(i) + " began " + std::to_string(warps_[i].begun) +
                    " products, the first of its warpgroup " +
                    std::to_string(warps_[i / 4 * 4].begun));
    }
  }
}

void TileProducts::meet(Meeting kind, void* const (&operands)[lanes], const User& user,
                        Where where) {
  Warp& warp = warps_[static_cast<std::size_t>(user.thread / lanes)];
  switch (kind) {
    case Meeting::FenceRegisters: warp.fenced = true; return;
    case Meeting::CommitProducts: ++warp.group; return;
    case Meeting::WaitProducts:
      warp.fenced = false;  // the kernel may use registers after this
      return wait(warp, *static_cast<const int*>(operands[0]), user, where);
    default: return begin(warp, operands, user, where);
  }
}

void TileProducts::begin(Warp& warp, void* const (&operands)[lanes], const User& user,
                         Where where) {
  const auto& product = *static_cast<const TileProduct*>(operands[0]);
  if (!warp.fenced) {
    throw Mistake("a product begins at " + text(where) + " without fence_registers before it");
  }
  const auto row = static_cast<unsigned>(user.thread / lanes % 4 * 16);
  Product queued{product, {}, warp.group, false, {}, where};
  for (int i = 0; i < lanes; ++i) {
    const auto& own = *static_cast<const TileProduct*>(operands[i]);
    queued.a[i] = own.a_registers;
    if (own.a != product.a || own.b != product.b || own.add != product.add) {
      throw Mistake("lanes begin different products at " + text(where));
    }
  }
  if (product.a_registers == nullptr) {
    Tile(product.a, product.transpose_a, where).add_pieces(row, row + 16, queued.pieces);
  }
  Tile(product.b, product.transpose_b, where)
      .add_pieces(0, static_cast<unsigned>(product.n), queued.pieces);
  for (const unsigned piece : queued.pieces) memory_.begin_async_read(piece, user, where);
  ++sums_of(warp, operands, product, where).users;
  ++warp.begun;
  warp.products.push_back(std::move(queued));
  if (random_->below(4) == 0) do_some(user.thread / lanes);
}

TileProducts::Sums& TileProducts::sums_of(Warp& warp, void* const (&operands)[lanes],
                                          const TileProduct& product, Where where) {
  for (Sums& sums : warp.sums) {
    if (sums.registers[0] != product.d) continue;
    if (sums.n == product.n) return sums;
    throw Mistake("a product of another shape adds to the same sums at " + text(where));
  }
  Sums& sums = warp.sums.emplace_back();
  sums.n = product.n;
  sums.users = 0;
  sums.rows.resize(static_cast<std::size_t>(16 * product.n));
  for (int lane = 0; lane < lanes; ++lane) {
    float* const d = sums.registers[lane] = static_cast<const TileProduct*>(operands[lane])->d;
    for (int i = 0; i < product.n / 2; ++i) {
      const int row = lane / 4 + i % 4 / 2 * 8, column = i / 4 * 8 + lane % 4 * 2 + i % 2;
      sums.rows[static_cast<std::size_t>(row * product.n + column)] = d[i];
      d[i] = std::bit_cast<float>(poison);
    }
  }
  return sums;
}

void TileProducts::give_back(Sums& sums, Where where) {
  for (int lane = 0; lane < lanes; ++lane) {
    for (int i = 0; i < sums.n / 2; ++i) {
      float& d = sums.registers[lane][i];
      if (std::bit_cast<std::uint32_t>(d) != poison) {
        throw Mistake("sums of a product were written before it was waited for at " + text(where));
      }
      const int row = lane / 4 + i % 4 / 2 * 8, column = i / 4 * 8 + lane % 4 * 2 + i % 2;
      d = sums.rows[static_cast<std::size_t>(row * sums.n + column)];
    }
  }
}

void TileProducts::wait(Warp& warp, int pending, const User& user, Where where) {
  const int number = user.thread / lanes;
  while (!warp.products.empty() && warp.products.front().group < warp.group - pending) {
    if (!warp.products.front().computed) compute_next(warp, number);
    const Product& product = warp.products.front();
    for (const unsigned piece : product.pieces) memory_.end_async_read(piece, user);
    const auto sums = std::ranges::find_if(
        warp.sums, [&](const Sums& one) { return one.registers[0] == product.product.d; });
    if (--sums->users == 0) {
      give_back(*sums, where);
      warp.sums.erase(sums);
    }
    warp.products.pop_front();
  }
}

void TileProducts::do_some(int warp) { compute_next(warps_[static_cast<std::size_t>(warp)], warp); }

// Products are computed in order: the first that is not computed yet.
void TileProducts::compute_next(Warp& warp, int number) {
  for (Product& product : warp.products) {
    if (product.computed) continue;
    compute(warp, number, product);
    product.computed = true;
    return;
  }
}

void TileProducts::compute(Warp& warp, int number, const Product& queued) {
  const TileProduct& product = queued.product;
  const auto n = static_cast<unsigned>(product.n);
  const auto element = [&](unsigned at) {
    std::uint16_t x;
    memory_.peek(&x, at, 2);
    return to_float(x, product.f16);
  };
  float a[16][16], b[16][most_columns];
  const Tile right(product.b, product.transpose_b, queued.where);
  for (unsigned k = 0; k < 16; ++k) {
    for (unsigned j = 0; j < n; ++j) b[k][j] = element(right.at(j, k));
  }
  if (product.a_registers == nullptr) {
    const Tile left(product.a, product.transpose_a, queued.where);
    const auto first = static_cast<unsigned>(number % 4 * 16);
    for (unsigned i = 0; i < 16; ++i) {
      for (unsigned k = 0; k < 16; ++k) a[i][k] = element(left.at(first + i, k));
    }
  } else {
    for (int lane = 0; lane < lanes; ++lane) {
      for (int e = 0; e < 8; ++e) {
        const unsigned word = queued.a[lane][e / 2];
        const auto half = static_cast<std::uint16_t>(e % 2 == 0 ? word : word >> 16);
        a[lane / 4 + e / 2 % 2 * 8][lane % 4 * 2 + e / 4 * 8 + e % 2] = to_float(half, product.f16);
      }
    }
  }
  const auto sums = std::ranges::find_if(
      warp.sums, [&](const Sums& one) { return one.registers[0] == product.d; });
  for (unsigned i = 0; i < 16; ++i) {
    float* const row = &sums->rows[i * n];
    if (!product.add) std::fill(row, row + n, 0.0f);
    for (unsigned k = 0; k < 16; ++k) {
      for (unsigned j = 0; j < n; ++j) row[j] += a[i][k] * b[k][j];
    }
  }
}

}  // namespace fovea::on_host
