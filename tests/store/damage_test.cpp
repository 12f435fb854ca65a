// The fuzzer's target on a fixed number of inputs, for CI, and files on disk with bytes changed at
// random: refused or right, never a crash, never another blob. ./dev fuzz runs the real one.
#include <gtest/gtest.h>

#include <iostream>

#include "base/error.h"
#include "store/bundle.h"
#include "store/entry.h"
#include "tests/ir/random.h"
#include "tests/store/damage_target.h"
#include "tests/store/store_case.h"

namespace fovea::store {
namespace {

using namespace fovea::store::testing;
using test::Random;
using Buffer = std::vector<std::uint8_t>;

constexpr const char* names[] = {"x", "y", "a longer problem line", ""};

Blob blob_for(const std::string& name) { return Blob(10 + 37 * name.size(), 'b'); }

Buffer bundle_bytes(const std::string& path) {
  BundleWriter writer(path);
  for (const char* const name : names) writer.add(key_of(name), blob_for(name));
  writer.finish("fovea test");
  const std::string bytes = read_file(path);
  return {bytes.begin(), bytes.end()};
}

// Numbers at the edges of what sizes and offsets may be.
std::uint64_t edge(Random& random, std::size_t size) {
  const std::uint64_t edges[] = {0,
                                 1,
                                 56,
                                 size - 1,
                                 size,
                                 size + 1,
                                 1U << 28,
                                 ~std::uint64_t{0},
                                 std::uint64_t{1} << 63,
                                 std::uint64_t{0} - 56};
  return random.pick(edges);
}

Buffer changed(Buffer bytes, Random& random) {
  for (std::uint32_t edits = 1 + random.below(4); edits > 0 && !bytes.empty(); --edits) {
    const std::size_t at = random.below(static_cast<std::uint32_t>(bytes.size()));
    switch (random.below(5)) {
      case 0: bytes[at] ^= static_cast<std::uint8_t>(1U << random.below(8)); break;
      case 1: bytes[at] = static_cast<std::uint8_t>(random.below(256)); break;
      case 2: bytes.resize(at); break;
      case 3: bytes.insert(bytes.end(), random.below(40), static_cast<std::uint8_t>(at)); break;
      default: {
        const std::uint64_t value = edge(random, bytes.size());
        const std::size_t place = at & ~std::size_t{7};
        for (std::size_t i = 0; i < 8 && place + i < bytes.size(); ++i) {
          bytes[place + i] = static_cast<std::uint8_t>(value >> (8 * i));
        }
      }
    }
  }
  return bytes;
}

TEST(Damage, NothingGoesWrongBehindTheSums) {
  const std::uint64_t seed = test::test_seed();
  const TemporaryFolder top;
  const Buffer bundle = bundle_bytes(top.path("plans.fovea"));
  const Buffer entry = encode_entry(key_of("x"), blob_for("x"));
  const std::uint64_t count = test::cases(200'000);
  std::uint64_t accepted = 0;
  for (std::uint64_t i = 0; i < count; ++i) {
    Random random(seed, i);
    const Buffer input = changed(random.chance(70) ? bundle : entry, random);
    const DamageOutcome outcome = damage_target(input, random.chance(80));
    ASSERT_EQ(outcome.failure, "") << test::seed_text(seed, i);
    accepted += outcome.accepted;
  }
  std::cout << count << " files (seed " << seed << "), " << accepted << " of them accepted\n";
  EXPECT_GT(accepted, count / 50);
}

TEST(Damage, ChangedBundlesOnDiskAreRefusedOrRight) {
  const std::uint64_t seed = test::test_seed();
  const TemporaryFolder top;
  const std::string path = top.path("plans.fovea");
  const Buffer whole = bundle_bytes(path);
  const std::uint64_t count = test::cases(4000);
  std::uint64_t opened = 0;
  for (std::uint64_t i = 0; i < count; ++i) {
    Random random(seed, i);
    const Buffer bytes = changed(whole, random);
    write_file(path, {bytes.begin(), bytes.end()});
    try {
      const Bundle bundle = Bundle::open(path);
      ++opened;
      for (const char* const name : names) {
        try {
          ASSERT_EQ(bundle.find(key_of(name)), blob_for(name)) << test::seed_text(seed, i);
        } catch (const Damaged&) {
        }
      }
    } catch (const InvalidArgument&) {
    }
  }
  std::cout << count << " bundles (seed " << seed << "), " << opened << " opened\n";
  EXPECT_GT(opened, 0U);
  EXPECT_LT(opened, count);
}

TEST(Damage, ChangedFilesOfTheCacheAreRebuilt) {
  const std::uint64_t seed = test::test_seed();
  const TemporaryFolder top;
  Disk disk({top.path(), ""}, default_limit);
  const Buffer whole = encode_entry(key_of("x"), blob_for("x"));
  const std::uint64_t count = test::cases(4000);
  std::uint64_t found = 0;
  for (std::uint64_t i = 0; i < count; ++i) {
    Random random(seed, i);
    const Buffer bytes = changed(whole, random);
    write_file(file_of(top.path(), key_of("x")), {bytes.begin(), bytes.end()});
    const auto blob = disk.load(key_of("x"));
    found += blob.has_value();
    ASSERT_EQ(blob.value_or(blob_for("x")), blob_for("x")) << test::seed_text(seed, i);
    ASSERT_EQ(blob.has_value(), bytes == whole) << test::seed_text(seed, i);
  }
  std::cout << count << " files (seed " << seed << "), " << found << " unchanged\n";
}

}  // namespace
}  // namespace fovea::store
