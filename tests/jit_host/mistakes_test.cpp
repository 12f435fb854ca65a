// Every kind of mistake that a kernel can make is found and described. Correct kernels pass.
#include <gtest/gtest.h>

#include <vector>

#define FOVEA_HOST_PRIMITIVES "tests/jit_host/primitives_host.h"
#include "engines/jit/device/primitives.h"
#include "tests/jit_host/launch.h"

namespace fovea::device {
namespace {

using on_host::Launch;

alignas(16) unsigned char global[1024];  // kernels copy from here
int answers[1024];                       // and write here

std::string run(on_host::Kernel kernel, const Launch& grid) {
  machine = &on_host::Block::machine();
  return on_host::launch(kernel, nullptr, grid);
}
std::string run(on_host::Kernel kernel) { return run(kernel, {1, 1, 1, 64, 1024}); }

void expect_words(const std::string& text, std::initializer_list<const char*> words) {
  for (const char* const word : words) {
    EXPECT_NE(text.find(word), std::string::npos) << word << " is not in: " << text;
  }
}
// Not a macro, in which all lines of a kernel would have the same number.
void expect_mistake(on_host::Kernel kernel, std::initializer_list<const char*> words) {
  expect_words(run(kernel), words);
}
void fill(int value) {
  store_shared(4 * thread_index(), value);
  sync_block();
}

// --- races ---

TEST(JitHostMistakes, ReadOfWhatAnotherThreadWrites) {
  expect_mistake(
      [](void**) {
        fill(1);
        store_shared(4 * thread_index(), thread_index());
        load_shared<int>(4 * (thread_index() ^ 32));
      },
      {"a race", "s shared bytes", " there (line", "mistakes_test.cpp:"});
}

TEST(JitHostMistakes, WriteWhereAnotherWarpStillReads) {
  expect_mistake(
      [](void**) {
        fill(thread_index());
        load_shared<int>(4 * (thread_index() ^ 32));
        store_shared(4 * thread_index(), 0);
      },
      {"a race", "read"});
}

TEST(JitHostMistakes, TwoThreadsWriteTheSame) {
  expect_mistake([](void**) { store_shared(16, thread_index()); }, {"a race", "writes", "wrote"});
}

TEST(JitHostMistakes, LanesOfOneWarpRaceToo) {
  expect_mistake(
      [](void**) {
        store_shared(4 * thread_index(), thread_index());
        shuffle_xor(1, 1);  // waits for the others, but orders no memory
        load_shared<int>(4 * (thread_index() ^ 1));
      },
      {"a race"});
}

TEST(JitHostMistakes, PartsOfAWord) {
  expect_mistake(
      [](void**) {
        fill(1);
        store_shared<unsigned short>(2 * thread_index(), 1);
        load_shared<unsigned>(4 * (thread_index() / 2));
      },
      {"a race"});
}

TEST(JitHostMistakes, AtomicBesidePlain) {
  expect_mistake(
      [](void**) {
        if (thread_index() == 0) store_shared(0, 0.0f);
        sync_block();
        add_shared(0, 1.0f);
        load_shared<float>(0);
      },
      {"a race"});
}

TEST(JitHostMistakes, WhatIsOrderedIsNoRace) {
  const auto kernel = [](void**) {
    const int me = thread_index();
    store_shared(4 * me, me);
    sync_warp();
    int sum = load_shared<int>(4 * (me ^ 1));
    sync_block();
    sum += load_shared<int>(4 * (me ^ 32));
    load_shared<int>(4 * (me ^ 16));  // many may read
    sync_block();
    store_shared(4 * (me ^ 32), sum);
    store_shared<unsigned short>(512 + 2 * me, 1);  // neighbours of one word
    store_shared<unsigned char>(768 + me, 1);
    if (me == 0) store_shared(256, 0.0f);
    sync_block();
    load_shared<unsigned>(512 + 4 * (me / 2));
    load_shared<on_host::Machine*>(768 + 8 * (me / 8));
    add_shared(256, 1.0f);
    sync_block();
    answers[me] = load_shared<int>(4 * me) + static_cast<int>(load_shared<float>(256));
  };
  ASSERT_EQ(run(kernel), "");
  for (int i = 0; i < 64; ++i) EXPECT_EQ(answers[i], (i ^ 32 ^ 1) + i + 64) << i;
}

// --- memory ---

TEST(JitHostMistakes, ReadOfWhatNobodyWrote) {
  expect_mistake([](void**) { load_shared<int>(4 * thread_index()); }, {"nothing was written"});
  // Also what only an earlier block has written.
  expect_mistake(
      [](void**) {
        if (thread_index() < 63) store_shared(4 * thread_index(), 1);
        sync_block();
        load_shared<Words2>(8 * (thread_index() / 2));
      },
      {"nothing was written", "248 to 256"});
}

TEST(JitHostMistakes, BlocksBeginWithNothingWritten) {
  const auto kernel = [](void**) {
    if (block_x() == 0) store_shared(4 * thread_index(), 1);
    sync_block();
    if (block_x() == 1) load_shared<int>(4 * thread_index());
  };
  expect_words(run(kernel, {2, 1, 1, 64, 1024}), {"block (1, 0, 0)", "nothing was written"});
}

TEST(JitHostMistakes, OutOfBoundsAndMisaligned) {
  expect_mistake([](void**) { store_shared(1024 + 4 * thread_index(), 1); },
                 {"there are only 1024"});
  expect_mistake([](void**) { load_shared<Words4>(static_cast<Shared>(-16)); }, {"there are only"});
  expect_mistake([](void**) { store_shared(4 * thread_index() + 2, 1); }, {"misaligned"});
  expect_mistake(
      [](void**) {
        fill(1);
        unsigned r[4];
        load_matrices(r, 8);
      },
      {"misaligned"});
}

// --- asynchronous copies ---

TEST(JitHostMistakes, ACopyThatNobodyWaitedFor) {
  expect_mistake(
      [](void**) {
        copy_async<4>(4 * thread_index(), global, 4);
        commit_copies();
        load_shared<int>(4 * thread_index());
      },
      {"was not waited for"});
  expect_mistake(
      [](void**) {  // the wait covers the first group only
        copy_async<4>(4 * thread_index(), global, 4);
        commit_copies();
        copy_async<4>(512 + 4 * thread_index(), global, 4);
        commit_copies();
        wait_copies<1>();
        load_shared<int>(4 * thread_index());
        store_shared(512 + 4 * thread_index(), 1);
      },
      {"writes", "was not waited for"});
  expect_mistake(
      [](void**) {  // not committed
        copy_async<4>(4 * thread_index(), global, 4);
        wait_copies<0>();
        store_shared(4 * thread_index(), 1);
      },
      {"was not waited for"});
}

TEST(JitHostMistakes, ACopyThatOthersReadWithoutABarrier) {
  expect_mistake(
      [](void**) {
        copy_async<4>(4 * thread_index(), global, 4);
        commit_copies();
        wait_copies<0>();
        load_shared<int>(4 * (thread_index() ^ 32));
      },
      {"shared bytes"});
}

TEST(JitHostMistakes, ACopyIntoWhatOthersStillRead) {
  expect_mistake(
      [](void**) {
        fill(1);
        load_shared<int>(4 * (thread_index() ^ 32));
        copy_async<4>(4 * thread_index(), global, 4);
      },
      {"shared bytes", "read"});
}

TEST(JitHostMistakes, ACopyOfMisalignedOrTooManyBytes) {
  expect_mistake([](void**) { copy_async<16>(16 * thread_index(), global + 8, 16); },
                 {"no multiple of 16"});
  expect_mistake([](void**) { copy_async<8>(8 * thread_index(), global, 9); }, {"not 0 to 8"});
  expect_mistake([](void**) { copy_async<16>(8 * thread_index(), global, 16); }, {"misaligned"});
}

TEST(JitHostMistakes, CopiesFillUpWithZeros) {
  for (int i = 0; i < 1024; ++i) global[i] = static_cast<unsigned char>(i % 251 + 1);
  const auto kernel = [](void**) {
    const int me = thread_index();
    copy_async<16>(16 * me, me % 17 == 0 ? nullptr : global + 16 * me, me % 17);
    commit_copies();
    wait_copies<0>();
    sync_block();
    const int other = me ^ 32;
    int wrong = 0;
    for (int i = 0; i < 16; ++i) {
      const int want = i < other % 17 ? (16 * other + i) % 251 + 1 : 0;
      wrong += load_shared<unsigned char>(16 * other + i) != want;
    }
    answers[me] = wrong;
  };
  ASSERT_EQ(run(kernel), "");
  for (int i = 0; i < 64; ++i) EXPECT_EQ(answers[i], 0) << i;
}

// --- meetings ---

TEST(JitHostMistakes, LanesMeetInDifferentPlaces) {
  expect_mistake(
      [](void**) {
        if (lane_index() < 7) {
          ballot(true);
        } else {
          any_in_warp(true);
        }
      },
      {"ballot at mistakes_test.cpp:", "any_in_warp at mistakes_test.cpp:"});
  expect_mistake(
      [](void**) {
        if (lane_index() < 7) {
          sync_warp();
        } else {
          sync_warp();
        }
      },
      {"comes to sync_warp", "waits in sync_warp"});
  expect_mistake(
      [](void**) {
        if (thread_index() < 32) {
          sync_block();
        } else {
          any_in_block(true);
        }
      },
      {"sync_block", "any_in_block"});
}

TEST(JitHostMistakes, ALaneThatIsMissing) {
  expect_mistake(
      [](void**) {
        if (lane_index() == 5) return;
        sync_warp();
      },
      {"sync_warp", "thread", "has ended"});
  expect_mistake(
      [](void**) {
        if (lane_index() == 5) {
          sync_block();
        } else {
          sync_warp();
        }
      },
      {"wait for each other", "in sync_warp", "in sync_block"});
  expect_mistake(
      [](void**) {
        if (thread_index() < 32) return;
        sync_block();
      },
      {"wait for each other", "from thread 0 on: ended", "from thread 32 on: in sync_block"});
}

TEST(JitHostMistakes, BadLaunchesAreSaid) {
  const auto nothing = [](void**) {};
  EXPECT_NE(run(nothing, {1, 1, 1, 33, 0}), "");
  EXPECT_NE(run(nothing, {1, 1, 1, 2048, 0}), "");
  EXPECT_EQ(run(nothing, {3, 2, 2, 1024, 232448}), "");
}

}  // namespace
}  // namespace fovea::device
