// Which strided blocks of memory overlap: checked against marking every byte.
#include "attention/rules.h"

#include <gtest/gtest.h>

#include <random>
#include <set>

#include "base/error.h"
#include "tests/error_of.h"
#include "tests/ir/random.h"

namespace fovea {
namespace {

std::set<std::uintptr_t> bytes_of(const Region& region) {
  std::set<std::uintptr_t> bytes;
  if (region.bytes() == 0) return bytes;
  std::vector<std::uintptr_t> starts{region.address};
  for (std::size_t i = 0; i < region.rank; ++i) {
    std::vector<std::uintptr_t> next;
    for (const std::uintptr_t start : starts) {
      for (std::int64_t j = 0; j < region.extent[i]; ++j) {
        next.push_back(start + static_cast<std::uintptr_t>(j * region.stride[i]));
      }
    }
    starts = std::move(next);
  }
  for (const std::uintptr_t start : starts) {
    for (std::int64_t byte = 0; byte < region.element_bytes; ++byte) {
      bytes.insert(start + static_cast<std::uintptr_t>(byte));
    }
  }
  return bytes;
}

bool share_a_byte(const Region& a, const Region& b) {
  const auto of_a = bytes_of(a), of_b = bytes_of(b);
  for (const std::uintptr_t byte : of_a) {
    if (of_b.contains(byte)) return true;
  }
  return false;
}

void check_written(const std::vector<Region>& regions) {
  std::vector<ByteRange> ranges;
  for (const Region& region : regions) {
    ranges.push_back({region.address, region.bytes(), true});
  }
  check_overlaps(ranges, [&](std::size_t i) { return regions[i]; });
}

Region random_region(std::mt19937_64& random) {
  Region region;
  region.address = 1000 + random() % 64;
  region.element_bytes = std::int64_t{1} << (random() % 3);
  region.rank = random() % 4;
  for (std::size_t i = 0; i < region.rank; ++i) {
    region.extent[i] = static_cast<std::int64_t>(random() % 5);
    region.stride[i] = static_cast<std::int64_t>(random() % 24);
  }
  return region;
}

// It may take apart regions for overlapping, never the other way round.
TEST(Memory, NoOverlapIsMissed) {
  const std::uint64_t seed = test::printed_seed();
  std::mt19937_64 random(seed);
  int shared = 0, told_apart = 0;
  for (int i = 0; i < 50000; ++i) {
    const Region a = random_region(random), b = random_region(random);
    const bool really = share_a_byte(a, b);
    if (really) {
      ASSERT_TRUE(overlap(a, b) && overlap(b, a)) << "seed " << seed << " step " << i;
    }
    shared += really;
    told_apart += !really && !overlap(a, b);
  }
  EXPECT_GT(shared, 1000);
  EXPECT_GT(told_apart, 1000);
}

// The gradients of q, k and v of one packed tensor [B, S, H + 2 * Hkv, D] interleave.
TEST(Memory, PackedGradientsAreToldApart) {
  constexpr std::int64_t heads = 8, groups = 2, features = 16, rows = 10, batch = 3, bytes = 4;
  constexpr std::int64_t row = (heads + 2 * groups) * features * bytes;
  const auto part = [&](const char* name, std::int64_t first_head, std::int64_t count) {
    return Region{name,
                  static_cast<std::uintptr_t>(4096 + first_head * features * bytes),
                  bytes,
                  4,
                  {batch, count, rows, features},
                  {rows * row, features * bytes, row, bytes}};
  };
  const Region q = part("grad_q", 0, heads), k = part("grad_k", heads, groups),
               v = part("grad_v", heads + groups, groups);
  EXPECT_NO_THROW(check_written({q, k, v}));
  const Region wide = part("grad_q", 0, heads + 1);
  EXPECT_EQ(test::error_of<InvalidArgument>([&] { check_written({wide, k, v}); }),
            "grad_q: is written, but shares memory with grad_k");
}

TEST(Memory, NeighboursDoNotOverlap) {
  const Region a{"a", 100, 4, 1, {5}, {4}};
  Region b{"b", 120, 4, 1, {5}, {4}};
  EXPECT_FALSE(overlap(a, b));
  b.address = 119;
  EXPECT_TRUE(overlap(a, b));
  b.extent[0] = 0;
  EXPECT_FALSE(overlap(a, b));
}

}  // namespace
}  // namespace fovea
