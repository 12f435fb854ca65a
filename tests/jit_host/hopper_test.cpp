// The host's barriers, copies of tiles and products of warpgroups: correct kernels give the right
// numbers, and every kind of mistake is found and described.
#include <gtest/gtest.h>

#include <cstring>
#include <vector>

#define FOVEA_HOST_PRIMITIVES "tests/jit_host/primitives_host.h"
#define FOVEA_HOST_HOPPER "tests/jit_host/hopper_host.h"
#include "engines/jit/device/arguments.h"
#include "engines/jit/device/hopper/mbarrier.h"
#include "engines/jit/device/hopper/tma.h"
#include "engines/jit/device/hopper/warpgroup.h"
#include "engines/jit/device/hopper/wgmma.h"
#include "tests/jit_host/launch.h"

namespace fovea::device {
namespace {

constexpr int depth = 128, columns = 128;
alignas(16) unsigned short a_matrix[64][depth], b_matrix[columns][depth], v_matrix[64][columns];
float results[64][columns];
alignas(16) float sums[256];
TensorMap a_map, b_map, v_map;

TensorMap map_of(const void* data, unsigned rows, unsigned width, unsigned box_rows) {
  on_host::TensorMapWords words{};
  words.data = reinterpret_cast<std::uint64_t>(data);
  words.stride_bytes[0] = 2 * width;
  words.extent[0] = width, words.extent[1] = rows;
  words.box[0] = 64, words.box[1] = box_rows;
  words.rank = 2, words.element_bytes = 2, words.swizzle = 3, words.mark = on_host::map_mark;
  TensorMap map{};
  std::memcpy(&map, &words, sizeof words);
  return map;
}

unsigned short bf16(float x) { return static_cast<unsigned short>(bits_of(x) >> 16); }

void fill() {
  for (int i = 0; i < 64 * depth; ++i)
    a_matrix[i / depth][i % depth] = bf16(static_cast<float>(i * 7 % 13 - 6));
  for (int i = 0; i < columns * depth; ++i) {
    b_matrix[i / depth][i % depth] = bf16(static_cast<float>(i * 5 % 11 - 5));
  }
  for (int i = 0; i < 64 * columns; ++i)
    v_matrix[i / columns][i % columns] = bf16(static_cast<float>(i * 3 % 7 - 3));
  a_map = map_of(a_matrix, 64, depth, 64);
  b_map = map_of(b_matrix, columns, depth, columns);
  v_map = map_of(v_matrix, 64, columns, 64);
}

std::string run(on_host::Kernel kernel, unsigned threads = 256) {
  machine = &on_host::Block::machine();
  return on_host::launch(kernel, nullptr, {1, 1, 1, threads, 100 << 10});
}

void expect_mistake(on_host::Kernel kernel, std::initializer_list<const char*> words,
                    unsigned threads = 256) {
  fill();
  const std::string text = run(kernel, threads);
  for (const char* const word : words) {
    EXPECT_NE(text.find(word), std::string::npos) << word << " is not in: " << text;
  }
}

constexpr Shared a_place = 0, b_place = 16 << 10, v_place = 48 << 10, barriers = 96 << 10;
constexpr int a_bytes = 64 * depth * 2, b_bytes = columns * depth * 2, v_bytes = 64 * columns * 2;

void make_barriers(int releases) {
  if (thread_index() == 0) {
    init_barrier(barriers, 1);
    init_barrier(barriers + 8, releases);
    publish_barriers();
  }
  sync_block();
}
void load(Shared to, const TensorMap& map, int tile_bytes) {
  for (int i = 0; i < 2; ++i) load_tile(to + i * tile_bytes / 2, map, barriers, {64 * i, 0});
}

// The first warpgroup loads a, b and v; the second computes c = a b^T and (c as bf16) -> o = c[:,
// :64] v.
void product_kernel(void**) {
  make_barriers(1);
  if (warpgroup_index() == 0) {
    if (thread_index() != 0) return;
    arrive_expecting(barriers, a_bytes + b_bytes + v_bytes);
    load(a_place, a_map, a_bytes);
    load(b_place, b_map, b_bytes);
    load(v_place, v_map, v_bytes);
    return;
  }
  wait_for(barriers, 0);
  float c[columns / 8][4], o[columns / 8][4];
  fence_registers();
  for (int k = 0; k < depth; k += 16) {
    multiply_tiles<false, false>(
        BF16{}, c, moved_by(along_rows(a_place), k % 64 * 2 + k / 64 * a_bytes / 2),
        moved_by(along_rows(b_place), k % 64 * 2 + k / 64 * b_bytes / 2), k > 0);
  }
  commit_products();
  wait_products<0>();
  settle(c);
  unsigned p[4][4];
  for (int i = 0; i < 16; ++i) {
    const int j = i / 4 * 2 + i % 4 / 2, e = i % 2 * 2;
    p[i / 4][i % 4] = pack(BF16{}, c[j][e] / 64, c[j][e + 1] / 64);
  }
  fence_registers();
  for (int k = 0; k < 4; ++k) {
    multiply_tiles<false, true>(BF16{}, o, p[k],
                                moved_by(across_rows(v_place, v_bytes / 2), 2048 * k), k > 0);
  }
  commit_products();
  wait_products<0>();
  const int row = warp_index() % 4 * 16 + lane_index() / 4;
  for (int i = 0; i < columns / 2; ++i) {
    results[row + i % 4 / 2 * 8][i / 4 * 8 + lane_index() % 4 * 2 + i % 2] = o[i / 4][i % 4];
  }
}

TEST(JitHostHopper, ProductsOfTilesAndRegisters) {
  fill();
  ASSERT_EQ(run(product_kernel), "");
  for (int i = 0; i < 64; ++i) {
    float p[64];
    for (int j = 0; j < 64; ++j) {
      float c = 0;
      for (int k = 0; k < depth; ++k) {
        c += to_float(BF16{}, a_matrix[i][k]) * to_float(BF16{}, b_matrix[j][k]);
      }
      p[j] = to_float(BF16{}, static_cast<unsigned short>(pack(BF16{}, c / 64, 0)));
    }
    for (int j = 0; j < columns; ++j) {
      float o = 0;
      for (int k = 0; k < 64; ++k) o += p[k] * to_float(BF16{}, v_matrix[k][j]);
      ASSERT_NEAR(results[i][j], o, 1e-3) << i << ", " << j;
    }
  }
}

// Not inlined: its frame must lie below the kernel's.
[[gnu::noinline]] int wait_deeper(int parity) {
  volatile int room[128];
  room[0] = parity;
  wait_for(barriers, room[0]);
  return room[0];
}

// If no other thread can continue, what this one waits for arrives while it looks for another to
// run, and it switches to itself. Each time its stack has another depth than before.
TEST(JitHostHopper, AThreadThatWaitsAlone) {
  const auto kernel = [](void**) {
    make_barriers(31);
    if (thread_index() != 0) return arrive(barriers + 8);
    wait_for(barriers + 8, 0);
    for (int i = 0; i < 32; ++i) {
      arrive_expecting(barriers, a_bytes);
      load(a_place, a_map, a_bytes);
      if (i % 2 == 0) wait_for(barriers, 0);
      if (i % 2 == 1) wait_deeper(1);
    }
  };
  fill();
  EXPECT_EQ(run(kernel, 32), "");
}

// --- mistakes ---

TEST(JitHostHopper, ATileThatNobodyWaitedFor) {
  expect_mistake(
      [](void**) {
        make_barriers(1);
        if (thread_index() == 0) {
          arrive_expecting(barriers, a_bytes);
          load(a_place, a_map, a_bytes);
          wait_for(barriers, 0);
        }
        if (thread_index() == 64) load_shared<unsigned>(a_place);
      },
      {"shared bytes 0 to 4"});
}

TEST(JitHostHopper, AnotherNumberOfBytes) {
  expect_mistake(
      [](void**) {
        make_barriers(1);
        if (thread_index() == 0) {
          arrive_expecting(barriers, a_bytes + 16);
          load(a_place, a_map, a_bytes);
        }
        wait_for(barriers, 0);
      },
      {"threads wait for each other", "0 arrivals and 16 bytes"});
}

TEST(JitHostHopper, APlaceThatIsFilledAgainTooEarly) {
  expect_mistake(
      [](void**) {
        make_barriers(1);
        if (thread_index() == 0) {
          for (int i = 0; i < 2; ++i) {
            arrive_expecting(barriers, a_bytes);
            load(a_place, a_map, a_bytes);
            wait_for(barriers, i);
          }
        }
        if (warpgroup_index() == 1) {
          wait_for(barriers, 0);
          load_shared<unsigned>(a_place + 4 * (thread_index() - 128));
        }
      },
      {"FOVEA_TEST_SEED"});  // the order of threads decides: a race, an early read or a deadlock
}

TEST(JitHostHopper, MoreArrivalsThanABarrierCounts) {
  expect_mistake(
      [](void**) {
        make_barriers(2);
        arrive(barriers + 8);
        if (thread_index() == 0) wait_for(barriers + 8, 1);
        arrive_expecting(barriers + 8, 32);
        arrive(barriers + 8);
      },
      {"have arrived"}, 32);
}

TEST(JitHostHopper, SumsThatWereNotWaitedFor) {
  // 0: no fence before the product; 1: no wait; 2: sums are written before the wait; 3: correct.
  static int variant;
  const auto kernel = [](void**) {
    make_barriers(1);
    if (thread_index() == 0) {
      arrive_expecting(barriers, a_bytes + b_bytes);
      load(a_place, a_map, a_bytes);
      load(b_place, b_map, b_bytes);
    }
    wait_for(barriers, 0);
    float c[16][4];
    if (variant != 0) fence_registers();
    multiply_tiles<false, false>(BF16{}, c, along_rows(a_place), along_rows(b_place), false);
    commit_products();
    if (variant == 2) c[3][1] = 1;
    if (variant != 1) wait_products<0>();
  };
  variant = 0;
  expect_mistake(kernel, {"without fence_registers"}, 128);
  variant = 1;
  expect_mistake(kernel, {"ends while products are under way"}, 128);
  variant = 2;
  expect_mistake(kernel, {"written before it was waited for"}, 128);
  variant = 3;
  fill();
  EXPECT_EQ(run(kernel, 128), "");
}

// What threads write must be fenced before a product or a bulk copy reads it.
TEST(JitHostHopper, WritesThatAreNotFenced) {
  static bool fences;
  const auto kernel = [](void**) {
    make_barriers(1);
    if (thread_index() >= 32) return;
    store_shared(16 * lane_index(), Floats4{1, 2, 3, 4});
    if (fences) fence_for_async();
    sync_warp();
    if (lane_index() == 0) {
      add_bulk(sums, 0, 512);
      commit_bulk();
      wait_bulk_read<0>();
      store_shared(0, 0.0f);
    }
  };
  fences = false;
  expect_mistake(kernel, {"without fence_for_async"}, 64);
  fences = true;
  std::fill(sums, sums + 256, 1.0f);
  EXPECT_EQ(run(kernel, 64), "");
  for (int i = 0; i < 256; ++i) EXPECT_EQ(sums[i], i < 128 ? 2.0f + i % 4 : 1) << i;
}

TEST(JitHostHopper, NamedBarriersOrderMemory) {
  static bool waits;
  const auto kernel = [](void**) {
    const int me = thread_index();
    store_shared(4 * me, me);
    if (me < 64) {
      arrive_threads(3, 128);
      return;
    }
    if (waits) sync_threads(3, 128);
    if (!waits) arrive_threads(3, 128);
    load_shared<int>(4 * (me - 64));
  };
  waits = true;
  EXPECT_EQ(run(kernel, 128), "");
  waits = false;
  expect_mistake(kernel, {"shared bytes"}, 128);
}

// On a GPU warp_index is a shuffle: one lane alone would wait for the others.
TEST(JitHostHopper, AWarpsNumberForSomeLanes) {
  expect_mistake(
      [](void**) {
        if (lane_index() == 0) store_shared(4 * warp_index(), 1);
      },
      {"hopper_test.cpp:"});
}

TEST(JitHostHopper, AWaitForAnotherBlock) {
  static unsigned word = 1;
  expect_mistake([](void**) { wait_for_bits(&word, &word, 3u); }, {"another block"});
  EXPECT_EQ(run([](void**) { wait_for_bits(&word, &word, 1u); }), "");
}

TEST(JitHostHopper, MatricesAreStoredAsTheyAreLoaded) {
  static unsigned loaded[32][4];
  const auto kernel = [](void**) {
    const auto lane = static_cast<unsigned>(lane_index());
    unsigned r[4], t[4];
    for (unsigned i = 0; i < 4; ++i) r[i] = (lane * 8 + i * 2) | (lane * 8 + i * 2 + 1) << 16;
    store_matrices(16 * lane, r);
    sync_warp();
    load_matrices(t, 16 * lane);
    for (unsigned i = 0; i < 4; ++i) loaded[lane][i] = t[i] ^ r[i];
  };
  ASSERT_EQ(run(kernel, 32), "");
  for (const auto& words : loaded) {
    for (const unsigned word : words) EXPECT_EQ(word, 0u);
  }
}

}  // namespace
}  // namespace fovea::device
